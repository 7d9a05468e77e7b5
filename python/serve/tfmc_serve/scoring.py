"""Probabilities of a prompt's tokens, for answers that echo it.

A step of a row with guesses gives the choice after each of its tokens. Here the guesses are the prompt's own tokens, and
each choice is allowed one token alone, the next of the prompt: so the choices are these tokens, with their probabilities
by the model's own numbers, and the bits of a prompt that is read one token at a time.
"""
from __future__ import annotations

from typing import Any

from .guesses import MOST


class Scoring:
    """Of one prompt. `chooser`: of a row that begins with the prompt's first token, and ends with its last."""

    def __init__(self, chooser: Any, prompt: list[int], vocab: int) -> None:
        self.chooser, self._prompt, self._words = chooser, prompt, (vocab + 31) // 32
        self.scores: list[Any] = []  # (id, logprob, ((id, logprob), ...)) of each token but the first

    @property
    def is_done(self) -> bool:
        return len(self.scores) == len(self._prompt) - 1

    def guesses(self, most: int) -> list[int]:
        """The tokens of the prompt that a step may have beside the one that follows what was read."""
        first = len(self.scores) + 1
        return self._prompt[first:min(len(self._prompt) - 1, first + min(MOST, most))]

    def masks(self, guesses: list[int]) -> bytes:
        """Of the next token of the prompt, and of that behind each guess."""
        first = len(self.scores) + 1
        made = bytearray(4 * self._words * (len(guesses) + 1))
        for i, token in enumerate(self._prompt[first:first + len(guesses) + 1]):
            made[4 * self._words * i + token // 8] = 1 << token % 8
        return bytes(made)
