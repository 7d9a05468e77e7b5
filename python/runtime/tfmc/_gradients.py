"""Whether training the text that from_torch(training=True) wrote does what training the module does.

What comes in are the Source with its objective, the Writer, the example. torch differentiates the exported program and
the loss in double, with dropouts left out; a Trainer gives loss and gradients of the text without its dropouts. Refused
is a text whose loss or gradients differ by more than rounding, or that trains other weights, each by its path.
"""
import numpy as np
import torch
from torch.utils import _pytree as pytree

from . import _training
from ._check import CURE, DOUBLED, TOLERANCE, Exported, as_array, as_input, copied
from ._errors import CompileError, Error
from ._source import Source
from ._tracing import place_of

ROUGH = 1e-2  # what torch's own rounding may be of a gradient that is compared
SMALL = 3e-2  # of the greatest gradient: smaller ones are compared with this, as sums that cancel keep the rounding of their terms


class Differentiated(Exported):
    """The exported program with its operations of training as torch differentiates them."""

    def __init__(self, program, wanted, dtype):
        super().__init__(program, wanted, dtype)
        self.values, self.underived = {}, []  # underived: nodes of which torch has no derivative

    def call_function(self, target, args, kwargs):
        if target is torch.ops.tfmc.drop.default:
            return args[0]
        if target is torch.ops.tfmc.cross_entropy.default:
            return differentiable(*args)
        if target is torch.ops.aten.copy.default:  # as what stands in place of copy_, torch has no derivative of it
            return args[1].to(args[0].dtype).expand_as(args[0])
        return super().call_function(target, args, kwargs)

    def run_node(self, node):
        value = torch.fx.Interpreter.run_node(self, node)
        if node.op == "call_function" and any(is_underived(leaf) for leaf in pytree.tree_leaves(value)):
            self.underived.append(node)
        if node.name in self.wanted:
            self.values[node.name] = value
        return value


def is_underived(value):
    """Whether torch has no derivative of the operation that gave it."""
    return type(getattr(value, "grad_fn", None)).__name__ == "NotImplemented"


def differentiable(x, labels, weight, ignore_index, reduction, label_smoothing):
    axes = [0, x.ndim - 1, *range(1, x.ndim - 1)] if x.ndim > 1 else [0]
    return _training.cross_entropy_of_torch(x.permute(axes), labels, None if weight is None else weight.to(x.dtype),
                                            ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)


def of_torch(writer, objective, inputs, dtype):
    """(loss, path -> gradient or None) by autograd."""
    signature, old = writer.signature, torch.get_default_dtype()
    leaves, arguments = {}, []
    for name, spec in signature.kinds.items():
        if spec.kind.name == "USER_INPUT":
            value = inputs[name]
            arguments.append(value.clone() if isinstance(value, torch.Tensor) else value)
            continue
        tensor = signature.state[spec.target]
        if signature.is_trained(spec):
            path = signature.path(spec.target, tensor)
            if path not in leaves:
                leaves[path] = tensor.detach().to(dtype).requires_grad_(True)
            tensor = leaves[path]
        arguments.append(tensor)
    run = Differentiated(writer.program, {node.name for node in writer.results.values()}, dtype)
    try:
        torch.set_default_dtype(dtype)
        with torch.enable_grad():
            run.run(*arguments)
            loss = objective.value({name: run.values[node.name] for name, node in writer.results.items()}, dtype)
            backward(loss, run)
    finally:
        torch.set_default_dtype(old)
    return float(loss.detach()), {path: None if leaf.grad is None else as_array(leaf.grad) for path, leaf in leaves.items()}


def backward(loss, run):
    try:
        loss.backward()
    except RuntimeError as error:
        if "derivative for" not in str(error):
            raise
        where = " or ".join(dict.fromkeys(f"{node.target}, {place_of(node)}" for node in run.underived))
        raise CompileError(f"torch cannot train the module, as it has no derivative of {where or error}: detach() what it "
                           "takes, or write it with other operations") from error


def refuse(what):
    raise CompileError(f"the text does not train as the module does: {what}\n{CURE}")


def compare_paths(wanted, trained):
    """Whose gradient is zero everywhere may be trained or not: nothing comes of it."""
    for path, gradient in wanted.items():
        if gradient is not None and gradient.any() and path not in trained:
            refuse(f"{path} has a gradient in torch, and is not trained here")
        if gradient is None and path in trained:
            refuse(f"{path} has no gradient in torch, and is trained here")
    for path in trained:
        if path not in wanted:
            refuse(f"{path} is not trained in torch, and is trained here")


def distance(got, wanted, most):
    far = np.abs(got.astype(np.float64) - wanted)
    return float(far.max(initial=0) / max(np.abs(wanted).max(initial=0), SMALL * most, 1e-30)) if np.isfinite(far).all() else np.inf


def compared(source, plain, writer, objective, inputs, targets):
    """plain: the text without dropouts."""
    from ._trainer import Trainer
    n_bytes = sum(value.nbytes for value in (source.weights or {}).values())
    exact_type = torch.float64 if n_bytes <= DOUBLED else torch.float32
    loss, wanted = of_torch(writer, objective, inputs, exact_type)
    if not np.isfinite(loss):
        refuse("the loss of the example is not finite: give another example")
    given = {**writer.signature.tensors(inputs), **{name: targets[name] for name in targets}}
    try:
        trainer = Trainer(Source(plain, source.weights), threads=None, on_message=lambda message: None)
        got = trainer.gradients({name: as_input(name, given[name]) for name in trainer.inputs})
    except Error as error:
        raise CompileError(f"the text cannot be trained at the example:\n{error}\n{CURE}") from error
    result = trainer.evaluate({name: as_input(name, given[name]) for name in trainer.inputs})
    compare_paths(wanted, set(trainer.trained))
    single = None
    if abs(result["loss"] - loss) > TOLERANCE * max(1, abs(loss)):
        single = of_torch(writer, objective, inputs, torch.float32)
        if abs(result["loss"] - loss) > 4 * abs(single[0] - loss) + TOLERANCE * max(1, abs(loss)):
            refuse(f"the loss of the example is {result['loss']!r}, and {loss!r} in torch")
    most = max((np.abs(g).max(initial=0) for g in wanted.values() if g is not None), default=0)
    for path, gradient in wanted.items():
        if gradient is None or path not in got:
            continue
        far = distance(got[path], gradient, most)
        if far > TOLERANCE:
            single = single or of_torch(writer, objective, inputs, torch.float32)
            own = distance(single[1][path], gradient, most)
            if far > TOLERANCE + 4 * min(own, ROUGH) and own > ROUGH:
                raise CompileError(f"the example shows nothing of the gradient of {path}: torch's own in f32 is {own:.2g} of its largest "
                                   f"value away from that in double, where the loss is {loss:.2g}. Give an example that the module "
                                   "does not get right, such as labels that are not its inputs")
            if far > TOLERANCE + 4 * min(own, ROUGH):
                refuse(f"the gradient of {path} differs by {far:.2g} of its largest value")


def checked(source, plain, writer, objective, given, targets):
    """given: the flat inputs."""
    compared(source, plain, writer, objective, copied(given), {name: value for name, value in targets.items()})


def rebuilt(objective, results):
    """The module's result, of which the text has these leaves."""
    leaves = [None] * objective.spec.num_leaves
    for name, value in results.items():
        leaves[objective.writer.signature.places[name]] = value
    return pytree.tree_unflatten(leaves, objective.spec)
