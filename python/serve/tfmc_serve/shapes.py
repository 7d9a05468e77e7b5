"""What requests may hold: one table of members, their kinds and ranges. Requests are read by it, /openapi.json is made
from it, and the tests of wrong types and ranges are too.

A member that no shape has is refused by its name, unless its value is null, false, 0, "" or empty: an option that
silently does nothing is worse than an error. null stands for a member that is left out.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import Fault

WORDS = {bool: "a boolean", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "an object",
         type(None): "null"}


def wrong(where: str, wanted: str, value: Any) -> Fault:
    return Fault("invalid", f"{where}: {wanted} is expected, not {WORDS[type(value)]}", where)


@dataclass(frozen=True)
class Kind:
    """What a value may be. read() gives what the routes work with, or raises a Fault that says where it is wrong; `most`
    is how many inputs a request may have."""

    def read(self, value: Any, where: str, most: int) -> Any:
        raise NotImplementedError

    def schema(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class Flag(Kind):
    def read(self, value: Any, where: str, most: int) -> bool:
        if not isinstance(value, bool):
            raise wrong(where, "a boolean", value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Whole(Kind):
    least: int
    greatest: int

    def read(self, value: Any, where: str, most: int) -> int:
        is_huge = isinstance(value, float) and abs(value) >= 2 ** 63  # as JSON's integers of more than 64 bits are read
        if (not isinstance(value, int) or isinstance(value, bool)) and not is_huge:
            raise wrong(where, "a whole number", value)
        if is_huge or not self.least <= value <= self.greatest:
            raise Fault("invalid", f"{where}: {value} is not between {self.least} and {self.greatest}", where)
        found: int = value
        return found

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.greatest}


@dataclass(frozen=True)
class Real(Kind):
    """A finite number."""
    least: float
    greatest: float
    is_open: bool = False  # `least` itself is refused

    def read(self, value: Any, where: str, most: int) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise wrong(where, "a number", value)
        if not self.least <= value <= self.greatest or (self.is_open and value == self.least):
            more = f"greater than {self.least:g}, and at most" if self.is_open else f"between {self.least:g} and"
            raise Fault("invalid", f"{where}: {value} is not {more} {self.greatest:g}", where)
        return float(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "exclusiveMinimum" if self.is_open else "minimum": self.least, "maximum": self.greatest}


@dataclass(frozen=True)
class Objects(Kind):
    """A list of objects, whose members others know."""

    def read(self, value: Any, where: str, most: int) -> list[dict[str, Any]]:
        for i, entry in enumerate(read_list(value, where, 10 ** 9)):
            if not isinstance(entry, dict):
                raise wrong(f"{where}[{i}]", "an object", entry)
        found: list[dict[str, Any]] = value
        return found

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "object", "minProperties": 1}, "minItems": 1}


@dataclass(frozen=True)
class Object(Kind):
    """An object, whose members others know."""

    def read(self, value: Any, where: str, most: int) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong(where, "an object", value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


@dataclass(frozen=True)
class WordOrObject(Kind):
    """A text or an object, of which others know more."""

    def read(self, value: Any, where: str, most: int) -> str | dict[str, Any]:
        if not isinstance(value, (str, dict)):
            raise wrong(where, "a text or an object", value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"oneOf": [TEXT, {"type": "object"}]}


@dataclass(frozen=True)
class Biases(Kind):
    """An object of tokens' ids with numbers, as JSON has them: the ids are texts."""
    most: int
    greatest: float

    def read(self, value: Any, where: str, most: int) -> dict[int, float]:
        if not isinstance(value, dict):
            raise wrong(where, "an object", value)
        if len(value) > self.most:
            raise Fault("too_large", f"{where}: {len(value)} tokens; there may be {self.most}", where)
        found: dict[int, float] = {}
        for token, bias in value.items():
            if not (token.isascii() and token.isdigit() and len(token) < 11) or (token[0] == "0" and token != "0"):
                raise Fault("invalid", f"{where}: {token[:100]!r} is no token's id", where)
            found[int(token)] = Real(-self.greatest, self.greatest).read(bias, f"{where}.{token}", most)
        return found

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "maxProperties": self.most, "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,9})$"},
                "additionalProperties": Real(-self.greatest, self.greatest).schema()}


@dataclass(frozen=True)
class Stops(Kind):
    """A text or a list of some; read as a tuple."""
    most: int
    characters: int

    def read(self, value: Any, where: str, most: int) -> tuple[str, ...]:
        stops = [value] if isinstance(value, str) else read_list(value, where, 10 ** 9)
        if len(stops) > self.most:
            raise Fault("too_large", f"{where}: {len(stops)} stops; there may be {self.most}", where)
        for i, stop in enumerate(stops):
            if not isinstance(stop, str):
                raise wrong(f"{where}[{i}]", "a text", stop)
            if not 0 < len(stop) <= self.characters:
                raise Fault("invalid", f"{where}[{i}]: a stop has 1 to {self.characters} characters, not {len(stop)}", where)
        return tuple(stops)

    def schema(self) -> dict[str, Any]:
        text = {"type": "string", "minLength": 1, "maxLength": self.characters}
        return {"oneOf": [text, {"type": "array", "items": text, "minItems": 1, "maxItems": self.most}]}


@dataclass(frozen=True)
class Text(Kind):
    def read(self, value: Any, where: str, most: int) -> str:
        if not isinstance(value, str):
            raise wrong(where, "a text", value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True)
class OneOf(Kind):
    """One of some words; large and small letters are the same."""
    words: tuple[str, ...]

    def read(self, value: Any, where: str, most: int) -> str:
        if not isinstance(value, str):
            raise wrong(where, "a text", value)
        if value.lower() not in self.words:
            raise Fault("invalid", f"{where}: one of {', '.join(self.words)} is expected", where)
        return value.lower()

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": [*self.words, *(word.capitalize() for word in self.words)]}


IDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2 ** 31 - 1}, "minItems": 1}
TEXT = {"type": "string"}


def read_ids(value: list[Any], where: str) -> list[int]:
    for i, number in enumerate(value):
        if type(number) is not int:
            raise wrong(f"{where}[{i}]", "a token's id", number)
        if not 0 <= number < 2 ** 31:
            raise Fault("invalid", f"{where}[{i}]: {number} is no token's id", where)
    if not value:
        raise Fault("invalid", f"{where}: there are no tokens", where)
    return value


def read_list(value: Any, where: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise wrong(where, "a list", value)
    if not value:
        raise Fault("invalid", f"{where}: the list is empty", where)
    if len(value) > most:
        raise Fault("too_large", f"{where}: {len(value)} inputs, and a request may have {most}; send several requests",
                    where)
    return value


@dataclass(frozen=True)
class Inputs(Kind):
    """A text, a row of ids, or a list of these; read as a list."""
    may_be_ids: bool = True

    def read(self, value: Any, where: str, most: int) -> list[str | list[int]]:
        if isinstance(value, str):
            return [value]
        if self.may_be_ids and isinstance(value, list) and value and type(value[0]) is int:
            return [read_ids(value, where)]
        rows = read_list(value, where, most)
        for i, row in enumerate(rows):
            if self.may_be_ids and isinstance(row, list):
                read_ids(row, f"{where}[{i}]")
            elif not isinstance(row, str):
                raise wrong(f"{where}[{i}]", "a text or a list of ids" if self.may_be_ids else "a text", row)
        return rows

    def schema(self) -> dict[str, Any]:
        if not self.may_be_ids:
            return {"oneOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}]}
        return {"oneOf": [TEXT, IDS, {"type": "array", "items": {"oneOf": [TEXT, IDS]}, "minItems": 1}]}


@dataclass(frozen=True)
class Texts(Kind):
    """A list of texts; with `records` a text may be {"text": text}."""
    records: bool = False

    def read(self, value: Any, where: str, most: int) -> list[str]:
        texts = []
        for i, text in enumerate(read_list(value, where, most)):
            if self.records and isinstance(text, dict):
                text = read(TEXT_RECORD, text, most, f"{where}[{i}].")["text"]
            if not isinstance(text, str):
                raise wrong(f"{where}[{i}]", "a text", text)
            texts.append(text)
        return texts

    def schema(self) -> dict[str, Any]:
        record = schema(TEXT_RECORD)
        return {"type": "array", "items": {"oneOf": [TEXT, record]} if self.records else TEXT, "minItems": 1}


@dataclass(frozen=True)
class Pairs(Kind):
    """A text, a pair of texts, or a list of lists of one or two texts; read as (list of these lists, whether it is
    one alone)."""

    def read(self, value: Any, where: str, most: int) -> tuple[list[list[str]], bool]:
        if isinstance(value, str):
            return [[value]], True
        value = read_list(value, where, most)
        if all(isinstance(part, str) for part in value):
            if len(value) != 2:
                raise Fault("invalid", f"{where}: a list of texts is a pair, and has two; several texts are "
                            "[[\"a text\"], [\"another\"]]", where)
            return [value], True
        for i, row in enumerate(value):
            if not isinstance(row, list):
                raise wrong(f"{where}[{i}]", "a list of one or two texts", row)
            if len(row) not in (1, 2):
                raise Fault("invalid", f"{where}[{i}]: one or two texts are expected, not {len(row)}", where)
            for j, text in enumerate(row):
                if not isinstance(text, str):
                    raise wrong(f"{where}[{i}][{j}]", "a text", text)
        return value, False

    def schema(self) -> dict[str, Any]:
        def texts(least: int) -> dict[str, Any]:
            return {"type": "array", "items": TEXT, "minItems": least, "maxItems": 2}
        return {"oneOf": [TEXT, texts(2), {"type": "array", "items": texts(1), "minItems": 1}]}


@dataclass(frozen=True)
class IdRows(Kind):
    """A row of ids or a list of them; read as a list of rows."""

    def read(self, value: Any, where: str, most: int) -> list[list[int]]:
        if isinstance(value, list) and value and type(value[0]) is int:
            return [read_ids(value, where)]
        rows = read_list(value, where, most)
        for i, row in enumerate(rows):
            if not isinstance(row, list):
                raise wrong(f"{where}[{i}]", "a list of ids", row)
            read_ids(row, f"{where}[{i}]")
        return rows

    def schema(self) -> dict[str, Any]:
        return {"oneOf": [IDS, {"type": "array", "items": IDS, "minItems": 1}]}


@dataclass(frozen=True)
class Record(Kind):
    """An object with members of its own."""
    members: dict[str, Member]

    def read(self, value: Any, where: str, most: int) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong(where, "an object", value)
        return read(self.members, value, most, f"{where}.")

    def schema(self) -> dict[str, Any]:
        return schema(self.members)


REQUIRED = object()
EMPTY: list[Any] = [None, False, 0, "", [], {}]  # what a member that is not known may be


@dataclass(frozen=True)
class Member:
    kind: Kind
    default: Any = REQUIRED
    about: str = ""


def read(shape: dict[str, Member], body: Any, most: int, before: str = "") -> dict[str, Any]:
    """The members of a request, defaults filled in."""
    if not isinstance(body, dict):
        raise wrong(before.rstrip(".") or "the body", "an object", body)
    for name, value in body.items():
        if name not in shape and value:
            raise Fault("invalid", f"{before + name[:100]!r} is not known here; the members are {', '.join(shape)}",
                        f"{before}{name[:100]}")
    defaults, needed = plan_of(shape, most)
    found = defaults.copy()
    for name, value in body.items():
        if value is not None and name in shape:
            found[name] = shape[name].kind.read(value, before + name, most)
    for name in needed:
        if name not in found:
            raise Fault("invalid", f"{before}{name} is missing", before + name)
    return found


TEXT_RECORD = {"text": Member(Text())}
plans: dict[tuple[int, int], tuple[dict[str, Any], list[str]]] = {}  # shapes are never made while the server runs


def plan_of(shape: dict[str, Member], most: int) -> tuple[dict[str, Any], list[str]]:
    """What the members are that a request leaves out, and which it must have; found once for each shape."""
    plan = plans.get((id(shape), most))
    if plan is None:
        defaults = {name: member.kind.read(member.default, name, most) if isinstance(member.kind, Record) else member.default
                    for name, member in shape.items() if member.default is not REQUIRED}
        plan = plans[id(shape), most] = defaults, [name for name, member in shape.items() if member.default is REQUIRED]
    return plan


def schema(shape: dict[str, Member]) -> dict[str, Any]:
    """The JSON schema of a shape."""
    properties: dict[str, dict[str, Any]] = {}
    for name, member in shape.items():
        made = member.kind.schema()
        properties[name] = dict(made) if member.default is REQUIRED else {"anyOf": [made, {"type": "null"}]}
        if member.about:
            properties[name]["description"] = member.about
        if member.default is not REQUIRED and member.default is not None and not isinstance(member.kind, Record):
            properties[name]["default"] = member.default
    return {"type": "object", "properties": properties, "additionalProperties": {"enum": EMPTY},
            "required": [name for name, member in shape.items() if member.default is REQUIRED]}


MODEL = Member(Text(), None, "a name of /v1/models; without it the first model of the route's kind")
TRUNCATE = Member(Flag(), False, "whether texts that are too long are cut; else they are refused")
DIRECTION = Member(OneOf(("right", "left")), "right", "the side on which a text is cut")
PROMPT_NAME = Member(Text(), None, "a prompt of the model's folder, which is put before each text")
DIMENSIONS = Member(Whole(1, 65536), None, "only the first numbers of each vector, normalised again")
RAW = Member(Flag(), False, "the model's logits, instead of numbers from 0 to 1")

MOST_CHOICES = 64  # rows of a request
SAMPLING: dict[str, Member] = {  # of all routes that write
    "temperature": Member(Real(0, 100), 1.0, "0: the likeliest token, always"),
    "top_p": Member(Real(0, 1, True), 1.0), "top_k": Member(Whole(0, 2 ** 31 - 1), None, "0: all tokens"),
    "seed": Member(Whole(-2 ** 63, 2 ** 63 - 1), None, "of what is drawn; without it the server draws one, and says which"),
    "stop": Member(Stops(16, 256), (), "texts that end an answer, and are no part of it"),
    "stream": Member(Flag(), False, "events as tokens come"),
    "stream_options": Member(Record({"include_usage": Member(Flag(), False, "one more event, with the numbers of tokens")}),
                             {}),
    "user": Member(Text(), None, "has no effect"),
    "repetition_penalty": Member(Real(0, 1000, True), None), "no_repeat_ngram_size": Member(Whole(0, 2 ** 31 - 1), None),
    "presence_penalty": Member(Real(-100, 100), None, "taken from the scores of tokens that were written"),
    "frequency_penalty": Member(Real(-100, 100), None, "taken each time that a token was written"),
    "logit_bias": Member(Biases(1024, 100), None, "added to the scores of tokens, before the penalties"),
    "min_p": Member(Real(0, 1), None, "only tokens that are at least so many times as likely as the likeliest"),
    "min_tokens": Member(Whole(0, 2 ** 31 - 1), None, "before an answer may end by a token that ends it"),
    "ignore_eos": Member(Flag(), False, "whether no token ends an answer"),
    "grammar": Member(Object(), None, "{json_schema}, {regex} or {lark}: what answers follow"),
    "return_token_ids": Member(Flag(), False, "whether answers have their ids, too"),
}

SHAPES: dict[str, dict[str, Member]] = {
    "embed": {
        "inputs": Member(Inputs(), about="a text, ids, or a list of these"),
        "normalize": Member(Flag(), True, "whether vectors have the length 1"),
        "truncate": TRUNCATE, "truncation_direction": DIRECTION, "prompt_name": PROMPT_NAME, "dimensions": DIMENSIONS,
        "model": MODEL,
    },
    "similarity": {
        "inputs": Member(Record({"source_sentence": Member(Text()), "sentences": Member(Texts())})),
        "parameters": Member(Record({"truncate": TRUNCATE, "truncation_direction": DIRECTION,
                                     "prompt_name": PROMPT_NAME}), {}),
        "model": MODEL,
    },
    "rerank": {
        "query": Member(Text()), "texts": Member(Texts()),
        "raw_scores": RAW, "return_text": Member(Flag(), False), "truncate": TRUNCATE,
        "truncation_direction": DIRECTION, "model": MODEL,
    },
    "predict": {
        "inputs": Member(Pairs(), about="a text, a pair of texts, or a list of [text] and [text, text]"),
        "raw_scores": RAW, "truncate": TRUNCATE, "truncation_direction": DIRECTION, "model": MODEL,
    },
    "translate": {
        "text": Member(Inputs(may_be_ids=False), about="a text or a list"),
        "target": Member(Text(), None, "the language, by the name of its token"), "source": Member(Text(), None, "the same"),
        "num_beams": Member(Whole(1, 16), None, "of the search; as the model's folder has it"),
        "max_new_tokens": Member(Whole(1, 2 ** 31 - 1), None, "of a translation at most"), "truncate": TRUNCATE,
        "model": MODEL,
    },
    "tokenize": {
        "inputs": Member(Inputs(may_be_ids=False)), "add_special_tokens": Member(Flag(), True), "model": MODEL,
    },
    "decode": {
        "ids": Member(IdRows()), "skip_special_tokens": Member(Flag(), True), "model": MODEL,
    },
    "embeddings": {
        "model": MODEL, "input": Member(Inputs(), about="a text, ids, or a list of these"),
        "encoding_format": Member(OneOf(("float", "base64")), "float", "base64: of f32, the lowest byte first"),
        "dimensions": DIMENSIONS, "user": Member(Text(), None, "has no effect"),
        "truncate": TRUNCATE, "prompt_name": PROMPT_NAME,
    },
    "v_rerank": {
        "model": MODEL, "query": Member(Text()),
        "documents": Member(Texts(records=True), about="texts, or objects with a text"),
        "top_n": Member(Whole(1, 2 ** 31 - 1), None, "how many documents are answered, the best first"),
        "return_documents": Member(Flag(), False), "truncate": TRUNCATE,
    },
    "completions": {
        "model": MODEL, "prompt": Member(Inputs(), about="a text, ids, or a list of these"),
        "max_tokens": Member(Whole(0, 2 ** 31 - 1), None, "tokens of an answer at most; 16, or what is left of the model's"),
        "n": Member(Whole(1, MOST_CHOICES), 1, "answers to each prompt; the answer number c draws from stream c of the seed"),
        "best_of": Member(Whole(1, MOST_CHOICES), None, "nothing else than n"),
        "echo": Member(Flag(), False, "whether the prompt's text stands before each answer"),
        **SAMPLING,
        "logprobs": Member(Whole(0, 20), None, "the likeliest tokens beside each, by the model's own numbers"),
    },
    "chat": {
        "model": MODEL, "messages": Member(Objects(), about="{role, content}: contents are texts, or parts of type text"),
        "max_completion_tokens": Member(Whole(1, 2 ** 31 - 1), None, "of an answer at most; what is left of the model's"),
        "max_tokens": Member(Whole(1, 2 ** 31 - 1), None, "the same"),
        "n": Member(Whole(1, MOST_CHOICES), 1, "answers; number c draws from stream c of the seed"),
        **SAMPLING,
        "logprobs": Member(Flag(), False, "the probability of each token, by the model's own numbers"),
        "top_logprobs": Member(Whole(0, 20), None, "the likeliest tokens beside each"),
        "response_format": Member(Object(), None, "{type: text, json_object or json_schema}"),
        "tools": Member(Objects(), None, "{type: function, function: {name, description, parameters, strict}}"),
        "tool_choice": Member(WordOrObject(), None, "none, auto, required, or {type: function, function: {name}}"),
        "parallel_tool_calls": Member(Flag(), None, "whether an answer may have several calls; true"),
        "chat_template_kwargs": Member(Object(), None, "variables of the template, like {enable_thinking: false}"),
    },
}
