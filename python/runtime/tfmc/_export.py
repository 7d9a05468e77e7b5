"""An nn.Module, exported by torch, as the text of a model: its inputs, weights, and one statement an ATen operation.

_aten.py and _aten_places.py have the operations, _constants.py weights and constants, _signature.py says which values are
results and which weights are trained, _bounds.py which integers fit, _fold.py makes layers of the statements. Here are
the names of values, the sizes, and what is known of integers whose elements are their own places (masks and positions
are made of them). Refused are sizes that the export fixed and types that the language lacks, each with its place in the module.
"""
import operator
import re
import traceback

import torch

from . import _aten_complex
from ._aten import WHOLE
from ._aten_einsum import moved
from ._aten_table import ATEN
from ._bounds import Bounds
from ._constants import DTYPES, FLOAT, IN_F32, LOGICAL, SPREAD, Constants
from ._drops import dropped
from ._errors import CompileError, UsageError
from ._fold import Folder, Line, Type, hoisted
from ._inputs import flat, in_builtins, nested, renamed, sources
from ._layers import Printer
from ._signature import Signature
from ._sizes import FUNCTIONS, spelled, words
from ._torch import TAKEN
from ._tracing import FUNCTIONAL, Lines, as_before, cut_up, innermost, patched, place_of, stopped

HIGHEST = torch.finfo(torch.float32).max
SYMBOLIC = {operator.mul: "*", operator.add: "+", operator.sub: "-", operator.truediv: "/", operator.pow: "**",
            operator.floordiv: "//", operator.mod: "%"}
KEEPING = {"to", "_to_copy", "clone", "contiguous", "alias", "expand", "view", "reshape", "slice", "select",
           "unsqueeze", "add", "mul", "detach", "lift_fresh_copy"}
COPIES = {"to", "_to_copy", "type_as", "clone", "contiguous", "alias", "expand", "view", "reshape", "dropout"}

BRANCHES = re.compile(r"data-dependent|GuardOnDataDependent|Could not guard|unbacked|_local_scalar_dense|\.item\(\)")


def joined(text, names):
    """L['batch']['ids'] of guards and messages of the export as L['batch_ids']."""
    for source, name in names.items():
        text = text.replace(source, f"L['{name}']")
    return text


def traced(module, inputs, dynamic):
    """With gradients, so that regions without them are seen, unless forward changes a parameter in place."""
    for mode in torch.enable_grad, torch.no_grad:
        try:
            with mode():
                return stopped(torch.export.export(module, (), kwargs=inputs, dynamic_shapes=dynamic, strict=False))
        except RuntimeError as error:
            if mode is torch.no_grad or "leaf Variable" not in str(error):
                raise
    return None


def exported(module, inputs, sizes, dropout, training):
    """The exported program, what it decided about sizes, and the Lines of the trace; in-place operations become ordinary
    ones, nothing else is cut up."""
    lines, layers = Lines(), [(p, m) for p, m in module.named_modules() if isinstance(m, torch.nn.RNNBase)]
    watched = [lines.watch(path or "the module", layer) for path, layer in layers]
    dynamic = in_builtins(nested(inputs, {name: {axis: torch.export.Dim.DYNAMIC for axis in sizes.get(name, {})} or None
                                          for name in flat(inputs)}))
    try:
        with patched(dropout, lines, training), as_before(module):
            program = traced(module, inputs, dynamic)
        names = sources(module, inputs)
        guards = [joined(guard, names) for guard in getattr(program, "_guards_code", [])]
        program._guards_code = []  # tfmc makes its own checks
        program = renamed(cut_up(program.run_decompositions(dict(FUNCTIONAL)), ATEN))
        return dropped(program) if training and dropout else program, guards, lines
    except (CompileError, UsageError):
        raise
    except Exception as error:  # torch raises many kinds
        if lines.recurrent:
            path, kind, where = lines.recurrent
            said = f", {where[0]}:{where[1]}" if where else ""
            raise CompileError(f"from_torch cannot take a recurrent layer over a size that runs choose, in {path} ({kind})"
                               f"{said}: leave that size out of sizes=, then it is that of the example") from error
        said = joined(str(error), sources(module, inputs))
        fixed = re.search(r"marked L\['(.*?)'\]\.size\(\)\[(\d+)\] as dynamic .*?constant \((\d+)\)", said)
        fixed = fixed or re.search(r"(\w+)\S*\.shape\[(\d+)\].*?specialized.*?(\d+)", str(error), re.DOTALL)
        if fixed and int(fixed[2]) in sizes.get(fixed[1], {}):
            raise refused_size(sizes, fixed[1], int(fixed[2]), int(fixed[3]), flat(inputs), lines.of(int(fixed[3]))) from error
        said = f"torch.export cannot export the module: {str(error).strip().partition(chr(10) * 2)[0]}"
        if BRANCHES.search(str(error)):
            said += ("\nWhat branches on values of tensors, or has sizes that depend on them, cannot be compiled: write "
                     "it with torch.where")
        if "non-nested SymInt" in str(error):
            said += ("\nA size that runs choose cannot be a key of what forward keeps (functools.cache, a dict): make it anew in "
                     "each call, or cut it from a buffer of the greatest size")
        where = innermost(traceback.extract_tb(error.__traceback__))
        if where and f"{where[0]}" not in said:
            said += f"\nIt came from {where[0]}:{where[1]}"
        raise CompileError(said) from error
    finally:
        for hook in watched:
            hook.remove()


def refused_size(sizes, name, axis, number, inputs, where=""):
    size = sizes[name][axis]
    alike = [f"axis {i} of {one}" for one, value in inputs.items() for i, n in enumerate(getattr(value, "shape", ()))
             if one != name and n == number and i not in sizes.get(one, {})]
    named = f"name {' and '.join(alike)} {size!r} too if {'it is' if len(alike) == 1 else 'they are'} this size, " if alike else ""
    return CompileError(f"{name}: the size {size!r} (axis {axis}) became the constant {number} in the export{where}: the module works "
                        f"for this size alone. Take it out of sizes=, {named}or write what fixes it (int(x.shape[{axis}]), a buffer of "
                        f"this size) with x.shape[{axis}]")


class Writer(Constants):
    def __init__(self, module, given, inputs, sizes, dropout=True, training=False, program=None, ranges=None):
        """given: what forward takes (forms); inputs: its tensors and numbers by the names that the text has (_inputs.py).
        program: `exported` of another writer of the module, whose dropouts are left out. ranges: integer input -> (least, greatest)."""
        self.exported = program or exported(module, given, sizes, dropout, training)
        self.program, self.guards, self.traced = self.exported
        self.dropout, self.forms, self.drops = dropout, given, program is None
        self.inputs, self.sizes, self.ranges, self.node = inputs, sizes, ranges or {}, None
        self.names, self.lines, self.types, self.weights, self.tokens, self.probed = {}, [], {}, {}, {}, {}
        self.iota, self.uniform, self.scalars, self.symbols = {}, {}, {}, {}
        self.symbol_names = {name for axes in sizes.values() for name in axes.values()}
        self.low, self.marks, self.spread = {}, {}, False
        self.aliases = {}  # names of inputs that would hide a function of the language -> those that the text uses
        self.signature = Signature(self.program, module)
        self.kinds, self.state = self.signature.kinds, self.signature.state
        self.widen(training)
        self.complex = {}  # node -> the names of its real and imaginary part
        self.conditions = {}  # on sizes, that rows of the table found
        self.derived = {}  # expression -> the name of a size that the module needs to be that of others

    # ---- refusals ----

    def place(self):
        if self.node is None:
            return ""
        said, casts = place_of(self.node), set(filter(None, self.traced.casts))
        return said if re.search(r":\d+$", said) or len(casts) != 1 else f"{said}, within the autocast at {':'.join(map(str, *casts))}"

    def no(self, what, cure):
        raise CompileError(f"from_torch cannot take {what}, {self.place()}: {cure}")

    def to_f32(self):
        """How numbers of another type become f32: those of the module, or those that its forward makes."""
        return FLOAT if any(tensor.dtype not in DTYPES for tensor in self.state.values()) else IN_F32

    # ---- sizes ----

    def size(self, value):
        if isinstance(value, torch.fx.Node):
            value = value.meta["val"]
        return str(value) if isinstance(value, int) else spelled(self, value.node.expr)

    def factor(self, text):
        return text if re.fullmatch(r"\w+", text) else f"({text})"

    def shape(self, x):
        return [self.size(n) for n in x.meta["val"].shape]

    def rank(self, x):
        return len(x.meta["val"].shape)

    def axis(self, x, axis):
        return axis % max(self.rank(x), 1)

    # ---- values ----

    def dtype(self, value):
        """The type of a tensor; None for numbers."""
        made = value.meta.get("val") if isinstance(value, torch.fx.Node) else None
        return made.dtype if isinstance(made, torch.Tensor) else None

    def text(self, value):
        if value is None:
            return "none"
        if isinstance(value, torch.fx.Node):
            made = value.meta.get("val")
            if isinstance(made, torch.SymInt) or isinstance(made, int):
                return self.factor(self.size(value))
            if isinstance(made, torch.SymFloat):
                return self.symbolic(value)
            if value in self.scalars and not self.takes_numbers(self.node):
                return self.tensor_of(value)
            return self.names[value.name] if self.spread else self.whole_rank(value)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float):
            if value != value:
                return "(inf - inf)"
            # the least number of f32 stands for -inf where it masks scores, and is itself in arithmetic
            is_inf = abs(value) > HIGHEST or value < -3e38 and self.signature.masks(self.node)
            made = ("-inf" if value < 0 else "inf") if is_inf else repr(value)
            return f"({made})" if value < 0 else made
        if isinstance(value, torch.SymInt):
            return self.factor(self.size(value))
        if not -1 << 31 <= value < 1 << 31:
            self.no(f"the integer {value}", "it does not fit in the 32 bits of the language's integers")
        return f"({value})" if value < 0 else str(value)

    def whole_rank(self, x):
        """The text of a value with all its axes."""
        name, marks = self.marks.get(x, (self.names[x.name], []))
        marks = ["none"] * self.low.get(x, 0) + marks
        while marks and marks[-1] == ":":
            marks.pop()
        return f"{name}[{', '.join(marks)}]" if marks else self.names[x.name]

    def symbolic(self, node):
        """A number computed from sizes."""
        args = node.args
        if node.target in (torch.sym_float, torch.sym_sqrt):
            made = self.text(args[0])
            return f"f32({made})" if node.target is torch.sym_float else f"sqrt(f32({made}))"
        if node.target not in SYMBOLIC:
            self.no(f"{node.target} of sizes", "compute it from arange or with + - * / **")
        part = self.quotient_part if node.target is operator.truediv else self.text
        return f"({f' {SYMBOLIC[node.target]} '.join(map(part, args))})"

    def quotient_part(self, value):
        """A size, or a number, in a quotient that is no whole number: sizes of the language have none."""
        if isinstance(value, int):
            return self.text(float(value))
        is_size = isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), (int, torch.SymInt))
        return f"f32({self.text(value)})" if is_size else self.text(value)

    def as_kind(self, text, have, want):
        if DTYPES.get(have) == DTYPES.get(want):
            return text
        if want not in DTYPES or have not in DTYPES:
            self.no(f"the type {str(want if have in DTYPES else have)[6:]}", self.to_f32())
        if want == torch.bool:
            return f"({text}) != {'0.0' if have == torch.float32 else '0'}"
        if want in WHOLE and have == torch.float32 and self.node in self.bounds.conversions:
            return self.bounds.conversion(self.node, text)
        return f"{DTYPES[want]}({text})"

    def cast(self, value, want):
        """An operand in the type in which torch computes."""
        have = self.dtype(value)
        if self.node in self.bounds.modular and value not in self.bounds.modular:
            text = self.text(value) if not isinstance(value, int) else ""
            return self.bounds.remainder(text if have is None else self.as_kind(text, have, want), value)
        if self.spread and value in self.numbers:
            value, have = self.uniform[value], None
        if have is not None:
            made = self.as_kind(self.text(value), have, want)
            return f"({made})" if want == torch.bool and have != want else made
        if isinstance(value, torch.fx.Node) or isinstance(value, torch.SymInt):
            made = self.text(value)
            return f"f32({made})" if want == torch.float32 and not made.startswith("(f32") else made
        if want == torch.bool:
            return str(bool(value)).lower()
        return self.text(float(value) if want == torch.float32 else int(value))

    def given(self, x):
        """The name of an argument of this module with all its axes, which it gets before the call."""
        text, name = self.text(x), f"t_{self.node.name}_at"
        if text == self.names[x.name]:
            return text
        self.say(text, {name: x.meta["val"]})
        self.lines[-1] = self.lines[-1]._replace(stack=self.lines[-1].stack[:-1])
        return name

    def at(self, x, axis, what):
        is_last = axis > 1 and axis == self.rank(x) - (what != "none")
        return f"{self.text(x)}[{', '.join(['...'] if is_last else [':'] * axis)}{', ' if axis else ''}{what}]"

    def is_spread(self, node):
        two = self.operation(node) in ("min", "max") and isinstance((node.args + (0,))[1], torch.fx.Node)
        return two or self.operation(node) in SPREAD

    def broadcast(self, node, tensors):
        """Whether an operation on elements may take its operands without their first axes of 1, as the result lacks
        them too, or has them of another operand. Numbers stand for tensors of one, beside one that has all elements;
        not for booleans beside booleans, where the language would take `false and mask` for a boolean too.
        """
        whole = [] if self.operation(node) in LOGICAL else [x for x in tensors if x not in self.uniform]
        self.numbers = {x for x in tensors if x in self.uniform and whole and (
            not x.meta["val"].ndim or (self.dtype(x) != torch.float32 or set(self.shape(x)) == {"1"}) and any(
                self.shape(y) == self.shape(node) for y in whole))}
        ranks = [self.rank(x) - self.low.get(x, 0) for x in tensors if x not in self.numbers]
        less = self.rank(node) - max(ranks, default=0)
        if less and self.dtype(node) != torch.float32:
            self.low[node] = less
        return not less or node in self.low

    def origin(self, x):
        """x, or what it is a copy of."""
        while isinstance(x, torch.fx.Node) and x.args and isinstance(x.args[0], torch.fx.Node) and (
                self.operation(x) in COPIES) and self.dtype(x) == self.dtype(x.args[0]) and (
                self.shape(x) == self.shape(x.args[0])):
            x = x.args[0]
        return x

    @staticmethod
    def operation(node):
        return getattr(node.target, "__name__", str(node.target)).split(".")[0]

    def result(self, node, i, text):
        self.names[f"{node.name}.{i}"] = f"({text})"

    def permuted(self, x, order):
        """Axis order[i] of x at place i."""
        return moved(self.text(x), range(len(order)), order)

    # ---- inputs ----

    def name_sizes(self, node):
        value = node.meta["val"]
        for axis, name in self.sizes.get(node.name, {}).items():
            if not isinstance(value.shape[axis], torch.SymInt):
                raise refused_size(self.sizes, node.name, axis, value.shape[axis], self.inputs)
            size = value.shape[axis].node.expr
            known = (self.symbols if size.is_Symbol else self.derived).setdefault(str(size) if size.is_Symbol else size, name)
            if known != name:
                raise CompileError(f"{node.name}: the module needs the sizes {known!r} and {name!r} to be equal: "
                                   "give them one name in sizes=")

    def name_all_sizes(self, inputs):
        for node in inputs:
            if isinstance(node.meta["val"], torch.Tensor):
                self.name_sizes(node)
        for size, name in self.derived.items():
            if name in self.symbols.values() or list(self.derived.values()).count(name) > 1:
                raise CompileError(f"the size {name!r} is also {spelled(self, size)}: give that another name in sizes=")

    def placeholder(self, node, heads):
        spec, value = self.kinds[node.name], node.meta["val"]
        if spec.kind.name == "USER_INPUT":
            if not isinstance(value, torch.Tensor):
                return
            name = self.aliases[node.name] if node.name in self.aliases else node.name
            self.names[node.name] = name
            self.types[name] = self.type(value)
            heads.append((node.name, f"{DTYPES[value.dtype]}[{', '.join(self.shape(node))}]"))
            return
        self.constant(node, spec)

    # ---- the text ----

    def write(self, name, outputs, generate, fold=True):
        """The text; fold=False: one statement an operation, without layers."""
        results = self.signature.results(outputs)
        needed = self.signature.needed(results.values())
        self.bounds = Bounds(self, [node for node in self.program.graph.nodes if node in needed])
        heads, inputs = [], self.signature.user_inputs
        for one in inputs:
            if one in TAKEN or one[:2] in ("t_", "w_"):
                self.aliases[one] = "in_" + one
                while self.aliases[one] in {*inputs, *self.symbol_names}:
                    self.aliases[one] += "_"
        self.name_all_sizes([node for node in self.program.graph.nodes if node.op == "placeholder" and
                             self.kinds[node.name].kind.name == "USER_INPUT"])
        for node in self.program.graph.nodes:
            self.node = node
            if node.op == "placeholder" and (node in needed or self.kinds[node.name].kind.name == "USER_INPUT"):
                self.placeholder(node, heads)
            elif node.op == "call_function" and node in needed:
                self.statement(node)
        self.results, self.node = results, None
        returned = {output: self.text(r) for output, r in results.items()}
        tail = [f"  generate {generate}"] if generate else []
        self.frame = name, heads, [*self.bounds.required(), *self.required()], returned, tail
        self.lines = hoisted(self.lines, self.types)
        self.folder = Folder(self.lines, self.types, self.tokens, set(self.symbols.values()), list(returned.values()))
        used = self.folder.used_weights()
        self.weights = {path: tensor for path, tensor in self.weights.items() if path in used}
        text = self.folded() if fold else self.flat(returned, tail)
        self.said = "".join(f"{line}\n" for line in self.bounds.comment()) + text
        return self.said

    def folded(self):
        name, heads, required, returned, tail = self.frame
        head = f"model {name}", self.parameters(heads)
        text = Printer(self.folder, TAKEN, name).text(head, required, list(returned), tail)
        return self.entered(text, heads, list(returned), tail)

    def parameters(self, heads):
        return ", ".join(f"{self.aliases.get(name, name)}: {kind}" for name, kind in heads)

    def entered(self, text, heads, outputs, tail):
        """The text, in which inputs have the names of the module where those would hide what it uses: its forward
        becomes a function, which the forward that has them calls."""
        if not self.aliases:
            return text
        before, _, after = text.rpartition("  forward(")
        values = [f"r_{i}" for i in range(len(outputs))]
        end = "".join(f"{line}\n" for line in [*tail, "}"])
        entry = [f"  forward({', '.join(f'{name}: {kind}' for name, kind in heads)}) {{",
                 f"    {', '.join(values)} = computed({', '.join(name for name, _ in heads)})",
                 f"    return {', '.join(map('{} = {}'.format, outputs, values))}", "  }"]
        return f"{before}  fn computed({after.removesuffix(end)}" + "\n".join(entry) + "\n" + end

    def probes(self):
        """A text that gives the results of each call of a module, and (path, names of results) of the calls."""
        returned, calls = {}, []
        for path, results in self.folder.ended():
            results = [value for value in results if self.types[value].dtype == "f32"]
            calls.append((path, [f"probe_{len(returned) + i}" for i in range(len(results))]))
            returned.update(zip(calls[-1][1], results))
        nodes = {self.names[node.name]: node.name for node in self.program.graph.nodes if node.name in self.names}
        self.probed = {name: nodes[value] for name, value in returned.items() if value in nodes}
        return (self.flat(returned) if returned else None), calls

    def flat(self, returned, tail=()):
        name, heads, required, _, _ = self.frame
        weights = [f'  weight {token}: {shape} as "{path}"' for token, (path, shape) in self.tokens.items()]
        lines = [f"    {', '.join(line.targets)} = {line.text}" for line in self.lines]
        lines.append("    return " + ", ".join(f"{output} = {text}" for output, text in returned.items()))
        head = [f"model {name} {{", *weights, "", f"  forward({self.parameters(heads)}) {{", *required]
        text = "\n".join([*head, *lines, "  }", *tail, "}"]) + "\n"
        return self.entered(text, heads, list(returned), list(tail))

    def required(self):
        """Conditions that the export found: the traced text holds for these sizes alone."""
        for symbol, range_ in self.program.range_constraints.items():
            name, low, high = self.symbols.get(str(symbol)), range_.lower, range_.upper
            if name and low.is_Integer and low > 2:
                yield f'    require {name} >= {low}, "the module takes another way for {name} < {low}"'
            if name and high.is_Integer and high < 1 << 31:
                yield f'    require {name} <= {high}, "the module takes no more than {high} for {name}"'
        for condition in self.conditions:
            yield f'    require {condition}, "the module takes another way otherwise"'
        for text in self.guard_texts():  # which of two sizes is greater
            if re.fullmatch(r"[\w\s+*()-]+(<|>|<=|>=)[\w\s+*()-]+", text) and len(words(text)) > 1 and words(text) <= self.symbol_names:
                yield f'    require {text}, "the module takes another way otherwise"'

    def guard_texts(self):
        """What the export decided about sizes, in their names; most of it changes nothing (see Ways)."""
        known = {name: f"({spelled(self, size)})" for size, name in self.derived.items()}
        for guard in self.guards:
            names = re.sub(r"L\['(\w+)'\]\.size\(\)\[(\d+)\]", lambda m: self.sizes.get(m[1], {}).get(int(m[2]), "?"), guard)
            text = re.sub(r"[A-Za-z_]\w*", lambda m: known.get(m[0], m[0]), names)
            if words(text) <= {*self.symbols.values(), "or", "and", "not", *FUNCTIONS} and "?" not in text:
                yield text

    def statement(self, node):
        if self.dtype(node) is None and not isinstance(node.meta.get("val"), (tuple, list)):
            if self.operation(node) in ("item", "_local_scalar_dense"):
                ATEN["item"](self, node, *node.args)
            return  # a number: written where it is used
        if node.target is operator.getitem:
            of, i = node.args
            if f"{of.name}.{i}" not in self.names:
                self.no(f"result {i} of aten.{self.operation(of)}", "write what gives it with other operations")
            self.names[node.name] = self.names[f"{of.name}.{i}"]
            return
        if self.folds(node):
            return
        operation = getattr(node.target, "__name__", str(node.target))
        if _aten_complex.has_complex(node):
            made = _aten_complex.statement(self, node)
            if made is not None:
                self.names[node.name] = "t_" + node.name
                self.say(made, {"t_" + node.name: node.meta["val"]})
            return
        write = ATEN.get(operation.split(".")[0])
        if write is None:
            self.no(f"the operation aten.{operation}", "from_torch does not know how to write it; write it with others, "
                    "or compile the part of the module before it")
        if self.dtype(node) is not None and self.dtype(node) not in DTYPES:
            self.no(f"aten.{operation} in {str(self.dtype(node))[6:]}", self.to_f32())
        try:
            self.spread = self.dtype(node) is not None and self.is_spread(node) and self.broadcast(
                node, [x for x in node.all_input_nodes if self.dtype(x) is not None])
            made = write(self, node, *node.args, **node.kwargs)
        except CompileError:
            raise
        except Exception as error:  # arguments of the operation that its row does not expect
            said = f"{type(error).__name__}: {error}"
            self.no(f"aten.{operation} with these arguments", f"write it with other operations ({said})")
        self.spread = False
        if node in self.bounds.modular:
            made = f"({made}) % {self.bounds.modular[node]}"
        if made is not None:
            self.names[node.name] = "t_" + node.name
            made_type = self.type(node.meta["val"])
            self.say(made, {"t_" + node.name: made_type._replace(dims=made_type.dims[self.low.get(node, 0):])})
            self.follow(node, operation.split(".")[0])

    def say(self, text, made):
        """A line, whose results `made` are known by their names."""
        stack = [(key, path.replace("L['self']", "").lstrip("."), getattr(kind, "__name__", str(kind)).split(".")[-1])
                 for key, (path, kind) in self.node.meta.get("nn_module_stack", {}).items()]
        if any(key.startswith("_empty") for key, _, _ in stack):  # made by a pass of torch: where the line before is
            stack = self.lines[-1].stack if self.lines else ()
        self.lines.append(Line(tuple(made), text, tuple(entry for entry in stack if entry[1])))
        self.types.update((name, v if isinstance(v, Type) else self.type(v)) for name, v in made.items())

    def type(self, tensor):
        return Type(DTYPES[tensor.dtype], [self.size(n) for n in tensor.shape])

    def follow(self, node, op):
        """self.iota: nodes whose elements are their places along one axis; self.uniform: those that are one number."""
        args, shape = node.args, node.meta["val"].shape
        x = args[0] if args and isinstance(args[0], torch.fx.Node) else None
        if op == "arange" and (len(args) == 1 or len(args) == 2 and args[0] == 0):
            self.iota[node] = 0
        elif op in ("full", "full_like", "new_full") and isinstance(args[-1], (int, float)):
            self.uniform[node] = args[-1]
        elif op in ("ones", "new_ones", "ones_like", "zeros", "new_zeros", "zeros_like"):
            self.uniform[node] = int("ones" in op)
        elif op == "ge" and x in self.iota and isinstance(args[1], int) and args[1] <= 0:
            self.uniform[node] = True
        elif op in ("bitwise_and", "logical_and", "__and__") and all(a in self.uniform for a in args[:2]):
            self.uniform[node] = bool(self.uniform[args[0]] and self.uniform[args[1]])
        elif x in self.uniform and op in KEEPING - {"add", "mul"}:
            self.uniform[node] = self.uniform[x]
        elif x in self.iota and op in KEEPING:
            axis = self.iota[x]
            if op == "unsqueeze":
                self.iota[node] = axis + (self.axis(node, args[1]) <= axis)
            elif op in ("view", "reshape"):
                long = [i for i, n in enumerate(shape) if n != 1]
                self.iota.update({node: long[0]} if len(long) == 1 else {})
            elif op == "expand" and self.rank(node) == self.rank(x):
                self.iota[node] = axis
            elif op in ("add", "mul") and args[1] == (op == "mul") and not isinstance(args[1], torch.fx.Node):
                self.iota[node] = axis
            elif op not in ("add", "mul", "expand", "select") and self.shape(node) == self.shape(x):
                self.iota[node] = axis
