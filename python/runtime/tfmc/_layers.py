"""The text of a model and its layers, as _fold.py found them: members, parameters, names of values, long lines.

A value that one statement uses is written in its place while the line stays short. Names of values are those of their
type, used again when a value has no more use; members are named as in the module.
"""
import collections
import re

from ._fold import WORD

# Columns of a forward's head, of a statement, and of what is written into a statement that uses other values too.
LINE, WIDTH, SHORT = 110, 100, 32
LOOP = "\0"
ALONE = 64  # of what one statement is made into, even if what is written into it is longer than SHORT
LONG = 12  # lines of a layer that get an empty one between
NAMES = {"f32": "x y z u v p q r s a b c d".split(), "i32": "n m j k".split(), "bool": "mask other given".split()}
STANDARD = """Linear Embedding LayerNorm RMSNorm PositionalEncoding MultiheadAttention EncoderLayer DecoderLayer Encoder
Decoder Transformer Conv1d Conv2d BatchNorm1d BatchNorm2d GroupNorm GLU""".split()
SIMPLE = re.compile(r"[\w.]+")
TOKEN = re.compile(r'"[^"]*"|\d+(?:\.\d+)?(?:e[+-]?\d+)?|\w+|\*\*|//|[=!<>]=|\.\.\.|\S')
# How firmly operators bind; a sign binds less than a power. Of STRICT ones neither operand is one of them.
LEVELS = {"or": 1, "and": 2, "not": 3, **dict.fromkeys("== != < > <= >=".split(), 4), "+": 5, "-": 5,
          **dict.fromkeys("* / // % @".split(), 6), "**": 8}
SIGN, ATOM, STRICT = 7, 9, {"==", "!=", "<", ">", "<=", ">=", "**"}
OPEN, CLOSE, WORDS = ("(", "[", "{", ",", "=", ":"), (")", "]", "}", ",", ":"), {"if", "then", "else", "in", "for", "return"}


def is_closed(text):
    """Whether the text needs no parentheses before what follows: a name, with what is in brackets after it."""
    found = SIMPLE.match(text)
    at, depth = found.end() if found else 0, 0
    for i, c in enumerate(text[at:], at):
        if depth == 0 and c not in "([":
            return False
        depth += (c in "([") - (c in ")]")
    return bool(found) or text.startswith("(")


def level(tokens, n):
    """How firmly the operator at a place of the tokens binds; None for what is none."""
    word, before = tokens[n], tokens[n - 1] if n else "("
    if word == "-" and (before in LEVELS or before in OPEN):
        return SIGN
    return LEVELS.get(word)


def says_nothing(tokens, first, last):
    """Whether parentheses at two places of the tokens may go."""
    before, after = tokens[first - 1] if first else "(", tokens[last + 1] if last + 1 < len(tokens) else ")"
    if re.fullmatch(r".*[\w)\]]", before) and before not in LEVELS and before not in WORDS:
        return False  # a call
    inner, depth, lowest = tokens[first + 1:last], 0, ATOM
    for n, word in enumerate(inner):
        depth -= word in CLOSE[:3]
        found = 0 if word in WORDS else level(inner, n)
        lowest = min(lowest, found) if depth == 0 and found is not None else lowest
        depth += word in OPEN[:3]
    if before in OPEN and after in CLOSE:
        return True
    left = -1 if before in OPEN else 0 if before in WORDS else level(tokens, first - 1)
    right = -1 if after in CLOSE else 0 if after in WORDS else ATOM - 1 if after in ("[", "(", ".") else LEVELS.get(after)
    if None in (left, right) or inner[0] == "-" and left >= 0 and before not in WORDS or before == inner[0] == "not":
        return False
    left = LEVELS["**"] if left == SIGN else LEVELS["and"] if before == "not" else left
    return lowest > left and (lowest > right or lowest == right and after not in STRICT)


def bare(text):
    """The text without parentheses that say nothing: around all of it, around an argument, or what binds firmly."""
    again = True
    while again:
        again, opened, found = False, [], list(TOKEN.finditer(text))
        tokens = [m.group() for m in found]
        for last, word in enumerate(tokens):
            if word in OPEN[:3]:
                opened.append(last)
            elif word in CLOSE[:3]:
                first = opened.pop()
                if word == ")" and says_nothing(tokens, first, last):
                    inner = text[found[first].end():found[last].start()]
                    text = text[:found[first].start()] + inner + text[found[last].end():]
                    again = True
                    break
    return text


def filled_lines(params, width):
    """Parameters of a forward, in as few lines as hold them."""
    lines = []
    for param in re.split(r", (?![^\[]*\])", params):
        if lines and len(lines[-1]) + 2 + len(param) <= width:
            lines[-1] += f", {param}"
        else:
            lines.append(param)
    return lines


class Names:
    """The names of a layer's config, members and weights. taken: words that are none."""

    def __init__(self, layer, taken):
        self.taken, self.members, self.weights = set(taken), {}, {}
        self.paths = {*layer.weights, *(step.member for step in layer.steps if step.layer)}
        config = {one: self.unique("d" if layer.numbers[one].isdigit() else "c")
                  for one in dict.fromkeys(layer.config.values())}
        self.config = list(config.values())  # config and other numbers: name in the texts -> as it is written
        self.numbers = {**layer.numbers, **{name: config[one] for name, one in layer.config.items()}}
        for step in layer.steps:
            if step.layer and self.key(step) not in self.members:
                self.members[self.key(step)] = self.name(step.member, step.span is not None)
        self.place = self.unique("i") if any(step.passed is not None for step in layer.steps) else None

    def key(self, step):
        return (step.member,) if step.span else (step.member, step.layer, *(self.numbers[n] for n in step.numbers))

    def ending(self, path):
        """As many of the last parts of the path as no other one here ends with, places in lists behind names."""
        parts = path.split(".")
        for n in range(2 if parts[-1] in ("weight", "bias") else 1, len(parts)):
            ends = [other for other in self.paths if f".{other}".endswith("." + ".".join(parts[-n:]))]
            if len(ends) < 2 and not all(part.isdigit() for part in parts[-n:]):
                parts = parts[-n:]
                break
        return ".".join(sorted(parts, key=str.isdigit) if not parts[-1].isdigit() else parts)

    def name(self, path, is_list=False, is_weight=False):
        name = re.sub(r"\W", "_", self.ending(path), flags=re.ASCII) or "parts"
        name = f"part_{name}" if name[0].isdigit() else name
        name += ("s" if is_list else "_") if name in self.taken and not (is_weight and name == "weight") else ""
        return self.unique(name) if name != "weight" else name

    def unique(self, name):
        made, n = name, 1
        while made in self.taken:
            n += 1
            made = f"{name}_{n}"
        self.taken.add(made)
        return made


class Printer:
    def __init__(self, folder, taken, name):
        self.folder, self.taken = folder, {*taken, *folder.sizes, *folder.types, *folder.weights}
        self.model, self.layers = folder.folded()
        used, self.kinds, self.scopes = {name, *STANDARD, *self.taken}, {}, {}
        for layer in self.layers:
            kind, n = re.sub(r"\W", "_", layer.kind, flags=re.ASCII), 1
            while (kind if n == 1 else f"{kind}_{n}") in used:
                n += 1
            self.kinds[layer] = kind if n == 1 else f"{kind}_{n}"
            used.add(self.kinds[layer])
        for layer in [*self.layers, self.model]:
            self.scopes[layer] = Names(layer, self.taken)
        for layer in [*self.layers, self.model]:
            for path in layer.weights:
                scope = self.scopes[layer]
                scope.weights[path] = self.access(layer, path) or scope.name(path, is_weight=True)

    def access(self, layer, path):
        """The expression for a weight of a member, or None."""
        for (member, *one), name in self.scopes[layer].members.items():
            rest = path[len(member) + 1:] if member else path
            if not path.startswith(member + "." if member else ""):
                continue
            inner = one[0] if one else None
            if inner is None:
                place, _, rest = rest.partition(".")
                if not place.isdigit():
                    continue
                inner, name = layer.lists[member][int(place)].layer, f"{name}[{place}]"
            found = self.access(inner, rest) if inner.standard is None else None
            if found or rest in inner.weights:
                return f"{name}.{found or (inner if inner.standard is not None else self.scopes[inner]).weights[rest]}"
        return None

    def text(self, head, required, outputs, tail):
        """The whole: `head` begins the model, `required` its forward; `tail` stands after it."""
        texts = [self.shown(layer, f"layer {self.kinds[layer]}{self.called(self.scopes[layer].config)}")
                 for layer in self.layers]
        return "\n\n".join([*texts, self.shown(self.model, *head, required, outputs, tail)]) + "\n"

    @staticmethod
    def called(config):
        return f"({', '.join(config)})" if config else ""

    def made(self, layer, *numbers):
        """A module, made with these numbers."""
        if layer.standard is not None:
            return f"{layer.kind}({', '.join([*numbers, *layer.standard])})"
        given = dict(zip(layer.numbers, numbers))
        return f"{self.kinds[layer]}({', '.join(given[one] for one in dict.fromkeys(layer.config.values()))})"

    def members(self, layer):
        scope = self.scopes[layer]
        for path, value in layer.weights.items():
            name = scope.weights[path]
            if "." not in name:
                dims = ", ".join(scope.numbers[n] for n in layer.dims[value])
                yield f"  weight {name}: [{dims}]" + (f' as "{path}"' if name != path else "")
        for (member, *one), name in scope.members.items():
            if one:
                made = self.made(*one)
            else:
                parts = [self.made(s.layer, *map(scope.numbers.get, s.numbers)) for s in layer.lists[member]]
                made = f"{len(parts)} * {parts[0]}" if len(set(parts)) == 1 else f"[{', '.join(parts)}]"
            yield f"  {name} = {made}" + (f' as "{member}"' if name != member else "")

    def statement(self, layer, step):
        if step.layer is None:
            return step.text
        name = self.scopes[layer].members[self.scopes[layer].key(step)]
        if step.passed is not None:
            return self.loop(step, name, self.scopes[layer].place)
        if step.span and step.span != (0, len(layer.lists[step.member])):
            first, last = step.span
            name += f"[{first}]" if last == first + 1 else f"[{first}:{last}]"
        name = f"({step.times} * {name})" if step.times > 1 else name
        return f"{name}({', '.join(step.layer.order(step.args))})"

    @staticmethod
    def loop(step, name, i):
        """What the loop begins with, LOOP, and its head and body, in which LOOP stands for what is passed on."""
        args = [f"if {i} % {step.turns[at][0]} == {step.turns[at][1]} then {step.turns[at][2]} else {value}"
                if at in step.turns else value for at, value in enumerate(step.args)]
        args[step.passed] = LOOP
        first, last = step.span
        at = i if first == 0 else f"{i} + {first}"
        return f"{step.args[step.passed]}{LOOP}for {i} in {last - first} {{ {LOOP} = " \
               f"{name}[{at}]({', '.join(step.layer.order(args))}) }}"

    def params(self, layer, names):
        """The parameters of its forward, as written; their names are added to `names`."""
        for value in layer.order(layer.params):
            if value in self.folder.sizes:
                yield value
                continue
            dtype, dims = self.folder.type_of(value).dtype, layer.dims[value]
            names[value] = self.local(value, self.scopes[layer], names.values(), True)
            said = ", ".join(self.renamed(dim, names) for dim in dims)
            yield names[value] + (f": {dtype}[{said}]" if dims and self.folder.is_plain(value) else "")

    def shown(self, layer, head, params=None, required=(), outputs=(), tail=()):
        scope = self.scopes[layer]
        names = {**scope.numbers, **{w: scope.weights[path] for path, w in layer.weights.items()}}
        params = ", ".join(self.params(layer, names)) if params is None else params
        returned = self.folder.results if layer is self.model else layer.results
        self.in_model = layer is self.model  # where inputs have names of their own
        statements = self.inlined([(s.targets, self.statement(layer, s)) for s in layer.steps], returned)
        returned = [text for targets, text in statements if not targets]
        statements = [(targets, text) for targets, text in statements if targets]
        lines = [*required, *self.named(statements, returned, names, scope)]
        returned = [self.renamed(bare(text), names) for text in returned]
        returned = ", ".join(map("{} = {}".format, outputs, returned) if outputs else returned)
        params = params if len(params) <= LINE else ",\n          ".join(filled_lines(params, LINE))
        body = [f"  forward({params}) {{", *lines, f"    return {returned}", "  }"]
        short = f"  forward({params}) = {returned}"
        if not lines and not outputs and len(layer.results) == 1 and len(short) <= LINE:
            body = [short]
        members = list(self.members(layer))
        between = [""] if members and len(members + body) > LONG else []
        return "\n".join([head + " {", *members, *between, *body, *tail, "}"])

    def renamed(self, text, names):
        return WORD.sub(lambda m: names.get(m.group(), m.group()), text)

    def local(self, value, scope, used, is_param=False):
        """A name for a value: inputs, weights, cosines and sines keep theirs, others have that of their type."""
        inputs = {w for w in self.folder.types if w[:2] != "t_"}
        said, dtype = self.folder.said.get(value, ""), self.folder.type_of(value).dtype
        wish = value if value in inputs and is_param else {"cos(": "cosine", "sin(": "sine"}.get(said[:4])
        if value in self.folder.weights:
            parts = [part for part in self.folder.weights[value][0].split(".") if not part[0].isdigit()]
            wish = re.sub(r"\W", "_", ".".join(parts[-2:]), flags=re.ASCII) if parts else None
        if wish and wish not in used and wish not in scope.taken - inputs:
            return wish
        used, n = {*used, *scope.taken}, 1
        while True:
            for name in NAMES[dtype]:
                if (name if n == 1 else f"{name}{n}") not in used:
                    return name if n == 1 else f"{name}{n}"
            n += 1

    def named(self, statements, results, names, scope):
        """Names for what the statements give; a name is free again after the last use of its value."""
        last = {}
        for at, text in enumerate([text for _, text in statements] + results):
            last.update(dict.fromkeys(self.folder.words(text), at))
        live = dict(names)
        for at, (targets, text) in enumerate(statements):
            first, _, body = text.partition(LOOP)
            if body:  # each turn of it uses what its body names
                last.update((word, max(last[word], at + 1)) for word in self.folder.words(body))
            said = self.renamed(bare(first), names)
            live = {value: name for value, name in live.items()
                    if value not in self.folder.types or last.get(value, -1) > at}
            for target in targets:
                names[target] = live[target] = self.local(target, scope, live.values())
            if (name := ", ".join(names[t] for t in targets)) != said:
                yield f"    {name} = {said}"
            if body:
                yield "    " + self.renamed(body, names).replace(LOOP, name)

    def inlined(self, statements, results):
        """Statements, and results as those without targets; values that are used once stand where they are used."""
        words, counts = self.folder.words, collections.Counter()
        everything = [*statements, *(((), text) for text in results)]
        for _, text in everything:
            counts.update(words(text))
        made, at = [], {}
        for targets, text in everything:
            values = [w for w in words(text) if w in self.folder.types]
            for value in values:
                if value not in at or counts[value] != 1 or value not in words(text.partition(LOOP)[0]):
                    continue
                inner = made[at[value]][1]
                filled = self.filled(text, value, inner)
                if self.width(filled) <= (WIDTH if len(values) == 1 or self.width(inner) <= SHORT else ALONE):
                    text, made[at[value]] = filled, None
            if len(targets) == 1 and LOOP not in text:
                at[targets[0]] = len(made)
            made.append((targets, text))
        return [one for one in made if one]

    def width(self, text):
        def short(match):
            word = match.group()
            is_value = word in self.folder.types and (word[:2] == "t_" or not self.in_model)
            if word in self.folder.weights:
                return "_".join(self.folder.weights[word][0].split(".")[-2:]) if self.in_model else "weight"
            return "x" if is_value else word
        return len(WORD.sub(short, text))

    @staticmethod
    def filled(text, value, inner):
        found = next(m for m in WORD.finditer(text) if m.group() == value)
        before, after = text[:found.start()].rstrip(), text[found.end():].lstrip()
        alone = before[-1:] in ("", "(", ",", "[") and after[:1] in ("", ")", ",", "]")
        inner = bare(inner) if alone else inner if is_closed(inner) else f"({inner})"
        return text[:found.start()] + inner + text[found.end():]
