"""How a module is traced by torch.export: what is changed in torch for that time, and what is cut up afterwards.

What comes in is torch, or an exported program; what goes out is torch as it was, or the program with operations of the
table where torch can say one that is not there by others. Refuses nothing.
"""
import contextlib
import functools
import operator
import sys

import numpy as np
import torch

from ._aten_complex import COMPLEX


def is_traced(tensor):
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter)


def data_of_traced():
    """`x.data` as `x.detach()` for tensors of the trace, of which torch.export cannot take the former."""
    plain = torch._C.TensorBase.data
    return property(lambda x: x.detach() if is_traced(x) else plain.__get__(x), lambda x, to: plain.__set__(x, to))


def moved_module(to):
    """`nn.LayerNorm(8).to(x.device)` in a forward: the module is on that device, and its weights are the trace's."""
    def write(module, *args, **named):
        made_here = any(is_traced(weight) for weight in module.parameters())
        places = [*args, *named.values()]
        return module if made_here and all(isinstance(p, (str, torch.device)) for p in places) else to(module, *args, **named)
    return write


def max_pool1d(x, size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """By max_pool2d, as torch's own makes a constant of the size of the axis."""
    def two(value, none):
        return None if value is None else (none, value if isinstance(value, int) else value[0])
    made = torch.nn.functional.max_pool2d(x.unsqueeze(-2), two(size, 1), two(stride, 1), two(padding, 0), two(dilation, 1),
                                          ceil_mode, return_indices)
    return tuple(v.squeeze(-2) for v in made) if return_indices else made.squeeze(-2)


def of_sizes(function, traced):
    """A function of numpy that is given sizes of the trace, which numpy would make numbers: torch's."""
    def write(shape, *args, **named):
        sizes = shape if isinstance(shape, (list, tuple)) else [shape]
        return traced(sizes) if any(isinstance(n, torch.SymInt) for n in sizes) else function(shape, *args, **named)
    return write


def of_traced(function, traced):
    """A function of numpy, or torch's for a tensor."""
    return lambda x, *args, **named: (traced if isinstance(x, torch.Tensor) else function)(x, *args, **named)


def is_causal(mask, is_causal=None, size=None):
    return bool(is_causal)


@contextlib.contextmanager
def patched():
    """What looks into tensors to choose a faster way, or for packed rows, is told that there is nothing to find."""
    kept = [(torch.nn.modules.transformer, "_detect_is_causal_mask", is_causal),
            (torch.nn.functional, "max_pool1d", max_pool1d),
            (torch.nn.Module, "to", moved_module(torch.nn.Module.to))]
    kept += [(np, name, of_sizes(getattr(np, name), getattr(torch, name))) for name in ("ones", "zeros")]
    kept += [(np, name, of_traced(getattr(np, name), lambda x, k=0, f=getattr(torch, name): f(x, k))) for name in ("triu", "tril")]
    kept.append((torch, "from_numpy", of_traced(torch.from_numpy, lambda x: x)))
    masks = sys.modules.get("transformers.masking_utils")
    if masks is not None:
        kept.append((masks, "find_packed_sequence_indices", lambda position_ids: None))
    old = [(owner, name, getattr(owner, name)) for owner, name, _ in kept if hasattr(owner, name)]
    fast = torch.backends.mha.get_fastpath_enabled()
    try:
        for owner, name, function in kept:
            setattr(owner, name, function)
        torch.Tensor.data = data_of_traced()
        torch.backends.mha.set_fastpath_enabled(False)
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        with contextlib.suppress(AttributeError):
            del torch.Tensor.data  # that of its base is seen again
        for owner, name, function in old:
            setattr(owner, name, function)


@functools.cache
def decompositions():
    """Operation -> the function of torch that says it by others."""
    return {**torch._decomp.decomposition_table, **torch.export.default_decompositions()}


def stopped(program):
    """The program, in which what a region without gradients gives (torch.no_grad) goes through a detach."""
    graph, specs = program.graph, program.graph_signature.output_specs
    for node in list(graph.nodes):
        of = node.args[0] if node.op == "call_function" and node.target is operator.getitem else None
        if getattr(getattr(of, "target", None), "__name__", "") != "wrap_with_set_grad_enabled" or of.args[0] is not False or (
                not isinstance(node.meta.get("val"), torch.Tensor) or not node.meta["val"].is_floating_point()):
            continue
        with graph.inserting_after(node):
            cut = graph.call_function(torch.ops.aten.detach.default, (node,))
        cut.meta = dict(node.meta)
        node.replace_all_uses_with(cut, delete_user_cb=lambda user, cut=cut: user is not cut)
        for spec in specs:
            if spec.arg.name == node.name:
                spec.arg.name = cut.name
    program.graph_module.recompile()
    return program


def is_written(node):
    """Whether the node is an operation of tensors, which needs a row; not a size or a check."""
    made = node.meta.get("val")
    return isinstance(node.target, torch._ops.OpOverload) and isinstance(made, (torch.Tensor, tuple, list))


def cut_up(program, table, times=4):
    """The program with operations of the table in place of others, as far as torch defines the others by them."""
    known = None
    for _ in range(times):
        missing = {node.target for node in program.graph.nodes if is_written(node)
                   and node.target.__name__.split(".")[0] not in table | COMPLEX}
        if missing and known is None:
            known = decompositions()
        missing = {op: known[op] for op in missing if op in known}
        if not missing:
            return program
        program._guards_code = []  # which the second time stand for names that are not there
        program = program.run_decompositions(missing)
    return program
