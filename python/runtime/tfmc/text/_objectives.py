"""What text.finetune trains a model for: the objective of each task, as text of the language, and the items that it takes.

In: rows of texts with labels or scores, a tokenizer. Out: inputs of the objective by name, an item a row; the text of the
objective. Refused: rows of another form than the task has, with their number; texts that hold nothing to learn.
"""
import collections.abc
import numbers

from .._errors import InputError, UsageError
from . import _folder

IGNORED = -100  # labels that do not count


# ---- rows ----

def rows_of(data, word):
    """Rows as tuples, of a list, of columns, of a datasets.Dataset."""
    if hasattr(data, "column_names"):
        data = {name: data[name] for name in data.column_names}
    if isinstance(data, collections.abc.Mapping):
        columns = [list(column) for column in data.values()]
        if len({len(column) for column in columns}) > 1:
            raise InputError(f"{word}: the columns {', '.join(map(str, data))} have different numbers of rows", reason="shape")
        data = list(zip(*columns))
    rows = [(row,) if isinstance(row, str) else tuple(row.values()) if isinstance(row, collections.abc.Mapping) else row
            for row in _folder.as_list(data, "rows of texts")]
    if not rows:
        raise InputError(f"{word} has no rows")
    if not isinstance(rows[0], (tuple, list)):
        raise InputError(f"{word}: row 0 is {rows[0]!r:.60}, not a text or a tuple")
    for number, row in enumerate(rows):
        if not isinstance(row, (tuple, list)) or len(row) != len(rows[0]):
            raise InputError(f"{word}: row {number} is {row!r:.60}, row 0 has {len(rows[0])} values")
    return [tuple(row) for row in rows]


def _check_texts(rows, texts, word):
    for number, row in enumerate(rows):
        for text in row[:texts]:
            _folder.check_text(text, f"{word}: a text of row {number}")


def _number(value, what):
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(f"{what} is {value!r}, not a number", reason="type")
    return float(value)


# ---- towers: texts that go through the model ----

class Towers:
    """Columns of texts, each of which is a call of forward."""

    def __init__(self, inputs, cutter, max_tokens, kinds):
        """inputs: of the model, by name; kinds: whether texts of a pair are told apart."""
        self.inputs, self.cutter, self.max_tokens = inputs, cutter, max_tokens
        self.kinds = kinds or inputs.get("token_type_ids") is not None and inputs["token_type_ids"].default is None
        self.ids = next(iter(inputs))

    def parameters(self, tower):
        names = ["ids", *(["mask"] if "attention_mask" in self.inputs else []), *(["kinds"] if self.kinds else [])]
        return [f"{tower}_{name}: i32[batch, {tower}_time]" for name in names]

    def call(self, tower):
        more = [f", attention_mask = {tower}_mask"] if "attention_mask" in self.inputs else []
        more += [f", token_type_ids = {tower}_kinds"] if self.kinds else []
        return f"forward({tower}_ids{''.join(more)})"

    def items(self, tower, texts):
        """Inputs of this tower, a row for each text or pair of texts."""
        encoded = self.cutter.encode(texts, True, self.max_tokens)
        made = {f"{tower}_ids": [row.ids for row in encoded]}
        if "attention_mask" in self.inputs:
            made[f"{tower}_mask"] = [[1] * len(row.ids) for row in encoded]
        if self.kinds:
            made[f"{tower}_kinds"] = [row.type_ids for row in encoded]
        return made


def _function(parameters, lines):
    body = "\n".join(f"    {line}" for line in lines)
    return f"  fn objective({', '.join(parameters)}) {{\n{body}\n  }}\n  train objective {{ }}\n"


# ---- pairs, scores, triplets ----

def pairs(towers, rows, loss, word):
    """Anchor, positive, negatives: all other texts of the batch are wrong answers, but those that are equal to the right one or
    belong to an equal anchor."""
    n = len(rows[0])
    if n < 2:
        raise InputError(f"{word}: a row of \"pairs\" is an anchor, a positive, and perhaps negatives, not one text")
    _check_texts(rows, n, word)
    names = ["anchor", "positive", *(f"negative{i}" for i in range(n - 2))]
    items, number = {}, {}
    for k, name in enumerate(names):
        items |= towers.items(name, [row[k] for row in rows])
        items[f"{name}_text"] = [number.setdefault(row[k], len(number)) for row in rows]
    parameters = [p for name in names for p in (*towers.parameters(name), f"{name}_text: i32[batch]")]
    lines = [f"{name} = normalize({towers.call(name)})" for name in names]
    lines += ["n = shape(anchor, 0)", "own = arange(n)[:, none] == arange(n)[none, :]",
              "same = anchor_text[:, none] == anchor_text[none, :] or positive_text[:, none] == positive_text[none, :]"]
    for name in names[1:]:
        wrong = "same" if name == "positive" else f"positive_text[:, none] == {name}_text[none, :]"
        right = "not own and " if name == "positive" else ""
        lines.append(f"to_{name} = where({right}({wrong}), -1e9, anchor @ transpose({name}, 0, 1) * 20)")
    lines += [f"scores = concat([{', '.join(f'to_{name}' for name in names[1:])}], axis = 1)",
              "return loss = cross_entropy(scores, arange(n)), accuracy = mean(f32(argmax(scores) == arange(n)))"]
    return _function(parameters, lines), items


def scores(towers, rows, loss, word):
    if len(rows[0]) != 3:
        raise InputError(f"{word}: a row of \"scores\" is two texts and a number, not {len(rows[0])} values")
    _check_texts(rows, 2, word)
    given = [_number(row[2], f"{word}: the score of row {number}") for number, row in enumerate(rows)]
    wrong = [number for number, score in enumerate(given) if not -1 <= score <= 1]
    if wrong:
        raise InputError(f"{word}: the score of row {wrong[0]} is {given[wrong[0]]}, not in -1 .. 1", reason="value")
    items = {**towers.items("first", [row[0] for row in rows]), **towers.items("second", [row[1] for row in rows]), "score": given}
    lines = [f"first = {towers.call('first')}", f"second = {towers.call('second')}",
             "return loss = cosent_loss(first, second, score)" if loss == "cosent" else
             "return loss = mse_loss(cosine_similarity(first, second), score)"]
    return _function([*towers.parameters("first"), *towers.parameters("second"), "score: f32[batch]"], lines), items


def triplets(towers, rows, loss, word):
    if len(rows[0]) != 3:
        raise InputError(f"{word}: a row of \"triplets\" is an anchor, a positive and a negative, not {len(rows[0])} values")
    _check_texts(rows, 3, word)
    names = ["anchor", "positive", "negative"]
    items = {}
    for k, name in enumerate(names):
        items |= towers.items(name, [row[k] for row in rows])
    lines = [*(f"{name} = {towers.call(name)}" for name in names),
             "return loss = triplet_margin_loss(anchor, positive, negative, margin = 5)"]
    return _function([p for name in names for p in towers.parameters(name)], lines), items


# ---- labels ----

def label_numbers(rows, names, word):
    """(of each row its label or its list of labels as numbers, whether these are lists)."""
    given = [row[-1] for row in rows]
    several = isinstance(given[0], (list, tuple, set, frozenset))
    known = {name: number for number, name in enumerate(names)}

    def number(label, row):
        if isinstance(label, str) and label in known:
            return known[label]
        if isinstance(label, numbers.Integral) and not isinstance(label, bool) and 0 <= label < len(names):
            return int(label)
        raise InputError(f"{word}: the label of row {row} is {label!r}, none of {', '.join(map(str, names[:20]))}", reason="value")
    for row, label in enumerate(given):
        if isinstance(label, (list, tuple, set, frozenset)) != several:
            raise InputError(f"{word}: row {row} has {'one label' if several else 'several labels'}, row 0 has not")
    return [[number(one, row) for one in label] if several else number(label, row) for row, label in enumerate(given)], several


def classes(towers, rows, names, word):
    """Texts, or pairs of texts, and a label each, or a list of labels."""
    if len(rows[0]) not in (2, 3):
        raise InputError(f"{word}: a row of \"labels\" is a text, or two, and a label, not {len(rows[0])} values")
    _check_texts(rows, len(rows[0]) - 1, word)
    found, several = label_numbers(rows, names, word)
    items = towers.items("text", [row[0] if len(row) == 2 else row[:2] for row in rows])
    if not several:
        items["label"] = found
        lines = [f"scores = {towers.call('text')}",
                 "return loss = cross_entropy(scores, label), accuracy = mean(f32(argmax(scores) == label))"]
        return _function([*towers.parameters("text"), "label: i32[batch]"], lines), items
    items["labels"] = [[float(i in row) for i in range(len(names))] for row in found]
    lines = [f"scores = {towers.call('text')}",
             "return loss = binary_cross_entropy_with_logits(scores, labels), "
             "accuracy = mean(mean(f32(f32(scores > 0) == f32(labels > 0.5))))"]
    return _function([*towers.parameters("text"), f"labels: f32[batch, {len(names)}]"], lines), items


# ---- texts to be continued ----

def _tokens(towers, row, end):
    """(ids, how many of them are the prompt's)."""
    cutter = towers.cutter
    if len(row) == 1:
        return cutter.whole([row[0]])[0].ids + end, 0
    prompt = cutter.whole([row[0]])[0].ids
    answer = cutter.tokenizer.encode(row[1], add_special_tokens=False).ids
    return prompt + answer + end, len(prompt)


def texts(towers, rows, end, pack, word):
    """A text, or a prompt and its answer: the next token, of answers alone where there are prompts. end: ids behind a text.
    pack: texts stand end to end, in items of max_tokens."""
    if len(rows[0]) not in (1, 2):
        raise InputError(f"{word}: a row of \"text\" is a text, or a prompt and an answer, not {len(rows[0])} values")
    _check_texts(rows, len(rows[0]), word)
    ids, labels = [], []
    for number, row in enumerate(rows):
        tokens, asked = _tokens(towers, row, end)
        counted = [IGNORED if k < asked else token for k, token in enumerate(tokens)]
        if not pack and len(tokens) < 2 or all(label == IGNORED for label in counted[1:towers.max_tokens + 1]) and not pack:
            raise InputError(f"{word}: row {number} has nothing to learn in its first {towers.max_tokens} tokens")
        ids.append(tokens)
        labels.append(counted)
    if pack:
        joined, counted = [t for row in ids for t in row], [t for row in labels for t in row]
        length = towers.max_tokens
        starts = range(0, len(joined) - 1, length)
        ids, labels = [joined[at:at + length + 1] for at in starts], [counted[at:at + length + 1] for at in starts]
    items = {"text_ids": [row[:-1][:towers.max_tokens] for row in ids],
             "text_labels": [row[1:][:towers.max_tokens] for row in labels]}
    lines = [f"return loss = cross_entropy(forward(text_ids), text_labels, ignore_index = {IGNORED})"]
    return _function(["text_ids: i32[batch, text_time]", "text_labels: i32[batch, text_time]"], lines), items
