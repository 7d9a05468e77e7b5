"""Models that write: a checkpoint's folder, its tokenizer, prompts as ids.

In: folders, and prompts of requests. Out: rows for the scheduler. Refused: models without an incremental form or with
inputs besides their tokens, prompts that leave no room for a token, ids that the model does not have.
"""
from __future__ import annotations

import importlib
from typing import Any

import tfmc
import tfmc.text

from .errors import Fault
from .grammar import Grammars
from .texts import Place, opened, quantized
from .tools import Form, find_form, pieces

_folder: Any = importlib.import_module("tfmc.text._folder")
_chat: Any = importlib.import_module("tfmc.text._chat")
_options: dict[str, str] = importlib.import_module("tfmc._generate").OPTIONS  # names of settings, and what they are
MOST_TOKENS = 4096  # of a row where neither the folder nor --max-length says how many there may be
# settings of a folder that a request decides, or that are not for single rows
NOT_TAKEN = ("max_length", "max_new_tokens", "num_beams", "num_return_sequences", "do_sample", "temperature", "top_p",
             "length_penalty", "early_stopping", "return_token_scores")
NO_SETTINGS = ("ignored", "start", "fallback", "seed")  # of rows that begin without a prompt, and what has no meaning here


class ServedWriter:
    """One model that continues rows of tokens. Its methods may be called by any thread."""
    kind = "write"

    def __init__(self, place: Place, pool: tfmc.Pool, max_length: int | None, quantize: str | None) -> None:
        self.name, self.folder, self.quantize = place.name, place.folder, quantize
        source, options = opened(place, pool, quantize=quantize)
        made: Any = tfmc.text.Writer(source, folder=place.folder, **options)
        self.model: Any = made.model
        self.tokenizer: Any = made.tokenizer
        if not self.model.generation.incremental:
            raise ValueError(f"{place.folder}: rows of this model cannot be continued one token at a time: "
                             f"{self.model.generation.reason}")
        self._read_settings(max_length)
        self._read_template()
        self._form: tuple[Form, frozenset[int]] | str | None = None  # of calls, or why there is none
        self.grammars = Grammars(self.tokenizer, self.vocab)

    def _read_settings(self, max_length: int | None) -> None:
        positions = _folder.positions(self.folder)
        if positions is not None and max_length is not None and max_length > positions:
            raise ValueError(f"{self.folder}: the model has {positions} positions, and --max-length is {max_length}")
        self.max_length: int = max_length or positions or MOST_TOKENS
        self.row_length = self.max_length
        self.vocab: int = self.model.generation.vocab
        self.dtype = quantized(self.quantize, _folder.read(self.folder, "config.json"))
        given = _folder.read(self.folder, "generation_config.json")
        self.settings_of_folder = {name: value for name, value in given.items() if value is not None and
                                   name not in NOT_TAKEN and _options.get(name, "ignored") not in NO_SETTINGS}
        ends = given.get("eos_token_id")
        self.ends: tuple[int, ...] = (ends,) if isinstance(ends, int) else tuple(ends or ())
        if ends is None:  # those of the model itself
            self.ends = tuple(self.model.chooser([0], limit=2).ends())

    def _read_template(self) -> None:
        """Of the folder, for messages. A folder without one, and a Python without jinja2, still continue texts."""
        self.chat: Any = None
        self.chat_missing = ""
        self.chat_ends = self.ends
        try:
            self.chat = _chat.ChatTemplate(self.folder, self.tokenizer)
            self.chat_ends = tuple(_chat.end_tokens(self.folder, self.tokenizer)) or self.ends
        except tfmc.Error as error:
            self.chat_missing = str(error).removeprefix(f"{self.folder}: ").partition(";")[0]

    def form_of_calls(self) -> tuple[Form, frozenset[int]]:
        """Of tools, and the special tokens that are part of it. It is looked for when it is first wanted."""
        if self._form is None:
            try:
                form = find_form(self.chat, [text for text in map(self.tokenizer.id_to_token, self.chat_ends) if text])
                words = form.begin + (form.separator or "") + form.end
                self._form = form, frozenset(number for _, number in pieces(words, self.tokenizer) if number is not None)
            except ValueError as error:
                self._form = str(error)
        if isinstance(self._form, str):
            raise Fault("invalid", f"tools: {self._form}", "tools")
        return self._form

    def encode(self, prompts: list[str | list[int]], where: str) -> list[list[int]]:
        """The ids of each prompt."""
        texts = [i for i, prompt in enumerate(prompts) if isinstance(prompt, str)]
        rows: list[list[int]] = [list(prompt) for prompt in prompts]  # type: ignore[arg-type]
        try:
            encodings = self.tokenizer.encode_batch_fast([prompts[i] for i in texts])
        except Exception as error:  # the package raises plain exceptions
            raise Fault("tokenizer", f"the tokenizer does not take this text: {str(error)[:200]}") from None
        for i, encoding in zip(texts, encodings):
            rows[i] = encoding.ids
        for i, row in enumerate(rows):
            self.check(row, f"{where}[{i}]" if len(rows) > 1 else where)
        return rows

    def check(self, ids: list[int], where: str) -> None:
        name = where.partition("[")[0]
        if not ids:
            raise Fault("invalid", f"{where}: the text has no tokens: there is nothing to continue", name)
        if max(ids) >= self.vocab:
            raise Fault("invalid", f"{where}: {max(ids)} is no token's id; the model has {self.vocab} tokens", name)
        if len(ids) >= self.max_length:
            raise Fault("invalid", f"{where} has {len(ids)} tokens, and the model takes {self.max_length}, with those "
                        "that it writes", name)

    def settings(self) -> dict[str, Any]:
        """As /info and /v1/models show them."""
        return {"kind": self.kind, "max_length": self.max_length, "vocab": self.vocab, "quantize": self.quantize,
                "weights_bytes": self.model.weights_bytes, "ends": list(self.ends),
                "chat": self.chat is not None, "settings": self.settings_of_folder}
