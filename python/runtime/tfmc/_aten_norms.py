"""Norms, similarities, losses, and bags of rows.

Rules are those of _aten.py. Losses of other kinds are cut up by torch into operations of the table.
"""
import torch

from ._aten import ATEN, aten
from ._aten_einsum import moved
from ._fold import Type


@aten("linalg_vector_norm", "norm")
def norm(w, node, x, p=2, axes=None, keepdim=False, **named):
    p = 2 if p is None else p
    if w.operation(node) == "norm" and isinstance(axes, bool):
        w.no("this form of norm", "use torch.linalg.vector_norm")
    axes = list(range(w.rank(x))) if axes in (None, []) else [axes] if isinstance(axes, int) else axes
    axes = sorted(w.axis(x, a) for a in axes)
    text = w.cast(x, torch.float32)
    if len(axes) > 1:  # as one, the last
        rest = [a for a in range(w.rank(x)) if a not in axes]
        size = " * ".join(w.factor(w.shape(x)[a]) for a in axes)
        text = moved(text, range(w.rank(x)), rest + axes)
        made = f"norm(reshape({text}, [{', '.join([*(w.shape(x)[a] for a in rest), size])}]), {number(w, p)}, -1)"
        marks = ["none" if a in axes else ":" for a in range(w.rank(x))]
        return f"{made}[{', '.join(marks)}]" if keepdim else made
    if not axes:
        return f"abs({text})"
    return f"norm({text}, {number(w, p)}, {axes[0]}, {w.text(bool(keepdim))})"


def number(w, p):
    """A norm's number: 2.0 is 2."""
    return w.text(int(p) if float(p).is_integer() else p) if abs(p) != float("inf") else "inf" if p > 0 else "(-inf)"


@aten("cosine_similarity")
def cosine_similarity(w, node, x, y, axis=1, eps=1e-8):
    rank = max(w.rank(x), w.rank(y))
    return f"cosine_similarity({w.text(x)}, {w.text(y)}, {axis if axis < 0 else axis - rank}, {eps!r})"


@aten("cdist", "_cdist_forward")
def cdist(w, node, x, y, p=2.0, *rest):
    return f"norm(({w.text(x)})[..., :, none, :] - ({w.text(y)})[..., none, :, :], {number(w, p)})"


@aten("instance_norm")
def instance_norm(w, node, x, weight, bias, mean, variance, use_input, momentum, eps, *rest):
    weight, bias = w.text(weight), w.text(bias)
    if use_input:
        return f"instance_norm({w.text(x)}, {weight}, {bias}, {eps!r})"
    return f"batch_norm({w.text(x)}, {w.text(mean)}, {w.text(variance)}, {weight}, {bias}, {eps!r})"


@aten("native_layer_norm")
def native_layer_norm(w, node, x, shape, weight, bias, eps):
    w.result(node, 0, ATEN["layer_norm"](w, node, x, shape, weight, bias, eps))


@aten("binary_cross_entropy")
def binary_cross_entropy(w, node, x, target, weight=None, reduction=1):
    """Its logarithms end at -100, and its gradient is that of torch: finite where x is 0 or 1."""
    p, y, names = w.text(x), w.text(target), [f"t_{node.name}_{what}" for what in ("value", "slope", "each")]
    made = x.meta["val"]
    w.say(f"({y} - 1.0) * maximum(log1p(-{p}), -100.0) - {y} * maximum(log({p}), -100.0)", {names[0]: made})
    w.say(f"({p} - {y}) / maximum({p} - {p} * {p}, 1e-12)", {names[1]: made})
    each = f"stop_gradient({names[0]}) + ({p} - stop_gradient({p})) * stop_gradient({names[1]})"
    if w.signature.has_gradient(target):
        w.no("a binary_cross_entropy whose target is trained", "give it target.detach(), or use binary_cross_entropy_with_logits")
    w.say(each if weight is None else f"({each}) * {w.text(weight)}", {names[2]: made})
    text = names[2]
    for _ in range(w.rank(x) if reduction else 0):
        text = f"{'mean' if reduction == 1 else 'sum'}({text}, -1)"
    return text


@aten("cross_entropy_loss")
def cross_entropy(w, node, logits, labels, weight=None, reduction=1, ignore=-100, smoothing=0.0):
    said = {0: "none", 1: "mean", 2: "sum"}[reduction]
    if said == "none" and w.rank(node) != w.rank(logits) - 1:
        w.no('cross_entropy with reduction="none", of which torch.export says that it is one number',
             "write -log_softmax(logits, 1).gather(1, labels[:, None])[:, 0]")
    classes = min(1, w.rank(logits) - 1)  # of one item: the only axis
    text = moved(w.text(logits), range(w.rank(logits)), [a for a in range(w.rank(logits)) if a != classes] + [classes])
    if w.dtype(labels) == torch.float32:
        return shares(w, logits, labels, (weight, said, smoothing))
    if weight is None:
        smooth = f", label_smoothing = {smoothing!r}" if smoothing else ""
        return f'cross_entropy({text}, {w.text(labels)}, {ignore}{smooth}, reduction = "{said}")'
    if smoothing:
        w.no("a cross entropy with weights of classes and label smoothing", "leave one out")
    each = f'cross_entropy({text}, {w.text(labels)}, {ignore}, reduction = "none")'
    share = f"where({w.text(labels)} == {w.text(ignore)}, 0.0, {w.text(weight)}[maximum({w.text(labels)}, 0)])"
    return total(w, labels, f"{each} * {share}", said, share)


def shares(w, logits, labels, options):
    """Labels that are shares of the classes."""
    weight, said, smoothing = options
    axis = min(1, w.rank(logits) - 1)
    n, given = w.shape(logits)[axis], w.text(labels)
    if smoothing:
        given = f"({given} * {1 - smoothing!r} + {smoothing!r} / {n})"
    if weight is not None:
        given = f"{given} * {w.text(weight)}[:{', none' * (w.rank(logits) - axis - 1)}]"
    each = f"(-sum(log_softmax({w.text(logits)}, {axis}) * {given}, {axis}))"
    rank = w.rank(logits) - 1
    if said == "none" or not rank:
        return each
    each = summed(each, rank)
    items = " * ".join(w.factor(s) for a, s in enumerate(w.shape(logits)) if a != axis)
    return each if said == "sum" else f"{each} / f32({items})"


def summed(text, rank):
    for _ in range(rank):
        text = f"sum({text})"
    return text


def total(w, of, each, said, share):
    rank = w.rank(of)
    return each if said == "none" else summed(each, rank) + ("" if said == "sum" else f" / {summed(share, rank)}")


@aten("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(w, node, table, ids, offsets, scale=False, mode=0, sparse=False, weights=None, last=False, padding=None):
    """Each bag counts the rows that lie in it; bags of one size are rows of a matrix of ids."""
    if padding is not None and padding >= 0:
        w.no("an EmbeddingBag with padding_idx", "give per_sample_weights of 0 where it stands")
    if mode == 2 and weights is not None:
        w.no("an EmbeddingBag of the greatest with weights", 'use mode="sum"')
    rows = f"{w.text(table)}[{w.text(ids)}]"
    if weights is not None:
        rows = f"({rows}) * {w.text(weights)}[:, none]"
    n, bags, width = w.shape(ids)[0], w.size(node.meta["val"][0].shape[0]), w.shape(table)[1]
    step = offsets.args[2] if w.operation(offsets) == "arange" and len(offsets.args) > 2 and offsets.args[0] == 0 else None
    if step is not None:
        grouped = f"reshape({rows}, [{bags}, {w.text(step)}, {width}])"
        w.result(node, 0, f"{('sum', 'mean', 'max')[mode]}({grouped}, 1)")
        return
    starts, ends = w.text(offsets), None
    if last:  # the last offset is the end of the last bag
        starts, ends = f"{w.text(offsets)}[:{bags}]", f"{w.text(offsets)}[1:]"
    else:
        ends = f"concat({starts}[1:], i32(full([1], {n}.0)), axis = 0)" if n.isdigit() else (
            f"concat({starts}[1:], arange({n})[{n} - 1:] + 1, axis = 0)")
    inside = f"t_{node.name}_inside"
    w.say(f"({starts})[:, none] <= arange({n})[none, :] and ({ends})[:, none] > arange({n})[none, :]",
          {inside: Type("bool", [bags, n])})
    if mode == 2:
        top = f"max(where({inside}[..., none], ({rows})[none], -inf), 1)"
        w.result(node, 0, f"where(any({inside}, 1)[:, none], {top}, 0.0)")
        return
    made = f"sum(where({inside}[..., none], ({rows})[none], 0.0), 1)"
    w.result(node, 0, made if mode == 0 else f"{made} / maximum(sum(f32({inside}), 1, true), 1.0)")
