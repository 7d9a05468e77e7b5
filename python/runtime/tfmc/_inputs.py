"""Inputs of a module that are dicts, lists and tuples of tensors, as the flat inputs that a text has, and back.

What comes in is what forward takes, by name; what goes out is a leaf by the names on the way to it, joined by "_":
`batch={"ids": x, "more": [y]}` has batch_ids and batch_more_0. torch.export has names of its own (without capitals),
which become these. Refused are two leaves of one name.
"""
import inspect
import re

import torch
from torch.utils import _pytree as pytree

from ._errors import UsageError


def leaves(name, value):
    """(name, leaf) of all tensors and numbers of one input, in the order in which torch.export has them."""
    for path, leaf in pytree.tree_flatten_with_path(value)[0]:
        keys = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", "")))) for k in path]
        yield re.sub(r"\W", "_", "_".join([name, *keys]), flags=re.ASCII), leaf


def flat(inputs):
    """name -> leaf."""
    found = {}
    for one, value in inputs.items():
        for name, leaf in leaves(one, value):
            if name in found:
                raise UsageError(f"two inputs are called {name!r}: rename a parameter of forward or a key of {one}")
            if not isinstance(leaf, (torch.Tensor, int, float, str, type(None))):
                raise UsageError(f"the input {name} is a {type(leaf).__name__}: give tensors, numbers, or dicts, lists and "
                                 "tuples of them")
            found[name] = leaf
    return found


def sources(module, inputs):
    """What torch.export calls each leaf in its guards and messages -> its flat name, the longest first."""
    params = inspect.signature(module.forward).parameters.values()
    more = next((p.name for p in params if p.kind == p.VAR_KEYWORD), None)
    found = {}
    for one, value in inputs.items():
        start = f"L['{one}']" if any(p.name == one and p.kind != p.VAR_KEYWORD for p in params) else f"L['{more}']['{one}']"
        for (path, _), (name, _) in zip(pytree.tree_flatten_with_path(value)[0], leaves(one, value)):
            found[start + pytree.keystr(path)] = name
    return dict(sorted(found.items(), key=lambda entry: -len(entry[0])))


def nested(like, given):
    """The flat inputs, or what belongs to each, in the form of `like`."""
    return {one: pytree.tree_unflatten([given[name] for name, _ in leaves(one, value)], pytree.tree_structure(value))
            for one, value in like.items()}


def in_builtins(value):
    """Objects of classes that are registered with torch, dataclasses among them, as lists: so torch.export takes sizes."""
    kind = pytree._get_node_type(value)
    if kind not in pytree.SUPPORTED_NODES:
        return value
    parts, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
    parts = [in_builtins(part) for part in parts]
    return pytree.SUPPORTED_NODES[kind].unflatten_fn(parts, context) if kind in pytree.BUILTIN_TYPES else parts


def renamed(program):
    """The program, whose inputs have the names of flat()."""
    signature, graph = program.graph_signature, program.graph
    theirs = [spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
    names = flat(pytree.tree_unflatten(theirs, program.call_spec.in_spec)[1])
    changed = {of: name for name, of in names.items() if of != name}
    if not changed:
        return program
    nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    taken = {node.name for node in graph.nodes} - set(changed)
    for of, name in changed.items():
        if name in taken:
            raise UsageError(f"the export has another value called {name!r}: give the input another name")
        nodes[of].name = nodes[of].target = name
    for spec in [*signature.input_specs, *signature.output_specs]:
        if getattr(spec.arg, "name", None) in changed:
            spec.arg.name = changed[spec.arg.name]
        if spec.kind.name == "USER_INPUT_MUTATION" and spec.target in changed:
            spec.target = changed[spec.target]
    return program
