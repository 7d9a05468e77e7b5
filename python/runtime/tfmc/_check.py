"""Whether the text that from_torch wrote gives what the module gives: at the sizes of the example, and at another one
for each named size, and where the module may take another way than its export did.

What comes in are the Source, its Writer, the module and its inputs. The exported program is computed by torch in double,
the module itself as it is; the text by the reference interpreter, with a result for each call of a module. What goes out
is why nothing was compared, or None. Refused is a text that differs by more than rounding, has outputs of other types, or
fails where torch gives a result; the message names the first module that differs. A text that differs where a condition of the
export does not hold gets this condition.
"""
import contextlib
import re

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ._errors import CompileError
from ._inputs import nested
from ._sizes import FARTHEST, LONGEST, examples, followers, other_ways, untried
from ._source import Source
from ._texts import Texts
from ._tracing import patched

TOLERANCE = 1e-5         # of a result's distance, relative to its largest value
INTERPRETED = 1e9        # floating point operations of a run by the interpreter; more are left to compiled code
MOST = 1e11              # and those of a run at all
MOST_BYTES = 8 << 30     # of weights
DOUBLED = 1 << 30        # bytes of weights with which torch computes in double
OTHER = (1, 2, -1)       # by how much another size is greater: the first that module and text take
AGAIN = 1 - 2 ** -6      # what an element is multiplied by that stands a second time
KINDS = {"f": "f32", "i": "integers", "b": "bool"}  # of numpy, in words
REFUSED = ("the module takes", "integers would not fit")  # in the text's own conditions on sizes
OF_GENERATE = "The line is that of generate=: it names an input of ids and an output by outputs=; labels are targets="
CURE = "Write that module with other operations; check=False takes the text as it is"
UNSORTED = "topk(sorted=False) {} gives an order that torch does not promise: leave sorted out. Else: "
EMPTY = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")
UNSET = "torch.empty {} has numbers that nobody chose, if not all are set: use torch.zeros. Else: "
MASKED = "Queries whose keys are all masked get zeros here: give an example without them. Else: "


class Differs(CompileError):
    """The text gives another result than the module."""


class Exported(torch.fx.Interpreter):
    """Computes the exported program, in double if it is said so, and keeps the values of some nodes."""

    def __init__(self, program, wanted, dtype):
        super().__init__(program.graph_module)
        self.wanted, self.dtype, self.found = wanted, dtype, {}

    def other(self, value):
        if isinstance(value, torch.dtype):
            return self.dtype if value == torch.float32 else value
        is_float = isinstance(value, torch.Tensor) and value.dtype == torch.float32
        return value.to(self.dtype) if is_float else value

    def placeholder(self, target, args, kwargs):
        return self.other(super().placeholder(target, args, kwargs))

    def call_function(self, target, args, kwargs):
        name = getattr(target, "__name__", "")
        if name.startswith(("_assert", "sym_constrain")):
            return None
        args, kwargs = pytree.tree_map(self.other, (args, kwargs))
        if target is torch.ops.aten.view.default:  # other types may have other strides: in double attention is computed another way
            target = torch.ops.aten.reshape.default
        return pytree.tree_map(self.other, super().call_function(target, args, kwargs))

    def run_node(self, node):
        value = super().run_node(node)
        if node.name in self.wanted and isinstance(value, torch.Tensor):
            self.found[node.name] = as_array(value)
        return value


def as_array(value):
    value = value.detach().cpu()
    with np.errstate(over="ignore"):
        kinds = {torch.bool: torch.bool} | dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), torch.float64)
        return value.to(kinds.get(value.dtype, torch.int64)).numpy()


def distance(got, wanted):
    """Relative to the largest value, or to 1; infinite if shapes, infinities or places of NaN differ, or integers."""
    if np.asarray(wanted).dtype.kind in "iub":
        return 0.0 if np.array_equal(got, wanted) else max(2 * TOLERANCE, _distance(got, wanted))
    return _distance(got, wanted)


def _distance(got, wanted):
    got = np.asarray(got, np.float64)
    with np.errstate(over="ignore"):
        wanted = np.asarray(wanted, np.float64).astype(np.float32).astype(np.float64)
    if got.shape != wanted.shape:
        return np.inf
    known = np.isfinite(wanted)
    if not np.array_equal(got[~known], wanted[~known], equal_nan=True) or not np.isfinite(got[known]).all():
        return np.inf
    return float(np.abs(got[known] - wanted[known]).max(initial=0) / max(1, np.abs(wanted[known]).max(initial=0)))


@contextlib.contextmanager
def unchanged(module, dropout):
    """What runs of the module do to its buffers is undone."""
    kept = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    try:
        with torch.no_grad(), patched(dropout):
            yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)


def copied(inputs):
    return pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, inputs)


def wrapped(inputs, sizes, name, by):
    """(inputs, size) with one size that is greater or less: elements are those from the first on, over again; fractions
    are a little less the second time, since which of equal ones is the greater is not said."""
    made, n = dict(inputs), 0
    for one, axes in sizes.items():
        for axis, size in axes.items():
            if size == name:
                value, n = made[one], made[one].shape[axis] + by
                places = torch.arange(n)
                repeated = (places >= value.shape[axis]).reshape([-1 if i == axis % value.ndim else 1 for i in range(value.ndim)])
                value = value.index_select(axis, places % value.shape[axis])
                if value.is_floating_point():
                    value = torch.where(repeated & (value != value.round()), value * AGAIN, value)
                made[one] = value
    return made, n


class Work(TorchDispatchMode):
    """Counts the floating point operations of products, as torch's FlopCounterMode, but without hooks on modules."""

    flop = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        count = flop_registry.get(getattr(function, "_overloadpacket", None))
        self.flop += count(*args, **(kwargs or {}), out_val=made) if count else 0
        return made


class Comparison:
    """Of one set of inputs: `single` and `exact` are the exported program's values by torch, by names of nodes."""

    def __init__(self, source, writer, inputs, where):
        self.source, self.writer, self.inputs, self.where = source, writer, inputs, where
        self.wanted = {*writer.probed.values(), *(node.name for node in writer.results.values())}
        self.made = {}

    def values(self, dtype):
        if dtype not in self.made:
            run, old = Exported(self.writer.program, self.wanted, dtype), torch.get_default_dtype()
            try:
                torch.set_default_dtype(dtype)
                with torch.no_grad():
                    run.run(*self.writer.signature.arguments(copied(self.inputs)))
                self.made[dtype] = run.found
            except Exception:  # what torch has in f32 alone, or at other sizes than the exported program says
                self.made[dtype] = {} if dtype == torch.float32 else self.values(torch.float32)
            finally:
                torch.set_default_dtype(old)
        return self.made[dtype]

    def exact(self):
        n_bytes = sum(value.nbytes for value in (self.source.weights or {}).values())
        return self.values(torch.float64 if n_bytes <= DOUBLED else torch.float32)

    def rounding(self, node):
        """What results in f32 may be away from those in double."""
        single, exact = self.values(torch.float32).get(node), self.exact().get(node)
        return 1e-4 if single is None or exact is None else TOLERANCE + 4 * min(distance(single, exact), 1e-2)

    def beyond(self, got, wanted, node):
        """The distance, if rounding does not explain it, else 0."""
        far = distance(got, wanted)
        if far <= TOLERANCE or far <= self.rounding(node):
            return 0
        single = self.values(torch.float32).get(node)
        return 0 if single is not None and distance(got, single) <= TOLERANCE else far

    def run(self, texts, engine):
        """The results of the source's text and those of all calls; None if the text refuses these sizes."""
        given = self.writer.signature.tensors(self.inputs)
        arrays = {name: as_input(name, value) for name, value in given.items()}
        try:
            return (texts.run(self.source.text, arrays, *engine),
                    texts.run(self.source.probed, arrays, *engine) if self.source.probed else {})
        except CompileError as error:
            if self.where and any(words in str(error) for words in REFUSED):
                return None
            if "E0507" in str(error) and self.writer.bounds.places:
                raise CompileError(f"{self.where or 'at the example'} integers that are made of floats, or what is computed with them, do "
                                   f"not fit in 32 bits, as the language has them: {', '.join(self.writer.bounds.places)}") from error
            cure = OF_GENERATE if re.search(r"^ *\d+ \|  +generate ", str(error), re.M) else CURE
            raise CompileError(f"the text fails {self.where or 'at the example'}, where the module gives a result:\n"
                               f"{error}\n{cure}") from error

    def compare(self, texts, engine, values, kinds):
        """Whether the text takes these sizes. values: the module's own results."""
        made = self.run(texts, engine)
        if made is None:
            return False
        results, inner = made
        exact = self.exact()
        for path, name in [(path, name) for path, names in self.source.probes for name in names]:
            node = self.writer.probed.get(name)
            if node in exact and (far := self.beyond(inner[name], exact[node], node)):
                self.refuse(f"the first module that differs is {path} ({kinds.get(path, '?')})", far)
        for name, node in self.writer.results.items():
            self.compare_types(name, node, results[name], values[name])
            if node.name in exact and (far := self.beyond(results[name], exact[node.name], node.name)):
                self.refuse(f"the output {name} differs", far)
            far = distance(results[name], values[name])
            if far > TOLERANCE and far > self.rounding(node.name):
                self.refuse(f"the module's output {name} differs from that of its export, which may have fixed what "
                            "the module decides anew in each call", far)
        return True

    def compare_types(self, name, node, got, wanted):
        """Numbers may be equal and their types not: ids that come as fractions index nothing."""
        if got.dtype.kind == wanted.dtype.kind:
            return
        self.writer.node = node
        raise Differs(f"the text does not give what the module gives: the output {name} is {KINDS[got.dtype.kind]} in the text, "
                      f"and {KINDS[wanted.dtype.kind]} in the module, {self.writer.place()}\n{CURE}")

    def refuse(self, what, far):
        amount = "in shape, or in which elements are infinite or NaN" if far == np.inf else f"by {far:.2g} of its largest value"
        unsorted = [node for node in self.writer.program.graph.nodes if self.writer.operation(node) == "topk" and (
            node.kwargs.get("sorted", True) is False or False in node.args[4:5])]
        unset = [node for node in self.writer.program.graph.nodes if self.writer.operation(node) in EMPTY]
        self.writer.node = (unsorted or unset or [None])[0]
        hint = UNSORTED.format(self.writer.place()) if unsorted else UNSET.format(self.writer.place()) if unset else MASKED
        raise Differs(f"the text does not give what the module gives {self.where or 'for the example'}: {what}, "
                      f"{amount}\n{hint}{CURE[0].lower()}{CURE[1:]}")


def as_input(name, value):
    value = value.detach().cpu().numpy()
    if value.dtype == np.uint8:
        return value.astype(np.int32)
    if value.dtype != np.int64:
        return value
    if value.size and (value.min() < -1 << 31 or value.max() >= 1 << 31):
        raise CompileError(f"the input {name} has integers that do not fit in 32 bits, as the language has them")
    return value.astype(np.int32)


def results(writer, module, inputs):
    """name -> what the module gives."""
    with unchanged(module, writer.dropout):
        leaves = pytree.tree_leaves(module(**nested(writer.forms, copied(inputs))))
    return {name: as_array(leaves[writer.signature.places[name]]) for name in writer.results}


def checked(source, writer, module, inputs):
    """None, or why the text was not compared with the module."""
    n_bytes = sum(value.nbytes for value in (source.weights or {}).values())
    if n_bytes > MOST_BYTES:
        return f"its weights have {n_bytes / 2 ** 30:.1f} GiB"
    with Work() as work:
        try:
            values = results(writer, module, inputs)
        except Exception as error:
            raise CompileError(f"the module fails at the example after it was exported ({type(error).__name__}: {error}): a forward "
                               "that keeps what it makes, such as masks in a dict of the file, has kept tensors of the export. "
                               "Keep them in attributes of the module, or as buffers") from error
    if work.flop > MOST:
        return f"the example takes {work.flop:.2g} floating point operations; give a smaller one"
    engine = ["--engine=native"] if work.flop > INTERPRETED else []
    kinds = {path: type(part).__name__ for path, part in module.named_modules()}
    with Texts(source.weights or {}) as texts:
        Comparison(source, writer, inputs, "").compare(texts, engine, values, kinds)
        refuse_state(writer, module, inputs, values)
        compare_ways(source, writer, module, inputs, (texts, engine, work.flop))
        for name in sorted(writer.symbol_names.difference(writer.derived.values())):
            for by in OTHER:
                other, n = resized(writer, inputs, name, by)
                try:
                    values = results(writer, module, other) if n > 1 else None
                except Exception:  # sizes that the module does not take
                    continue
                if values and Comparison(source, writer, other, f"for {name} = {n}").compare(texts, engine, values, kinds):
                    break
    return None


def unchecked(text, writer, why):
    """The text of a module that is not run, with the conditions on sizes that are the module's own; others are said."""
    own, others = untried(writer)
    for condition in own:
        text = required(text, condition)
    said = f"; whether it takes another way where one of these does not hold was not tried: {', '.join(others)}" if others else ""
    return f"# not compared with the module: {why}{said}\n{text}"


def compare_ways(source, writer, module, inputs, run):
    """Requires of the text what the export decided about sizes, where the module gives something else at others. run: texts, the
    engine, and the operations of the example."""
    texts, engine, flop = run
    for condition, name, by in other_ways(writer):
        if by is None or is_far(writer, name, by, flop):
            source.text = required(source.text, condition)
        else:
            compare_way(source, writer, module, texts, engine, resized(writer, inputs, name, by)[0], condition)


def with_ways(text, writer, module, inputs):
    """The text of a model without weights with these conditions."""
    with Work() as work:
        results(writer, module, inputs)
    source = Source(text)
    with Texts({}) as texts:
        compare_ways(source, writer, module, inputs, (texts, ["--engine=native"] if work.flop > INTERPRETED else [], work.flop))
    return source.text


def resized(writer, inputs, name, by):
    """(inputs, size) with one size that is greater or less, and those that follow it."""
    other, n = wrapped(inputs, writer.sizes, name, by)
    for follower, more in followers(writer, name, by):
        other, _ = wrapped(other, writer.sizes, follower, more)
    return other, n


def attributes(module):
    """What modules keep beside weights and buffers; of a list its length."""
    return {f"{type(part).__name__}.{name}": len(value) if isinstance(value, (list, dict, set)) else value
            for part in module.modules() for name, value in vars(part).items() if not name.startswith("_")}


def is_far(writer, name, by, flop):
    """Whether a size would become so great that nothing is computed with it."""
    n = next(n for symbol, n in examples(writer).items() if writer.symbols[symbol] == name)
    return n + by >= FARTHEST or n + by > LONGEST and flop * ((n + by) / n) ** 2 > INTERPRETED


def refuse_state(writer, module, inputs, first):
    """What is computed from what a call before left behind is no function of the inputs."""
    before = attributes(module)
    second, after = results(writer, module, inputs), attributes(module)
    for name, value in first.items():
        if distance(second[name], value) > TOLERANCE:
            kept = [one for one, v in after.items() if one not in before or before[one] is not v]
            raise CompileError(f"the module's output {name} is another in a second call with the same inputs: its forward changes "
                               f"{', '.join(kept[:3]) or 'what it computes with in the next call'}. A model has no state: give it as "
                               "an input and return what it becomes")


def compare_way(source, writer, module, texts, engine, inputs, condition):
    """Requires the condition of a text that differs from the module where it does not hold. Not numbers (rows that are masked
    whole, which shorter ones may be) say nothing."""
    try:
        values = results(writer, module, inputs)
    except Exception:  # sizes that the module does not take
        return
    try:
        if not any(np.isnan(value).any() for value in values.values()):
            Comparison(source, writer, inputs, "there").compare(texts, engine, values, {})
    except Differs:
        source.text = required(source.text, condition)
    except CompileError:  # the text fails, which is no wrong result
        return


def required(text, condition):
    before, head, after = text.rpartition("  forward(")
    first, _, rest = after.partition("\n")
    return f'{before}{head}{first}\n    require {condition}, "the module takes another way otherwise"\n{rest}'
