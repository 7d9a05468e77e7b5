"""Beginnings of rows that were computed before: a tree of pages of 16 ids, and the rows that have them.

A row that is kept stays in the decoder until its room is wanted. Rows of one owner (an API key) are never found for
another, unless all share: times would tell one client what another asked.
"""
from __future__ import annotations

from collections import OrderedDict

PAGE = 16  # tokens; those of a page of the decoder's


class Node:
    __slots__ = ("children", "rows", "parent", "key")

    def __init__(self, parent: Node | None, key: tuple[int, ...]) -> None:
        self.children: dict[tuple[int, ...], Node] = {}
        self.rows: dict[int, None] = {}  # that have the pages up to here, the oldest first
        self.parent, self.key = parent, key


class Prefixes:
    """Rows of a decoder by what they begin with."""

    def __init__(self) -> None:
        self._roots: dict[str, Node] = {}
        self._nodes: dict[int, list[Node]] = {}         # of each row
        self._kept: OrderedDict[int, None] = OrderedDict()  # rows that nobody writes, the longest unused first
        self._ids: dict[int, tuple[str, list[int]]] = {}    # owner and tokens of each row, as last added

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, owner: str, row: int, ids: list[int]) -> None:
        """The row has these tokens; called again when it has more."""
        self._ids[row] = owner, ids
        nodes = self._nodes.setdefault(row, [])
        node = nodes[-1] if nodes else self._roots.setdefault(owner, Node(None, ()))
        for first in range(len(nodes) * PAGE, len(ids) - PAGE + 1, PAGE):
            key = tuple(ids[first:first + PAGE])
            node = node.children.setdefault(key, Node(node, key))
            node.rows[row] = None
            nodes.append(node)

    def find(self, owner: str, ids: list[int]) -> tuple[int, int] | None:
        """(row, its first tokens that are those of ids): the longest beginning."""
        node, depth = self._roots.get(owner), 0
        while node is not None:
            below = node.children.get(tuple(ids[depth * PAGE:(depth + 1) * PAGE]))
            if below is None:
                break
            node, depth = below, depth + 1
        if node is None or not depth:
            return None
        row = next(reversed(node.rows))
        if row in self._kept:
            self._kept.move_to_end(row)
        return row, depth * PAGE

    def find_whole(self, owner: str, ids: list[int]) -> tuple[int, int] | None:
        """(row, its tokens): the longest kept row all of whose tokens begin ids, which have more. A row that cannot be
        cut, since it has states, is continued so."""
        best: tuple[int, int] | None = None
        for row in self._kept:
            whose, tokens = self._ids[row]
            n = len(tokens)
            if whose == owner and n < len(ids) and (best is None or n > best[1]) and ids[:n] == tokens:
                best = row, n
        if best is not None:
            self._kept.move_to_end(best[0])
        return best

    def keep(self, row: int) -> bool:
        """Nobody writes the row any more; false if it is of no use."""
        if not self._nodes.get(row):
            self.forget(row)
            return False
        self._kept[row] = None
        return True

    def oldest(self) -> int | None:
        """The kept row that was not used for the longest time; it is forgotten here."""
        if not self._kept:
            return None
        row = next(iter(self._kept))
        self.forget(row)
        return row

    def forget(self, row: int) -> None:
        self._kept.pop(row, None)
        self._ids.pop(row, None)
        for node in reversed(self._nodes.pop(row, [])):
            node.rows.pop(row, None)
            if not node.rows and node.parent is not None:
                node.parent.children.pop(node.key, None)
