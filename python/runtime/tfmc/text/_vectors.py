"""Vectors of texts, and scores of pairs of texts."""
import numpy as np

from .._errors import InputError, UsageError
from . import _folder

BATCH_TOKENS = 512  # that one run takes together: enough for a thread, and what it writes stays in its cache


class Embedder:
    """Vectors of texts. encode() takes what SentenceTransformer.encode takes, and its vectors do not depend on which
    other texts are computed with them."""

    def __init__(self, model, *, folder=None, max_length=None, batch_tokens=BATCH_TOKENS, **options):
        """model: a checkpoint's folder (options are those of from_pretrained), or a Model and its folder.

        max_length: tokens of a text; None: what the folder says. batch_tokens: how many tokens a run takes together.
        """
        self.model, self.folder = _folder.open_model(model, folder, options)
        self.tokenizer = _folder.load_tokenizer(self.folder)
        self._cutter = _folder.Cutter(self.tokenizer)
        shapes = [kind.shape for kind in self.model.outputs.values()]
        if set(self.model.inputs) != {"input_ids", "attention_mask"} or len(shapes) != 1 or len(shapes[0]) != 2:
            raise InputError(f"{self.folder}: {self.model!r} does not give one vector a text from input_ids and "
                             "attention_mask; task=\"embed\" makes a sentence encoder of a checkpoint")
        self.dimension = shapes[0][1]
        self.max_length = _folder.most_tokens(self.folder) if max_length is None else max_length
        self.batch_tokens = batch_tokens
        settings = _folder.read(self.folder, "config_sentence_transformers.json")
        self.prompts, self.default_prompt = settings.get("prompts") or {}, settings.get("default_prompt_name")

    def _prompt(self, prompt, name):
        if prompt is not None:
            return prompt
        name = self.default_prompt if name is None else name
        if name is not None and name not in self.prompts:
            raise UsageError(f"there is no prompt \"{name}\"; the folder has {', '.join(self.prompts) or 'none'}")
        return self.prompts[name] if name is not None else ""

    def tokens(self, texts, *, truncate=True):
        """The ids of each text, special tokens included, at most max_length; the last of them are kept when cut."""
        return [encoded.ids for encoded in self._cutter.encode(texts, truncate, self.max_length)]

    def _vectors(self, rows, normalize):
        vectors = np.empty((len(rows), self.dimension), np.float32)

        def compute(model, run):
            ids, mask = _folder.padded([rows[i] for i in run])
            vectors[run] = model(input_ids=ids, attention_mask=mask)
        _folder.each_run(self.model, rows, self.batch_tokens, compute)
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def encode_each(self, texts, *, prompt=None, prompt_name=None, truncate=True, normalize=None):
        """For a corpus: (vectors, {number of a text: why it has none}, tokens), no text being a reason to stop."""
        before = self._prompt(prompt, prompt_name)
        texts = [before + text for text in texts] if before else texts
        encode = self._cutter.encode if truncate else lambda texts, *_: self.tokenizer.encode_batch_fast(texts)
        encoded = encode(texts, truncate, self.max_length)
        rows = [row.ids for row in encoded]
        reasons = {i: f"the text has {len(row)} tokens, and the model takes {self.max_length}"
                   for i, row in enumerate(rows) if len(row) > self.max_length}
        vectors = self._vectors([[] if i in reasons else row for i, row in enumerate(rows)], normalize)
        for i in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
            reasons.setdefault(i, "the vector is not finite")
        return vectors, reasons, sum(len(row) for i, row in enumerate(rows) if i not in reasons)

    def encode(self, sentences, prompt_name=None, prompt=None, batch_size=None, show_progress_bar=None, *,
               normalize=None, normalize_embeddings=None, truncate=True, convert_to_numpy=True,
               convert_to_tensor=False):
        """f32 [texts, dimension]; [dimension] for one text that is no list.

        normalize (or normalize_embeddings): makes vectors of length 1 that the model itself leaves as they are.
        batch_size and show_progress_bar are taken and change nothing: runs are cut by tokens.
        """
        texts, alone = _folder.as_texts(sentences)
        before = self._prompt(prompt, prompt_name)
        rows = self.tokens([before + text for text in texts] if before else texts, truncate=truncate)
        vectors = self._vectors(rows, normalize or normalize_embeddings)
        result = vectors[0] if alone else vectors
        if convert_to_tensor:
            import torch
            return torch.from_numpy(result)
        return result if convert_to_numpy else list(result)

    __call__ = encode


def _sigmoid(x):
    return np.tanh(x / 2) / 2 + 0.5  # nothing overflows here


def _softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def _identity(x):
    return x


ACTIVATIONS = {"Sigmoid": _sigmoid, "Identity": _identity, "Tanh": np.tanh, "Softmax": _softmax}  # classes of torch.nn


class Reranker:
    """Scores of pairs of texts, as sentence-transformers' CrossEncoder gives them; the score of a pair does not depend
    on the others."""

    def __init__(self, model, *, folder=None, max_length=None, batch_tokens=BATCH_TOKENS, activation_fn=None,
                 **options):
        """model: a folder with a model that classifies sequences (options are those of from_pretrained), or a Model and
        its folder.

        max_length: tokens of a pair; None: what the folder says. activation_fn: what makes scores of logits, a function
        of an array; None: what the folder says, else the sigmoid for one label and nothing for several.
        """
        self.model, self.folder = _folder.open_model(model, folder, options)
        self.tokenizer = _folder.load_tokenizer(self.folder)
        self._cutter = _folder.Cutter(self.tokenizer)
        shapes = [kind.shape for kind in self.model.outputs.values()]
        if set(self.model.inputs) != {"input_ids", "attention_mask"} or len(shapes) != 1 or len(shapes[0]) != 2:
            raise InputError(f"{self.folder}: {self.model!r} does not give one row of scores a text from input_ids and "
                             "attention_mask; task=\"classify\" makes one of a checkpoint that has the head for it")
        self.num_labels = shapes[0][1]
        self.max_length = _folder.most_tokens(self.folder) if max_length is None else max_length
        self.batch_tokens = batch_tokens
        self.activation_fn = self._activation() if activation_fn is None else activation_fn
        self._has_segments = self._segments()

    def _activation(self):
        """What the folder's files name, under the keys of several versions of sentence-transformers."""
        config = _folder.read(self.folder, "config.json")
        name = (_folder.read(self.folder, "config_sentence_transformers.json").get("activation_fn")
                or (config.get("sentence_transformers") or {}).get("activation_fn")
                or config.get("sbert_ce_default_activation_function"))
        if name is None:
            return _sigmoid if self.num_labels == 1 else _identity
        if name.rpartition(".")[2] not in ACTIVATIONS:
            raise InputError(f"{self.folder}: the activation {name} is none of {', '.join(ACTIVATIONS)}; give "
                             "activation_fn=, a function of an array")
        return ACTIVATIONS[name.rpartition(".")[2]]

    def _segments(self):
        """Whether the model is told which text a token is of: models/bert.tfm says so by a mask of 2."""
        config, settings = _folder.read(self.folder, "config.json"), _folder.read(self.folder, "tokenizer_config.json")
        if config.get("model_type") not in ("bert", "electra") or config.get("type_vocab_size", 2) < 2:
            return False
        kind, names = settings.get("tokenizer_class") or "Bert", settings.get("model_input_names")
        return kind.startswith(("Bert", "Electra")) if names is None else "token_type_ids" in names

    def _logits(self, pairs, truncate):
        encoded = self._cutter.encode(pairs, truncate, self.max_length)
        rows = [row.ids for row in encoded]
        logits = np.empty((len(rows), self.num_labels), np.float32)

        def compute(model, run):
            masks = [np.add(encoded[i].type_ids, 1) for i in run] if self._has_segments else None
            ids, mask = _folder.padded([rows[i] for i in run], masks)
            logits[run] = model(input_ids=ids, attention_mask=mask)
        _folder.each_run(self.model, rows, self.batch_tokens, compute)
        return logits

    def predict(self, sentences, batch_size=None, show_progress_bar=None, activation_fn=None, apply_softmax=False,
                convert_to_numpy=True, convert_to_tensor=False, *, truncate=True):
        """f32 [pairs] for a model with one label, else [pairs, labels]; without the first axis for one pair alone.

        sentences: pairs of texts. truncate: the longer text of a pair that is too long loses its last tokens.
        batch_size and show_progress_bar are taken and change nothing.
        """
        given = sentences if isinstance(sentences, (list, tuple)) else list(sentences)
        alone = len(given) == 2 and all(isinstance(text, str) for text in given)
        pairs = [tuple(given)] if alone else [_pair(i, pair) for i, pair in enumerate(given)]
        scores = (self.activation_fn if activation_fn is None else activation_fn)(self._logits(pairs, truncate))
        if apply_softmax and self.num_labels > 1:
            scores = _softmax(scores)
        scores = np.asarray(scores, np.float32)
        scores = scores[:, 0] if self.num_labels == 1 else scores
        result = scores[0] if alone else scores
        if convert_to_tensor:
            import torch
            return torch.from_numpy(np.array(result))
        return result if convert_to_numpy else list(result)

    __call__ = predict

    def rank(self, query, documents, top_k=None, return_documents=False, batch_size=None, show_progress_bar=None,
             activation_fn=None, *, truncate=True):
        """The documents by their scores with the query, the best first: dicts of corpus_id, score and, if wanted, text.
        """
        if self.num_labels != 1:
            raise UsageError(f"the model has {self.num_labels} labels, and documents are ranked by one; use predict")
        documents = list(documents)
        scores = self.predict([(query, text) for text in documents], activation_fn=activation_fn, truncate=truncate)
        order = np.argsort(-scores, kind="stable")[:top_k].tolist() if documents else []
        return [{"corpus_id": i, "score": float(scores[i]), **({"text": documents[i]} if return_documents else {})}
                for i in order]


def _pair(number, pair):
    texts = tuple(pair) if isinstance(pair, (list, tuple)) else (pair,)
    if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"pair {number} is no pair of texts: {pair!r:.60}")
    return texts
