"""How a module is traced by torch.export: what is changed in torch for that time, and what is cut up afterwards.

What comes in is torch, or an exported program; what goes out is torch as it was, or the program with operations of the
table where torch can say one that is not there by others. Refuses nothing.
"""
import contextlib
import sys

import torch


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


def is_causal(mask, is_causal=None, size=None):
    return bool(is_causal)


@contextlib.contextmanager
def patched():
    """What looks into tensors to choose a faster way, or for packed rows, is told that there is nothing to find."""
    kept = [(torch.nn.modules.transformer, "_detect_is_causal_mask", is_causal),
            (torch.nn.Module, "to", moved_module(torch.nn.Module.to))]
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


def cut_up(program, table, times=4):
    """The program with operations of the table in place of others, as far as torch defines the others by them."""
    known = None
    for _ in range(times):
        missing = {node.target for node in program.graph.nodes if node.op == "call_function"
                   and isinstance(node.target, torch._ops.OpOverload) and node.target.__name__.split(".")[0] not in table}
        if missing and known is None:
            known = dict(torch.export.default_decompositions())
        missing = {op: known[op] for op in missing if op in known}
        if not missing:
            return program
        program = program.run_decompositions(missing)
    return program
