"""The table that idioms_*.py fill: a module, its inputs by size, the names of sizes, and words of its refusal."""
import collections

from torch_cases import floats, ids, nn, torch

Idiom = collections.namedtuple("Idiom", "make inputs sizes shapes refused tolerance")
IDIOMS = []
__all__ = ["IDIOMS", "floats", "idiom", "ids", "nn", "torch"]


def idiom(inputs, sizes, shapes=((3, 7), (2, 10), (5, 4)), refused=None, tolerance=1e-5):
    """inputs(*shape) gives the inputs, the first shape those of the example. refused: what the message must have."""
    def enter(make):
        IDIOMS.append(Idiom(make, inputs, sizes, shapes, refused, tolerance))
        return make
    return enter
