"""One vector for each token of a text, as ColBERT compares them."""
import numpy as np

from .. import _options
from .._errors import InputError, UsageError
from . import _folder
from ._vectors import BATCH_TOKENS, Prompts


class _Query:
    """A row of tokens, some of which only fill it: their vectors count, and other tokens may not see them."""

    def __init__(self, row, ids, filled):
        self.ids, self.filled = ids, filled
        self.type_ids = list(row.type_ids) + [0] * filled


class _Scored:
    """Which tokens count, of the folder's MultiVectorMask: all but those of some words, in texts of some tasks."""

    def __init__(self, folder, tokenizer):
        modules = [m for m in _folder.read_list(folder, "modules.json") if m.get("type", "").endswith(".MultiVectorMask")]
        settings = _folder.read(folder, f"{modules[0].get('path')}/config.json") if modules else {}
        words, tasks = settings.get("skiplist_words") or [], settings.get("skiplist_tasks") or ["document"]
        unknown = getattr(tokenizer.model, "unk_token", None)
        found = {tokenizer.token_to_id(word) for word in words}
        self.skipped = np.array(sorted(found - {None} - {tokenizer.token_to_id(unknown) if unknown and unknown not in words else None}), np.int64)
        self.tasks = [tasks] if isinstance(tasks, str) else tasks
        self.counts_fillers = bool(modules)

    def __call__(self, ids, filled, attends, task):
        kept = np.ones(len(ids), bool)
        if filled and not (self.counts_fillers or attends):
            kept[len(ids) - filled:] = False
        return kept & ~np.isin(ids, self.skipped) if (task or "document") in self.tasks else kept


class MultiVectorEmbedder(Prompts):
    """Vectors of the tokens of texts, and how alike texts are by them, as sentence-transformers' MultiVectorEncoder gives
    them; the vectors of a text do not depend on which other texts are computed with it."""

    def __init__(self, model, *, folder=None, max_length=None, batch_tokens=BATCH_TOKENS, truncate=True, **options):
        """model: a checkpoint's folder (options are those of from_pretrained), or a Model and its folder.

        max_length: tokens of a text; None: what the folder says, for queries and documents apart. truncate: what
        encode() does where it is not told.
        """
        self.truncate = _options.flag("truncate", True if truncate is None else truncate)
        self.batch_tokens = _folder.whole(batch_tokens, "batch_tokens") or BATCH_TOKENS
        max_length = _folder.whole(max_length, "max_length")
        self.model, self.folder, self._cutter, self._kinds = _folder.open_encoder(
            model, folder, options, (lambda name: name == "token_embeddings", "does not give a vector for each token; "
                                     "tfmc.text.Embedder takes what gives one for a text"), rank=3)
        self.tokenizer = self._cutter.tokenizer
        self.dimension = next(iter(self.model.outputs.values())).shape[2]
        settings = _folder.text_settings(self.folder)
        most, positions = _folder.most_tokens(self.folder), _folder.positions(self.folder)
        lengths = {"query": settings.get("query_length"), "document": settings.get("document_length")}
        self._lengths = {task: max_length or (min(n, positions or n) if n else most) for task, n in lengths.items()}
        self.max_length = most if max_length is None else max_length
        self._expansion = self._read_expansion(settings.get("query_expansion"))
        self._scored = _Scored(self.folder, self.tokenizer)
        self._read_prompts({"query": "", "document": ""})

    def _read_expansion(self, settings):
        """(tokens of a query at least, at most or None, the token that fills it, whether others see it), or None."""
        if settings is None:
            return None
        length, strategy = settings.get("length"), settings.get("strategy")
        if set(settings) - {"strategy", "attend", "token", "length"} or strategy not in ("fixed", "min") or not (
                isinstance(length, int) and length > 0):
            raise InputError(f"{self.folder}: \"query_expansion\" is {settings}; a strategy fixed or min, a length, a token "
                             "and attend are known")
        names = [settings.get("token")] if settings.get("token") else [
            _folder.special_token(self.folder, name) for name in ("mask_token", "eos_token")]
        ids = [self.tokenizer.token_to_id(name) for name in names if name is not None]
        if not ids or ids[0] is None:
            raise InputError(f"{self.folder}: the token that fills queries, {names[0]}, is not known to its tokenizer")
        return length, length if strategy == "fixed" else None, ids[0], settings.get("attend", False) is True

    def _rows(self, texts, task, truncate):
        truncate = self.truncate if truncate is None else truncate
        longest = self._lengths.get(task, self.max_length)
        if task != "query" or self._expansion is None:
            return self._cutter.encode(texts, truncate, longest)
        least, most, token, _ = self._expansion
        rows = self._cutter.encode(texts, truncate, most or max(longest, least))
        fill = [max(0, least - len(row.ids)) for row in rows]
        return [_Query(row, list(row.ids) + [token] * n, n) for row, n in zip(rows, fill)]

    def encode(self, sentences, prompt_name=None, prompt=None, batch_size=None, show_progress_bar=None, *, task=None,
               normalize=None, normalize_embeddings=None, truncate=None):
        """A list of f32 [tokens, dimension], one for each text; the array itself for one text that is no list.

        task: "query" or "document", as encode_query and encode_document set it; None counts as a document, of any
        length. batch_size and show_progress_bar are taken and change nothing.
        """
        if task not in (None, "query", "document"):
            raise UsageError(f"task= is \"query\" or \"document\", not {task!r}")
        _folder.check_call(batch_size, show_progress_bar, normalize=normalize, normalize_embeddings=normalize_embeddings,
                           truncate=truncate)
        texts, alone = _folder.as_texts(sentences)
        before = self._prompt(prompt, prompt_name)
        rows = self._rows([before + text for text in texts] if before else texts, task, truncate)
        attends = self._expansion is not None and self._expansion[3]
        vectors = [None] * len(rows)

        def compute(model, run):
            inputs = _folder.inputs_of(self.model.inputs, rows, run, self._kinds)
            for place, i in enumerate(run):
                filled = getattr(rows[i], "filled", 0)
                if filled and not attends:
                    inputs["attention_mask"][place, len(rows[i].ids) - filled:len(rows[i].ids)] = 0
            for states, i in zip(model(**inputs), run):
                filled, ids = getattr(rows[i], "filled", 0), np.asarray(rows[i].ids, np.int64)
                vectors[i] = states[:len(ids)][self._scored(ids, filled, attends, task)]
        _folder.each_run(self.model, [row.ids for row in rows], self.batch_tokens, compute)
        if normalize or normalize_embeddings:
            vectors = [v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in vectors]
        return vectors[0] if alone else vectors

    def encode_query(self, sentences, prompt_name=None, prompt=None, *args, **options):
        """encode() of questions: with the folder's prompt "query", unless a prompt is given, and filled up if it says so."""
        return self.encode(sentences, "query" if prompt_name is None and prompt is None else prompt_name, prompt, *args,
                           task="query", **options)

    def encode_document(self, sentences, prompt_name=None, prompt=None, *args, **options):
        """encode() of what is searched: with the folder's prompt "document", "passage" or "corpus", the first that it
        has, unless a prompt is given."""
        if prompt_name is None and prompt is None:
            prompt_name = next(name for name in ("document", "passage", "corpus") if name in self.prompts)
        return self.encode(sentences, prompt_name, prompt, *args, task="document", **options)

    def similarity(self, queries, documents):
        """f32 [queries, documents]: the sum over a query's tokens of the greatest product with one of the document."""
        queries, documents = ([x] if isinstance(x, np.ndarray) and x.ndim == 2 else list(x) for x in (queries, documents))
        scores = np.zeros((len(queries), len(documents)), np.float32)
        for i, query in enumerate(queries):
            for j, document in enumerate(documents):
                if len(query) and len(document):
                    scores[i, j] = (query @ document.T).max(axis=1).sum()
        return scores
