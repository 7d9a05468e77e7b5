"""Vectors of texts, and scores of pairs of texts."""
import numpy as np

from .. import _options
from .._errors import InputError, UsageError
from . import _chat, _folder

BATCH_TOKENS = 512  # that one run takes together: enough for a thread, and what it writes stays in its cache


class _NoTokens:
    """In place of the tokens of a text that is too long."""
    ids = type_ids = ()


class _Row:
    """Tokens that no tokenizer made at once."""

    def __init__(self, ids):
        self.ids, self.type_ids = ids, [0] * len(ids)


class Prompts:
    """What stands before texts: the prompts of a folder's config_sentence_transformers.json."""

    def _read_prompts(self, named):
        settings = _folder.read(self.folder, "config_sentence_transformers.json") if _folder.is_whole(self.folder) else {}
        self.prompts = {**named, **(settings.get("prompts") or {})}
        self.prompts = {name: prompt or "" for name, prompt in self.prompts.items()}
        self.default_prompt = settings.get("default_prompt_name")

    def _prompt(self, prompt, name):
        if prompt is None:
            name = self.default_prompt if name is None else name
            if name is not None and not (isinstance(name, str) and name in self.prompts):
                raise UsageError(f"there is no prompt \"{name}\"; the folder has {', '.join(self.prompts) or 'none'}")
            prompt = self.prompts[name] if name is not None else ""
        _folder.check_text(prompt, "the prompt")
        return prompt


class Embedder(Prompts):
    """Vectors of texts. encode() takes what SentenceTransformer.encode takes, and its vectors do not depend on which
    other texts are computed with them."""

    def __init__(self, model, *, folder=None, max_length=None, batch_tokens=BATCH_TOKENS, truncate=True,
                 truncate_dim=None, **options):
        """model: a checkpoint's folder (options are those of from_pretrained), or a Model and its folder.

        max_length: tokens of a text; None: what the folder says. batch_tokens: how many tokens a run takes together.
        truncate, truncate_dim: what encode() does where it is not told.
        """
        self.truncate = _options.flag("truncate", True if truncate is None else truncate)
        self.truncate_dim = _folder.whole(truncate_dim, "truncate_dim")
        self.model, self.folder, self._cutter, self._kinds = _folder.open_encoder(
            model, folder, options, (lambda name: name != "logits", "does not give one vector a text from input_ids and "
                                     "attention_mask; task=\"embed\" makes a sentence encoder of a checkpoint"))
        self.tokenizer = self._cutter.tokenizer
        self.dimension = next(iter(self.model.outputs.values())).shape[1]
        self.max_length = _folder.whole(max_length, "max_length") or _folder.most_tokens(self.folder)
        self.batch_tokens = _folder.whole(batch_tokens, "batch_tokens") or BATCH_TOKENS
        cut = _folder.is_whole(self.folder) and _folder.read(self.folder, "config_sentence_transformers.json").get("truncate_dim")
        self._cut = isinstance(cut, int) and cut <= self.dimension
        self._dimension(self.truncate_dim)
        self._read_prompts({"query": "", "document": ""})
        self._pools_prompts = self._pooling().get("include_prompt", True) is not False

    def _dimension(self, wanted):
        """What is asked for, unless the model itself cuts vectors to fewer numbers, as its folder says."""
        if self._cut and wanted and wanted > self.dimension:
            raise UsageError(f"truncate_dim: {wanted} numbers are asked for, and the folder cuts vectors to {self.dimension} "
                             "(truncate_dim in config_sentence_transformers.json)")
        return wanted

    def _pooling(self):
        for module in _folder.read_list(self.folder, "modules.json"):
            if module.get("type", "").endswith("Pooling"):
                return _folder.read(self.folder, f"{module.get('path')}/config.json")
        return {}

    def _unpooled(self, prompt):
        """How many tokens of a row are the prompt's and not pooled: as sentence-transformers counts them, without the
        special token at its end."""
        if not prompt or self._pools_prompts:
            return 0
        row = self.tokenizer.encode(prompt)
        special = {n for n, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}
        unpooled = len(row.ids) - (len(row.ids) > 0 and row.ids[-1] in special)
        if unpooled and not self._leaves_out(row):
            raise InputError(f"{self.folder}: \"include_prompt\" of its pooling is false, and the model pools tokens of "
                             "prompts all the same: it was made of another folder")
        return unpooled

    def _leaves_out(self, row):
        """Whether the model pools no tokens that are 2 in its mask; of the last token it cannot be seen."""
        inputs = _folder.inputs_of(self.model.inputs, [row], [0], self._kinds)
        whole = self.model(**inputs)
        inputs["attention_mask"][:, 0] = 2
        modes = self._pooling().get("pooling_mode")
        return modes == "lasttoken" or self._pooling().get("pooling_mode_lasttoken") or not np.array_equal(
            self.model(**inputs), whole)

    def _encoded(self, texts, truncate):
        return self._cutter.encode(texts, self.truncate if truncate is None else truncate, self.max_length)

    def tokens(self, texts, *, truncate=None):
        """The ids of each text, special tokens included, at most max_length; the last of them are kept when cut."""
        return [encoded.ids for encoded in self._encoded(_folder.as_texts(texts)[0], truncate)]

    def _vectors(self, encoded, normalize, dimension=None, prompt=""):
        vectors = np.empty((len(encoded), self.dimension), np.float32)
        unpooled = self._unpooled(prompt)

        def compute(model, run):
            inputs = _folder.inputs_of(self.model.inputs, encoded, run, self._kinds)
            if unpooled:
                inputs["attention_mask"][:, :unpooled] *= 2  # seen, but not pooled
            vectors[run] = model(**inputs)
        _folder.each_run(self.model, [row.ids for row in encoded], self.batch_tokens, compute)
        if dimension is not None:
            vectors = np.ascontiguousarray(vectors[:, :dimension])
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def encode_each(self, texts, *, prompt=None, prompt_name=None, truncate=True, normalize=None):
        """For a corpus: (vectors, {number of a text: why it has none}, tokens), no text being a reason to stop."""
        before = self._prompt(prompt, prompt_name)
        texts, faults = _folder.without_faults(texts)
        texts = [before + text for text in texts] if before else texts
        encode = self._cutter.encode if truncate else lambda texts, *_: self._cutter.whole(texts)
        encoded = encode(texts, truncate, self.max_length)
        rows = [row.ids for row in encoded]
        reasons = {i: f"the text has {len(row)} tokens, and the model takes {self.max_length}"
                   for i, row in enumerate(rows) if len(row) > self.max_length}
        reasons.update(faults)
        vectors = self._vectors([_NoTokens if i in reasons else row for i, row in enumerate(encoded)], normalize,
                                prompt=before)
        for i in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
            reasons.setdefault(i, "the vector is not finite")
        return vectors, reasons, sum(len(row) for i, row in enumerate(rows) if i not in reasons)

    def encode(self, sentences, prompt_name=None, prompt=None, batch_size=None, show_progress_bar=None, *,
               normalize=None, normalize_embeddings=None, truncate=None, truncate_dim=None, convert_to_numpy=True,
               convert_to_tensor=False):
        """f32 [texts, dimension]; [dimension] for one text that is no list.

        truncate: texts that are too long are cut, else refused. truncate_dim: the first numbers of each vector only.
        normalize (or normalize_embeddings): makes vectors of length 1, after they were cut, that the model itself leaves
        as they are. batch_size and show_progress_bar are taken and change nothing: runs are cut by tokens.
        """
        _folder.check_call(batch_size, show_progress_bar, normalize=normalize, normalize_embeddings=normalize_embeddings,
                           truncate=truncate, convert_to_numpy=convert_to_numpy, convert_to_tensor=convert_to_tensor)
        texts, alone = _folder.as_texts(sentences)
        before = self._prompt(prompt, prompt_name)
        dimension = self.truncate_dim if truncate_dim is None else self._dimension(_folder.whole(truncate_dim, "truncate_dim"))
        encoded = self._encoded([before + text for text in texts] if before else texts, truncate)
        vectors = self._vectors(encoded, normalize or normalize_embeddings, dimension, before)
        result = vectors[0] if alone else vectors
        if convert_to_tensor:
            import torch
            return torch.from_numpy(result)
        return result if convert_to_numpy else list(result)

    def encode_query(self, sentences, prompt_name=None, prompt=None, *args, **options):
        """encode() of questions: with the folder's prompt "query", unless a prompt is given."""
        return self.encode(sentences, "query" if prompt_name is None and prompt is None else prompt_name, prompt, *args,
                           **options)

    def encode_document(self, sentences, prompt_name=None, prompt=None, *args, **options):
        """encode() of what is searched: with the folder's prompt "document", "passage" or "corpus", the first that it
        has, unless a prompt is given."""
        if prompt_name is None and prompt is None:
            prompt_name = next(name for name in ("document", "passage", "corpus") if name in self.prompts)
        return self.encode(sentences, prompt_name, prompt, *args, **options)

    __call__ = encode


def _sigmoid(x):
    return np.tanh(x / 2) / 2 + 0.5  # nothing overflows here


def _softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def _identity(x):
    return x


ACTIVATIONS = {"Sigmoid": _sigmoid, "Identity": _identity, "Tanh": np.tanh, "Softmax": _softmax}  # classes of torch.nn


class Reranker(Prompts):
    """Scores of pairs of texts, as sentence-transformers' CrossEncoder gives them; the score of a pair does not depend
    on the others."""

    def __init__(self, model, *, folder=None, max_length=None, batch_tokens=BATCH_TOKENS, activation_fn=None,
                 truncate=True, **options):
        """model: a folder with a model that classifies sequences (options are those of from_pretrained), or a Model and
        its folder.

        max_length: tokens of a pair; None: what the folder says. activation_fn: what makes scores of logits, a function
        of an array; None: what the folder says, else the sigmoid for one label and nothing for several. truncate: what
        predict() and rank() do where they are not told.
        """
        self.truncate = _options.flag("truncate", True if truncate is None else truncate)
        _options.function("activation_fn", activation_fn)
        self.model, self.folder, self._cutter, self._kinds = _folder.open_encoder(
            model, folder, options, (lambda name: name == "logits", "does not give one row of logits a text from "
                                     "input_ids and attention_mask; task=\"classify\" makes a model that does of a "
                                     "checkpoint that has the head for it"))
        self.tokenizer = self._cutter.tokenizer
        self.num_labels = next(iter(self.model.outputs.values())).shape[1]
        self.max_length = _folder.whole(max_length, "max_length") or _folder.most_tokens(self.folder)
        self.batch_tokens = _folder.whole(batch_tokens, "batch_tokens") or BATCH_TOKENS
        self.activation_fn = self._activation() if activation_fn is None else activation_fn
        self._read_prompts({})
        self._template = self._chat_template()

    def _chat_template(self):
        """The folder's chat template and its variables, if pairs are messages for it, as in a model that writes; None."""
        settings = _folder.text_settings(self.folder)
        if "message" not in (settings.get("modality_config") or {}):
            return None
        asked = ((settings.get("processing_kwargs") or {}).get("chat_template") or {}).get("add_generation_prompt", False)
        template = _chat.ChatTemplate(self.folder, self.tokenizer)
        return template, {"add_generation_prompt": asked} if template.takes("add_generation_prompt") else {}

    def _as_message_rows(self, pairs, prompt):
        """Rows of tokens of pairs as messages. They are not cut: what stands behind the texts would be lost."""
        template, variables = self._template
        rows = []
        for i, (query, document) in enumerate(pairs):
            messages = [{"role": "query", "content": query}, {"role": "document", "content": document}]
            if prompt:
                messages.insert(0, {"role": "system", "content": prompt})
            rows.append(_Row(template.tokens(messages, variables=variables)))
            if len(rows[-1].ids) > self.max_length:
                raise InputError(f"pair {i} has {len(rows[-1].ids)} tokens with its template, and the model takes "
                                 f"{self.max_length}; pairs of a chat template are not cut")
        return rows

    def _activation(self):
        """What the folder's files name, under the keys of several versions of sentence-transformers."""
        config, name = _folder.read(self.folder, "config.json"), "config_sentence_transformers.json"
        name = (_folder.is_whole(self.folder) and _folder.read(self.folder, name).get("activation_fn")
                or (config.get("sentence_transformers") or {}).get("activation_fn")
                or config.get("sbert_ce_default_activation_function"))
        if name is None:
            return _sigmoid if self.num_labels == 1 else _identity
        if not name.startswith("torch.") or name.rpartition(".")[2] not in ACTIVATIONS:  # other code may call itself so
            raise InputError(f"{self.folder}: the activation {name} is none of {', '.join(ACTIVATIONS)}; give "
                             "activation_fn=, a function of an array")
        return ACTIVATIONS[name.rpartition(".")[2]]

    def _logits(self, pairs, truncate, prompt):
        if self._template:
            encoded = self._as_message_rows(pairs, prompt)
        else:
            pairs = [(prompt + text, other) for text, other in pairs] if prompt else pairs
            encoded = self._cutter.encode(pairs, self.truncate if truncate is None else truncate, self.max_length)
        logits = np.empty((len(encoded), self.num_labels), np.float32)

        def compute(model, run):
            logits[run] = model(**_folder.inputs_of(self.model.inputs, encoded, run, self._kinds))
        _folder.each_run(self.model, [row.ids for row in encoded], self.batch_tokens, compute)
        return logits

    def predict(self, sentences, batch_size=None, show_progress_bar=None, activation_fn=None, apply_softmax=False,
                convert_to_numpy=True, convert_to_tensor=False, *, truncate=None, prompt=None, prompt_name=None):
        """f32 [pairs] for a model with one label, else [pairs, labels]; without the first axis for one pair alone.

        sentences: pairs of texts. truncate: the longer text of a pair that is too long loses its last tokens.
        prompt, prompt_name: stands before the first text of each pair, or is the message of the system for a model whose
        pairs are messages; None: what the folder says. batch_size and show_progress_bar are taken and change nothing.
        """
        _folder.check_call(batch_size, show_progress_bar, truncate=truncate, apply_softmax=apply_softmax,
                           convert_to_numpy=convert_to_numpy, convert_to_tensor=convert_to_tensor)
        _options.function("activation_fn", activation_fn)
        prompt = self._prompt(prompt, prompt_name)
        given = sentences if isinstance(sentences, (list, tuple)) else _folder.as_list(sentences, "pairs of texts")
        alone = len(given) == 2 and all(isinstance(text, str) for text in given)
        pairs = [_pair(i, pair) for i, pair in enumerate([given] if alone else given)]
        scores = (self.activation_fn if activation_fn is None else activation_fn)(self._logits(pairs, truncate, prompt))
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
             activation_fn=None, *, truncate=None, prompt=None, prompt_name=None):
        """The documents by their scores with the query, the best first: dicts of corpus_id, score and, if wanted, text.
        """
        _folder.check_call(batch_size, show_progress_bar, return_documents=return_documents)
        top_k = None if top_k is None else _options.whole("top_k", top_k, 0)
        if self.num_labels != 1:
            raise UsageError(f"the model has {self.num_labels} labels, and documents are ranked by one; use predict")
        documents = _folder.as_texts(documents, "document")[0]
        scores = self.predict([(query, text) for text in documents], activation_fn=activation_fn, truncate=truncate,
                              prompt=prompt, prompt_name=prompt_name)
        order = np.argsort(-scores, kind="stable")[:top_k].tolist() if documents else []
        return [{"corpus_id": i, "score": float(scores[i]), **({"text": documents[i]} if return_documents else {})}
                for i in order]


def _pair(number, pair):
    texts = tuple(pair) if isinstance(pair, (list, tuple)) else (pair,)
    if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"pair {number} is no pair of texts: {pair!r:.60}")
    for text in texts:
        _folder.check_text(text, f"a text of pair {number}")
    return texts
