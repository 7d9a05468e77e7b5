"""Texts in, vectors and texts out: a checkpoint's folder with its tokenizer. Needs the package tokenizers.

    embed = tfmc.text.Embedder("all-MiniLM-L6-v2")
    vectors = embed.encode(["a dog runs", "a puppy plays"])      # f32 [2, 384]

    writer = tfmc.text.Writer("smollm2-135m")
    for piece in writer.stream("Once upon a time", max_new_tokens=40):
        print(piece, end="", flush=True)

Refused, with a message that names the file or the text: folders without tokenizer.json, models that do not give one
vector a text or do not write, texts that are too long where they may not be cut, what is no text.
"""
import json
import os
import pathlib

import numpy as np

from ._commands import from_pretrained
from ._errors import EnvError, InputError, UsageError
from ._model import Model

BATCH_TOKENS = 512  # that one run takes together: enough for all threads, and what they write stays in their caches
UNLIMITED = 10 ** 6  # what tokenizers say is beyond this where they know no limit


def load_tokenizer(folder):
    """The tokenizers.Tokenizer of a folder's tokenizer.json, which neither cuts nor pads."""
    try:
        import tokenizers
    except ImportError:
        raise EnvError("texts need the package tokenizers: pip install tokenizers") from None
    path = pathlib.Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise EnvError(f"{path}: there is no such file; tokenizer.save_pretrained writes it, in transformers, for "
                       "tokenizers that are fast")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(os.fspath(path))
    except Exception as error:  # the package raises plain exceptions
        raise InputError(f"{path}: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _read(folder, name):
    """The object in a JSON file of the folder; {} if there is no such file."""
    path = pathlib.Path(folder) / name
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: an object is expected")
    return content


def _open(model, folder, options):
    """(model, folder) of what the classes here are made from: a folder, or a model with its folder."""
    if not isinstance(model, Model):
        folder = pathlib.Path(model if folder is None else folder)
        return from_pretrained(model, **options), folder
    folder = folder or getattr(model, "folder", None)
    if folder is None:
        raise UsageError("the model does not know its checkpoint: give folder=, where tokenizer.json is")
    if options:
        raise UsageError(f"{next(iter(options))}= is for models that are compiled here")
    return model, pathlib.Path(folder)


def _texts(texts):
    """The texts as a list; whether there was one alone, without a list."""
    alone = isinstance(texts, str)
    texts = [texts] if alone else list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise UsageError(f"text {i} is a {type(text).__name__}, not a str")
    return texts, alone


class Embedder:
    """Vectors of texts. encode() takes what SentenceTransformer.encode takes, and its vectors do not depend on which
    other texts are computed with them."""

    def __init__(self, model, *, folder=None, max_length=None, batch_tokens=BATCH_TOKENS, **options):
        """model: a checkpoint's folder (options are those of from_pretrained), or a Model and its folder.

        max_length: tokens of a text; None: what the folder says. batch_tokens: how many tokens a run takes together.
        """
        self.model, self.folder = _open(model, folder, options)
        self.tokenizer = load_tokenizer(self.folder)
        shapes = [kind.shape for kind in self.model.outputs.values()]
        if set(self.model.inputs) != {"input_ids", "attention_mask"} or len(shapes) != 1 or len(shapes[0]) != 2:
            raise InputError(f"{self.folder}: {self.model!r} does not give one vector a text from input_ids and "
                             "attention_mask; task=\"embed\" makes a sentence encoder of a checkpoint")
        self.dimension = shapes[0][1]
        self.max_length = self._limit() if max_length is None else max_length
        self.batch_tokens = batch_tokens
        settings = _read(self.folder, "config_sentence_transformers.json")
        self.prompts, self.default_prompt = settings.get("prompts") or {}, settings.get("default_prompt_name")

    def _limit(self):
        """The least of the limits that the folder's files name."""
        limits = [_read(self.folder, "sentence_bert_config.json").get("max_seq_length"),
                  _read(self.folder, "tokenizer_config.json").get("model_max_length")]
        config = _read(self.folder, "config.json")
        positions = config.get("max_position_embeddings")
        if isinstance(positions, int):  # RoBERTa's positions begin behind that of padding
            is_roberta = "roberta" in config.get("model_type", "")
            limits.append(positions - (config.get("pad_token_id", 1) + 1 if is_roberta else 0))
        limits = [int(n) for n in limits if isinstance(n, (int, float)) and 0 < n < UNLIMITED]
        return min(limits, default=512)

    def _prompt(self, prompt, name):
        if prompt is not None:
            return prompt
        name = self.default_prompt if name is None else name
        if name is not None and name not in self.prompts:
            raise UsageError(f"there is no prompt \"{name}\"; the folder has {', '.join(self.prompts) or 'none'}")
        return self.prompts[name] if name is not None else ""

    def tokens(self, texts, *, truncate=True):
        """The ids of each text, special tokens included, at most max_length; the last of them are kept when cut."""
        import tokenizers
        tokenizer = tokenizers.Tokenizer.from_str(self.tokenizer.to_str()) if truncate else self.tokenizer
        if truncate:
            tokenizer.enable_truncation(self.max_length)
        rows = [encoded.ids for encoded in tokenizer.encode_batch_fast(texts)]
        for i, row in enumerate(rows):
            if len(row) > self.max_length:
                raise InputError(f"text {i} has {len(row)} tokens, and the model takes {self.max_length}; "
                                 "truncate=True cuts it")
        return rows

    def _runs(self, rows):
        """Numbers of rows, those of like length together, as many as batch_tokens allows."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        run, tokens = [], 0
        for i in order:
            if run and tokens + len(rows[i]) > self.batch_tokens:
                yield run
                run, tokens = [], 0
            run.append(i)
            tokens += len(rows[i])
        if run:
            yield run

    def encode(self, sentences, prompt_name=None, prompt=None, batch_size=None, show_progress_bar=None, *,
               normalize=None, normalize_embeddings=None, truncate=True, convert_to_numpy=True,
               convert_to_tensor=False):
        """f32 [texts, dimension]; [dimension] for one text that is no list.

        normalize (or normalize_embeddings): makes vectors of length 1 that the model itself leaves as they are.
        batch_size and show_progress_bar are taken and change nothing: runs are cut by tokens.
        """
        texts, alone = _texts(sentences)
        before = self._prompt(prompt, prompt_name)
        rows = self.tokens([before + text for text in texts] if before else texts, truncate=truncate)
        vectors = np.empty((len(rows), self.dimension), np.float32)
        for run in self._runs(rows):
            ids = np.zeros((len(run), max(1, max(len(rows[i]) for i in run))), np.int32)
            mask = np.zeros_like(ids)
            for place, i in enumerate(run):
                ids[place, :len(rows[i])] = rows[i]
                mask[place, :len(rows[i])] = 1
            vectors[run] = self.model(input_ids=ids, attention_mask=mask)
        if normalize or normalize_embeddings:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        result = vectors[0] if alone else vectors
        if convert_to_tensor:
            import torch
            return torch.from_numpy(result)
        return result if convert_to_numpy else list(result)

    __call__ = encode


class Writer:
    """Continues texts with a language model that has one input, its tokens."""

    def __init__(self, model, *, folder=None, **options):
        """model: a checkpoint's folder (options are those of from_pretrained), or a Model and its folder."""
        self.model, self.folder = _open(model, folder, options)
        self.tokenizer = load_tokenizer(self.folder)
        if self.model.generation is None or len(self.model.inputs) != 1:
            raise InputError(f"{self.folder}: {self.model!r} does not continue rows of tokens")

    def _given(self, texts, options):
        """(rows of ids, options of Model.generate)"""
        if "config" not in options and (self.folder / "generation_config.json").is_file():
            options = {"config": self.folder, **options}
        rows = [encoded.ids for encoded in self.tokenizer.encode_batch_fast(texts)]
        for i, row in enumerate(rows):
            if not row:
                raise InputError(f"text {i} has no tokens: there is nothing to continue")
        return rows, options

    def generate(self, texts, **options):
        """What follows each text, a str each; a str alone for one text that is no list. Options: Model.generate."""
        texts, alone = _texts(texts)
        rows, options = self._given(texts, options)
        written = self.model.generate(rows, **options)
        if len(written) != len(rows):
            raise UsageError("generate gives one text for each; num_return_sequences is for Model.generate")
        made = [self.tokenizer.decode(row[len(given):].tolist()) for row, given in zip(written, rows)]
        return made[0] if alone else made

    def stream(self, text, **options):
        """An iterator of the pieces of what follows one text; a character comes when all its bytes are there."""
        from tokenizers.decoders import DecodeStream
        rows, options = self._given(_texts([text])[0], options)
        decode = DecodeStream(skip_special_tokens=True)
        with self.model.stream(rows, **options) as tokens:
            for token in tokens:
                piece = decode.step(self.tokenizer, int(token.token))
                if piece:
                    yield piece
