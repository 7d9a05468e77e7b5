"""Sizes of an exported graph as texts: polynomials of the named sizes, with floor divisions.

What comes in are expressions of torch's symbols; what goes out is their text. A minimum or maximum of sizes is the one
that it is in the example, and a condition on the sizes that says so. Refused, by w.no, is what is no such polynomial.
other_ways() has sizes at which the module may take another way than the export.
"""
import itertools
import math
import re

import sympy
import torch

from ._errors import CompileError


def expression(value):
    """The sympy expression of a size, or the integer."""
    if isinstance(value, torch.fx.Node):
        value = value.meta["val"]
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)


def spelled(w, expr):
    """The text of an expression of sizes."""
    expr = decided(w, expr)
    text = named(w, expr)
    if left := set(re.findall(r"[A-Za-z_]\w*", text)) - set(w.symbols.values()):
        w.no(f"the size {text}", f"it is no polynomial of the named sizes ({', '.join(sorted(left))})")
    return text


def named(w, expr):
    text = str(expr)
    for symbol, name in w.symbols.items():
        text = re.sub(rf"\b{symbol}\b", name, text)
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
        return args[0] - args[1] * decided(w, divided(w, *args))
    if kind in ("FloorDiv", "CleanDiv"):
        return divided(w, *args)
    if kind == "BitwiseFn_bitwise_and" and any(arg.is_Integer and arg >= 0 for arg in args):
        size, mask = args if args[1].is_Integer else args[::-1]
        return sum(bit * (divided(w, size, bit) - 2 * divided(w, size, 2 * bit)) for bit in bits(int(mask)))
    if kind in ("CeilToInt", "FloorToInt"):
        return rounded(kind, args[0]) or expr.func(*args)
    return expr.func(*args)


def bits(mask):
    return [sympy.Integer(1 << i) for i in range(mask.bit_length()) if mask >> i & 1]


def masked(found):
    """`size & mask` of a condition, by its bits."""
    return " + ".join(f"{bit} * ({found[1]} // {bit} % 2)" for bit in bits(int(found[2]))) or "0"


def divided(w, x, y):
    """x // y, where y may be a size that x is a multiple of, or y - 1 more than one. Of halves (n // 2) and the like
    x may be a multiple if they come out even, which is a condition then."""
    from torch.utils._sympy.functions import FloorDiv
    if y.is_Integer:
        return FloorDiv(x, y)
    first = {}  # of the symbols of one name
    same = {symbol: first.setdefault(w.symbols.get(str(symbol), symbol), symbol) for symbol in
            sorted((x * y).free_symbols, key=str)}
    x, y = x.xreplace(same), y.xreplace(same)
    for over in (0, y - 1):
        whole, left = sympy.div(sympy.expand(x - over), y)
        if left == 0:
            return whole
    parts = sorted(part for part in (x * y).atoms(FloorDiv) if part.args[1].is_Integer)
    even = {part: part.args[0] / part.args[1] for part in parts}
    whole, left = sympy.div(sympy.expand(x.xreplace(even)), sympy.expand(y.xreplace(even)))
    if not parts or left != 0 or not all(n.is_Integer for n in sympy.expand(whole).as_coefficients_dict().values()):
        w.no(f"the size {w.factor(named(w, x))} // {w.factor(named(w, y))}",
             "it is no polynomial of the named sizes; give a number in its place")
    for size, number in (part.args for part in parts):
        w.conditions.setdefault(f"{w.factor(spelled(w, size))} % {number} == 0")
    return whole


def rounded(kind, expr):
    """A fraction of sizes (n / 4, n * 0.5) that is made whole, up or down; None unless f64 computes as with fractions."""
    from torch.utils._sympy.functions import FloorDiv
    by = 1
    if type(expr).__name__ in ("IntTrueDiv", "FloatTrueDiv"):
        expr, by = expr.args
    expr, by = exact(expr), exact(sympy.sympify(by))
    if expr is None or by is None or not by.is_Rational:
        return None
    number, under = sympy.fraction(sympy.together(sympy.expand(expr / by)))
    return FloorDiv(number + (under - 1 if kind == "CeilToInt" else 0), under) if under.is_Integer else None


def exact(expr):
    """The expression in whole numbers and fractions that f64 has, or None."""
    if isinstance(expr, sympy.Float):
        made = sympy.Rational(float(expr))
        return made if made.q <= 1 << 20 else None
    if type(expr).__name__ == "ToFloat":
        return expr.args[0]
    if not expr.args or type(expr).__name__ == "FloorDiv":
        return expr
    args = [exact(part) for part in expr.args]
    return expr.func(*args) if (expr.is_Add or expr.is_Mul) and None not in args else None


def examples(w):
    """symbol -> its number in the example."""
    numbers = {name: w.inputs[of].shape[axis] for of, axes in w.sizes.items() for axis, name in axes.items()}
    return {symbol: numbers[name] for symbol, name in w.symbols.items()}


def followers(w, name, by):
    """(name, by how much) of the sizes that change with one that becomes greater by that much."""
    before = examples(w)
    for size, follower in w.derived.items():
        old, new = ({one: before[str(one)] + more * (w.symbols[str(one)] == name) for one in size.free_symbols} for more in (0, by))
        yield follower, int(size.xreplace(new)) - int(size.xreplace(old))


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


# ---- sizes for which the module may branch ----

LONGEST = 130  # of sizes that are looked for first: beyond twice 64, of which sizes are made multiples
FEW = 4  # stretches or remainders of sizes that a condition is written with
FARTHEST = 4096  # and of those where a condition is computed only; of greater ones the powers of two
FUNCTIONS = {"math": math, "torch": torch, "round": round, "min": min, "max": max, "abs": abs}  # of conditions


def other_ways(w):
    """(condition, name, by how much) of sizes at which a condition that the export took for given does not hold: 1, which it
    never looks at, and what its guards say. Of most conditions torch alone makes use, with the same numbers; by how much is None
    if not."""
    known = {w.symbols[symbol]: n for symbol, n in examples(w).items()}
    for name, n in sorted(known.items()):
        if name not in w.derived.values():
            yield f"{name} >= 2", name, 1 - n
    for text in guards(w):
        yield from breaking(w, text, known, set(w.derived.values()))


def guards(w):
    """The conditions of the export, each once, in operations that the language has too."""
    found = {}
    for text in w.guard_texts():
        text = re.sub(r"math\.floor\(([\w*+ -]+) / (\d+)\)", r"((\1) // \2)", text)
        found[re.sub(r"\b([A-Za-z_]\w*) & (\d+)", masked, text)] = None
    return found


def untried(w):
    """(conditions of the module, others) of a module that is not run: one with a fraction, a remainder or a function is its own; the
    others, and that some size is not 0 or 1, torch has for itself as well."""
    ways = list(other_ways(w))
    known = {w.symbols[symbol]: n for symbol, n in examples(w).items()}
    own = dict.fromkeys(way[0] for text in guards(w)
                        if is_computed(text) and (re.search("[%&]", text) or not re.search("(!= [01]|>= [12])$", text))
                        for way in breaking(w, text, known, set(w.derived.values())))
    return list(own), list(dict.fromkeys(way[0] for way in ways if way[0] not in own))


def is_computed(text):
    """Whether a condition is one on fractions, remainders or functions of sizes."""
    return bool(re.search(r"[/%&|^]|\*\*", text) or words(text) & set(FUNCTIONS))


def words(text):
    """The names of sizes and functions in a condition."""
    return set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", text))


def computed(text):
    """The condition as a function of sizes, as Python computes it; where it cannot be, it holds."""
    code = compile(text, "<condition>", "eval")

    def holds(sizes):
        try:
            return bool(eval(code, {"__builtins__": {}, **FUNCTIONS}, sizes))
        except ArithmeticError:
            return True
    return holds


def allowed(w, name):
    """The least and the greatest number that the export allows for a size, which the text has as conditions of their own."""
    of = [range_ for symbol, range_ in w.program.range_constraints.items() if w.symbols.get(str(symbol)) == name]
    return (max([one.lower for one in of], default=2), min([one.upper for one in of], default=1 << 31))


def breaking(w, text, known, fixed):
    """The least change of one size with which the condition does not hold; of an order the least two, as at the first both ways
    may give the same."""
    holds, ordered, names = computed(text), re.search("[<>]", text), sorted(words(text) & set(known) - fixed)
    if not holds(known):  # of sizes that stand for others in the export
        return
    if is_pinned(text):
        for name in names:
            if not all(holds({**known, name: n}) for n in range(2, LONGEST)):
                yield condition(w, text, holds, name, known), name, None
                return
    for name in names:
        low, high = allowed(w, name)
        nearest = sorted(range(2, LONGEST), key=lambda n: abs(n - known[name]))
        broken = (n for n in (*nearest, *range(LONGEST, FARTHEST), *(1 << i for i in range(12, 31)))
                  if low <= n <= high and not holds({**known, name: n}))
        fixed_number = re.fullmatch(r"[^=<>!]+ == \(?-?\d+\)?", text)  # which a function of sizes became: near ones may give the same
        others = (2, known[name] // 2, 2 * known[name], 3 * known[name], 8 * known[name]) if fixed_number else ()
        more = [n for n in others if low <= n <= high and not holds({**known, name: n})]
        for n in dict.fromkeys((*itertools.islice(broken, 2 if ordered else 1), *more)):
            yield condition(w, text, holds, name, known), name, n - known[name]


def is_pinned(text):
    """Whether a condition is what a function of a fraction (math.log(n / 10)) made of it: the number that the example has, of which
    the export knows nothing else. Torch itself has none of fractions."""
    found = re.fullmatch(r"([^=<>!]+) == \(?-?[\d.]+\)?", text)
    return bool(found and re.search(r"sym_float|(?<!/)/(?!/)", found[1]))


def condition(w, text, holds, name, known):
    """The condition in the language, whose sizes are whole numbers. One with fractions, of one size, is the sizes around the
    example for which it holds, or their remainders."""
    if re.fullmatch(r"[\w\s+*/%()<>=!-]+", text) and not re.search(r"(?<!/)/(?!/)", text) and words(text) <= {*known, "or", "and", "not"}:
        return text
    if words(text) & set(known) != {name}:
        quotient = re.fullmatch(r"\(([\w*() +-]+) / ([\w*() +]+)\) ([<>=!]+) ([\d.]+)", text)  # by what is positive
        ratio = sympy.Rational(float(quotient[4])) if quotient else None
        if ratio is None or ratio.q > LONGEST:
            lines = set(filter(None, w.traced.branches))
            where = f", at {' or '.join(f'{file}:{line}' for file, line in sorted(lines))}" if lines else ""
            raise CompileError(f"from_torch cannot take a branch on {text}{where}: compare whole numbers, such as 2 * n > m in place "
                               "of n / m > 0.5")
        left, right = (w.factor(part) + (f" * {by}" if by != 1 else "") for part, by in ((quotient[1], ratio.q), (quotient[2], ratio.p)))
        return f"{left} {quotient[3]} {right}"
    return remainders(holds, name) or stretches(holds, name, known[name])


def remainders(holds, name):
    """The condition as one on the remainder of a size, as of its lowest bits, or None."""
    kept = [holds({name: n}) for n in range(FARTHEST)]
    for by in range(2, LONGEST // 2):
        if all(kept[n] == kept[n + by] for n in range(1, FARTHEST - by)) and all(
                holds({name: n + far}) == kept[n + by * FEW] for n in range(by) for far in (by << 14, by << 22)):
            held = {n % by for n in range(by, 2 * by) if kept[n]}
            if 0 < len(held) <= FEW:
                return " or ".join(f"{name} % {by} == {n}" for n in sorted(held))
            if by - len(held) <= FEW:
                return " and ".join(f"{name} % {by} != {n}" for n in range(by) if n not in held)
    return None


def stretches(holds, name, n):
    """The sizes around the example for which a condition holds, and a few other stretches next to them."""
    kept = [False, *(holds({name: size}) for size in range(1, FARTHEST + 1)), False]
    begins = [size for size in range(1, FARTHEST + 1) if kept[size] and not kept[size - 1]]
    found = [(low, next(size for size in range(low, FARTHEST + 1) if not kept[size + 1])) for low in begins]
    nearest = sorted(found, key=lambda one: max(one[0] - n, n - one[1]))[:FEW]
    return " or ".join(map("({})".format if len(nearest) > 1 else str, (stretch(holds, name, *one) for one in sorted(nearest))))


def stretch(holds, name, low, high):
    if high == FARTHEST:  # and beyond by halves
        for i in reversed(range(30)):
            high += (1 << i) * holds({name: high + (1 << i)})
    if low == high:
        return f"{name} == {low}"
    bounds = [f"{name} >= {low}"] * (low > 1) + [f"{name} <= {high}"] * (high < 1 << 30)
    return " and ".join(bounds) or f"{name} >= 1"
