"""Statements, one an operation, become layers: equal modules are one layer, and equal ones in a row a repetition.

What comes in is what _export.py wrote: lines in order, each with the calls of modules around it, and the types of all
values. What goes out are `Layer`s, for _layers.py to print. Nothing is refused: a call whose lines lie apart, or whose
module lies outside of its caller, becomes part of its caller.

A layer is known by its class and its lines, with values counted in the order in which they stand there: two calls with
the same lines are one layer, whatever else their modules hold. A value from outside is a parameter, a value that others
use a result. Numbers are no part of what tells layers from each other: those that differ become the layer's config.
"""
import collections
import re

from ._merge import PLACE, in_order, merged, to_open

# Names that stand for values in a text: not those before `=`, in strings, after a dot.
WORD = re.compile(r'"[^"]*"|(?<![\w.])[A-Za-z_]\w*(?!\w|\s*=(?!=))')
NUMBER = re.compile(r'"[^"]*"|(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])')
SMALL = 3  # a module without weights is written where it is called if it has no more lines
MANY = 4  # elements of a list that take turns become a loop if they are as many
STANDARD = [  # a module of one line -> the layer of std.tfm
    (r"linear\((?P<x>\w+), (?P<weight>w_\w+)(, (?P<b>w_\w+))?\)", "Linear"),
    (r"layer_norm\((?P<x>\w+), (?P<weight>w_\w+), ((?P<b>w_\w+)|none), (?P<eps>\S+)\)", "LayerNorm"),
    (r"rms_norm\((?P<x>\w+), (?P<weight>w_\w+), (?P<eps>\S+)\)", "RMSNorm"),
    (r"(?P<weight>w_\w+)\[(?P<x>\w+)\]", "Embedding"),
]
DEFAULT_EPS = {"LayerNorm": "1e-05", "RMSNorm": "1e-06"}

Line = collections.namedtuple("Line", "targets text stack")  # stack: (key, path, class) of the calls around it
Type = collections.namedtuple("Type", "dtype dims")          # of a value: dims as texts


class Call:
    """A call of a module: its lines and calls, in order."""

    def __init__(self, key, path, kind):
        self.key, self.path, self.kind, self.items, self.closed = key, path, kind, [], set()

    def lines(self):
        for item in self.items:
            yield from item.lines() if isinstance(item, Call) else [item]


class Step:
    """A statement of a layer: `text`, or `layer` with the config `numbers`, applied as the member of the path `member`.

    Of several members in a row `member` is the path of the list and `span` the places; `times`: one applied again.
    In a loop over the places `passed` is the place of the argument that each gives to the next, and `turns` has of
    arguments that alternate: place -> (n, k, value), for the value that every n-th gets, from the k-th on.
    """

    def __init__(self, targets, text=None, member=None, layer=None, args=(), numbers=()):
        self.targets, self.text, self.member, self.layer = targets, text, member, layer
        self.args, self.numbers, self.span, self.times = list(args), list(numbers), None, 1
        self.passed, self.turns = None, {}


class Layer:
    """kind: its class; params: values, then sizes that no type binds; weights: path within -> value.

    Each number in it, and in its members' config, has a name: `numbers` name -> text in the first call, and `calls` the
    texts of all calls. standard: of a layer of std.tfm the end of its config; its weights are path within -> name.
    """

    def __init__(self, kind, steps, params, results, weights, standard=None):
        self.kind, self.steps, self.params, self.results, self.weights = kind, steps, params, results, weights
        self.standard, self.main, self.lists = standard, None, {}
        self.numbers, self.calls, self.dims = {}, {}, {}  # dims: of parameters and weights
        self.config = {}  # name of a number -> the first one with its texts, of those that differ

    def order(self, values):
        """Parameters or arguments as they are written: what repetitions pass on comes first."""
        main = self.main or 0
        return values[main:main + 1] + values[:main] + values[main + 1:]

    def number(self, text):
        """The text with names for its numbers."""
        def one(match):
            if match.group()[0] == '"':
                return match.group()
            name = f"kκ{len(self.numbers)}"  # no member has such a name: theirs are ASCII
            self.numbers[name] = match.group()
            return name
        return NUMBER.sub(one, str(text))

    def values(self, names):
        """What tells the config of a member from another: its numbers, and which of them are config here."""
        return tuple((self.config.get(name), self.numbers[name]) for name in names)

    def decide(self):
        """Which numbers are config: those that calls have differently, one for those that are always equal."""
        names = {}
        for name, column in zip(self.numbers, zip(*self.calls)):
            if len(set(column)) > 1:
                self.config[name] = names.setdefault(column, name)


def tree(lines):
    """The root call. What cannot be a call of its own is taken apart, and the lines are read again."""
    apart = set()
    while True:
        before, root = len(apart), Call("", "", "")
        opened = [root]
        for line in lines:
            stack, depth = [entry for entry in line.stack if entry[0] not in apart], 0
            while depth < min(len(opened) - 1, len(stack)) and opened[depth + 1].key == stack[depth][0]:
                depth += 1
            for outer, inner in zip(opened[depth:], opened[depth + 1:]):
                outer.closed.add(inner.key)
            del opened[depth + 1:]
            for key, path, kind in stack[depth:]:
                outer = opened[-1]
                if key in outer.closed or not path.startswith(outer.path + "." if outer.path else ""):
                    apart.add(key)
                opened.append(Call(key, path, kind))
                outer.items.append(opened[-1])
            opened[-1].items.append(line)
        if len(apart) == before:
            return root


def hoisted(lines, types):
    """Lines that need no input stand before a call, not within it, if what they make is used after it too (a bias of
    positions, made by the first layer for all others): then such calls differ no longer. A call of nothing else stays.
    """
    words = [[m.group() for m in WORD.finditer(line.text)] for line in lines]
    made = {t: at for at, line in enumerate(lines) for t in line.targets}
    free, bound = set(), set()  # lines without an input; calls that need one
    for at, line in enumerate(lines):
        if all(word not in types or made.get(word) in free for word in words[at]):
            free.add(at)
        else:
            bound.update(key for key, _, _ in line.stack)
    left = {at: set() for at in free}  # the calls that each leaves
    for at, line in enumerate(lines):
        inside = {key for key, _, _ in line.stack}
        for word in words[at]:
            if made.get(word) in free:
                left[made[word]].update(k for k, _, _ in lines[made[word]].stack if k in bound and k not in inside)
    for at in sorted(free, reverse=True):  # what they are made of leaves with them
        for word in words[at] if left[at] else ():
            if word in made:
                left[made[word]].update(k for k, _, _ in lines[made[word]].stack if k in left[at])
    first, before = {}, collections.defaultdict(list)
    for at, line in enumerate(lines):
        for key, _, _ in line.stack:
            first.setdefault(key, at)
        if left.get(at):
            stack = tuple(entry for entry in line.stack if entry[0] not in left[at])
            before[min(first[key] for key in left[at])].append(line._replace(stack=stack))
    return [one for at, line in enumerate(lines) for one in [*before[at], *([] if left.get(at) else [line])]]


class Folder:
    """types: value -> Type; weights: value -> (path, dims); sizes: names; results: texts of the model's outputs."""

    def __init__(self, lines, types, weights, sizes, results):
        self.types, self.weights, self.sizes = types, weights, sizes
        self.said = {line.targets[0]: line.text for line in lines}
        lines, self.results = self.needed(*self.without_copies(lines, results))
        self.layers = {}
        self.uses, self.places = collections.defaultdict(list), {}
        for at, line in enumerate(lines):
            self.places[id(line)] = at
            for word in self.words(line.text):
                self.uses[word].append(at)
        for text in self.results:
            for word in self.words(text):
                self.uses[word].append(len(lines))
        self.root = tree(lines)

    def used_weights(self):
        """Paths of the weights that the text names."""
        return {self.weights[word][0] for word in self.uses if word in self.weights}

    def known(self, word):
        return word in self.types or word in self.weights or word in self.sizes

    def words(self, text):
        return [m.group() for m in WORD.finditer(text) if self.known(m.group())]

    def without_copies(self, lines, results):
        """Lines that only name a value once more are gone, and that value stands for them."""
        same, kept = {}, []

        def renamed(text):
            return WORD.sub(lambda m: same.get(m.group(), m.group()), text)
        for line in lines:
            text = renamed(line.text)
            if len(line.targets) == 1 and (text in self.types or text in self.weights):
                same[line.targets[0]] = text
            else:
                kept.append(line._replace(text=text))
        return kept, [renamed(text) for text in results]

    def needed(self, lines, results):
        kept, used = [], {w for text in results for w in self.words(text)}
        for line in reversed(lines):
            if used.intersection(line.targets):
                used.update(self.words(line.text))
                kept.append(line)
        return kept[::-1], results

    # ---- layers ----

    def folded(self):
        """The model as a Layer, and the layers that it is made of in the order in which they are made."""
        self.opened, found = set(), None
        while found is None or found:
            self.layers, self.calls = {}, collections.defaultdict(set)
            steps = self.steps_of(self.root)
            used = [w for s in steps for w in self.used(s)] + [w for text in self.results for w in self.words(text)]
            weights = {self.weights[w][0]: w for w in used if w in self.weights}
            model = self.numbered(Layer("", steps, [], [], weights))
            found = {key for layer in to_open([*self.layers.values(), model]) for key in self.calls[layer]}
            self.opened |= found
        merged(self, [*self.layers.values(), model])
        layers = in_order([layer for layer in self.layers.values() if layer.standard is None])
        for layer in [*layers, model]:
            layer.decide()
            self.join(layer)
        return model, layers

    def used(self, step):
        if step.layer is None:
            return self.words(step.text)
        return step.args + [value for _, _, value in step.turns.values()]

    def items_of(self, call):
        """Its lines and calls, with those of calls that are written where they are called."""
        for item in call.items:
            if isinstance(item, Call) and item.key in self.opened:
                yield from self.items_of(item)
            else:
                yield item

    def steps_of(self, call):
        steps = []
        for item in self.items_of(call):
            if isinstance(item, Line):
                steps.append(Step(item.targets, item.text))
            elif self.is_small(item):
                steps += [Step(line.targets, line.text) for line in item.lines()]
            else:
                layer, args, results, numbers = self.layer_of(item)
                path = item.path[len(call.path) + 1:] if call.path else item.path
                steps.append(Step(results, None, path, layer, args, numbers))
        return steps

    def owns(self, call, word):
        return word in self.weights and self.weights[word][0].startswith(call.path + ".")

    def is_small(self, call):
        lines = list(call.lines())
        return len(lines) <= SMALL and not any(self.owns(call, w) for line in lines for w in self.words(line.text))

    def results_of(self, call):
        lines = list(call.lines())
        last = self.places[id(lines[-1])]
        return [t for line in lines for t in line.targets if any(at > last for at in self.uses[t])]

    def ended(self, call=None):
        """(path, results) of all calls within one, in the order in which they end."""
        for item in (call or self.root).items:
            if isinstance(item, Call):
                yield from self.ended(item)
                yield item.path, self.results_of(item)

    def layer_of(self, call):
        """(layer, arguments, results, numbers) of a call."""
        steps, results = self.steps_of(call), self.results_of(call)
        made = {t for step in steps for t in step.targets}
        used = list(dict.fromkeys(w for step in steps for w in self.used(step)))
        weights = {self.weights[w][0][len(call.path) + 1:]: w for w in used if self.owns(call, w)}
        values = [w for w in used if w not in made and w not in self.sizes and w not in weights.values()]
        bound = {dim for w in values if self.is_plain(w) for dim in self.type_of(w).dims}
        params = values + [w for w in used if w in self.sizes and w not in bound]
        found = self.standard(steps, params, results, weights)
        if found:
            return found[0], params, results, found[1]
        made = self.numbered(Layer(call.kind, steps, params, results, weights))
        layer, numbers = self.layers.setdefault(self.key(made), made), list(made.numbers.values())
        self.calls[layer].add(call.key)
        layer.calls[tuple(numbers)] = True
        return layer, params, results, numbers

    def numbered(self, layer):
        for value in [*layer.params, *layer.weights.values()]:
            if value not in self.sizes:
                layer.dims[value] = [layer.number(dim) for dim in self.type_of(value).dims]
        for step in layer.steps:
            if step.layer:
                step.numbers = [layer.number(number) for number in step.numbers]
            else:
                step.text = layer.number(step.text)
        return layer

    def type_of(self, value):
        return self.types[value] if value in self.types else Type("f32", [str(n) for n in self.weights[value][1]])

    def is_plain(self, value):
        """Whether its type can be a parameter's: each dimension a number or the name of a size."""
        return all(dim.isdigit() or dim in self.sizes for dim in self.type_of(value).dims)

    def key(self, layer):
        """What tells a layer from others: its lines, with values and sizes numbered in the order of their use."""
        counted, paths = {}, {w: path for path, w in layer.weights.items()}

        def one(word):
            return f"{paths[word]!r}" if word in paths else f"#{counted.setdefault(word, len(counted))}"

        def text(value):
            return WORD.sub(lambda m: one(m.group()) if self.known(m.group()) else m.group(), value)

        def kind(value):
            return "size" if value in self.sizes else (self.type_of(value).dtype, *map(text, layer.dims[value]))
        return (layer.kind, tuple((one(p), kind(p)) for p in [*layer.params, *paths]), tuple(
            (text(s.text) if s.layer is None else (s.member, id(s.layer), *s.numbers, *map(one, s.args)),
             *map(one, s.targets)) for s in layer.steps), tuple(map(one, layer.results)),
            tuple(number.isdigit() for number in layer.numbers.values()))

    def standard(self, steps, params, results, weights):
        """(the layer of std.tfm that this is, its numbers), or None."""
        if len(steps) != 1 or steps[0].layer or len(results) != 1 or len(params) != 1:
            return None
        for pattern, name in STANDARD:
            found = re.fullmatch(pattern, steps[0].text)
            given = found and found.groupdict()
            if not found or given["x"] != params[0]:
                continue
            if weights != {"weight": given["weight"], **({"bias": given["b"]} if given.get("b") else {})}:
                continue
            dims, eps = self.weights[given["weight"]][1], given.get("eps")
            numbers = [str(n) for n in (dims[::-1] if name == "Linear" else dims)]
            numbers += [eps] if eps and eps != DEFAULT_EPS[name] else []
            end = [] if given.get("b") or name not in ("Linear", "LayerNorm") else ["bias = false"]
            names = {path: "b" if path == "bias" else path for path in weights}
            made = Layer(name, [], params, results, names, end)
            return self.layers.setdefault((name, *end), made), numbers
        return None

    # ---- repetitions ----

    def join(self, layer):
        """Members `a.0`, `a.1` ... are a list; those that are applied one after the other become one step."""
        made = collections.defaultdict(lambda: collections.defaultdict(dict))
        for step in layer.steps:
            place = step.layer and PLACE.fullmatch(step.member)
            if place:
                made[place[1] or ""][int(place[2])].setdefault((step.layer, *layer.values(step.numbers)), step)
        layer.lists = {base: [next(iter(at[i].values())) for i in range(len(at))] for base, at in made.items()
                       if sorted(at) == list(range(len(at))) and len(at) > 1
                       and all(len(one) == 1 for one in at.values())}
        uses = collections.Counter(w for step in layer.steps for w in self.used(step))
        uses.update(layer.results)
        uses.update(w for text in self.results for w in self.words(text) if not layer.kind)
        for step in layer.steps:
            place = step.layer and PLACE.fullmatch(step.member)
            if place and (place[1] or "") in layer.lists:
                step.member, step.span = place[1] or "", (int(place[2]), int(place[2]) + 1)
        steps = []
        for step in self.loops(layer.steps, uses):
            if not (steps and step.layer and self.goes_on(layer, steps[-1], step, uses)):
                steps.append(step)
                continue
            if step.span:
                steps[-1].span = (steps[-1].span[0], step.span[1])
            else:
                steps[-1].times += 1
            steps[-1].targets = step.targets
        layer.steps = steps

    def loops(self, steps, uses):
        """Elements of a list that take turns with their arguments become one step."""
        steps = list(steps)
        made = []
        while steps:
            ends = (n for n in range(1, len(steps)) if not self.takes_turns(steps[n - 1], steps[n], uses))
            n = next(ends, len(steps))
            turns = self.turns(steps[:n]) if n >= MANY else None
            if not turns:
                made.append(steps.pop(0))
                continue
            first, last = steps[0], steps[n - 1]
            first.turns, first.passed = turns, last.args.index(steps[n - 2].targets[0])
            first.targets, first.span = last.targets, (first.span[0], last.span[1])
            made, steps = [*made, first], steps[n:]
        return made

    def takes_turns(self, before, step, uses):
        if not (before.span and step.span and before.member == step.member and before.layer is step.layer):
            return False
        if before.span[1] - before.span[0] != 1 or step.span != (before.span[1], before.span[1] + 1):
            return False
        if len(before.targets) != 1 or len(step.targets) != 1 or len(before.args) != len(step.args):
            return False
        return uses[before.targets[0]] == 1 and before.targets[0] in step.args

    @staticmethod
    def turns(steps):
        """place -> turn of the arguments that differ, or None if there is no rule."""
        turns, passed = {}, {step.args.index(before.targets[0]) for before, step in zip(steps, steps[1:])}
        if len(passed) != 1:
            return None
        for place in set(range(len(steps[0].args))) - passed:
            given = [step.args[place] for step in steps]
            if len(set(given)) == 1:
                continue
            rules = [(n, k, given[k]) for n in range(2, len(steps)) for k in range(n)
                     if all((value == given[k]) == (i % n == k) for i, value in enumerate(given))]
            if len(set(given)) != 2 or not rules or rules[0][0] > len(steps) // 2:
                return None
            turns[place] = rules[0]
        for place, (_, _, value) in turns.items():
            steps[0].args[place] = next(step.args[place] for step in steps if step.args[place] != value)
        return turns

    def goes_on(self, layer, before, step, uses):
        """Whether `step` does with the result of `before` what `before` did: the next of a list, or the same member."""
        if before.passed is not None or step.passed is not None:
            return False
        if before.member != step.member or len(before.numbers) != len(step.numbers):
            return False
        if not before.span and layer.values(before.numbers) != layer.values(step.numbers):
            return False
        if len(before.targets) != 1 or len(step.targets) != 1:
            return False
        if before.span and before.span[1] != step.span[0] or uses[before.targets[0]] != 1:
            return False
        pairs = list(zip(before.args, step.args))
        other = [i for i, (a, b) in enumerate(pairs) if a != b]
        if len(before.args) != len(step.args) or len(other) != 1 or pairs[other[0]][1] != before.targets[0]:
            return False
        if any(one.main not in (None, other[0]) for one in (before.layer, step.layer)):
            return False
        before.layer.main = step.layer.main = other[0]
        return True

