"""How a module is traced by torch.export: what is changed in torch for that time, and what is cut up afterwards.

What comes in is torch, or an exported program; what goes out is torch as it was, or the program with operations of the
table where torch can say one that is not there by others. Refused is linspace of integers by a size.
"""
import contextlib
import copy
import functools
import operator
import os
import re
import sys
import traceback

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ._aten_complex import COMPLEX
from ._errors import CompileError

VMAP = getattr(getattr(torch, "_functorch", None), "vmap", None)
TORCH, OURS = os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep


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


def take_along_dim(x, at, dim=None):
    """By gather, as torch's own makes constants of the sizes of the other axes."""
    if dim is None:
        return x.reshape(-1).gather(0, at.reshape(-1))
    dim %= x.ndim
    shape = list(torch.broadcast_shapes([*x.shape[:dim], 1, *x.shape[dim + 1:]], [*at.shape[:dim], 1, *at.shape[dim + 1:]]))
    whole = [[*shape[:dim], v.shape[dim], *shape[dim + 1:]] for v in (x, at)]
    return x.expand(whole[0]).gather(dim, at.expand(whole[1]))


def without_batch(function):
    """The end of a vmap: another place of its axis than the first (out_dims) is taken by movedim, which the export can."""
    def write(name, x, level, size, place):
        if not isinstance(x, torch.Tensor) or not place:
            return function(name, x, level, size, place)
        return function(name, x, level, size, 0).movedim(0, place)
    return write


def spaced(function):
    """linspace with a number of elements that runs choose, of which torch's own makes a constant; from both ends, as torch's."""
    def write(start, end, steps, **named):
        if not isinstance(steps, torch.SymInt):
            return function(start, end, steps, **named)
        kind = named.get("dtype") or torch.get_default_dtype()
        if not kind.is_floating_point:
            raise CompileError(f"from_torch cannot take linspace of {str(kind)[6:]} with as many elements as a run chooses, at "
                               f"{':'.join(map(str, caller()))}: compute them with arange and //")
        places = torch.arange(steps)
        step = (end - start) / torch.full((), steps - 1, dtype=kind).clamp(min=1)
        return torch.where(places * 2 < steps, start + places * step, end - (steps - 1 - places) * step).to(kind)
    return write


def bilinear(x, y, weight, bias=None):
    made = torch.einsum("...i,oij,...j->...o", x, weight, y)
    return made if bias is None else made + bias


def places_in(function, chosen):
    """Of a triangle whose sizes are known: numbers, which the trace would compute in f64."""
    def write(row, column, offset=0, **named):
        if any(isinstance(n, torch.SymInt) for n in (row, column, offset)):
            return function(row, column, offset, **named)
        pairs = [(i, j) for i in range(row) for j in range(column) if chosen(j - i, offset)]
        return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    return write


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


def caller():
    """(file, line) of the code of the caller's module that is being run, or None."""
    return innermost(traceback.extract_stack())


def innermost(frames):
    """(file, line) of the last frame that is neither torch's nor ours."""
    own = [f for f in frames if not f.filename.startswith((TORCH, OURS, "<"))
           and os.path.basename(f.filename) != "contextlib.py"]
    return (own[-1].filename, own[-1].lineno) if own else None


class Lines:
    """Where, while a module is traced, sizes become numbers, and where recurrent layers are called with such sizes."""

    def __init__(self):
        self.fixed, self.recurrent, self.branches, self.casts = [], None, [], []

    def replacing(self, function):
        def write(env, symbol, to, *args, **named):
            if getattr(to, "is_Integer", False):
                self.fixed.append((int(to), caller()))
            return function(env, symbol, to, *args, **named)
        return write

    def deciding(self, function):
        """Lines that branch on fractions of several sizes."""
        def write(env, expr, *args, **named):
            if len(getattr(expr, "free_symbols", ())) > 1 and re.search("ToFloat|TrueDiv", str(expr)):
                self.branches.append(caller())
            return function(env, expr, *args, **named)
        return write

    def casting(self, enter):
        """Lines that begin an autocast, of whose operations the export keeps no lines."""
        def write(region):
            if getattr(region, "_enabled", False):
                self.casts.append(caller())
            return enter(region)
        return write

    def watch(self, path, layer):
        def before(layer, args):
            x = args[0] if args else None
            axis = 1 if isinstance(x, torch.Tensor) and x.ndim == 3 and layer.batch_first else 0
            if isinstance(x, torch.Tensor) and isinstance(x.shape[axis], torch.SymInt):
                self.recurrent = self.recurrent or (path, type(layer).__name__, caller())
        return layer.register_forward_pre_hook(before)

    def of(self, number):
        """The line that made this number of a size, as a text after the message."""
        where = next((where for to, where in reversed(self.fixed) if to == number and where), None)
        return f" (at {where[0]}:{where[1]})" if where else ""


def without_dropout():
    """Functions of torch whose dropout is off whatever they are told."""
    functional = torch.nn.functional
    attention = functional.scaled_dot_product_attention

    def attend(query, key, value, attn_mask=None, dropout_p=0.0, *args, **named):
        return attention(query, key, value, attn_mask, 0.0, *args, **named)

    def same(input, *args, **named):
        return input
    names = [n for n in dir(functional) if re.fullmatch(r"(feature_)?(alpha_)?dropout[123]?d?_?", n)]
    return [(functional, "scaled_dot_product_attention", attend), (torch, "dropout", same),
            *((functional, name, same) for name in names)]


@contextlib.contextmanager
def patched(dropout=True, lines=None, training=False):
    """What looks into tensors to choose a faster way, or for packed rows, is told that there is nothing to find.
    dropout=False: no function of torch.nn.functional drops anything. lines: of what is traced. training: dropouts and
    losses are operations that the table has."""
    kept = [(torch.nn.modules.transformer, "_detect_is_causal_mask", is_causal),
            (torch.nn.functional, "max_pool1d", max_pool1d),
            (torch.nn.functional, "bilinear", bilinear), (torch, "linspace", spaced(torch.linspace)),
            (VMAP, "_maybe_remove_batch_dim", without_batch(getattr(VMAP, "_maybe_remove_batch_dim", None))),
            (torch, "tril_indices", places_in(torch.tril_indices, lambda away, offset: away <= offset)),
            (torch, "triu_indices", places_in(torch.triu_indices, lambda away, offset: away >= offset)),
            (torch, "take_along_dim", take_along_dim), (torch.Tensor, "take_along_dim", take_along_dim),
            (torch.nn.Module, "to", moved_module(torch.nn.Module.to))]
    kept += [(np, name, of_sizes(getattr(np, name), getattr(torch, name))) for name in ("ones", "zeros")]
    kept += [(np, name, of_traced(getattr(np, name), lambda x, k=0, f=getattr(torch, name): f(x, k))) for name in ("triu", "tril")]
    kept.append((torch, "from_numpy", of_traced(torch.from_numpy, lambda x: x)))
    kept += [] if dropout else without_dropout()
    if training:
        from . import _training
        kept += _training.functions()
    if lines is not None and hasattr(ShapeEnv, "_set_replacement"):
        kept.append((ShapeEnv, "_set_replacement", lines.replacing(ShapeEnv._set_replacement)))
    if lines is not None:
        kept.append((ShapeEnv, "evaluate_expr", lines.deciding(ShapeEnv.evaluate_expr)))
        kept.append((torch.autocast, "__enter__", lines.casting(torch.autocast.__enter__)))
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


def files_of(module):
    """The classes of a module's parts and the files that they stand in, those of torch left out."""
    kinds = {base for part in module.modules() for base in type(part).__mro__ if base.__module__.split(".")[0] not in ("torch", "builtins")}
    return kinds, [sys.modules[name] for name in {kind.__module__ for kind in kinds} if name in sys.modules]


def has_traced(value):
    return any(isinstance(leaf, torch.Tensor) and is_traced(leaf) for leaf in torch.utils._pytree.tree_leaves(value))


@contextlib.contextmanager
def as_before(module):
    """What forward keeps for its next call is after a trace what it was: attributes, entries of their dicts and lists and
    of dicts of the file, results of functools.cache. Else the module would compute with tensors of the trace."""
    own, (kinds, files) = vars(torch.nn.Module()), files_of(module)
    attributes = [(part, {name: value for name, value in vars(part).items() if name not in own}) for part in module.modules()]
    boxes = [(box, copy.copy(box)) for _, values in attributes for box in values.values() if isinstance(box, (dict, list, set))]
    cached = {id(one): one for owner in (*kinds, *files) for one in (getattr(v, "__func__", v) for v in list(vars(owner).values()))
              if isinstance(one, functools._lru_cache_wrapper)}
    misses = [(cache, cache.cache_info().misses) for cache in cached.values()]
    try:
        yield
    finally:
        for part, values in attributes:
            for name in [name for name in vars(part) if name not in own and name not in values]:
                del part.__dict__[name]
            part.__dict__.update(values)
        for box, value in boxes:
            box.clear()
            (box.extend if isinstance(box, list) else box.update)(value)
        for cache, n in misses:
            if cache.cache_info().misses != n:
                cache.cache_clear()
        for box in [v for file in files for v in vars(file).values() if type(v) is dict]:
            for key in [key for key, value in box.items() if has_traced(value)]:
                del box[key]


def told(node):
    """Files and lines; not those of code that torch wrote itself, as of what stands within an autocast."""
    found = re.findall(r'File "(.*?)", line (\d+)', node.meta.get("stack_trace") or "")
    return [line for line in found if not line[0].startswith("<")]


def place_of(node):
    """The module and the line of the caller's code that a node comes from, or the first that reads it, as a text."""
    readers = [node]
    for one in readers:
        if told(one):
            node = one
            break
        readers.extend(user for user in one.users if user not in readers)
    path, kind = (list(node.meta.get("nn_module_stack", {}).values()) or [("", "")])[-1]
    path = path.replace("L['self']", "").lstrip(".")
    said = f"in {path or 'the module'} ({kind.__name__ if isinstance(kind, type) else str(kind).split('.')[-1]})"
    lines = [line for line in told(node) if not line[0].startswith(TORCH)] or told(node)
    return said + (f", {lines[-1][0]}:{lines[-1][1]}" if lines else "")


@functools.cache
def decompositions():
    """Operation -> the function of torch that says it by others."""
    return {**torch._decomp.decomposition_table, **torch.export.default_decompositions()}


def diagonal_scatter(x, src, offset=0, dim1=0, dim2=1):
    """x with its diagonal replaced, by operations that the export has: what torch says itself copies in place."""
    y = torch.movedim(x, (dim1, dim2), (-2, -1))
    rows, columns = torch.arange(y.shape[-2]), torch.arange(y.shape[-1])
    place = (rows + min(offset, 0)).clamp(0, src.shape[-1] - 1)
    made = torch.where(columns[None, :] - rows[:, None] == offset, src.index_select(-1, place)[..., None], y)
    return torch.movedim(made, (-2, -1), (dim1, dim2))


FUNCTIONAL = {torch.ops.aten.diagonal_scatter.default: diagonal_scatter}


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
