"""How a function or a module of torch is compared with what from_torch makes of it: in double, at the example and at
other sizes. No tests of its own; test_torch_operations.py and test_torch_idioms.py use it.
"""
import numpy as np

import tfmc

try:
    import torch
    from tfmc._inputs import flat
    from torch import nn
except ImportError:
    torch = nn = None


def floats(*shape, seed=5):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def ids(*shape, seed=3, high=20):
    return torch.randint(1, high, shape, generator=torch.Generator().manual_seed(seed))


def numbers(value):
    return value.numpy().astype(np.int32) if value.dtype in (torch.int64, torch.uint8) else value.numpy()


def module_of(function):
    """A module whose forward is the function, with its parameters' names."""
    names = function.__code__.co_varnames[:function.__code__.co_argcount]
    made = {}
    exec(f"def forward(self, {', '.join(names)}): return function({', '.join(names)})", {"function": function}, made)
    return type("Function", (nn.Module,), made)().eval()


def wide(value):
    if isinstance(value, (dict, list, tuple)):
        return torch.utils._pytree.tree_map(wide, value)
    return value.double() if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value


def results(module, inputs):
    """What torch computes in double; buffers and parameters too."""
    from copy import deepcopy
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            made = deepcopy(module).double()(**{name: wide(value) for name, value in inputs.items()})
    finally:
        torch.set_default_dtype(kept)
    return [v for v in torch.utils._pytree.tree_leaves(made) if v is not None]


def difference(got, wanted):
    """Of the greatest number that is finite; inf and NaN must stand in the same places."""
    kind = "f" if wanted.is_floating_point() else "b" if wanted.dtype == torch.bool else "i"
    if got.dtype.kind != kind:
        return f"type {got.dtype} for {wanted.dtype}"
    got, wanted = got.astype(float), wanted.double().numpy()
    if got.shape != wanted.shape:
        return f"shape {got.shape} for {wanted.shape}"
    finite = np.isfinite(wanted)
    if not np.array_equal(got[~finite], wanted[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return "inf or NaN elsewhere"
    largest = max(1, np.abs(wanted[finite]).max(initial=0))
    return np.abs(got - wanted)[finite].max(initial=0) / largest


def compared(module, calls, sizes, tolerance=1e-5, **named):
    """The Source of the first call's inputs, whose results are those of torch in double at every call."""
    source = tfmc.from_torch(module, calls[0], sizes=sizes, **named)
    model = tfmc.compile(source)
    for inputs in calls:
        wanted = results(module, inputs)
        got = list(model.run({name: numbers(value) for name, value in flat(inputs).items() if isinstance(value, torch.Tensor)}).values())
        assert len(got) == len(wanted), f"{len(got)} results for {len(wanted)}"
        for one, other in zip(got, wanted):
            away = difference(one, other)
            shapes = {name: tuple(value.shape) for name, value in flat(inputs).items() if isinstance(value, torch.Tensor)}
            assert not isinstance(away, str) and away <= tolerance, f"at {shapes}: {away}\n{source.text}"
    return source
