"""The whole table of ATen operations: what each file adds to it."""
from . import _aten_assign, _aten_einsum, _aten_math, _aten_norms, _aten_places, _aten_scatter, _aten_windows  # noqa: F401
from ._aten import ATEN

__all__ = ["ATEN"]
