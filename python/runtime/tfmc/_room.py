"""Trainer(memory=): a batch in parts that fit into a number of bytes, as --memory of the command does it.

In: a trainer, the parts of a step, how many bytes it may take. Out: the parts, those that are too large cut along the axis
of their items into parts of about the same size. What is computed is the same, within rounding. Refused: a bound below what
the trainer keeps, or below what a single item takes, with the number of bytes that are needed.
"""
from . import _arrays, _group, _options
from ._errors import InputError, UsageError


def check(trainer, memory):
    """Refuses a bound that no step can keep to."""
    memory = _options.whole("memory", memory)
    if trainer._state_bytes() > memory:
        raise UsageError(f"weights, gradients and moments take {trainer._state_bytes()} bytes, memory= allows {memory}")


def _bytes(trainer, part, axes, n):
    """Of a part with n of the items."""
    dims = tuple(tuple(n if k == axis else size for k, size in enumerate(value.shape)) for value, axis in zip(part, axes))
    found = trainer._bytes(dims)
    return float("inf") if found < 0 else found


def _most(trainer, part, axes, count, memory):
    """How many items of the part fit; more items take more memory."""
    if _bytes(trainer, part, axes, count) <= memory:
        return count
    least, most = 0, count  # fits, does not fit
    while most - least > 1:
        middle = (least + most) // 2
        if _bytes(trainer, part, axes, middle) <= memory:
            least = middle
        else:
            most = middle
    if not least:
        needed = _bytes(trainer, part, axes, 1)
        raise InputError(f"an item of this batch takes {needed} bytes, with weights, gradients and moments; {memory} are left of "
                         f"memory={trainer.memory}", reason="shape")
    return least


def fitting(trainer, parts):
    """The parts of a step as they are computed."""
    kinds = trainer.inputs.items()
    made = [tuple(_arrays.convert(value, kind.dtype, name, str(kind)) for (name, kind), value in zip(kinds, part))
            for part in parts]
    for (name, kind), value in ((pair, value) for part in made for pair, value in zip(kinds, part)):
        if value.ndim != len(kind.shape):
            raise InputError(f'input "{name}" is {list(value.shape)}, expected {kind}', reason="shape")
    axes = _group.item_axes(trainer.inputs)
    first = next(i for i, axis in enumerate(axes) if axis is not None)
    counts = [part[first].shape[axes[first]] for part in made]
    whole = tuple(tuple(sum(counts) if k == axis else size for k, size in enumerate(value.shape))
                  for value, axis in zip(made[0], axes))
    memory = trainer.memory
    if any(_bytes(trainer, part, axes, count) > memory for part, count in zip(made, counts) if count):
        memory -= max(0, trainer._mixture_bytes(whole))
    cut = []
    for part, count in zip(made, counts):
        pieces = -(-count // _most(trainer, part, axes, count, memory)) if count else 1
        cut += [_group.cut(part, axes, count * i // pieces, count * (i + 1) // pieces) for i in range(pieces)]
    return tuple(cut)
