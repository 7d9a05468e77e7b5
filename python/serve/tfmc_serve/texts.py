"""The models that are served: a checkpoint's folder, its tokenizer, and rows of ids made of texts.

In: folders, and texts of requests. Out: rows for the batcher, and what its numbers mean. Refused: folders of a kind that
is not served, texts that are too long, ids that the model does not have, prompts that the folder lacks.
"""
from __future__ import annotations

import importlib
import json
import pathlib
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import tfmc
import tfmc.text
from numpy.typing import NDArray

from .errors import Fault

_folder: Any = importlib.import_module("tfmc.text._folder")  # runs and their inputs are made as tfmc.text makes them
Floats = NDArray[np.float32]

KINDS = ("embed", "classify", "rerank", "translate", "write")
COMPUTED = ("embed", "classify", "rerank")  # by the batcher
ROUTES = {"embed": "/embed", "rerank": "/rerank", "classify": "/predict", "write": "/v1/completions",
          "translate": "/translate"}
SURE = 64          # tokens beyond the cut that a prefix must have before its first tokens are those of the whole text
LONG = 16 * 1024   # characters from which on a text is not tokenized on the event loop
# pre-tokenizers after which no token has letters of two words, so that the tokens of a prefix that ends with a word are
# the first ones of the whole text
SPLIT = ("BertPreTokenizer", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit")


class TakesLong(Exception):
    """It is no work for the event loop."""


class Row:
    """The tokens of one text or pair. `key`: equal rows have the same."""
    __slots__ = ("ids", "type_ids", "_key")

    def __init__(self, ids: list[int], type_ids: list[int]) -> None:
        self.ids, self.type_ids, self._key = ids, type_ids, b""

    @property
    def key(self) -> bytes:
        self._key = self._key or np.array([self.ids, self.type_ids], np.int32).tobytes()
        return self._key


@dataclass(frozen=True)
class Place:
    """MODEL of the command line: [NAME:[KIND:]]FOLDER[=FILE.tfmm]"""
    name: str
    kind: str | None
    folder: pathlib.Path
    file: pathlib.Path | None


def read_place(text: str) -> Place:
    name, kind, rest = "", None, text
    parts = text.split(":")
    if len(parts) > 3:
        raise ValueError(f"{text}: a model is FOLDER, NAME:FOLDER or NAME:KIND:FOLDER")
    if len(parts) > 1:
        name, rest = parts[0], parts[-1]
        kind = parts[1] if len(parts) == 3 else None
    if kind is not None and kind not in KINDS:
        raise ValueError(f"{text}: the kind {kind} is none of {', '.join(KINDS)}")
    folder, _, file = rest.partition("=")
    path = pathlib.Path(folder)
    if not folder or (len(parts) > 1 and not name):
        raise ValueError(f"{text}: a model is FOLDER, NAME:FOLDER or NAME:KIND:FOLDER")
    return Place(name or path.resolve().name, kind, path, pathlib.Path(file) if file else None)


def opened(place: Place, pool: tfmc.Pool, **options: Any) -> tuple[Any, dict[str, Any]]:
    """What the classes of tfmc.text take: the compiled model, or the folder with the options that compile it."""
    if place.file is None:
        return place.folder, {"pool": pool, **options}
    if options.get("quantize"):
        raise ValueError(f"{place.file}: --quantize is for models that are compiled here")
    return tfmc.load(place.file, pool=pool), {}


def kind_of(folder: pathlib.Path) -> str:
    """What the files of a folder say."""
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder}: there is no config.json in it, or no such folder; nothing is fetched")
    config = _folder.read(folder, "config.json")
    heads = [name for name in config.get("architectures") or [] if isinstance(name, str)]
    classifies = any(name.endswith("ForSequenceClassification") for name in heads)
    embeds = any(str(module.get("type", "")).endswith("Pooling") for module in _folder.read_list(folder, "modules.json"))
    if classifies and embeds:
        raise ValueError(f"{folder}: it has a head that classifies and a pooling; say which by NAME:classify:FOLDER or "
                         "NAME:embed:FOLDER")
    if classifies or embeds:
        return "classify" if classifies else "embed"
    if any("ForCausalLM" in name or "LMHead" in name for name in heads):
        return "write"
    if any("ForConditionalGeneration" in name or name == "MarianMTModel" for name in heads):
        return "translate"
    raise ValueError(f"{folder}: it has neither a pooling (modules.json) nor a head that classifies; NAME:embed:FOLDER "
                     "makes a sentence encoder of it")


@dataclass
class Encoded:
    rows: list[Row]
    tokens: int     # of all rows
    truncated: int  # that were cut off


class Served:
    """One model: what it takes, and rows made of texts. Its methods may be called by any thread."""

    def __init__(self, place: Place, pool: tfmc.Pool, max_length: int | None, quantize: str | None) -> None:
        kind = place.kind or kind_of(place.folder)
        self.name, self.folder, self.quantize = place.name, place.folder, quantize
        source, options = opened(place, pool, quantize=quantize, task="embed" if kind == "embed" else "classify")
        make = tfmc.text.Embedder if kind == "embed" else tfmc.text.Reranker
        made: Any = make(source, folder=place.folder, max_length=max_length, **options)
        self.model: Any = made.model
        self.width: int = made.dimension if kind == "embed" else made.num_labels
        self.kind = "rerank" if kind != "embed" and self.width == 1 else "embed" if kind == "embed" else "classify"
        if place.kind == "rerank" and self.kind != "rerank":
            raise ValueError(f"{place.folder}: it has {self.width} labels, and a model that ranks has one")
        self._made = made
        self._chosen: str | None = None  # the prompt of requests that name none
        self.max_length: int = made.max_length
        self._check_length(place.folder)
        self._read_settings(place.folder)
        self._prepare_tokenizers(made.tokenizer)

    def _check_length(self, folder: pathlib.Path) -> None:
        positions = _folder.positions(folder)
        if positions is not None and self.max_length > positions:
            raise ValueError(f"{folder}: the model has {positions} positions, and --max-length is {self.max_length}")

    def _read_settings(self, folder: pathlib.Path) -> None:
        config = _folder.read(folder, "config.json")
        self.dtype = quantized(self.quantize, config)
        labels = config.get("id2label") or {}
        self.labels = [str(labels.get(str(i), f"LABEL_{i}")) for i in range(self.width)]
        self.sigmoid_each = config.get("problem_type") == "multi_label_classification"
        vocab = config.get("vocab_size")
        self.vocab = vocab if isinstance(vocab, int) else self._made.tokenizer.get_vocab_size()
        modules = [str(module.get("type", "")) for module in _folder.read_list(folder, "modules.json")]
        self.normalizes = bool(modules) and modules[-1].endswith("Normalize")  # the model itself does
        self.pooling = pooling_of(folder)

    def _prepare_tokenizers(self, tokenizer: Any) -> None:
        self.tokenizer, self._cutters, self._cutting = tokenizer, dict[str, Any](), threading.Lock()
        splitter = tokenizer.pre_tokenizer
        self._splits = splits_words(None if splitter is None else json.loads(splitter.__getstate__()))

    def _cutter(self, side: str, waits: bool) -> Any:
        """Tokenizers are changed by being told to cut, which other threads would see: a copy for each side, made when
        the first text is cut on it."""
        if side not in self._cutters and not waits:
            raise TakesLong
        with self._cutting:
            if side not in self._cutters:
                made = type(self.tokenizer).from_str(self.tokenizer.to_str())
                made.enable_truncation(self.max_length, direction=side)
                made.encode_special_tokens = self.tokenizer.encode_special_tokens
                self._cutters[side] = made
            return self._cutters[side]

    # ---- texts to rows ----

    def prompt(self, name: str | None) -> str:
        """The text that the folder has under this name; None: its own choice."""
        if name is None and self._chosen is not None:
            return self._chosen
        prompts: dict[str, str] = self._made.prompts
        if name is not None and name not in prompts:
            raise Fault("invalid", f"prompt_name: there is no prompt {name[:100]!r}; the model has {', '.join(prompts)}",
                        "prompt_name")
        try:
            text: str = self._made._prompt(None, name)
        except tfmc.InputError:
            raise Fault("invalid", "prompt_name: this model's pooling leaves the tokens of a prompt out, which is not "
                        "computed here; texts without a prompt are", "prompt_name") from None
        if name is None:
            self._chosen = text
        return text

    def encode(self, texts: list[Any], where: str, truncate: bool, side: str = "right", count: bool = False,
               waits: bool = True) -> Encoded:
        """Rows of texts, pairs of texts and rows of ids. `count`: how many tokens are cut off is wanted, too; without
        `waits` TakesLong is raised if something must be made first."""
        rows: list[Row | None] = [None] * len(texts)
        truncated, numbers = 0, []
        for i, text in enumerate(texts):
            if isinstance(text, list):
                rows[i], cut = self._row_of_ids(text, f"{where}[{i}]", truncate, side)
                truncated += cut
            else:
                numbers.append(i)
        if numbers:
            given = [texts[i] for i in numbers]
            if truncate and not count and side == "right":
                given = [self._prefix(text) if isinstance(text, str) else text for text in given]
            for i, encoding in zip(numbers, self._encodings(given)):
                if len(encoding.ids) > self.max_length:
                    if not truncate:
                        raise too_long(f"{where}[{i}]" if len(texts) > 1 else where, len(encoding.ids), self.max_length)
                    whole = len(encoding.ids)
                    first, second = texts[i] if isinstance(texts[i], tuple) else (texts[i], None)
                    encoding = self._cutter(side, waits).encode(first, second)
                    truncated += whole - len(encoding.ids)
                if not encoding.ids:
                    raise Fault("invalid", f"{where}[{i}]: the text has no tokens", where)
                rows[i] = Row(encoding.ids, encoding.type_ids)
        found = [row for row in rows if row is not None]
        return Encoded(found, sum(len(row.ids) for row in found), truncated)

    def _encodings(self, texts: list[Any]) -> list[Any]:
        try:
            encodings: list[Any] = self.tokenizer.encode_batch_fast(texts)
        except Exception as error:  # the package raises plain exceptions
            raise Fault("tokenizer", f"the tokenizer does not take this text: {str(error)[:200]}") from None
        return encodings

    def _row_of_ids(self, ids: list[int], where: str, truncate: bool, side: str) -> tuple[Row, int]:
        if max(ids) >= self.vocab:
            raise Fault("invalid", f"{where}: {max(ids)} is no token's id; the model has {self.vocab} tokens", where)
        cut = len(ids) - self.max_length
        if cut > 0:
            if not truncate:
                raise too_long(where, len(ids), self.max_length)
            ids = ids[:self.max_length] if side == "right" else ids[cut:]
        return Row(ids, [0] * len(ids)), max(0, cut)

    def _prefix(self, text: str) -> str:
        """A part of a long text whose first tokens are sure to be those of the whole: it ends with a word, and has more
        tokens than are kept."""
        size = 16 * (self.max_length + SURE)
        while self._splits and size < len(text) // 2:
            end = size
            while end < len(text) and not (text[end] == " " and not text[end - 1].isspace()):
                end += 1
            if end == len(text):
                break
            if len(self.tokenizer.encode_batch_fast([text[:end]])[0].ids) >= self.max_length + SURE:
                return text[:end]
            size = 2 * end
        return text

    # ---- rows to numbers ----

    def inputs(self, rows: list[Row]) -> dict[str, Any]:
        """What the model takes for a run of these rows."""
        inputs: dict[str, Any] = _folder.inputs_of(self.model.inputs, rows, range(len(rows)), self._made._kinds)
        return inputs

    def vectors(self, numbers: Floats, normalize: bool, dimensions: int | None) -> Floats:
        """What `tfmc.text.Embedder.encode` makes of the model's numbers; a model that normalises does so once."""
        cut = dimensions is not None and dimensions < self.width
        if cut:
            numbers = np.ascontiguousarray(numbers[:, :dimensions])
        if normalize and (cut or not self.normalizes):
            numbers = numbers / np.maximum(np.linalg.norm(numbers, axis=1, keepdims=True), np.float32(1e-12))
        return numbers

    def check_dimensions(self, dimensions: int | None) -> None:
        if dimensions is not None and dimensions > self.width:
            raise Fault("invalid", f"dimensions: the model's vectors have {self.width} numbers, not {dimensions}",
                        "dimensions")

    def scores(self, numbers: Floats, raw: bool) -> Floats:
        """Logits as numbers from 0 to 1: of each label alone, or, where one of several holds, with the sum 1."""
        if raw:
            return numbers
        if self.width == 1 or self.sigmoid_each:
            return np.asarray(np.tanh(numbers / 2) / 2 + np.float32(0.5), np.float32)
        powers = np.exp(numbers - numbers.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)

    def settings(self) -> dict[str, Any]:
        """As /info and /v1/models show them."""
        known = {"kind": self.kind, "max_length": self.max_length, "vocab": self.vocab, "quantize": self.quantize,
                 "weights_bytes": self.model.weights_bytes}
        if self.kind == "embed":
            return {**known, "dimension": self.width, "prompts": sorted(self._made.prompts)}
        return {**known, "labels": self.labels}


def pooling_of(folder: pathlib.Path) -> str:
    """In TEI's words; without a file that says it, the mean."""
    for module in _folder.read_list(folder, "modules.json"):
        if str(module.get("type", "")).endswith("Pooling"):
            config = _folder.read(folder, f"{module.get('path')}/config.json")
            mode = config.get("pooling_mode")
            modes = [mode] if isinstance(mode, str) else [name for name, value in config.items() if value is True]
            for word, name in (("cls", "cls"), ("last", "last_token")):
                if any(word in found for found in modes):
                    return name
    return "mean"


def quantized(quantize: str | None, config: dict[str, Any]) -> str:
    return quantize or str(config.get("dtype") or config.get("torch_dtype") or "float32")


def too_long(where: str, tokens: int, most: int) -> Fault:
    return Fault("invalid", f"{where} has {tokens} tokens, and the model takes {most}; \"truncate\": true cuts it", where)


def splits_words(settings: Any) -> bool:
    """Whether a pre-tokenizer (of tokenizer.json) never leaves two words in one piece."""
    if not isinstance(settings, dict):
        return False
    if settings.get("type") == "Sequence":
        return any(splits_words(part) for part in settings.get("pretokenizers") or [])
    if settings.get("type") == "Metaspace":
        return settings.get("split", True) is True
    if settings.get("type") == "ByteLevel":
        return settings.get("use_regex", True) is True
    return settings.get("type") in SPLIT
