"""The weights and constants of an exported program: what is declared as a weight, what is written as numbers, and what is
computed from constants alone.

What comes in are placeholders of parameters, buffers and plain tensors, and nodes that are computed from numbers. A plain
tensor without axes is a number of the text where an operation on elements takes it beside a tensor, and a tensor
elsewhere: as a result, as a part of a concatenation. Refused are weights of types that the language lacks, and buffers
of integers that f32 cannot hold.
"""
import re

import torch

from . import _aten_complex
from ._aten import EXACT, WHOLE, full_of
from ._errors import CompileError
from ._signature import literal

DTYPES = {torch.float32: "f32", torch.int64: "i32", torch.int32: "i32", torch.uint8: "i32", torch.bool: "bool"}
FLOAT = "tfmc computes f32, i32 and bool: module.float()"
IN_F32 = "the module's own numbers are f32: leave out the autocast, or the conversion, that asks for this type"
LOGICAL = {"bitwise_and", "logical_and", "__and__", "bitwise_or", "logical_or", "__or__"}
# Operations on elements, whose operands may have fewer axes than the result.
SPREAD = LOGICAL | {"add", "sub", "mul", "eq", "ne", "lt", "gt", "le", "ge", "where", "masked_fill", "maximum", "minimum",
                    "clamp", "logical_not", "bitwise_not", "neg", "abs", "div", "floor_divide", "remainder", "to",
                    "_to_copy", "clone", "contiguous", "alias"}
# Operations that take a number where torch has a tensor without axes.
NUMERIC = SPREAD | {"pow", "rsub", "fmod", "clamp_min", "clamp_max"}
MAKING = {"expand", "expand_as", "full", "new_full", "full_like"}  # and those that make a tensor of it


class Constants:
    """Of a Writer. scalars: nodes without axes whose text is a number -> the number."""

    def widen(self, training):
        """Constants of types that the language lacks (weights in 8 or 16 bits), all of whose readers convert them to one that it
        has, are of one that holds all their values from the start."""
        for node in self.program.graph.nodes:
            spec = self.kinds.get(node.name) if node.op == "placeholder" else None
            tensor = self.state.get(spec.target) if spec else None
            if tensor is None or tensor.dtype in DTYPES or tensor.is_complex() or (
                    training and self.signature.is_trained(spec)):
                continue
            if all(self.operation(user) in ("to", "_to_copy", "type_as") and self.dtype(user) in DTYPES for user in node.users
                   if self.operation(user) != "_assert_tensor_metadata"):
                wide = torch.float32 if tensor.is_floating_point() else torch.int32
                self.state[spec.target], node.meta["val"] = tensor.to(wide), node.meta["val"].to(wide)

    def constant(self, node, spec):
        tensor = self.state[spec.target]
        if tensor.is_complex():
            _aten_complex.constant(self, node, spec.target, tensor)
            return
        if tensor.dtype not in DTYPES:
            self.no(f"the {'weight' if tensor.is_floating_point() else 'buffer'} {spec.target} in {str(tensor.dtype)[6:]}", (
                FLOAT if tensor.is_floating_point() else "keep it as int32, or convert it where it is read, as by .int() or .float()"))
        kept = self.signature.is_kept(spec)
        if tensor.ndim == 0 and not (kept and tensor.dtype == torch.float32):
            self.number(node, tensor.item())
        elif not kept and (made := literal(tensor)):
            if (tensor == tensor.reshape(-1)[0]).all():
                self.uniform[node] = tensor.reshape(-1)[0].item()
            self.names[node.name] = f"({self.as_kind(made, torch.float32, tensor.dtype)})"
        elif tensor.dtype == torch.float32:
            name = self.weight(spec.target, tensor)
            self.names[node.name] = name if self.signature.is_trained(spec) else f"stop_gradient({name})"
        else:
            self.names[node.name] = f"({self.whole(node, spec.target, tensor)})"

    def weight(self, path, tensor):
        """The name of a weight that is declared; two paths of one tensor are one weight."""
        path = self.signature.path(path, tensor)
        if path not in self.weights:
            name = "w_" + re.sub(r"\W", "_", path, flags=re.ASCII)
            while name in self.tokens:
                name += "_"
            self.weights[path], self.tokens[name] = tensor, (path, list(tensor.shape))
        return next(name for name, (of, _) in self.tokens.items() if of == path)

    def whole(self, node, path, tensor):
        """Buffers of integers and booleans: those that can be computed are; others become weights of f32."""
        flat, shape = tensor.reshape(-1), list(tensor.shape)
        if flat.numel() and (flat == flat[0]).all():
            self.uniform[node] = int(flat[0])
            return full_of(shape, flat[0].item(), tensor.dtype)
        if tensor.dtype in WHOLE and flat.numel() == max(shape) and (flat == torch.arange(len(flat))).all():
            self.iota[node] = shape.index(max(shape))
            return f"arange({len(flat)})[{', '.join(':' if n != 1 else 'none' for n in shape)}]"
        if tensor.dtype == torch.bool and len(shape) >= 2 and shape[-1] == shape[-2] and (
                tensor == torch.ones(shape[-2:], dtype=torch.bool).tril()).all():
            made = f"arange({shape[-1]})[:, none] >= arange({shape[-1]})[none, :]"
            return made if len(shape) == 2 else f"({made})[{', '.join(['none'] * (len(shape) - 2) + [':'])}]"
        if flat.numel() and int(flat.abs().max() if tensor.dtype != torch.bool else 1) > EXACT:
            raise CompileError(f"the buffer {path} has integers beyond 2**24, which f32 cannot hold")
        return self.as_kind(self.weight(path, tensor.float()), torch.float32, tensor.dtype)

    # ---- numbers ----

    def number(self, node, value):
        self.names[node.name] = self.text(value)
        self.scalars[node] = value
        if isinstance(value, bool):
            self.uniform[node] = value

    def takes_numbers(self, node):
        """Whether it may have a number for a tensor without axes: beside a tensor, so that its result is one."""
        if node is None or node.op != "call_function":
            return node is not None
        return self.operation(node) in MAKING or self.operation(node) in NUMERIC and any(
            self.dtype(x) is not None and x not in self.scalars for x in node.all_input_nodes)

    def tensor_of(self, node):
        """The text of a scalar as a tensor."""
        value = self.names[node.name] if self.dtype(node) == torch.float32 else self.scalars[node]
        return f"({full_of([], value, self.dtype(node))})"

    def folds(self, node):
        """Whether a node is computed from numbers alone: it is what torch makes of them."""
        operands, made = node.all_input_nodes, node.meta.get("val")
        if not operands or not all(x in self.scalars for x in operands) or not isinstance(made, torch.Tensor) or not (
                all(isinstance(n, int) for n in made.shape) and made.numel() <= 1 and made.dtype in DTYPES):
            return False
        if torch.Tag.nondeterministic_seeded in node.target.tags or node in self.bounds.modular:
            return False
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda x: torch.tensor(self.scalars[x], dtype=self.dtype(x)))
        try:
            value = node.target(*args, **kwargs)
        except Exception:  # arguments that are sizes
            return False
        if not value.ndim:
            self.number(node, value.item())
        elif not value.numel():
            return False
        else:
            self.uniform[node] = number = value.reshape(-1)[0].item()
            text = self.text(number) if value.dtype == torch.float32 else number
            self.names[node.name] = f"({full_of(value.shape, text, value.dtype)})"
        return True
