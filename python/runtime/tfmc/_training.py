"""from_torch(training=True): dropouts that stay in the text, and the objective that a loss of torch becomes.

In: the module, and functions of its result and of targets. Out: while it is exported, functions of torch as operations
that the table has (tfmc::drop, tfmc::cross_entropy); afterwards `fn objective` and a train block for the text. Refused:
batch norms in training mode, dropouts that are not of elements or channels, losses with weights of their own, results
whose sizes are computed, and a loss or metric that is no f32 without axes.
"""
import contextlib
import inspect
import re

import torch
from torch.utils import _pytree as pytree

from ._aten import aten
from ._errors import CompileError, UsageError
from ._inputs import flat
from ._sizes import is_computed
from ._torch import KEYWORDS, TAKEN

F = torch.nn.functional
cross_entropy_of_torch = F.cross_entropy


# ---- operations that the text has as they are ----

@torch.library.custom_op("tfmc::drop", mutates_args=())
def drop(x: torch.Tensor, p: float) -> torch.Tensor:
    return x.clone()


@drop.register_fake
def _(x, p):
    return torch.empty_like(x)


@torch.library.custom_op("tfmc::cross_entropy", mutates_args=())
def cross_entropy(x: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor | None, ignore_index: int, reduction: str,
                  label_smoothing: float) -> torch.Tensor:
    axes = [0, x.ndim - 1, *range(1, x.ndim - 1)] if x.ndim > 1 else [0]
    weight = None if weight is None else weight.to(x.dtype)
    return cross_entropy_of_torch(x.permute(axes), labels, weight, ignore_index=ignore_index, reduction=reduction,
                                  label_smoothing=label_smoothing).clone()


@cross_entropy.register_fake
def _(x, labels, weight, ignore_index, reduction, label_smoothing):
    if tuple(x.shape[:-1]) != tuple(labels.shape):  # as torch's own; sizes with names become equal
        raise ValueError(f"cross_entropy of logits {list(x.shape)} needs labels {list(x.shape[:-1])}, not {list(labels.shape)}")
    return x.new_empty(labels.shape if reduction == "none" else ())


@aten("drop")
def dropped(w, node, x, p):
    return f"dropout({w.text(x)}, {p!r})" if w.drops else w.text(x)


def together(w, x, labels):
    """Logits and labels whose first axes were made one: as they were, so that items are seen."""
    views = ("view", "reshape", "_unsafe_view", "flatten", "clone", "contiguous")
    if w.operation(x) in views and w.operation(labels) in views:
        a, b = x.args[0], labels.args[0]
        if w.rank(b) and w.shape(a)[:-1] == w.shape(b) and w.shape(a)[-1] == w.shape(x)[-1]:
            return a, b
    return x, labels


@aten("cross_entropy")
def entropy(w, node, x, labels, weight, ignore_index, reduction, label_smoothing):
    x, labels = together(w, x, labels) if reduction != "none" else (x, labels)
    more = f", ignore_index = {ignore_index}"  # torch always has one, and labels are padded with it
    more += f", label_smoothing = {label_smoothing!r}" if label_smoothing else ""
    more += f', reduction = "{reduction}"' if reduction != "mean" else ""
    more += f", weights = {w.text(weight)}" if weight is not None else ""
    return f"cross_entropy({w.cast(x, torch.float32)}, {w.cast(labels, torch.int64)}{more})"


# ---- functions of torch while a module is exported ----

def dropping(x, p=0.5, training=True, inplace=False):
    if not training or not p:
        return x
    return x.copy_(drop(x, float(p))) if inplace else drop(x, float(p))


def dropping_channels(x, p=0.5, training=True, inplace=False):
    """Of an input with a batch: all elements of a channel go together."""
    if not training or not p:
        return x
    ones = torch.ones([*x.shape[:2], *[1] * (x.ndim - 2)], dtype=x.dtype, device=x.device)
    made = x * drop(ones, float(p))
    return x.copy_(made) if inplace else made


def not_taken(name):
    def write(x, p=0.5, training=False, *args, **named):
        if training and p:
            raise UsageError(f"from_torch cannot take {name}, whose values depend on all that is dropped: use dropout")
        return x
    return write


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
              of=F.scaled_dot_product_attention):
    """With a dropout: what torch says that it computes."""
    if not dropout_p:
        return of(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        n = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(n, -3), value.repeat_interleave(n, -3)
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        at = torch.arange(query.shape[-2])[:, None] >= torch.arange(key.shape[-2])[None]
        scores = scores.masked_fill(~at, float("-inf"))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    return drop(torch.softmax(scores, -1), float(dropout_p)) @ value


def merged(attn_mask, key_padding_mask, batch, heads):
    """The masks of nn.MultiheadAttention, in which True hides, as one for scores: in which True shows, or a number that is
    added; None: none."""
    masks = []
    if attn_mask is not None:
        masks.append(attn_mask.reshape(batch, heads, *attn_mask.shape[1:]) if attn_mask.ndim == 3 else attn_mask)
    if key_padding_mask is not None:
        masks.append(key_padding_mask[:, None, None, :])
    if all(mask.dtype == torch.bool for mask in masks):
        return ~(masks[0] | masks[1]) if len(masks) == 2 else ~masks[0] if masks else None
    numbers = [torch.where(mask, float("-inf"), 0.0) if mask.dtype == torch.bool else mask for mask in masks]
    return sum(numbers[1:], numbers[0])


def attention_of_heads(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v,
                       add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None,
                       need_weights=True, attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None,
                       k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True,
                       is_causal=False, of=F.multi_head_attention_forward):
    """As torch's own, which makes one axis of items and positions: then items would not be seen any more."""
    if query.ndim != 3 or bias_k is not None or bias_v is not None or add_zero_attn or static_k is not None or static_v is not None:
        return of(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
                  dropout_p, out_proj_weight, out_proj_bias, training, key_padding_mask, need_weights, attn_mask,
                  use_separate_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, static_k, static_v,
                  average_attn_weights, is_causal)
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight.chunk(3)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))
    q, k, v = (x.reshape(*x.shape[:2], num_heads, x.shape[2] // num_heads).permute(1, 2, 0, 3) for x in (q, k, v))
    mask, p = merged(attn_mask, key_padding_mask, query.shape[1], num_heads), float(dropout_p) if training else 0.0
    if need_weights:
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        shown = torch.softmax(scores, -1)
        shown = drop(shown, p) if p else shown
        made = shown @ v
    else:
        made = F.scaled_dot_product_attention(q, k, v, mask, p)
    made = made.permute(2, 0, 1, 3)
    made = F.linear(made.reshape(*made.shape[:2], num_heads * made.shape[3]), out_proj_weight, out_proj_bias)
    return made, (shown.mean(1) if average_attn_weights else shown) if need_weights else None


def entropy_of(x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
               label_smoothing=0.0):
    if target.is_floating_point() or size_average is not None or reduce is not None:
        return cross_entropy_of_torch(x, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
    x = x.movedim(1, -1) if x.ndim > 2 else x
    return cross_entropy(x, target, weight, ignore_index, reduction, float(label_smoothing))


def functions():
    """(owner, name, function) for _tracing.patched."""
    kept = [(F, "scaled_dot_product_attention", attention), (F, "multi_head_attention_forward", attention_of_heads),
            (F, "dropout", dropping), (F, "cross_entropy", entropy_of),
            (torch, "dropout", lambda x, p, train: dropping(x, p, train))]
    kept += [(F, name, dropping_channels) for name in ("dropout1d", "dropout2d", "dropout3d")]
    return kept + [(F, name, not_taken(name)) for name in ("alpha_dropout", "feature_alpha_dropout")]


@contextlib.contextmanager
def mode(module, training):
    """All parts in evaluation mode, or, if they all are, in training mode but for batch norms; afterwards as they were."""
    parts = list(module.modules())
    kept = [part.training for part in parts]
    try:
        for part in parts:
            if not training:
                part.training = False
            elif not any(kept):
                part.training = not isinstance(part, torch.nn.modules.batchnorm._NormBase)
        yield
    finally:
        for part, value in zip(parts, kept):
            part.training = value


def check_modes(module):
    for path, part in module.named_modules():
        if part.training and isinstance(part, torch.nn.modules.batchnorm._NormBase) and part.track_running_stats:
            raise UsageError(f"{path} ({type(part).__name__}) is in training mode, where it computes with all items of a batch: "
                             f"call {path}.eval(), then its running statistics are used")


# ---- the objective ----

def wanted(function, what, inputs, targets):
    """The names that a loss or a metric takes beside the result."""
    params = list(inspect.signature(function).parameters.values())
    if not params or params[0].kind not in (params[0].POSITIONAL_ONLY, params[0].POSITIONAL_OR_KEYWORD):
        raise UsageError(f"{what} takes the module's result first, then inputs and targets by name")
    found = []
    for param in params[1:]:
        if param.kind == param.VAR_KEYWORD:
            found += [name for name in targets if name not in found]
        elif param.name in targets or param.name in inputs:
            found.append(param.name)
        elif param.default is param.empty or param.kind == param.VAR_POSITIONAL:
            raise UsageError(f"{what} takes {param.name!r}, which is none of targets= ({', '.join(targets) or 'none'}) nor of "
                             f"inputs= ({', '.join(inputs)})")
    return found


class Split:
    """The axes of a result, each as the factors of its size. An axis of batch * time, as `scores.view(-1, classes)` makes it,
    is no size of the language, whose sizes have names: it goes to the functions in two axes and is put together there."""

    def __init__(self, output, value, symbols):
        self.factors = [[size] if isinstance(size, int) else self.named(size.node.expr, symbols) for size in value.shape]
        self.refused = None  # what is said if a function reads it
        for axis, (size, factors) in enumerate(zip(value.shape, self.factors)):
            if None in factors:
                said = re.sub(r"[A-Za-z_]\w*", lambda m: symbols.get(m[0], m[0]), str(size.node.expr))
                self.refused = (f"the result {output} has a size that is computed (axis {axis}, {said}): compute the loss in "
                                "forward, with loss= the name of the result")
        self.is_one = all(len(factors) == 1 for factors in self.factors)
        self.axes = sum(self.factors, [])  # of the result with such axes apart

    @staticmethod
    def named(expr, symbols):
        parts = [expr] if str(expr) in symbols else expr.args if expr.is_Mul else [expr]
        return [int(part) if part.is_Integer else symbols.get(str(part)) for part in parts]

    def sizes(self):
        return {i: factor for i, factor in enumerate(self.axes) if isinstance(factor, str)}

    def apart(self, leaf, values):
        return leaf if self.is_one else leaf.reshape([values.get(factor, factor) for factor in self.axes])

    def together(self, leaf):
        for axis, factors in enumerate(self.factors):
            leaf = leaf.flatten(axis, axis + len(factors) - 1) if len(factors) > 1 else leaf
        return leaf

    def line(self, name):
        return [] if self.is_one else [f"    {name} = reshape({name}, [{', '.join(map(str, self.axes))}])"]


def unread(refused):
    """A result that no function may read."""
    def refuse(cls, function, types, args=(), kwargs=None):
        raise CompileError(refused)
    kind = type("Unread", (torch.Tensor,), {"__torch_function__": classmethod(refuse)})
    return torch.Tensor._make_subclass(kind, torch.empty(0))


class Losses(torch.nn.Module):
    """The loss and the metrics, as a module of the results, inputs and targets."""

    def __init__(self, functions, spec, places, split):
        super().__init__()
        self.functions, self.spec, self.places, self.split = functions, spec, places, split
        self.unread = {name: unread(one.refused) for name, one in split.items() if one.refused}

    def forward(self, **values):
        leaves = [None] * self.spec.num_leaves
        for name, place in self.places.items():
            leaves[place] = self.unread[name] if name in self.unread else self.split[name].together(values[name])
        result = pytree.tree_unflatten(leaves, self.spec)
        made = []
        for name, (function, names) in self.functions.items():
            value = function(result, **{one: values[one] for one in names})
            if not isinstance(value, torch.Tensor) or value.ndim or value.dtype != torch.float32:
                said = f"{str(value.dtype)[6:]} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
                raise UsageError(f"{name} is {said}: it must be f32 without axes")
            made.append(value)
        return tuple(made)


class Objective:
    def __init__(self, writer, module, given, targets, loss, metrics, sizes):
        self.writer, self.module, self.given, self.targets, self.sizes = writer, module, given, targets, sizes
        self.loss, self.functions = loss, {}
        if not (loss is None or isinstance(loss, str) or callable(loss)):
            raise UsageError(f"loss= is of type {type(loss).__name__}, not a function or the name of a result")
        if "loss" in metrics or any(not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in KEYWORDS for name in metrics):
            raise UsageError(f"metrics= has names that no result may have: {', '.join(map(repr, metrics))}")
        for name, function in metrics.items():
            if not callable(function):
                raise UsageError(f"metrics= has {name} of type {type(function).__name__}, not a function")
        if callable(loss):
            self.functions = {name: (function, wanted(function, f"the {'loss' if name == 'loss' else f'metric {name}'}", given, targets))
                              for name, function in {"loss": loss, **metrics}.items()}
        elif targets or metrics:
            raise UsageError("targets= and metrics= are for loss=, a function of the module's result and of them")
        used = {one for _, names in self.functions.values() for one in names}
        unused = [name for name in targets if name not in used]
        if unused:
            raise UsageError(f"the target {unused[0]!r} is taken by no loss or metric")

    def text(self):
        """fn objective and a train block."""
        heads = dict(self.writer.frame[1])
        taken = {*heads, *self.targets, *self.writer.symbol_names, *TAKEN, *KEYWORDS, "objective", "loss"}
        self.names = {output: f"out_{i}" if output in taken or output[:2] in ("t_", "w_") else output
                      for i, output in enumerate(self.writer.results)}
        call = f"    {', '.join(self.names.values())} = forward({', '.join(heads)})"
        if not self.functions:
            return self.whole(heads, [call], f"loss = {self.names[self.chosen()]}")
        body, more, returned = self.written()
        return self.whole({**heads, **more}, [call, *body], returned)

    def whole(self, heads, lines, returned):
        params = ", ".join(f"{name}: {kind}" for name, kind in heads.items())
        return "\n".join([f"  fn objective({params}) {{", *lines, f"    return {returned}", "  }", "  train objective {", *self.settings(), "  }"])

    def settings(self):
        """Of a module that peft wrapped checkpoints hold what is trained, as peft's own files do."""
        return ['    saved = "trained"'] if is_adapted(self.module) else []

    def chosen(self):
        """The result that is the loss."""
        results = self.writer.results
        if self.loss is None and len(results) != 1:
            raise UsageError(f"the module returns {', '.join(results)}: say which is the loss, or give loss= a function")
        name = self.loss or next(iter(results))
        if name not in results:
            raise UsageError(f"loss= names {name!r}; the module returns {', '.join(results)}")
        value = results[name].meta["val"]
        if value.ndim or value.dtype != torch.float32:
            raise UsageError(f"the result {name} is {str(value.dtype)[6:]} with {value.ndim} axes, no loss: give loss= a function")
        return name

    def written(self):
        """(lines, heads of targets, what is returned) of the functions."""
        from ._check import with_ways
        from ._export import Writer
        leaves, spec = pytree.tree_flatten(self.results())
        self.spec = spec
        split = {self.names[output]: Split(output, node.meta["val"], self.writer.symbols) for output, node in self.writer.results.items()}
        if self.writer.aliases:
            raise UsageError(f"the input {next(iter(self.writer.aliases))!r} has a meaning in the language: give it another name, "
                             "or compute the loss in forward")
        self.refuse_weights([leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec)
        places = {self.names[output]: self.writer.signature.places[output] for output in self.writer.results}
        names = dict.fromkeys(one for _, names in self.functions.values() for one in names)
        values = self.values_of_sizes()
        read = {name: one for name, one in split.items() if not one.refused}
        given = {**{name: one.apart(leaves[places[name]].detach(), values) for name, one in read.items()},
                 **{name: self.targets[name] if name in self.targets else self.given[name] for name in names}}
        sizes = {**{name: one.sizes() for name, one in read.items()},
                 **{name: axes for name, axes in self.sizes.items() if name in given}}
        members = set(re.findall(r"^  (?:weight )?(\w+)\b", self.writer.said, re.MULTILINE))
        for fold in (True, False):
            losses = Writer(module := Losses(self.functions, spec, places, split), given, flat(given), sizes, training=True,
                            ranges={name: self.writer.ranges[name] for name in self.targets if name in self.writer.ranges})
            text = losses.write("Objective", list(self.functions), None, fold)
            equal = (guard for guard in losses.guard_texts() if not is_computed(guard))
            fixed = next((guard for guard in equal if re.fullmatch(r"[^=<>!]+ == \d+", guard)), None)
            if fixed:  # such as batch * time, where the labels have the number
                raise CompileError(f"the loss is that of the example's sizes alone, where {fixed}: name the axes of targets in sizes=")
            body = body_of(text)
            if body is None or losses.weights:
                raise UsageError("the loss has tensors of its own, of more than 16 numbers: give them to the module as buffers, and let "
                                 f"forward return what is computed with them\n{text}")
            targets = {word for line in body[1].split("\n") for word in re.findall(r"\w+", line.partition(" = ")[0])}
            if not targets & members:
                break
        heads = {name: kind for name, kind in losses.frame[1] if name not in places}
        reshaped = sum((one.line(name) for name, one in read.items()), [])
        lines, returned = body_of(with_ways(text, losses, module, flat(given))).groups()
        return [*reshaped, *(line for line in lines.split("\n") if line.strip())], heads, returned

    def values_of_sizes(self):
        """The value of each named size in the example."""
        tensors = {**flat(self.given), **self.targets}
        return {size: tensors[name].shape[axis] for name, axes in self.sizes.items() for axis, size in axes.items()}

    def refuse_weights(self, leaves, spec):
        """A loss of results that have no gradient has one if it takes weights from elsewhere."""
        for name, (function, names) in self.functions.items():
            given = {one: self.targets[one] if one in self.targets else self.given[one] for one in names}
            with torch.enable_grad():
                value = function(pytree.tree_unflatten(leaves, spec), **given)
            if isinstance(value, torch.Tensor) and value.requires_grad:
                raise UsageError(f"the {'loss' if name == 'loss' else f'metric {name}'} takes weights that are none of its arguments: "
                                 "let the module's forward return what is computed with them")

    def value(self, results, dtype):
        """The loss of results of torch, by name."""
        if not self.functions:
            return results[self.chosen()]
        from ._gradients import rebuilt
        function, names = self.functions["loss"]
        given = {name: self.targets[name] if name in self.targets else self.given[name] for name in names}
        given = pytree.tree_map(lambda x: x.to(dtype) if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x, given)
        return function(rebuilt(self, results), **given)

    def results(self):
        from ._check import copied, unchanged
        with mode(self.module, False), unchanged(self.module, self.writer.dropout):
            return self.module(**copied(self.given))


def body_of(text):
    """The lines of the functions' text before what is returned, and that; None if it has layers or weights."""
    return re.fullmatch(r"model Objective \{\n+  forward\([^{]*\) \{\n(.*?)    return (.*?)\n  \}\n?\}\n?", text, re.DOTALL)


def is_adapted(module):
    """Whether peft put adapters into the module."""
    return any(type(part).__module__.startswith("peft.") for part in module.modules())


def with_objective(text, objective):
    end = text.rstrip().rfind("}")
    if end < 0:
        raise CompileError("the text has no model")
    return f"{text[:end]}{objective}\n{text[end:]}"
