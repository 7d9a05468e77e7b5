"""Reading calls of tools in what a model writes.

In: the text of an answer as it comes, the form of a call. Out: ("text", ...), ("name", ...), ("arguments", ...): a call is
its name, then its arguments, a JSON object as the model has written it. The same ones however the text was cut.
"""
from __future__ import annotations

import json
import re

from .tools import ID_MEMBER, Form, Tools


class Reader:
    """Of an answer whose calls a grammar holds to their form: they are given as they come."""

    def __init__(self, form: Form, tools: Tools) -> None:
        self.form, self.tools, self.calls = form, tools, 0
        self._held, self._before = "", form.begin
        self._depth, self._quote = 0, ""  # of arguments that are being read: open brackets; inside a text, \" or \\
        self._in_arguments = False
        name, arguments = form.keys
        self._header = re.compile(rf'\s*\{{\s*"{name}"\s*:\s*"([^"\\]*)"\s*,\s*"{arguments}"\s*:\s*(?=\{{)')

    def header(self, before: str | None, place: int = 0) -> re.Match[str] | None:
        """Of a call that stands here, behind these words."""
        start = None if before is None else behind(self._held, before, place)
        return None if start is None else self._header.match(self._held, start)

    def add(self, text: str, is_last: bool) -> list[tuple[str, str]]:
        self._held += text
        made: list[tuple[str, str]] = []
        while True:
            if self._in_arguments:
                size = self._arguments()
                made += [("arguments", self._held[:size])] if size else []
                self._held = self._held[size:]
            if self._in_arguments:
                return made
            found = self.header(self._before)
            if found is None:
                break
            made.append(("name", found[1]))
            self._held, self._in_arguments, self.calls = self._held[found.end():], True, self.calls + 1
            self._before = self.form.close + (self.form.separator or "")
        return [*made, ("text", self._held)] if is_last and not self.calls and self._held else made

    def _arguments(self) -> int:
        """How many characters of what is held belong to them."""
        for i, letter in enumerate(self._held):
            if self._quote:
                self._quote = '"' if self._quote == "\\" else {'"': "", "\\": "\\"}.get(letter, '"')
            elif letter == '"':
                self._quote = letter
            elif letter in "{}[]":
                self._depth += 1 if letter in "{[" else -1
                if not self._depth:
                    self._in_arguments = False
                    return i + 1
        return len(self._held)


class FreeReader(Reader):
    """Of an answer that may call or not. A call is given when it is whole, and what is none stays text."""
    _has_text, _space = False, ""

    def add(self, text: str, is_last: bool) -> list[tuple[str, str]]:
        self._held += text
        made: list[tuple[str, str]] = []
        first = next(iter(self.form.begin.split()), "")
        while self._held:
            place = self._held.find(first) if first else self._bare_call()
            if place != 0:
                size = len(self._held) - begun(self._held, first) if place < 0 else place
                self._give(made, size, is_last)
                if place < 0:
                    break
            calls, end = self._block(is_last)
            if end:
                self._call(made, calls)
                self._held = self._held[end:]
            elif is_last:
                self._give(made, len(first) or len(self._held), is_last)
            else:
                return made
        if is_last:
            self._give(made, len(self._held), is_last)
        return made

    def _bare_call(self) -> int:
        """Where nothing marks a call the whole answer is one, or none is."""
        return 0 if not self._has_text and not self.calls and self._held.lstrip()[:1] in ("{", "") else -1

    def _give(self, made: list[tuple[str, str]], size: int, is_last: bool) -> None:
        """So many characters as text. Space alone waits for text: around calls it is none."""
        text = self._space + self._held[:size]
        self._held, self._space = self._held[size:], ""
        if self.calls and not self.tools.parallel:
            return
        if not self._has_text and not text.strip() and not (is_last and not self._held and not self.calls):
            self._space = text
        elif text:
            self._has_text = True
            made.append(("text", text))

    def _call(self, made: list[tuple[str, str]], calls: list[tuple[str, str]]) -> None:
        """Without parallel calls the first is the answer's."""
        for name, arguments in calls:
            if self.tools.parallel or not self.calls:
                made += [("name", name), ("arguments", arguments)]
            self.calls, self._has_text, self._space = self.calls + 1, False, ""

    def _block(self, is_last: bool) -> tuple[list[tuple[str, str]], int]:
        """The calls with which what is held begins, and where they end; 0: they are not whole, or are none."""
        calls, found = [], self.header(self.form.begin)
        end: int | None = None
        while found is not None:
            size = object_end(self._held, found.end())
            close = None if size is None else behind(self._held, self.form.close, behind_id(self._held, size))
            if size is None or close is None or all(found[1] != one.name for one in self.tools.functions):
                return [], 0
            calls.append((found[1], self._held[found.end():size]))
            found, end = self.header(self.form.separator, close), close
        if end is None:
            return [], 0
        last = behind(self._held, self.form.end, end)
        if not (self.form.begin + self.form.end).strip():  # nothing says that it is over but the end of the answer
            return (calls, len(self._held)) if is_last and not self._held[end:].strip() else ([], 0)
        return (calls, end if last is None else last) if last is not None or is_last else ([], 0)


def begun(text: str, word: str) -> int:
    """How many of the last characters may be the first ones of the word."""
    return next((n for n in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:n])), 0)


def behind(text: str, words: str, place: int = 0) -> int | None:
    """The place in a text behind these words, which stand here, however they are spaced; None: they do not."""
    for word in words.split():
        while place < len(text) and text[place].isspace():
            place += 1
        if not text.startswith(word, place):
            return None
        place += len(word)
    return place


def behind_id(text: str, place: int) -> int:
    """The place behind the name of a call, if it stands here: answers have names of the server's."""
    found = ID_MEMBER.match(text, place)
    return place if found is None else found.end()


def object_end(text: str, place: int) -> int | None:
    """Where the JSON object that begins here ends."""
    try:
        found, end = json.JSONDecoder().raw_decode(text, place)
    except (ValueError, RecursionError):
        return None
    return end if isinstance(found, dict) else None
