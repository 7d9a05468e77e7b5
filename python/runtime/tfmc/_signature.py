"""What an exported program says of its values beside how they are computed: which are results, which weights are
trained and which a state_dict has, which constants mask scores.

What comes in is the program and its module. Refused are modules with a state, a buffer or a parameter that a call
changes and the next call reads; outputs that are no tensors, and names of outputs that the module has not. A changed
value that no call reads (a counter) and a changed input are left out: they are no results.
"""
import contextlib
import re

import torch
from torch.utils import _pytree as pytree

from ._aten_assign import read_by
from ._errors import CompileError
from ._torch import KEYWORDS
from ._tracing import place_of

SMALL = 16  # elements of a plain tensor that the text has as numbers
# Operations through which a number that masks scores comes to the softmax.
PUTTING = set("""where masked_fill to _to_copy type_as clone contiguous alias expand view reshape slice select unsqueeze
squeeze detach detach_ lift_fresh lift_fresh_copy permute transpose t cat stack triu tril full full_like new_full
scalar_tensor repeat copy""".split())

# Operations through which no gradient flows back.
CLOSED = set("""detach new_full new_zeros new_ones new_empty zeros_like ones_like full_like empty_like""".split())


def literal(tensor):
    """An f32 expression for a plain tensor of equal or of few numbers, or None."""
    flat = tensor.detach().reshape(-1).tolist()
    if not flat or not all(abs(number) < 1 << 24 or tensor.dtype == torch.float32 for number in flat):
        return None
    if not all(abs(float(number)) <= torch.finfo(torch.float32).max for number in flat):
        return None
    shape = list(tensor.shape)
    if all(number == flat[0] for number in flat):
        return f"full({shape}, {float(flat[0])!r})"
    if len(flat) > SMALL:
        return None
    made = f"concat([full([1], number) for number in {[float(number) for number in flat]}], axis = 0)"
    return made if len(shape) == 1 else f"reshape({made}, {shape})"


class Signature:
    def __init__(self, program, module):
        self.program, self.module = program, module
        self.kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        self.state = {**program.state_dict, **program.constants}
        self.user_inputs = [name for name, spec in self.kinds.items() if spec.kind.name == "USER_INPUT"]
        self.paths, self.trained = {}, set()  # of two paths of one tensor the first in the module is the weight's
        for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
            self.paths.setdefault(self.memory(tensor), path)
            if tensor.requires_grad:
                self.trained.add(self.paths[self.memory(tensor)])
        self.kept = set(module.state_dict(keep_vars=True))
        self.known, self.reaching = {}, None

    def arguments(self, inputs):
        """What the exported program takes, for inputs of the module."""
        return [inputs[name] if spec.kind.name == "USER_INPUT" else self.state[spec.target]
                for name, spec in self.kinds.items()]

    def tensors(self, inputs):
        """name of an input of the text -> its value."""
        return {name: inputs[name] for name in self.user_inputs if isinstance(inputs[name], torch.Tensor)}

    @staticmethod
    def memory(tensor):
        return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())

    def path(self, path, tensor):
        return self.paths.get(self.memory(tensor), path)

    def is_kept(self, spec):
        """Whether the module's state_dict has it."""
        return self.path(spec.target, self.state[spec.target]) in self.kept

    def is_trained(self, spec):
        return self.path(spec.target, self.state[spec.target]) in self.trained

    def has_gradient(self, node):
        """Whether a trained weight is reached backwards from the node."""
        if self.reaching is None:
            self.reaching = set()
            for one in self.program.graph.nodes:
                spec, made = self.kinds.get(one.name), one.meta.get("val")
                is_open = not isinstance(made, torch.Tensor) or made.is_floating_point() or made.is_complex()
                if one.op == "placeholder" and spec and spec.target in self.state and self.is_trained(spec) or (
                        one.op == "call_function" and is_open and self.operation(one) not in CLOSED
                        and any(x in self.reaching for x in one.all_input_nodes)):
                    self.reaching.add(one)
        return node in self.reaching

    def saved(self, weights):
        """name in the module's state_dict -> the name of that weight in the text, or the tensor if the text has none;
        and the weights of the text that the state_dict has not."""
        state, names = {}, set()
        for name, tensor in self.module.state_dict(keep_vars=True).items():
            of = self.path(name, tensor) if isinstance(tensor, torch.Tensor) else name
            state[name] = of if of in weights and tensor.dtype == torch.float32 else tensor
            names.add(of)
        return state, tuple(path for path in weights if path not in names)

    # ---- results ----

    def needed(self, results):
        """The nodes that these are computed from."""
        needed, todo = set(), list(results)
        while todo:
            node = todo.pop()
            if node not in needed:
                needed.add(node)
                todo += read_by(node)
        return needed

    def returned(self):
        """(name or None, node or a constant) of what the module returns, in order."""
        nodes = next(n for n in self.program.graph.nodes if n.op == "output").args[0]
        specs = self.program.graph_signature.output_specs
        returned = [node for node, spec in zip(nodes, specs, strict=True) if spec.kind.name == "USER_OUTPUT"]
        paths = [None] * len(returned)
        with contextlib.suppress(Exception):  # containers that know no paths
            tree = pytree.tree_unflatten(list(range(len(returned))), self.program.call_spec.out_spec)
            for path, i in pytree.tree_flatten_with_path(tree)[0]:
                paths[i] = "_".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", "")))) for k in path)
        return list(zip(paths, returned, strict=True))

    def results(self, outputs):
        """name -> node of the outputs that are wanted, in order."""
        found, self.places = {}, {}
        for i, (path, node) in enumerate(self.returned()):
            made = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
            if isinstance(made, torch.Tensor):
                is_name = path and re.fullmatch(r"[A-Za-z_]\w*", path, re.ASCII) and path not in KEYWORDS
                name = path if is_name and path not in found else f"output{i}"
                found[name], self.places[name] = node, i
            elif node is not None:
                raise CompileError(f"the module's output {path or i} is the {type(node).__name__} {node}, no "
                                   "tensor: return tensors alone")
        if not found:
            raise CompileError("the module returns no tensor")
        chosen = found
        if outputs is not None and set(outputs) <= set(found):
            chosen = {name: found[name] for name in outputs}
        elif outputs is not None:
            if len(outputs) > len(found):
                raise CompileError(f"outputs= names {len(outputs)}, the module returns {len(found)}: {', '.join(found)}")
            self.places = dict(zip(outputs, self.places.values()))
            chosen = dict(zip(outputs, found.values()))
        self.refuse_state(chosen.values())
        return chosen

    def refuse_state(self, results):
        """What a call changes and the next one reads cannot be in a model, which is constant."""
        needed = {node.name for node in self.needed(results)}
        sources = {spec.target: name for name, spec in self.kinds.items() if spec.target}
        for spec in self.program.graph_signature.output_specs:
            if spec.kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION") and sources.get(spec.target) in needed:
                made = next((node for node in self.program.graph.nodes if node.name == spec.arg.name), None)
                bounded = made is not None and "embedding_renorm" in (made.meta.get("stack_trace") or "")
                raise CompileError(
                    f"the module changes {spec.target} in each call and computes with it in the next"
                    f"{', ' + place_of(made) if made is not None else ''}: a model has no state. " + (
                        "Bound the rows of the table once (torch.renorm of its weight) and set max_norm to None" if bounded else
                        "Give it as an input and return what it becomes, or leave the change to training mode"))

    # ---- constants ----

    def masks(self, node):
        """Whether a number that this node puts somewhere only masks scores: it comes to a softmax, and nowhere else."""
        is_put = node is not None and (node.op == "placeholder" or self.operation(node) in PUTTING)
        return is_put and self.comes_to_softmax(node)

    def comes_to_softmax(self, node):
        if node not in self.known:
            self.known[node] = bool(node.users) and all(self.passes(node, user) for user in node.users)
        return self.known[node]

    def passes(self, node, user):
        name = self.operation(user)
        if name in ("softmax", "_softmax"):
            return True
        if name == "scaled_dot_product_attention":
            return node not in user.args[:3] and node not in [user.kwargs.get(k) for k in ("query", "key", "value")]
        return (name in PUTTING or name == "add") and self.comes_to_softmax(user)

    @staticmethod
    def operation(node):
        return getattr(node.target, "__name__", str(node.target)).split(".")[0]
