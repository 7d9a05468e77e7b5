"""Answers that follow a grammar: which tokens may come next, by the package llguidance.

In: a JSON schema, a regular expression or a grammar in Lark's form, and the tokenizer of a model. Out: for each row a
follower, which gives the masks that tokens are chosen by, the tokens that nothing else can take the place of (they are
guessed), and takes the tokens that were chosen. Refused, with the package's own words: what is no grammar, what no text
can satisfy, keywords that would not be enforced, what takes more work than a request may ask for.

JSON is written in one line, with ", " and ": " between its parts as Python's json.dumps does: so keys and punctuation
are known beforehand.
"""
from __future__ import annotations

import contextlib
import importlib.util
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from .errors import Fault
from .guesses import PLAIN_PRICE, Guesser

KINDS = ("json_schema", "regex", "lark")
MOST_TEXT = 65536      # bytes of a grammar
KEPT = 64              # compiled grammars of a model
SECONDS = 2.0          # that compiling one may take
LAYOUT: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
STEP_WORK = 50_000     # for a token, in the package's own units: a step waits for it. As much before the first one:
                       # with the package's million a regex of few letters kept 90 MB
FORCED_RATE, LEAST_FORCED = 0.95, 0.3  # of forced tokens that come, before any is known; never less


class Grammar(NamedTuple):
    """What a request asks for. `where`: its member."""
    kind: str  # of KINDS
    text: str
    where: str

    def wrong(self, why: str) -> Fault:
        return Fault("invalid", f"{self.where}: {shown(why)}", self.where)


def shown(why: str) -> str:
    """The package's words on one line, without the state of its parser, which has the answer's text."""
    said = " ".join(why.partition("<state>")[0].split())[:500]
    return "no text satisfies it" if said.startswith("NoExtension") else said


def missing() -> bool:
    return importlib.util.find_spec("llguidance") is None


def read(asked: dict[str, Any]) -> Grammar | None:
    """Of the members `grammar` and `response_format`."""
    own, form = asked["grammar"], asked.get("response_format")
    found = read_own(own) if own is not None else None
    other = read_format(form) if form is not None else None
    if found is not None and other is not None:
        raise Fault("invalid", "grammar: response_format asks for another form; one of them", "grammar")
    found = found or other
    return None if found is None else checked(found, asked)


def checked(found: Grammar, asked: dict[str, Any]) -> Grammar:
    """A grammar that this server can follow in this request."""
    if missing():
        raise found.wrong("grammars need the package llguidance on the server: pip install llguidance")
    if asked["ignore_eos"]:
        raise Fault("invalid", f"ignore_eos: an answer ends where its {found.where} does", "ignore_eos")
    if len(found.text.encode()) > MOST_TEXT:
        raise found.wrong(f"it has {len(found.text.encode())} bytes; a grammar may have {MOST_TEXT}")
    return found


def read_own(given: dict[str, Any]) -> Grammar:
    """{regex | lark | json_schema}"""
    if len(given) != 1 or next(iter(given)) not in KINDS:
        raise Fault("invalid", f"grammar: one of the members {', '.join(KINDS)} is expected", "grammar")
    (kind, value), = given.items()
    if kind == "json_schema":
        return schema(value, "grammar.json_schema")
    if not isinstance(value, str) or not value:
        raise Fault("invalid", f"grammar.{kind}: a text is expected", f"grammar.{kind}")
    return Grammar(kind, value, f"grammar.{kind}")


def read_format(given: dict[str, Any]) -> Grammar | None:
    """OpenAI's response_format; of json_object also the `value` that huggingface_hub sends."""
    kind, where = given.get("type"), "response_format"
    members = {"text": ("type",), "json_object": ("type", "value"), "json_schema": ("type", "json_schema")}
    if not isinstance(kind, str) or kind not in members:
        raise Fault("invalid", f"{where}.type: one of {', '.join(members)} is expected", where)
    refuse_others(given, members[kind], where)
    if kind == "text":
        return None
    if kind == "json_object":
        value = given.get("value")
        return schema({"type": "object"}, where) if value is None else schema(value, f"{where}.value")
    named = given.get("json_schema")
    if not isinstance(named, dict):
        raise Fault("invalid", f"{where}.json_schema: an object is expected, with the member schema", where)
    refuse_others(named, ("name", "description", "schema", "strict"), f"{where}.json_schema")
    if "schema" not in named:
        raise Fault("invalid", f"{where}.json_schema.schema is missing", f"{where}.json_schema.schema")
    return schema(named["schema"], f"{where}.json_schema.schema")


def refuse_others(given: dict[str, Any], members: tuple[str, ...], where: str) -> None:
    for name in given:
        if name not in members:
            raise Fault("invalid", f"{where}.{name[:100]} is not known here; the members are {', '.join(members)}",
                        f"{where}.{name[:100]}")


def schema(given: Any, where: str) -> Grammar:
    if not isinstance(given, dict):
        raise Fault("invalid", f"{where}: a JSON schema is an object", where)
    return Grammar("json_schema", orjson.dumps(given).decode(), where)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """A mistake inside the package is one of this grammar: nothing of it ends a thread."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # its panics are no Exceptions
        raise ValueError(str(error)[:500]) from None


class Grammars:
    """Of one model. Its methods may be called by any thread."""

    def __init__(self, tokenizer: Any, vocab: int) -> None:
        self._tokenizer, self._vocab = tokenizer, vocab
        self._lock = threading.Lock()
        self._tables: dict[tuple[int, ...], Any] = {}
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def table(self, ends: tuple[int, ...]) -> Any:
        """The bytes of all tokens, for rows with these ends; the first time it takes a while."""
        import llguidance
        with self._lock:
            if ends not in self._tables:
                self._tables[ends] = llguidance.LLTokenizer(self._tokenizer.to_str(), n_vocab=self._vocab,
                                                            eos_token=list(ends))
            return self._tables[ends]

    def prepare(self, grammar: Grammar, ends: tuple[int, ...]) -> None:
        if not ends:
            raise grammar.wrong("the model has no token that ends an answer")
        try:
            with guarded():
                self.table(ends)
        except ValueError as error:
            raise grammar.wrong(f"the bytes of the model's tokens are not known: {error}") from None

    def compile(self, grammar: Grammar, ends: tuple[int, ...]) -> Any:
        """A matcher that stands at its beginning, to be copied."""
        key = (grammar.kind, grammar.text, ends)
        with self._lock:
            found = self._compiled.pop(key, None)
        if found is None:
            try:
                with guarded():
                    found = self._compile(grammar, self.table(ends))
            except ValueError as error:
                raise grammar.wrong(str(error)) from None
        with self._lock:
            self._compiled[key] = found
            while len(self._compiled) > KEPT:
                del self._compiled[next(iter(self._compiled))]
        return found

    def _compile(self, grammar: Grammar, table: Any) -> Any:
        from llguidance import LLMatcher, LLParserLimits
        if grammar.kind == "json_schema":
            text = LLMatcher.grammar_from_json_schema(grammar.text, defaults=LAYOUT)
        elif grammar.kind == "regex":
            text = LLMatcher.grammar_from_regex(grammar.text)
        else:
            text = LLMatcher.grammar_from_lark(grammar.text)
        limits = LLParserLimits(step_lexer_fuel=STEP_WORK, initial_lexer_fuel=STEP_WORK)
        matcher = LLMatcher(table, text, log_level=0, limits=limits)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        first = matcher.deep_copy()  # computing the first mask finds what no token can begin
        if not any(first.compute_bitmask()) or first.is_error():
            raise ValueError(first.get_error() or "no text satisfies it")
        return matcher


class Follower:
    """The grammar of one row, behind the tokens that the row has. ValueError: the grammar takes too much work."""

    def __init__(self, compiled: Any) -> None:
        with guarded():
            self._matcher = compiled.deep_copy()

    def forced(self) -> list[int]:
        """The tokens that must come."""
        with guarded():
            return list(self._matcher.compute_ff_tokens())

    def allowed(self, guesses: list[int]) -> list[int]:
        """The guesses up to the first that the grammar forbids."""
        if not guesses:
            return guesses
        with guarded():
            return guesses[:self._matcher.validate_tokens(guesses)]

    def masks(self, guesses: list[int]) -> bytes:
        """Of the next token, and of that behind each of these guesses, which the grammar allows."""
        made = []
        with guarded():
            for n in range(len(guesses) + 1):
                made.append(self._matcher.compute_bitmask())
                if n < len(guesses):
                    self._matcher.consume_token(guesses[n])
            if self._matcher.is_error():
                raise ValueError(self._matcher.get_error())
            if guesses:
                self._matcher.rollback(len(guesses))
        return b"".join(made)

    def take(self, tokens: list[int], ends: frozenset[int]) -> None:
        """What was chosen; a token that ends the row ends the grammar."""
        with guarded():
            for token in tokens:
                if token in ends:
                    return
                if not self._matcher.consume_token(token):
                    raise ValueError(self._matcher.get_error() or f"it does not allow the token {token}")


class GrammarGuesser(Guesser):
    """Guesses of a row with a grammar: what it forces, and what stood in the row behind that and is allowed."""

    def __init__(self, follower: Follower) -> None:
        super().__init__()
        self._follower, self._forced, self._forced_rate = follower, 0, FORCED_RATE

    def guess(self, most: int) -> list[int]:
        self._forced = 0
        try:
            forced = self._follower.forced()[:most] if most > 0 else []
            self._forced = len(forced)
            if not forced:
                return self._follower.allowed(super().guess(most))
            return self._follower.allowed(forced + self.guess_behind(forced, most - len(forced)))
        except ValueError:
            return []

    def hopes(self, n: int) -> list[float]:
        forced = [self._forced_rate ** (i + 1) for i in range(min(n, self._forced))]
        before = forced[-1] if forced else 1.0
        return forced + [before * hope for hope in super().hopes(n - len(forced))]

    def learn(self, guessed: int, right: int, price: float = PLAIN_PRICE) -> None:
        """Guesses behind forced tokens of which one was wrong were not tried."""
        forced = min(guessed, self._forced)
        for i in range(min(forced, right + 1)):
            self._forced_rate = max(LEAST_FORCED, 0.9 * self._forced_rate + 0.1 * (i < right))
        if right >= forced and guessed:
            super().learn(guessed - forced, right - forced, price * (guessed - forced) / guessed)
