"""Complex numbers as pairs of tensors, as far as positions that turn pairs need them (Llama's own rotary code).

What comes in are nodes whose value or operand is complex; what goes out are statements for both parts, whose names
w.complex has. Refused is every operation that has no row here.
"""
import torch

from ._aten import ATEN
from ._fold import Type

COMPLEX: dict[str, object] = {}  # name of an operation -> function(writer, node, *arguments): (real, imaginary) texts
MOVING = {"select", "slice", "view", "reshape", "_unsafe_view", "flatten", "squeeze", "expand", "transpose", "permute", "clone",
          "contiguous", "detach", "alias", "index", "index_select", "cat", "stack", "repeat", "unflatten", "lift_fresh_copy"}


def row(*names):
    def enter(function):
        COMPLEX.update(dict.fromkeys(names, function))
        return function
    return enter


def is_complex(value):
    made = value.meta.get("val") if isinstance(value, torch.fx.Node) else None
    return isinstance(made, torch.Tensor) and made.is_complex()


def has_complex(node):
    return is_complex(node) or any(map(is_complex, node.all_input_nodes))


def constant(w, node, path, tensor):
    """A complex tensor that the module has: its parts are weights of their own."""
    parts = torch.view_as_real(tensor).float()
    names = [w.weight(f"{path}.{name}", parts[..., i].contiguous()) for i, name in enumerate(("real", "imag"))]
    w.complex[node] = tuple(f"stop_gradient({name})" for name in names)


def statement(w, node):
    """The text of a real result; of a complex one None, and both its parts are named."""
    op = w.operation(node)
    if op not in COMPLEX and op not in MOVING and op != "unsqueeze":
        w.no(f"aten.{op} of complex numbers", "compute with sines and cosines of the angles")
    made = COMPLEX[op](w, node, *node.args, **node.kwargs) if op in COMPLEX else moved(w, node, op)
    if not is_complex(node):
        return made
    names = tuple(f"t_{node.name}_{part}" for part in ("re", "im"))
    for name, text in zip(names, made):
        w.say(text, {name: Type("f32", [w.size(n) for n in node.meta["val"].shape])})
    w.complex[node] = names
    return None


def moved(w, node, op):
    """An operation that moves elements, of both parts."""
    made = []
    for part in range(2):
        for x in node.all_input_nodes:
            if is_complex(x):
                w.names[x.name] = w.complex[x][part]
        made.append(w.at(node.args[0], w.axis(node, node.args[1]), "none") if op == "unsqueeze" else
                    ATEN[op](w, node, *node.args, **node.kwargs))
    return made


def parts(w, x):
    """(real, imaginary) of an operand; the latter is None of a real one."""
    if is_complex(x):
        return w.complex[x]
    if isinstance(x, complex):
        w.no("a complex number", "compute with sines and cosines of the angles")
    return w.cast(x, torch.float32), None


@row("view_as_complex")
def view_as_complex(w, node, x):
    return [w.at(x, w.rank(x) - 1, str(i)) for i in range(2)]


@row("view_as_real")
def view_as_real(w, node, x):
    return f"stack({', '.join(w.complex[x])}, axis = -1)"


@row("complex")
def from_parts(w, node, x, y):
    return w.text(x), w.text(y)


@row("polar")
def polar(w, node, length, angle):
    return [f"{w.text(length)} * {turn}({w.text(angle)})" for turn in ("cos", "sin")]


@row("mul")
def mul(w, node, x, y):
    (a, b), (c, d) = parts(w, x), parts(w, y)
    if b is None or d is None:  # one of them is real
        return [f"{p} * {q}" for p, q in zip((a, b or a), (c, d or c))]
    return f"{a} * {c} - {b} * {d}", f"{a} * {d} + {b} * {c}"


@row("add", "sub")
def add(w, node, x, y, alpha=1):
    (a, b), (c, d) = parts(w, x), parts(w, y)
    if b is None or d is None or alpha != 1:
        w.no("a sum of complex and real numbers", "add their parts")
    sign = "+" if w.operation(node) == "add" else "-"
    return f"{a} {sign} {c}", f"{b} {sign} {d}"


@row("conj", "_conj", "_conj_physical", "conj_physical", "resolve_conj")
def conj(w, node, x):
    a, b = w.complex[x]
    return a, b if w.operation(node) == "resolve_conj" else f"-{b}"


@row("real", "imag")
def real(w, node, x):
    return w.complex[x][w.operation(node) == "imag"]


@row("abs")
def absolute(w, node, x):
    a, b = w.complex[x]
    return f"sqrt({a} * {a} + {b} * {b})"


@row("to", "_to_copy", "type_as")
def converted(w, node, x, *rest, **named):
    if not is_complex(node) or not is_complex(x):
        w.no("a conversion between real and complex numbers", "use view_as_real and view_as_complex")
    return w.complex[x]
