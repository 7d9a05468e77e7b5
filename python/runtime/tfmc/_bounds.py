"""Which integers of an exported program fit in 32 bits, as the language has them, where torch has 64.

What comes in are the nodes that are written, in order. Each gets the interval of its values: sizes are 1 to 2**30,
ids are what their table allows, since a run refuses others, and what is known of an operation follows from its
operands. If some integer may leave 32 bits that way, sizes and integers of which nothing is known (inputs, f32 that
become integers) are given a bound, the widest with which all fit: the text refuses others, by a `require` for sizes and
inputs, and by a division by zero for f32 that become integers. What does not fit in the bounds that the example needs
is refused. Sums and products of which only the remainder is wanted (places in a table of hashes) are computed as
remainders throughout.
"""
import math
import operator
import os

import torch

from ._aten import WHOLE
from ._aten_table import ATEN
from ._intervals import COMPARED, LEAST, MOST, PLACES, SAME, Intervals

MODULUS = 46341  # the greatest divisor of which products of two remainders fit
SIZES = (1 << 30, 1 << 20, 1 << 16, 1 << 12)  # beyond the first no axis of a run goes
WHOLE_VIEWS = set("contiguous clone alias detach view reshape expand permute transpose t unsqueeze squeeze to _to_copy".split())
# What gives the same for an integer beyond 32 bits and for the greatest that fits.
ORDERS = (SAME - {"sort", "topk", "max", "min", "round", "floor", "ceil", "trunc"}) | set(
    "clamp clamp_min clamp_max maximum minimum lt gt le ge eq ne where masked_fill to _to_copy".split())


class Bounds(Intervals):
    """guarded: node -> bound of integers of which nothing else is known; conversions: f32 that become integers and may
    be beyond 32 bits; size: the bound of all sizes, or None."""

    def __init__(self, writer, nodes):
        super().__init__(writer)
        self.guarded, self.size, self.overflow, self.computed, self.modular = {}, None, None, {}, {}
        self.places = {}  # where the module makes integers of f32 that have a bound -> the bound
        self.nodes = nodes
        self.tables = self.of_tables()
        self.nodes = self.that_matter(nodes)
        self.unknown = [n for n in nodes if n.op == "placeholder" and n not in self.tables and self.is_input(n)
                        and n.name not in writer.ranges]
        if not self.fits(SIZES[0], None):
            for node in self.nodes:
                self.modular.update(self.under_remainder(node))
        self.settle()

    def is_input(self, node):
        return self.writer.kinds[node.name].kind.name == "USER_INPUT" and (
            self.writer.dtype(node) in (torch.int32, torch.int64))

    # ---- what is known before ----

    def of_tables(self):
        """Inputs, all of whose elements are places of a table: input -> interval."""
        found = {}
        for node in self.nodes:
            op, args = self.writer.operation(node), (*node.args, *node.kwargs.values())  # torch's own cuts name some
            pairs = [(args[1], args[0], 0, 0)] if op == "embedding" else []
            if op == "index":
                pairs = [(ids, args[0], axis, 1) for axis, ids in enumerate(args[1]) if ids is not None]
            elif op in ("gather", "index_select"):
                pairs = [(args[2], args[0], args[1], 0)]
            for ids, table, axis, wraps in pairs:
                rows = table.meta["val"].shape[axis] if table.meta["val"].ndim else None
                ids, offset = self.looked_up(ids)
                if isinstance(rows, int) and ids.op == "placeholder" and self.is_input(ids):
                    low, high = found.get(ids, (LEAST, MOST))
                    found[ids] = max(low, -(rows if wraps else 0) - offset), min(high, rows - 1 - offset)
        return found

    def looked_up(self, ids):
        """(x, number), where the places in a table are all elements of x and the number."""
        offset = 0
        while isinstance(ids, torch.fx.Node) and self.writer.dtype(ids) in WHOLE and ids.op == "call_function":
            op, args = self.writer.operation(ids), ids.args
            if op in ("add", "sub") and isinstance(args[1], int) and not ids.kwargs:
                offset += args[1] if op == "add" else -args[1]
            elif op not in WHOLE_VIEWS or self.writer.dtype(args[0]) not in WHOLE:
                break
            ids = args[0]
        return ids, offset

    def under_remainder(self, node):
        """Sums and products that only this remainder uses -> its divisor."""
        args, found = node.args, {}
        if self.writer.operation(node) != "remainder" or not isinstance(args[1], int) or not 1 < args[1] <= MODULUS:
            return found
        todo = [args[0]]
        while todo:
            x = todo.pop()
            if isinstance(x, torch.fx.Node) and self.writer.operation(x) in ("add", "sub", "mul") and not x.kwargs and (
                    self.writer.dtype(x) == torch.int64) and all(user is node or user in found for user in x.users):
                found[x] = args[1]
                todo += [operand for operand in x.args if self.is_whole(operand)]
        return found

    def is_whole(self, x):
        return isinstance(x, torch.fx.Node) and self.writer.dtype(x) in WHOLE

    def remainder(self, text, value):
        """An operand of a sum or product of which the remainder is wanted."""
        divisor = self.modular[self.writer.node]
        return str(value % divisor) if isinstance(value, int) else f"({text} % {divisor})"

    def that_matter(self, nodes):
        """Integers, and what they are computed from."""
        found, todo = set(), [node for node in nodes if self.writer.dtype(node) in WHOLE]
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                op = self.writer.operation(node)
                is_open = op not in COMPARED | PLACES and self.writer.dtype(node) != torch.bool
                todo += node.all_input_nodes if is_open else ()
        return [node for node in nodes if node in found and node.op in ("placeholder", "call_function")]

    def is_computed_with(self, node):
        """Whether more is done with an integer than to compare it and to look for its place in a table, which must
        have it: then one that stands for all beyond 32 bits would give another result."""
        if node not in self.computed:
            self.computed[node] = any(self.computes(user) for user in node.users)
        return self.computed[node]

    def computes(self, user):
        op, args = self.writer.operation(user), user.args
        if user.op == "output" or op not in ORDERS:
            return True
        limits = [*args[1:3], *user.kwargs.values()]
        if op == "clamp" and sum(isinstance(limit, (int, float)) for limit in limits) == 2:
            return False
        return self.writer.dtype(user) in WHOLE and self.is_computed_with(user)

    def example(self, node):
        value = self.writer.inputs.get(node.name)
        return int(value.abs().max()) if isinstance(value, torch.Tensor) and value.numel() else 0

    # ---- the bounds that are needed ----

    def settle(self):
        needed = max([self.example(node) for node in self.unknown], default=0)
        longest = max([n for value in self.writer.inputs.values() if isinstance(value, torch.Tensor)
                       for n in value.shape], default=1)
        for size in SIZES:
            if size < longest:
                break
            if self.fits(size, None):
                self.size = None if size == SIZES[0] else size
                return
            for bits in range(30, 9 if size > SIZES[-1] else 0, -1):
                if 1 << bits < needed:
                    break
                if self.fits(size, 1 << bits):
                    self.size = None if size == SIZES[0] else size
                    self.guarded = dict.fromkeys(self.used, 1 << bits)
                    return
        if any(self.is_refused(node) for node in self.nodes):
            return  # by its row, which says what it is
        if size >= longest:
            self.fits(size, max(needed, 1))
        node, (low, high) = self.overflow
        self.writer.node = node
        self.writer.no(f"integers of {low} to {high}" if abs(low) + abs(high) < math.inf else "integers that have no bounds",
                       "they may not fit in 32 bits, as the language has them; take remainders before products, look "
                       "values up in a table, or compute in f32")

    def is_refused(self, node):
        op = self.writer.operation(node)
        is_tensors = self.writer.dtype(node) is not None or isinstance(node.meta.get("val"), (tuple, list))
        return node.op == "call_function" and (op == "where" and len(node.args) == 1 or node.target is not operator.getitem
                                               and is_tensors and op not in ATEN)

    def fits(self, size, bound):
        """Whether all integers fit with sizes up to one and unknown integers up to the other."""
        self.begin(size, bound)
        self.overflow = None
        for node in self.nodes:
            low, high = self.known[node] = self.of(node)
            if self.writer.dtype(node) not in WHOLE or LEAST <= low and high <= MOST:
                continue
            if node in self.modular and -1 << 63 <= low and high < 1 << 63:
                continue
            if self.writer.dtype(node) == torch.int32 and node not in self.conversions:
                self.known[node] = LEAST, MOST  # torch wraps, too
            else:
                self.overflow = node, (low, high)
                return False
        return True

    def required(self):
        for symbol, name in self.writer.symbols.items() if self.size else ():
            if symbol in self.named:
                yield f'    require {name} <= {self.size}, "integers would not fit in 32 bits with more for {name}"'
        for node in self.writer.program.graph.nodes:
            if node.op != "placeholder" or self.writer.kinds[node.name].kind.name != "USER_INPUT":
                continue
            name = self.writer.aliases.get(node.name, node.name)
            if node.name in self.writer.ranges:
                low, high = self.writer.ranges[node.name]
                yield f'    require {name} >= {low} and {name} <= {high}, "{node.name} holds integers of {low} to {high}"'
            elif self.writer.dtype(node) == torch.uint8:
                yield f'    require {name} >= 0 and {name} < 256, "{node.name} is a tensor of bytes"'
            elif node in self.guarded:
                bound = self.guarded[node]
                yield (f'    require {name} >= {-bound} and {name} <= {bound}, "what is computed with {node.name} would not fit '
                       'in 32 bits"')

    def comment(self):
        if self.places:
            yield ("# i32(x) // i32(x >= -b and x <= b) is x as an integer, or an error of the run (integer division by zero) if\n"
                   "# |x| is more than b: what is computed with it would not fit in 32 bits. The module makes these integers")
            yield from (f"#   {place.replace(os.path.dirname(place.split(', ')[-1]) + '/', '')}: b = {bound}" for place, bound in self.places.items())

    def conversion(self, node, text):
        """An f32 as an integer: those beyond 32 bits become the nearest, or are refused by the run."""
        made = f"i32(clamp({text}, -2147483648.0, 2147483520.0))"
        if node not in self.guarded:
            return made
        self.places[self.writer.place()] = self.guarded[node]
        bound = float(self.guarded[node])
        return f"i32({text}) // i32(({text}) >= {-bound} and ({text}) <= {bound})"
