"""Tools of a conversation: calls of functions, in the form that the model's chat template writes them.

In: `tools`, `tool_choice` and `parallel_tool_calls` of a request, calls in its messages, the chat template. Out: the form
of a call, what the template is given, a grammar for answers that must call (or whose calls must fit), and the reading of
calls. The form is found by rendering a call of a made-up function: what stands around its name and its arguments.
Refused: templates without tools, and forms in which a call is no JSON object of a name and arguments.
"""
from __future__ import annotations

import json
import re
import secrets
import string
from typing import Any, NamedTuple

import tfmc

from .errors import Fault
from .grammar import LAYOUT, Grammar

MOST_TOOLS = 128
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
PROBE = ("tfmc_probe_one", "tfmc_probe_two")
ARGUMENTS = {"tfmc_key": "tfmc value"}
OPEN = re.compile(r'\{\s*"(\w+)"\s*:\s*"$')        # of a call, up to its name
MIDDLE = re.compile(r'"\s*,\s*"(\w+)"\s*:\s*')      # up to its arguments
ID_TEXT = r'[^"\\]*'
ID_MEMBER = re.compile(rf'\s*,\s*"id"\s*:\s*"{ID_TEXT}"(?=\s*\}})')  # of a call, behind its arguments
ID_LETTERS = string.ascii_letters + string.digits  # nine of them: templates of Mistral take no others


class Form(NamedTuple):
    """How a template writes calls: begin call separator call end; a call: open NAME middle ARGUMENTS close."""
    begin: str
    open: str
    middle: str
    close: str
    separator: str | None  # None: the template takes one call at a time
    end: str

    @property
    def keys(self) -> tuple[str, str]:
        """Of the name and the arguments."""
        name, arguments = OPEN.search(self.open), MIDDLE.fullmatch(self.middle)
        assert name is not None and arguments is not None
        return name[1], arguments[1]


class Function(NamedTuple):
    name: str
    schema: dict[str, Any]
    strict: bool


class Tools(NamedTuple):
    """Of one request."""
    functions: list[Function]
    shown: list[dict[str, Any]]  # to the template
    choice: str                  # "auto", "required", or the name of a function
    parallel: bool

    @property
    def must_call(self) -> bool:
        return self.choice != "auto"


# ---- what a request asks for ----

def read(asked: dict[str, Any]) -> Tools | None:
    """None: there are no tools, or none is to be called."""
    choice, given = asked["tool_choice"], asked["tools"]
    if given is None:
        if choice not in (None, "none"):
            raise Fault("invalid", "tool_choice: there are no tools", "tool_choice")
        if asked["parallel_tool_calls"] is not None:
            raise Fault("invalid", "parallel_tool_calls: there are no tools", "parallel_tool_calls")
        return None
    if len(given) > MOST_TOOLS:
        raise Fault("too_large", f"tools: {len(given)} tools; a request may have {MOST_TOOLS}", "tools")
    functions, shown = [], []
    for i, tool in enumerate(given):
        functions.append(read_function(tool, f"tools[{i}]"))
        own = {key: value for key, value in tool["function"].items() if key != "strict" and value is not None}
        shown.append({"type": "function", "function": {"description": "", "parameters": {"type": "object", "properties": {}},
                                                       **own}})
    names = [function.name for function in functions]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise Fault("invalid", f"tools[{i}].function.name: there are two tools {name}", "tools")
    chosen = read_choice(choice, names)
    return None if chosen == "none" else Tools(functions, shown, chosen, asked["parallel_tool_calls"] is not False)


def read_function(tool: dict[str, Any], where: str) -> Function:
    if tool.get("type") != "function":
        raise Fault("invalid", f"{where}.type: function is expected", "tools")
    refuse_others(tool, ("type", "function"), where)
    function = tool.get("function")
    if not isinstance(function, dict):
        raise Fault("invalid", f"{where}.function: an object is expected", "tools")
    refuse_others(function, ("name", "description", "parameters", "strict"), f"{where}.function")
    name, about, strict = function.get("name"), function.get("description"), function.get("strict")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Fault("invalid", f"{where}.function.name: 1 to 64 letters, digits, _ and - are expected", "tools")
    if about is not None and not isinstance(about, str):
        raise Fault("invalid", f"{where}.function.description: a text is expected", "tools")
    if strict is not None and not isinstance(strict, bool):
        raise Fault("invalid", f"{where}.function.strict: a boolean is expected", "tools")
    schema = function.get("parameters")
    if schema is not None and (not isinstance(schema, dict) or schema.get("type", "object") != "object"):
        raise Fault("invalid", f"{where}.function.parameters: the JSON schema of an object is expected", "tools")
    return Function(name, {"type": "object", **(schema or {"properties": {}})}, bool(strict))


def refuse_others(given: dict[str, Any], members: tuple[str, ...], where: str) -> None:
    for name, value in given.items():
        if name not in members and value is not None:
            raise Fault("invalid", f"{where}.{name[:100]} is not known here; the members are {', '.join(members)}", "tools")


def read_choice(choice: Any, names: list[str]) -> str:
    if choice is None:
        return "auto"
    if isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            raise Fault("invalid", "tool_choice: none, auto, required or a function is expected", "tool_choice")
        return choice
    function = choice.get("function")
    others = set(choice) - {"type", "function"}
    if others or choice.get("type", "function") != "function" or not isinstance(function, dict) or list(function) != ["name"]:
        raise Fault("invalid", 'tool_choice: {"type": "function", "function": {"name": NAME}} is expected', "tool_choice")
    if function["name"] not in names:
        raise Fault("invalid", f"tool_choice: there is no tool {str(function['name'])[:64]!r}", "tool_choice")
    return str(function["name"])


def with_calls(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str | None]:
    """Messages as templates take them: the arguments of a call are an object there, and a text in a request. Also the
    place of the first message that has to do with calls."""
    made, first = [], None
    for i, message in enumerate(messages):
        calls = message.get("tool_calls")
        if calls or message.get("role") == "tool":
            first = first or f"messages[{i}]"
        if calls:
            if not isinstance(calls, list):
                raise Fault("invalid", f"messages[{i}].tool_calls: a list is expected", "messages")
            message = {**message, "tool_calls": [with_arguments(call, f"messages[{i}].tool_calls[{j}]")
                                                 for j, call in enumerate(calls)]}
        made.append(message)
    return made, first


def with_arguments(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Fault("invalid", f"{where}: {{id, type, function: {{name, arguments}}}} is expected", "messages")
    if call.get("type", "function") != "function":
        raise Fault("invalid", f"{where}.type: function is expected", "messages")
    arguments = function.get("arguments")
    try:
        found = json.loads(arguments or "{}") if isinstance(arguments, (str, type(None))) else arguments
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Fault("invalid", f"{where}.function.arguments: a JSON object is expected", "messages")
    return {**call, "function": {**function, "arguments": found}}


# ---- the form of calls ----

def find_form(chat: Any, ends: list[str]) -> Form:
    """By what the template writes of a call. ends: texts of the tokens that end an answer. ValueError: why not."""
    user = {"role": "user", "content": "probe"}
    tool = {"type": "function", "function": {"name": "other", "description": "", "parameters": {
        "type": "object", "properties": {}}}}
    if not chat.takes("tools"):
        raise ValueError("the chat template of this model knows no tools")

    def render(names: tuple[str, ...]) -> str:
        calls: list[dict[str, Any]] = [
            {"id": call_id(), "type": "function", "function": {"name": name, "arguments": ARGUMENTS}} for name in names]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "0"} for call in calls]
        text: str = chat.text([user, {"role": "assistant", "content": "", "tool_calls": calls}, *results], [tool], None, False)
        for call in calls:  # a template may write its name, too; a model need not
            text = re.sub(ID_MEMBER.pattern.replace(ID_TEXT, call["id"]), "", text)
        return text
    try:
        start, one = chat.text([user], [tool]), render(PROBE[:1])
    except tfmc.Error:
        raise ValueError("the chat template of this model does not take a call of a tool") from None
    unknown = ValueError("the form of calls in the chat template of this model is none that is read here: a JSON object "
                         "of a name and arguments")
    parts = call_in(one[len(start):], PROBE[0]) if one.startswith(start) else None
    opened = OPEN.search(parts[0]) if parts else None
    if parts is None or opened is None or not MIDDLE.fullmatch(parts[1]):
        raise unknown
    places = [place for place in (parts[2].find(end) for end in ends) if place >= 0]
    closed = re.match(r"\s*\}", parts[2])
    if not places or closed is None or closed.end() > min(places):
        raise unknown
    form = Form(parts[0][:opened.start()], opened[0], parts[1], closed[0], None, parts[2][closed.end():min(places)])
    try:
        both = render(PROBE)
    except tfmc.Error:
        return form
    first = call_in(both[len(start):], PROBE[0]) if both.startswith(start) else None
    second = call_in(first[2], PROBE[1]) if first else None
    if first is None or second is None or first[:2] != parts[:2] or not second[2].startswith(form.close + form.end):
        return form
    between = second[0]
    if not between.startswith(form.close) or not between.endswith(form.open):
        return form
    return form._replace(separator=between[len(form.close):len(between) - len(form.open)])


def call_in(text: str, name: str) -> tuple[str, str, str] | None:
    """What stands before the name, between it and the arguments, and behind them."""
    before, found, rest = text.partition(name)
    middle, also, after = rest.partition(json.dumps(ARGUMENTS))
    return (before, middle, after) if found and also else None


def call_id() -> str:
    return "".join(secrets.choice(ID_LETTERS) for _ in range(9))


# ---- grammars ----

def grammar_of(tools: Tools, form: Form, tokenizer: Any) -> Grammar | None:
    """What answers follow: one call or some, where a tool must be called; where a tool is strict, any text, but calls that
    fit. None: any text."""
    if not tools.must_call and not any(function.strict for function in tools.functions):
        return None
    functions = [one for one in tools.functions if tools.choice in ("auto", "required", one.name)]
    several = tools.parallel and form.separator is not None and tools.choice in ("auto", "required")
    call = " | ".join(f"call_{i}" for i in range(len(functions)))
    calls = f"call ({quoted(form.separator or '', tokenizer)} call)*" if several else "call"
    lines = [f"calls: {calls} {quoted(form.end, tokenizer)}", f"call: {call}"]
    for i, function in enumerate(functions):
        layout = {**function.schema, "x-guidance": LAYOUT}
        lines += [f"call_{i}: {quoted(form.open + function.name + form.middle, tokenizer)} arguments_{i} "
                  f"{quoted(form.close, tokenizer)}", f"arguments_{i}: %json {json.dumps(layout)}"]
    return Grammar("lark", "\n".join([*(text_first if not tools.must_call else called)(form, tokenizer), *lines]), "tools")


def called(form: Form, tokenizer: Any) -> list[str]:
    return [f"start: {quoted(form.begin, tokenizer)} calls"]


def text_first(form: Form, tokenizer: Any) -> list[str]:
    """Text may come before a call, or alone. Where a token of its own begins a call, text does not have it; else text is
    what does not have the word that begins it, or, where nothing does, what is no JSON object."""
    begin = form.begin.lstrip()
    if not begin:
        return [r"start: calls | TEXT", r"TEXT: /([^{\s](?s:.*))?/"]
    first = begin.split()[0]
    parts = pieces(first, tokenizer)
    if parts[0][1]:
        return [f"start: TEXT | TEXT {quoted(begin, tokenizer)} calls", "TEXT: /(?s:.*)/"]
    word = regex(parts[0][0])
    rest = quoted(begin[len(parts[0][0]):], tokenizer)
    return [f"start: text | begun {rest} calls", f"begun[lazy]: /(?s:.*){word}/", "text: TEXT",
            f"TEXT: /(?s:.*)/ & ~/(?s:.*){word}(?s:.*)/"]


def regex(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_ ]", lambda found: f"\\x{{{ord(found[0]):x}}}", text)


def pieces(text: str, tokenizer: Any) -> list[tuple[str, int | None]]:
    """A text in parts: added tokens with their ids, and what lies between them."""
    added = {token.content: number for number, token in tokenizer.get_added_tokens_decoder().items()}
    names = "|".join(map(re.escape, sorted((name for name in added if name.strip()), key=len, reverse=True)))
    return [(part, added.get(part)) for part in (re.split(f"({names})", text) if names else [text]) if part]


def quoted(text: str, tokenizer: Any) -> str:
    """In the words of a grammar."""
    return " ".join(json.dumps(part) if number is None else f"<[{number}]>" for part, number in pieces(text, tokenizer))
