"""Processes that train together: what a Trainer's group= may be, and which share of a step is whose.

In: a group of torch.distributed, a communicator of mpi4py, or an object with rank, ranks and exchange(peer, bytes) -> bytes;
parts of a step. Out: a function that gives bytes to a rank and takes its bytes; the parts in shares; answers that all ranks
have alike. Refused: numbers of ranks that are no power of two, ranks that begin with other weights, parts that have fewer
items than there are shards.
"""
import collections.abc
import sys

import numpy as np

from . import _arrays
from ._errors import UsageError


class Group:
    """rank of ranks; exchange(peer, data): data goes to the peer, whose bytes come back."""

    def __init__(self, rank, ranks, exchange):
        self.rank, self.ranks, self.exchange = rank, ranks, exchange
        if not 0 <= rank < ranks or ranks & (ranks - 1):
            raise UsageError(f"rank {rank} of {ranks}: ranks are a power of two, and a rank is one of them")

    def _peers(self):
        bit = 1
        while bit < self.ranks:
            yield self.rank ^ bit
            bit *= 2

    def are_alike(self, data):
        """Whether all ranks have these bytes; the same answer on each."""
        alike = True
        for peer in self._peers():
            got = self.exchange(peer, bytes([alike]) + data)
            alike = alike and got == bytes([True]) + data
        return alike

    def any(self, flag):
        for peer in self._peers():
            flag = bool(self.exchange(peer, bytes([bool(flag)]))[0]) or bool(flag)
        return bool(flag)

    def of_first(self, data):
        """The bytes that rank 0 has, as many as the others give."""
        known = self.rank == 0
        for peer in self._peers():
            got = self.exchange(peer, bytes([known]) + data)
            if got[0] and not known:
                known, data = True, got[1:]
        return data


def _of_torch(group):
    import torch
    import torch.distributed as dist

    def exchange(peer, data):
        peer = dist.get_global_rank(group, peer)
        got = torch.empty(len(data), dtype=torch.uint8)
        sent = dist.isend(torch.frombuffer(bytearray(data), dtype=torch.uint8), peer, group=group)
        dist.recv(got, peer, group=group)
        sent.wait()
        return got.numpy().tobytes()
    return Group(dist.get_rank(group), dist.get_world_size(group), exchange)


def _of_mpi(comm):
    def exchange(peer, data):
        got = bytearray(len(data))
        comm.Sendrecv(data, dest=peer, recvbuf=got, source=peer)
        return bytes(got)
    return Group(comm.Get_rank(), comm.Get_size(), exchange)


def of(group):
    """None for no group, or one of a single rank."""
    if group is None:
        return None
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and isinstance(group, torch.ProcessGroup):
        made = _of_torch(group)
    elif all(hasattr(group, name) for name in ("Get_rank", "Get_size", "Sendrecv")):
        made = _of_mpi(group)
    elif all(hasattr(group, name) for name in ("rank", "ranks", "exchange")):
        made = Group(group.rank, group.ranks, group.exchange)
    else:
        raise UsageError(f"group is of type {type(group).__name__}: a group of torch.distributed (dist.group.WORLD), a "
                         "communicator of mpi4py, or what has rank, ranks and exchange")
    return made if made.ranks > 1 else None


# ---- shares ----

def item_axes(inputs):
    """For each input the axis of the items: of the size called batch, else of the one that comes first in every input."""
    shapes = [kind.shape for kind in inputs.values()]
    firsts = {shape[0] if shape else None for shape in shapes}
    size = "batch" if any("batch" in shape for shape in shapes) else firsts.pop() if len(firsts) == 1 else None
    if not isinstance(size, str):
        raise UsageError("no size counts the items of a batch, so a step cannot be cut into shards")
    return [shape.index(size) if size in shape else None for shape in shapes]


def cut(part, axes, begin, end):
    return tuple(value if axis is None else value[(slice(None),) * axis + (slice(begin, end),)]
                 for value, axis in zip(part, axes))


def shares(parts, inputs, shards):
    """(the parts, arrays, as many as shards divide: the largest is halved as long as they are not; items of each)"""
    axes = item_axes(inputs)
    first = next(i for i, axis in enumerate(axes) if axis is not None)
    made = [tuple(_arrays.convert(value, kind.dtype, name, str(kind)) for (name, kind), value in zip(inputs.items(), part))
            for part in parts]
    for (name, kind), value in ((pair, value) for part in made for pair, value in zip(inputs.items(), part)):
        if value.ndim != len(kind.shape):
            raise UsageError(f"{name} is {list(value.shape)}, expected {kind}")
    count = lambda part: part[first].shape[axes[first]]
    while len(made) % shards:
        at = max(range(len(made)), key=lambda i: count(made[i]))
        items = count(made[at])
        if items < 2:
            raise UsageError(f"a step of {sum(map(count, made))} items cannot be cut into {shards} shards of equally many parts")
        made[at:at + 1] = [cut(made[at], axes, 0, items // 2), cut(made[at], axes, items // 2, items)]
    return made, [count(part) for part in made]
