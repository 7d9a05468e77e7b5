"""Guesses of a row's next tokens: what followed when its last tokens stood in it before, and how many are worth it.

Guesses never change what is written; so how many are made may follow the clock and the load.
"""
from __future__ import annotations

import itertools
import operator
from typing import NamedTuple

LONGEST, SHORTEST = 4, 2  # tokens at the end of a row that are looked for
MOST = 15                 # guesses of a row in a step
WINDOW = 12               # tokens behind the place where a row left what it repeated, among which it may come back
BEGINS, SHARE = 0.5, 0.015 # steps that a row's guesses may cost at first, and more for each of its tokens
MOST_SAVED = 4.0          # of the steps that guesses saved, so many may be lost again
PLAIN_PRICE = 0.25        # of a row's guesses in a step, in steps, where it is not measured
# How likely a guess is right before any is known: the first, by the tokens before it that stood there too (0: another token
# stood there); a further one; one where a value stands. Below the least rates none would ever be tried again.
FIRST_RATES, NEXT, VALUE = (0.2, 0.5, 0.3, 0.5, 0.6, 0.7, 0.8), -1, -2
RATES = {**dict(enumerate(FIRST_RATES)), NEXT: 0.75, VALUE: 0.2}
LEAST_RATES, DECAY = {kind: 0.3 if kind == NEXT else 0.05 for kind in RATES}, 0.1
DEEPEST = len(FIRST_RATES) - 1
OWN, OTHERS = 0.1, 0.07    # of a change of a step's time that counts: for steps of its size, and for others


class Track(NamedTuple):
    """Where a row repeats itself. A place is below the row's length."""
    place: int = 0   # what stands there is what comes next; 0: nowhere
    agreed: int = 0  # tokens before it that are the row's last ones
    parted: int = 0  # if none is: the place where the row left it,
    lost: int = 0    # and how many tokens it has since

    def behind(self, ids: list[int], token: int) -> Track:
        """When the row goes on with this token. What stands a little behind the place where they parted is taken up
        there, as after another value; until then one token is taken to stand for another."""
        if not self.place:
            return self
        if ids[self.place] == token:
            return Track(self.place + 1, self.agreed + 1)
        parted, lost = (self.parted, self.lost + 1) if self.lost else (self.place, 1)
        for place in range(parted, min(len(ids), parted + WINDOW)):
            if ids[place] == token:
                return Track(place + 1, 1)
        return Track(parted + lost, 0, parted, lost) if lost <= WINDOW and parted + lost < len(ids) else Track()


class Guesser:
    """Of one row. add() gets its tokens in their order, the prompt included."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}     # n-gram: the place behind its last occurrence but that at the end
        self._latest: list[tuple[tuple[int, ...], int]] = []  # n-grams at the end, which are entered with the next token
        self._others: set[int] = set()  # places of tokens that were others than where the row repeated itself: its values
        self._track, self._rates = Track(), dict(RATES)
        self._kinds: list[int] = []     # of the latest guesses
        self._saved = BEGINS  # steps that guesses have saved, less those that they cost

    def add(self, ids: list[int]) -> None:
        for token in ids:
            for gram, place in self._latest:
                self._ends[gram] = place
            if self._track.place and self._ids[self._track.place] != token:
                self._others.add(len(self._ids))
            self._track = self._track.behind(self._ids, token)
            self._ids.append(token)
            n = len(self._ids)
            self._latest = [(tuple(self._ids[n - size:]), n) for size in range(SHORTEST, LONGEST + 1) if size <= n]
            self._saved = min(MOST_SAVED, self._saved + SHARE)

    def guess(self, most: int) -> list[int]:
        """Up to so many tokens that may follow."""
        if most < 1 or self._saved <= 0:
            return []
        self._track = self._found(self._ids, self._track)
        return self._from(self._ids, self._track, most)

    def guess_behind(self, tokens: list[int], most: int) -> list[int]:
        """The same if these tokens follow."""
        if most < 1 or self._saved <= 0:
            return []
        ids, track = self._ids + tokens, self._track
        for i, token in enumerate(tokens):
            track = track.behind(ids[:len(self._ids) + i], token)
        return self._from(ids, self._found(ids, track), most)

    def _found(self, ids: list[int], track: Track) -> Track:
        """The longest known end, unless more tokens agree where the row repeats itself already."""
        for size in range(min(LONGEST, len(ids)), SHORTEST - 1, -1):
            place = self._ends.get(tuple(ids[-size:]))
            if place is not None:
                return track if track.agreed >= size else Track(place, agreed(ids, place))
        return track

    def _from(self, ids: list[int], track: Track, n: int) -> list[int]:
        """What stands there; behind the end of the row the guesses themselves go on, as in a repetition."""
        if not track.place:
            return []
        found = ids[track.place:track.place + n]
        period = len(ids) - track.place
        while len(found) < n:
            found.append(found[len(found) - period])
        first = min(track.agreed, DEEPEST)
        self._kinds = [VALUE if track.place + i in self._others else NEXT if i else first for i in range(n)]
        return found

    def hopes(self, n: int) -> list[float]:
        """How likely so many guesses are right, each with all before it."""
        return list(itertools.accumulate((self._rates[kind] for kind in self._kinds[:n]), operator.mul))

    def learn(self, guessed: int, right: int, price: float = PLAIN_PRICE) -> None:
        """How many were right; price: what they cost, in steps. A row whose guesses cost more than they save rests."""
        if not guessed:
            return
        for i, kind in enumerate(self._kinds[:min(guessed, right + 1)]):
            self._rates[kind] = max(LEAST_RATES[kind], self._rates[kind] + DECAY * ((i < right) - self._rates[kind]))
        self._saved = min(MOST_SAVED, self._saved + right - price)


def agreed(ids: list[int], place: int) -> int:
    """How many tokens before a place are the last ones of the row."""
    n, most = 0, min(place, DEEPEST)
    while n < most and ids[place - 1 - n] == ids[-1 - n]:
        n += 1
    return n


class Costs:
    """Seconds of a step of so many tokens: measured at the start, corrected while running, a line between and beyond."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def learn(self, tokens: int, seconds: float) -> None:
        """Others become slower too, if a little less: as rows grow, their steps all do."""
        before = self._seconds.get(tokens)
        if before is None:
            self._seconds[tokens] = seconds
            return
        change = min(seconds / before, 2.0) - 1
        for known in self._seconds:
            self._seconds[known] *= 1 + change * (OWN if known == tokens else OTHERS)

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

    def price(self, rows: int, guesses: int) -> float:
        """Of guesses beside so many rows, all of which wait for them, in steps of a row."""
        return rows * max(0.0, self.of(rows + guesses) / self.of(rows) - 1)


def share(costs: Costs | None, rows: list[Guesser], rooms: list[int], most: int) -> list[list[int]]:
    """The guesses of each row of a step that gives the most tokens a second; without costs all that there are. Never more
    than `most` together. rooms: how many guesses a row may have."""
    found = [row.guess(min(most, room)) for row, room in zip(rows, rooms)]
    hopes = [[*row.hopes(len(guesses)), 0.0] for row, guesses in zip(rows, found)]
    taken = [0] * len(rows)
    tokens, gain = len(rows), float(len(rows))
    best, best_rate = list(taken), gain / (costs.of(tokens) if costs else 1) if rows else 0.0
    while sum(taken) < most:
        following = [hopes[i][n] for i, n in enumerate(taken)]
        hope = max(following, default=0.0)
        if hope <= 0:
            break
        taken[following.index(hope)] += 1
        tokens, gain = tokens + 1, gain + hope
        rate = gain / (costs.of(tokens) if costs else 1)
        if rate > best_rate:
            best, best_rate = list(taken), rate
    return [guesses[:n] for guesses, n in zip(found, best)]
