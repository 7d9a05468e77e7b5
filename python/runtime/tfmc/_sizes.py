"""Sizes of an exported graph as texts: polynomials of the named sizes, with floor divisions.

What comes in are expressions of torch's symbols; what goes out is their text. A minimum or maximum of sizes is the one
that it is in the example, and a condition on the sizes that says so. Refused, by w.no, is what is no such polynomial.
"""
import re

import sympy
import torch


def expression(value):
    """The sympy expression of a size, or the integer."""
    if isinstance(value, torch.fx.Node):
        value = value.meta["val"]
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)


def spelled(w, expr):
    """The text of an expression of sizes."""
    expr = decided(w, expr)
    text = str(expr)
    for symbol, name in w.symbols.items():
        text = re.sub(rf"\b{symbol}\b", name, text)
    if left := set(re.findall(r"[A-Za-z_]\w*", text)) - set(w.symbols.values()):
        w.no(f"the size {text}", f"it is no polynomial of the named sizes ({', '.join(sorted(left))})")
    return text


def decided(w, expr):
    """The expression without minimum and maximum, remainders and divisions by sizes."""
    expr = sympy.sympify(expr)
    if not expr.args:
        return expr
    args = [decided(w, part) for part in expr.args]
    kind = type(expr).__name__
    if kind in ("Min", "Max"):
        return chosen(w, kind, args)
    if kind in ("Mod", "PythonMod"):
        return args[0] - args[1] * decided(w, divided(*args))
    if kind == "FloorDiv":
        return divided(*args)
    return expr.func(*args)


def divided(x, y):
    """x // y, where y may be a size that x is a multiple of, or y - 1 more than one."""
    from torch.utils._sympy.functions import FloorDiv
    if not y.is_Integer:
        for over in (0, y - 1):
            whole, left = sympy.div(sympy.expand(x - over), y)
            if left == 0:
                return whole
    return FloorDiv(x, y)


def examples(w):
    """symbol -> its number in the example."""
    numbers = {name: w.inputs[of].shape[axis] for of, axes in w.sizes.items() for axis, name in axes.items()}
    return {symbol: numbers[name] for symbol, name in w.symbols.items()}


def chosen(w, kind, args):
    """One of the arguments, and the conditions under which it is the minimum or maximum."""
    known = examples(w)

    def number(expr):
        return expr.subs({symbol: known.get(str(symbol), 0) for symbol in expr.free_symbols})
    if any(str(symbol) not in known for arg in args for symbol in arg.free_symbols):
        w.no(f"the size {kind}({', '.join(map(str, args))})", "it depends on values")
    best = (min if kind == "Min" else max)(args, key=number)
    for other in args:
        if other != best:
            w.conditions.setdefault(f"{spelled(w, best)} {'<=' if kind == 'Min' else '>='} {spelled(w, other)}")
    return best
