"""What a forward draws to drop whole items (DropPath, stochastic depth), as dropouts of ones that the text has.

In: a program that was exported for training. Out: the same, in which bernoulli of a number p, and the floor of p and rand,
are p * drop(1), whose mean is p as well. All else that draws numbers is left, and refused where it is written.
"""
import torch

from . import _training  # noqa: F401  which makes tfmc::drop

aten = torch.ops.aten


def share(node):
    """(shape, p) of a node of zeros and ones that are one in a share p of all cases, or None."""
    if node.target is aten.bernoulli.p:
        shape, p = node.args[0].meta["val"].shape, (*node.args, node.kwargs.get("p", 0.5))[1]
        return sizes(node.args[0], shape), p
    added = node.args[0] if node.target is aten.floor.default else None
    if getattr(added, "target", None) is not aten.add.Tensor:
        return None
    drawn, p = sorted(added.args, key=lambda one: not isinstance(one, torch.fx.Node))
    if not isinstance(p, float) or getattr(drawn, "target", None) not in (aten.rand.default, aten.rand_like.default):
        return None
    return (drawn.args[0] if drawn.target is aten.rand.default else sizes(drawn.args[0], drawn.meta["val"].shape)), p


def sizes(x, shape):
    """The shape, whose numbers the graph computes where runs choose them."""
    graph, made = x.graph, []
    for axis, n in enumerate(shape):
        size = n
        if isinstance(n, torch.SymInt):
            size = graph.call_function(aten.sym_size.int, (x, axis))
            size.meta["val"] = n
        made.append(size)
    return made


def erase(node):
    """The node and what it alone reads."""
    if node.op == "call_function" and not node.users:
        read = node.all_input_nodes
        node.graph.erase_node(node)
        for one in read:
            erase(one)


def dropped(program):
    """The program with dropouts in the place of what draws zeros and ones."""
    graph = program.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        with graph.inserting_before(node):
            found = share(node)
            if found is None or not 0 < found[1] <= 1:
                continue
            made = graph.call_function(aten.full.default, (found[0], 1.0))
            for target, more in ((torch.ops.tfmc.drop.default, 1 - found[1]), (aten.mul.Tensor, found[1])):
                made.meta = dict(node.meta)
                made = graph.call_function(target, (made, more))
            made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        erase(node)
    program.graph_module.recompile()
    return program
