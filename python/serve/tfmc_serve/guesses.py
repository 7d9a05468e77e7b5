"""Guesses of a row's next tokens: what followed when its last tokens stood in it before, and how many are worth it.

Guesses never change what is written; so how many are made may follow the clock and the load.
"""
from __future__ import annotations

LONGEST, SHORTEST = 4, 2  # tokens at the end of a row that are looked for
MOST = 15                 # guesses of a row in a step
PAUSE, FAILED = 16, 3     # tokens without guesses after so many steps of which none was right
FEW = 3                   # guesses of a row of which none was right yet, or since a pause: they are nearly free
LONGEST_PAUSE = 256       # it doubles while guesses fail, and halves with each step whose guesses were right
FIRST_RATE, LEAST_RATE = 0.5, 0.3  # of right guesses: before any is known; below it none would ever be tried again


class Guesser:
    """Of one row. add() gets its tokens in their order, the prompt included."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}     # n-gram: the place behind its last occurrence but that at the end
        self._latest: list[tuple[tuple[int, ...], int]] = []  # n-grams at the end, which are entered with the next token
        self.rate, self._failed, self._pause, self._next_pause = FIRST_RATE, 0, 0, PAUSE
        self._is_tried = False  # a guess was right, since the last pause

    def add(self, ids: list[int]) -> None:
        for token in ids:
            for gram, place in self._latest:
                self._ends[gram] = place
            self._ids.append(token)
            n = len(self._ids)
            self._latest = [(tuple(self._ids[n - size:]), n) for size in range(SHORTEST, LONGEST + 1) if size <= n]
            self._pause = max(0, self._pause - 1)

    def guess(self, most: int) -> list[int]:
        """Up to so many tokens that may follow; the longest known end decides."""
        if most < 1 or self._pause:
            return []
        most = most if self._is_tried else min(most, FEW)
        for gram, _ in reversed(self._latest):
            place = self._ends.get(gram)
            if place is not None:
                return self._from(place, most)
        return []

    def _from(self, place: int, n: int) -> list[int]:
        """What stands there; behind the end of the row the guesses themselves go on, as in a repetition."""
        found = self._ids[place:place + n]
        period = len(self._ids) - place
        while len(found) < n:
            found.append(found[len(found) - period])
        return found

    @property
    def hope(self) -> float:
        """How likely the next guess is right."""
        return self.rate

    def learn(self, guessed: int, right: int) -> None:
        if not guessed:
            return
        for i in range(min(guessed, right + 1)):
            self.rate = max(LEAST_RATE, 0.9 * self.rate + 0.1 * (i < right))
        self._failed = 0 if right else self._failed + 1
        if right:
            self._next_pause, self._is_tried = max(PAUSE, self._next_pause // 2), True
        elif self._failed >= FAILED:
            self._failed, self._pause, self._is_tried = 0, self._next_pause, False
            self._next_pause = min(LONGEST_PAUSE, 2 * self._next_pause)


class Costs:
    """Seconds of a step of so many tokens: measured at the start, corrected while running, a line between and beyond."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def learn(self, tokens: int, seconds: float) -> None:
        before = self._seconds.get(tokens)
        self._seconds[tokens] = seconds if before is None else min(seconds, 2 * before) * 0.1 + 0.9 * before

    def of(self, tokens: int) -> float:
        if tokens in self._seconds:
            return self._seconds[tokens]
        known = sorted(self._seconds)
        if len(known) < 2:
            return float(tokens)
        after = next((i for i, n in enumerate(known) if n > tokens), len(known) - 1)
        a, b = known[max(0, after - 1)], known[max(1, after)]
        slope = max(0.0, (self._seconds[b] - self._seconds[a]) / (b - a))
        return self._seconds[a] + slope * (tokens - a)


def share(costs: Costs | None, rows: list[Guesser], rooms: list[int], most: int) -> list[list[int]]:
    """The guesses of each row of a step that gives the most tokens a second; without costs all that there are. Never more
    than `most` together. rooms: how many guesses a row may have."""
    found = [row.guess(min(most, room)) for row, room in zip(rows, rooms)]
    taken = [0] * len(rows)
    tokens, gain = len(rows), float(len(rows))
    best, best_rate = list(taken), gain / (costs.of(tokens) if costs else 1) if rows else 0.0
    while sum(taken) < most:
        hopes = [row.hope ** (taken[i] + 1) if taken[i] < len(found[i]) else 0.0 for i, row in enumerate(rows)]
        hope = max(hopes, default=0.0)
        if hope <= 0:
            break
        i = hopes.index(hope)
        taken[i] += 1
        tokens, gain = tokens + 1, gain + hope
        rate = gain / (costs.of(tokens) if costs else 1)
        if rate > best_rate:
            best, best_rate = list(taken), rate
    return [guesses[:n] for guesses, n in zip(found, best)]
