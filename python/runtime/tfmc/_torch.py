"""from_torch: a module of torch as a Source. torch is imported when it is called, and by nobody else here.

What comes in is an nn.Module with example inputs; what goes out is a text and the weights by their paths in the module.
Refused before anything is exported: training mode, weights that are not there (device "meta"), modules that were
compiled by TorchScript, inputs that forward has not, inputs and sizes that do not belong together.
"""
import inspect

from . import _options
from ._errors import UsageError
from ._source import Source

# Words that are no names in the language.
KEYWORDS = set("""model forward generate return require weight layer fn if else for in true false none inf and or not
include as from ragged then train""".split())
# They, and functions that texts written here may use: an input or a size of such a name would hide them.
TAKEN = KEYWORDS | set("""linear embedding softmax log_softmax layer_norm rms_norm gelu gelu_tanh relu silu tanh sigmoid erf exp log
sqrt rsqrt sin cos floor ceil round abs where maximum minimum sum mean max min amax amin argmax cumsum topk gather
concat stack reshape expand transpose positions arange causal_mask full f32 i32 bool any all clamp sign pad
roll flip conv1d conv2d batch_norm group_norm logsumexp logsigmoid leaky_relu elu softplus mish relu6 selu
hardswish hardsigmoid layer_norm pow var split_heads merge_heads rotary sinusoid shape rank dtype len masked_fill one_hot glu
normalize quick_gelu instance_norm conv1d conv2d log1p expm1 trunc fmod remainder norm unfold avg_pool1d max_pool1d
conv_transpose1d cosine_similarity cross_entropy stop_gradient""".split())


def _named(what, name, taken=TAKEN):
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise UsageError(f"{what} {name!r} is no name")
    if name in taken or taken is TAKEN and name[:2] in ("t_", "w_"):
        raise UsageError(f"{what} {name!r} has a meaning in the language: give it another name" + (
            " (by a module whose forward has another parameter)" if what == "the input" else ""))
    return name


def _check_names(module, inputs):
    """Inputs are parameters of forward, and all that it needs are there."""
    params = inspect.signature(module.forward).parameters.values()
    named = [p.name for p in params if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    said = f"the parameters of {type(module).__name__}.forward are {', '.join(named) or 'none'}"
    unknown = [name for name in inputs if name not in named]
    if unknown and not any(p.kind == p.VAR_KEYWORD for p in params):
        raise UsageError(f"inputs= names {unknown[0]!r}, which forward has not: {said}")
    missing = [p.name for p in params if p.name in named and p.default is p.empty and p.name not in inputs]
    if missing:
        raise UsageError(f"inputs= lacks {missing[0]!r}: {said}")


def _check_module(module, torch, training):
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"from_torch takes a torch.nn.Module, not a {type(module).__name__}")
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise UsageError(f"{path or 'the module'} was compiled by TorchScript: give the nn.Module that it was made of")
        if part.training and not training:
            raise UsageError(f"{path or 'the module'} ({type(part).__name__}) is in training mode: call module.eval()")
    for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_meta:
            raise UsageError(f"{path} is on the device meta, it has no values: load the weights before")


def _check_inputs(inputs, sizes, torch):
    kinds = (torch.float32, torch.int32, torch.int64, torch.uint8, torch.bool)
    for name, value in inputs.items():
        _named("the input", name, KEYWORDS)
        if isinstance(value, torch.Tensor) and value.dtype not in kinds:
            raise UsageError(f"the input {name} is {str(value.dtype)[6:]}: give f32, i32, i64, u8 or bool")
    known = {}
    for name, axes in sizes.items():
        parts = [one for one in inputs if one.startswith(f"{name}_")]
        if parts and name not in inputs:
            raise UsageError(f"sizes= names {name!r}, which has several tensors: name them, {', '.join(parts)}")
        if not isinstance(inputs.get(name), torch.Tensor):
            raise UsageError(f"sizes= names {name!r}, which is no tensor of inputs= ({', '.join(inputs)})")
        for axis, size in axes.items():
            shape = inputs[name].shape
            _named("the size", size)
            if type(axis) is not int or not 0 <= axis < len(shape):
                raise UsageError(f"sizes= names axis {axis} of {name}, whose axes are 0 to {len(shape) - 1}")
            where, number = known.setdefault(size, (name, shape[axis]))
            if number != shape[axis]:
                raise UsageError(f"the size {size!r} is {number} in {where} and {shape[axis]} in {name}")
            if shape[axis] < 2:
                raise UsageError(f"the size {size!r} is {shape[axis]} in {name}: give an example of 2 or more, as "
                                 "torch takes 0 and 1 for constants")
            if size in inputs:
                raise UsageError(f"{size!r} is an input and a size: give the size another name")


def _check_ranges(ranges, inputs, torch):
    for name, range_ in ranges.items():
        value = inputs.get(name)
        if not isinstance(value, torch.Tensor) or value.dtype not in (torch.int32, torch.int64, torch.uint8):
            raise UsageError(f"ranges= names {name!r}, which is no tensor of integers among inputs and targets ({', '.join(inputs)})")
        good = isinstance(range_, (tuple, list)) and len(range_) == 2 and all(type(end) is int for end in range_)
        if not good or not -1 << 31 <= range_[0] <= range_[1] < 1 << 31:
            raise UsageError(f"ranges= has {range_!r} for {name!r}: give the least and the greatest integer, of 32 bits each")
        if value.numel() and not range_[0] <= int(value.min()) <= int(value.max()) <= range_[1]:
            raise UsageError(f"the example of {name} holds {int(value.min())} to {int(value.max())}, but ranges= says {range_[0]} to {range_[1]}")


def _checked_targets(targets, inputs, training, loss, metrics):
    if not training and (targets or loss is not None or metrics):
        raise UsageError("targets=, loss= and metrics= are for training=True")
    for one in targets or ():
        _named("the target", one)
        if one in inputs:
            raise UsageError(f"{one!r} is an input and a target: the loss may take inputs by their names")


def _check_options(inputs, sizes, outputs, generate, flags, mappings):
    for name, value in flags.items():
        _options.flag(name, value)
    _options.mapping("inputs", inputs, "a dict of examples by the names of forward's parameters")
    for name, axes in _options.mapping("sizes", sizes, 'a dict such as {"ids": {0: "batch"}}').items():
        _options.mapping(f"sizes= of {name}", axes, 'a dict such as {0: "batch"}')
    for name, value in mappings.items():
        _options.mapping(name, {} if value is None else value, "a dict by names")
    if outputs is not None and (not isinstance(outputs, (list, tuple)) or not outputs):
        raise UsageError(f"outputs is {outputs!r:.60}, not a list of names")
    if generate is not None and not (isinstance(generate, str) and generate.strip()):
        raise UsageError(f"generate is {generate!r:.60}, not the text behind `generate` in a model")


def from_torch(module, inputs, *, sizes, outputs=None, generate=None, name="Model", fold=True, check=True,
               dropout=True, training=False, targets=None, loss=None, metrics=None, ranges=None):
    """A module of torch as a Source, by torch.export.

    inputs: name of forward's parameter -> example; sizes: input -> {axis: name} of the sizes that runs may choose (of
    the dict batch={"ids": x} the input is batch_ids);
    outputs: names, chosen of the module's own or for its first results in their order; generate: the text after
    `generate` in a model; fold=False: one statement an operation, where else modules become layers; check=False: the
    text is not compared with the module at the example's sizes and at others; dropout=False: dropouts that eval() does
    not turn off, such as those made in forward, are left out, where else they are refused.
    training: the text keeps dropouts, and has an objective and a train block for Trainer: `loss` is a function of the
    module's result and of targets and inputs by their names, or the name of a result of forward, or None for the only one;
    targets: name -> example; metrics: name -> such a function. The check then compares loss and gradients too.
    ranges: input or target -> (least, greatest) of the integers that it holds, which every run checks.
    """
    try:
        import torch
    except ImportError as error:
        raise UsageError("from_torch needs torch: pip install torch") from error
    if not hasattr(torch, "export") or not hasattr(getattr(torch.export, "Dim", None), "DYNAMIC"):
        raise UsageError(f"from_torch needs torch 2.6 or later, this is {torch.__version__}")
    _check_options(inputs, sizes, outputs, generate, {"fold": fold, "check": check, "dropout": dropout, "training": training},
                   {"targets": targets, "metrics": metrics, "ranges": ranges})
    _check_module(module, torch, training)
    _check_names(module, inputs)
    from ._inputs import flat
    given = dict(inputs)
    inputs, targets = flat(given), dict(targets or {})
    _checked_targets(targets, inputs, training, loss, metrics)
    _check_inputs({**inputs, **targets}, sizes, torch)
    _check_ranges(ranges := dict(ranges or {}), {**inputs, **targets}, torch)
    for output in outputs or ():
        _named("the output", output, KEYWORDS)
    from ._export import Writer
    wanted = _named("the model", name), outputs, generate, fold
    own = {one: axes for one, axes in sizes.items() if one not in targets}
    if training:
        return _with_objective(module, given, inputs, own, dropout, wanted, check, (targets, loss, metrics or {}, sizes, ranges))
    writer = Writer(module, given, inputs, own, dropout, ranges=ranges)
    text = writer.write(*wanted)
    source = _source_of(writer, text, name, dropout)
    return _checked(source, writer, module, inputs, check)


def _source_of(writer, text, name, dropout):
    weights = {path: tensor.detach().cpu().contiguous() for path, tensor in writer.weights.items()}
    source = Source(text, weights or None, name)
    source.probed, source.probes = writer.probes()
    source.dropout, source.guards = dropout, dict(writer.bounds.places)
    source.versions = {path: tensor._version for path, tensor in weights.items()}
    source.state, source.constants = writer.signature.saved(weights)
    return source


def _checked(source, writer, module, inputs, check, gradients=None):
    from ._check import checked, unchecked
    said = checked(source, writer, module, inputs) if check else "check=False"
    if said:
        source.text = unchecked(source.text, writer, said)
    elif gradients:
        gradients()
    return source


def _with_objective(module, given, inputs, own, dropout, wanted, check, training):
    """training: targets, loss, metrics, sizes of all, ranges."""
    from . import _gradients, _training
    from ._export import Writer
    targets, loss, metrics, sizes, ranges = training
    _training.check_modes(module)
    with _training.mode(module, True):
        writer = Writer(module, given, inputs, own, dropout, training=True, ranges=ranges)
    text = writer.write(*wanted)
    objective = _training.Objective(writer, module, given, targets, loss, metrics, sizes)
    lines = objective.text()
    source = _source_of(writer, _training.with_objective(text, lines), wanted[0], dropout)
    source.base_is_apart = _training.is_adapted(module)

    def gradients():
        plain = Writer(module, given, inputs, own, dropout, program=writer.exported, ranges=ranges).write(*wanted)
        _gradients.checked(source, _training.with_objective(plain, lines), writer, objective, inputs, targets)
    with _training.mode(module, False):
        return _checked(source, writer, module, inputs, check, gradients)
