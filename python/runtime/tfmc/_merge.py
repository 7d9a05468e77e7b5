"""Fewer layers for one text: small ones are written where they are called, and those that others can stand for go.

What comes in are the layers that _fold.py made of the calls of modules. What goes out: which calls are to be a part of
their caller, and layers that stand for more calls than they were made of. Nothing is refused: what does not fit stays.
"""
import collections
import re

PLACE = re.compile(r"(?:(.*)\.)?(\d+)")  # a list and the place in it
FEW = 5      # operations and calls of a layer that is written where it is called
PLACES = 2   # and at how many places it may be written
WORDS = re.compile(r'"[^"]*"|[A-Za-z_]\w*')


def repeated(steps):
    """Lists with several elements of one class, by both: those are lists in the text too."""
    found = collections.Counter()
    for step in steps:
        place = step.layer and PLACE.fullmatch(step.member)
        if place:
            found[place[1] or "", step.layer.kind] += 1
    return {key for key, count in found.items() if count > 1}


def to_open(layers):
    """Layers, of those of all steps in `layers`, that are small and written at few places, outside of lists of equal ones."""
    places, kept = collections.defaultdict(set), set()
    for layer in layers:
        lists = repeated(layer.steps)
        times = collections.Counter(step.member for step in layer.steps if step.layer)
        for step in layer.steps:
            if step.layer is None:
                continue
            places[step.layer].add((layer, step.member))
            place = PLACE.fullmatch(step.member)
            if times[step.member] > 1 or place and (place[1] or "", step.layer.kind) in lists:
                kept.add(step.layer)
    return {layer for layer, at in places.items() if layer not in kept and layer.standard is None
            and len(layer.steps) <= FEW and len(at) <= PLACES}


class Match:
    """Whether `general` computes what `special` does if some of its parameters are given the same value.

    names: values and sizes of the general one -> those of the special one; numbers: the same for names of numbers.
    """

    def __init__(self, folder, general, special):
        self.folder, self.general, self.special = folder, general, special
        self.names, self.numbers = {}, {}
        self.paths = {w: path for path, w in general.weights.items()}, {w: path for path, w in special.weights.items()}

    def word(self, one, other):
        if one in self.general.numbers or other in self.special.numbers:
            return other in self.special.numbers and one in self.general.numbers \
                and self.numbers.setdefault(one, other) == other
        if one in self.paths[0] or other in self.paths[1]:
            return self.paths[0].get(one) == self.paths[1].get(other)
        if not self.folder.known(one) or not self.folder.known(other):
            return one == other
        return (one in self.folder.sizes) == (other in self.folder.sizes) and self.names.setdefault(one, other) == other

    def text(self, one, other):
        words = WORDS.findall(one), WORDS.findall(other)
        return WORDS.split(one) == WORDS.split(other) and len(words[0]) == len(words[1]) and all(map(self.word, *words))

    def texts(self, some, others):
        return len(some) == len(others) and all(map(self.text, some, others))

    def step(self, one, other):
        if one.layer is not other.layer or not self.texts(one.targets, other.targets):
            return False
        if one.layer is None:
            return self.text(one.text, other.text)
        return one.member == other.member and self.texts(one.args, other.args) and self.texts(one.numbers, other.numbers)

    def kinds(self):
        """Whether parameters and weights have the same types."""
        values = [(p, self.names.get(p)) for p in self.general.params]
        values += [(w, self.special.weights[path]) for path, w in self.general.weights.items()]
        return all(other in self.special.dims and self.folder.type_of(one).dtype == self.folder.type_of(other).dtype
                   and self.texts(self.general.dims[one], self.special.dims[other]) for one, other in values)

    def fits(self):
        one, other = self.general, self.special
        if one.kind != other.kind or len(one.steps) != len(other.steps) or one.weights.keys() != other.weights.keys():
            return False
        if one.standard is not None or other.standard is not None or len(one.params) <= len(other.params):
            return False
        if any(p in self.folder.sizes or not self.folder.is_plain(p) for p in [*one.params, *other.params]):
            return False  # a size that no type binds is a parameter too
        return all(map(self.step, one.steps, other.steps)) and self.texts(one.results, other.results) and self.kinds() \
            and {self.names[p] for p in one.params} == set(other.params) \
            and self.numbers.keys() == one.numbers.keys()


def merged(folder, layers):
    """Calls of layers that another one can stand for become calls of that one. layers: all, and the model."""
    made = sorted((layer for layer in folder.layers.values() if layer.standard is None), key=lambda one: len(one.params))
    gone = set()
    for special in made:
        for general in made:
            match = Match(folder, general, special)
            if general is special or general in gone or not match.fits():
                continue
            numbers, given = list(special.numbers), [match.names[p] for p in general.params]
            order = [numbers.index(match.numbers[name]) for name in general.numbers]
            for call in special.calls:
                general.calls[tuple(call[i] for i in order)] = True
            for step in (step for layer in layers for step in layer.steps if step.layer is special):
                step.args = [step.args[special.params.index(value)] for value in given]
                step.numbers, step.layer = [step.numbers[i] for i in order], general
            gone.add(special)
            break
    folder.layers = {key: layer for key, layer in folder.layers.items() if layer not in gone}


def in_order(layers):
    """The layers, each behind those that it is made of."""
    made = []

    def add(layer):
        if layer not in made:
            for step in layer.steps:
                if step.layer in layers:
                    add(step.layer)
            made.append(layer)
    for layer in layers:
        add(layer)
    return made
