"""The text of a row as its tokens come: characters when all their bytes are there, and nothing of what may be a stop.

In: ids, one after the other. Out: pieces of text, the same ones however many tokens a step gave; whether a stop ended the
row. The text is what the tokens add to that of the prompt, so that prompt and answer are one text again.
"""
from __future__ import annotations

from typing import Any, NamedTuple

BEFORE = 6    # tokens of the prompt beside which the first ones are decoded: a tokenizer may leave out a text's first space
MOST_HELD = 16  # tokens without a whole character after which what is there is given: they are no UTF-8
UNKNOWN = "\ufffd"  # what bytes become that are no character, or not yet


class Decoder:
    """Incremental decoding. `tokenizer` is only read. Its special tokens are no text, but for those in `shown`."""

    def __init__(self, tokenizer: Any, prompt: list[int], shown: frozenset[int] = frozenset()) -> None:
        self._tokenizer, self._hidden = tokenizer, hidden(tokenizer, shown) if shown else None
        self._ids = prompt[-BEFORE:]
        self._known = len(self._ids)  # tokens whose text was given, or is the prompt's
        self._given = self._decode(self._ids)

    def _decode(self, ids: list[int]) -> str:
        if self._hidden is not None:
            ids = [number for number in ids if number not in self._hidden]
        text: str = self._tokenizer.decode(ids, skip_special_tokens=self._hidden is None)
        return text

    def add(self, token: int) -> str:
        """The text that is complete with this token."""
        self._ids.append(token)
        text = self._decode(self._ids)
        if len(self._ids) - self._known <= MOST_HELD and (text.endswith(UNKNOWN) or len(text) <= len(self._given)):
            return ""
        return self._give(text)

    def end(self) -> str:
        """What is left when no token follows."""
        return self._give(self._decode(self._ids))

    def _give(self, text: str) -> str:
        piece = text[len(self._given):]
        self._ids = self._ids[self._known:]
        self._known, self._given = len(self._ids), self._decode(self._ids)
        return piece


def hidden(tokenizer: Any, shown: frozenset[int]) -> frozenset[int]:
    """Special tokens but for these."""
    return frozenset(number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special) - shown


class Stops:
    """Texts that end a row. What may become one is held back."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops, self._held = stops, ""
        self.found: str | None = None

    def add(self, piece: str) -> str:
        """The text that is sure not to belong to a stop; with `found`, that before it."""
        text = self._held + piece
        places = [(text.find(stop), i) for i, stop in enumerate(self._stops)]
        found = min((place for place in places if place[0] >= 0), default=None)
        if found is not None:
            self.found = self._stops[found[1]]
            self._held = ""
            return text[:found[0]]
        held = max((self._prefix(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held:]
        return text[:len(text) - held]

    @staticmethod
    def _prefix(text: str, stop: str) -> int:
        """How many of the last characters are the first ones of the stop."""
        for n in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:n]):
                return n
        return 0

    def end(self) -> str:
        held, self._held = self._held, ""
        return held


class Piece(NamedTuple):
    """What a row has gained in a step."""
    choice: int          # its number in the request
    text: str
    tokens: list[Any]    # ids, or (id, logprob, ((id, logprob), ...)) of each
    finish: str | None   # "stop", "length"
    stop: str | None     # the text that ended it
    scores: list[Any] | None = None  # of the tokens of its prompt but the first, as those of `tokens`


class Text:
    """The text of one choice."""

    def __init__(self, tokenizer: Any, prompt: list[int], stops: tuple[str, ...], ends: frozenset[int],
                 shown: frozenset[int] = frozenset()) -> None:
        self._decoder, self._stops, self.ends = Decoder(tokenizer, prompt, shown), Stops(stops), ends

    def add(self, choice: int, tokens: list[Any], is_last: bool) -> Piece:
        """The piece that these tokens make. It ends at the first that ends the row; `is_last`: the last one does, by the
        length if by nothing else."""
        text = ""
        for n, token in enumerate(tokens, 1):
            number = token if isinstance(token, int) else token[0]
            if number in self.ends:
                return Piece(choice, text + self._rest(), tokens[:n], "stop", None)
            text += self._stops.add(self._decoder.add(number))
            if self._stops.found is not None:
                return Piece(choice, text, tokens[:n], "stop", self._stops.found)
        if not is_last:
            return Piece(choice, text, tokens, None, None)
        text += self._rest()
        return Piece(choice, text, tokens, "stop" if self._stops.found is not None else "length", self._stops.found)

    def _rest(self) -> str:
        """The end of a row; bytes that are no whole character may complete a stop, too."""
        text = self._stops.add(self._decoder.end())
        return text if self._stops.found is not None else text + self._stops.end()
