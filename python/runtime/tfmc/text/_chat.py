"""Messages as tokens, in the words of a folder's chat template.

In: a folder with chat_template.jinja (and additional_chat_templates/NAME.jinja) or the key chat_template of
tokenizer_config.json; its tokenizer; messages, tools, variables of the template. Out: ids up to where the answer begins.

A control token (one that the tokenizer calls special, ends a text, or is added and written by the template itself) which
stands in a message, a tool or a variable is text there: it is marked before the template runs, by two characters that
occur nowhere else, and what lies between the marks is encoded without the added tokens. Everything else is encoded as
transformers does it.

Refused: folders without a template, packages that are missing, roles that are neither usual nor the template's own,
contents that are no text, tools for a template that knows none, what the template itself refuses, and a template that
does not end.
"""
import collections.abc
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import weakref

from .._errors import EnvError, InputError, UsageError
from . import _folder

TEMPLATE_SECONDS = 1.0  # of computing
LEAST_BYTES, BYTES_FOR_ONE = 1 << 20, 8  # a text may have as many, or so many for each that is given
ROLES = {"system", "developer", "user", "assistant", "model", "tool", "function", "ipython", "tool_call", "tool_response"}
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
PLAIN_CLASSES = {None, "PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend"}  # without tokens of their own
PRIVATE = range(0xE000, 0xF8FF)  # characters without a meaning: marks are among them
UNKNOWN = "\U0010fffd"  # a character that no tokenizer has
REASONING = ("reasoning_content", "thinking", "reasoning")


class Renderer:
    """A process that renders templates (_template.py): started when it is needed, and again after it was killed."""

    def __init__(self, name, seconds):
        self.name, self.seconds = name, seconds
        self._lock, self._process, self._owner = threading.Lock(), None, None

    def __reduce__(self):
        return Renderer, (self.name, self.seconds)

    def _start(self):
        program = os.path.join(os.path.dirname(__file__), "_template.py")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        try:
            process = subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, env=environment)
        except (OSError, TypeError) as error:
            raise EnvError(f"chat templates are rendered by a Python of their own, and {sys.executable!r} cannot be "
                           f"started: {error}") from None
        self._process, self._owner = process, os.getpid()
        weakref.finalize(self, _end, process, self._owner)

    def ask(self, request):
        """The answer to a request; a process that ends without one took too long."""
        with self._lock:
            if self._process is None or self._owner != os.getpid():  # a fork shares the pipes of its parent
                self._start()
            process = self._process
            try:
                process.stdin.write(json.dumps({**request, "seconds": self.seconds}).encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = b""
            except BaseException:  # as Ctrl-C is: its answer must not be taken for that to the next request
                self._stop()
                raise
            if not line:
                self._stop()
        if not line:
            raise InputError(f"{self.name}: it did not end within {self.seconds:g} s of computing")
        return json.loads(line)

    def _stop(self):
        process, self._process = self._process, None
        process.kill()
        _end(process, os.getpid())


def _end(process, owner):
    """Ends the process of a Renderer; the child of a fork closes its copies of the pipes only."""
    process.stdin.close()
    process.stdout.close()
    if owner == os.getpid():
        process.wait()


# ---- what a folder says ----

def templates(folder):
    """{name: template} of a folder; {} if it has none."""
    found = {}
    own = folder / "chat_template.jinja"
    more = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    try:
        found = {"default": own.read_text(encoding="utf-8")} if own.is_file() else {}
        found.update({path.stem: path.read_text(encoding="utf-8") for path in more})  # also one of the name default, as transformers
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: a chat template cannot be read: {error}") from None
    if found:
        return found
    value = _folder.read(folder, "tokenizer_config.json").get("chat_template")
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    if isinstance(value, list) and all(isinstance(v, dict) and isinstance(v.get("name"), str)
                                       and isinstance(v.get("template"), str) for v in value):
        return {v["name"]: v["template"] for v in value}
    if isinstance(value, dict) and all(isinstance(v, str) for v in value.values()):
        return value
    raise InputError(f"{folder / 'tokenizer_config.json'}: chat_template is neither a text nor names with templates, as a "
                     "list or an object")


def named_tokens(folder):
    """{"bos_token": "<s>"}: what a template may write by name."""
    found, settings = {}, _folder.tokenizer_settings(folder)
    extra = settings.get("extra_special_tokens")
    for name, value in {**settings, **(extra if isinstance(extra, dict) else {})}.items():
        value = value.get("content") if isinstance(value, dict) else value
        if name in NAMED or (name.endswith("_token") and isinstance(value, str)):
            found[name] = value if isinstance(value, str) else None
    return found


def end_tokens(folder, tokenizer):
    """Ids at which an answer ends: those of generation_config.json (or else config.json), and the tokenizer's."""
    ids = _folder.read(folder, "generation_config.json").get("eos_token_id")
    if ids is None:
        ids = _folder.read(folder, "config.json").get("eos_token_id")
    ids = ids if isinstance(ids, list) else [ids]
    name = named_tokens(folder).get("eos_token")
    ids.append(None if name is None else tokenizer.token_to_id(name))
    return sorted({i for i in ids if isinstance(i, int) and not isinstance(i, bool) and i >= 0})


# ---- what a template is given ----

def _plain(value, place):
    """Objects of JSON alone; anything else is named by its place."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        _folder.check_text(value, place)
        return str(value)
    if isinstance(value, collections.abc.Mapping):
        for key in value:
            _folder.check_text(key, f"a key of {place}")
        return {str(key): _plain(item, f"{place}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{place}[{i}]") for i, item in enumerate(value)]
    if callable(getattr(value, "model_dump", None)):
        return _plain(value.model_dump(), place)
    raise UsageError(f"{place} is of type {type(value).__name__}, and a template takes texts, numbers, lists and dicts")


def _check_content(content, place):
    if not isinstance(content, (str, list, dict, type(None))):
        raise UsageError(f"{place} is no text")
    if content == []:
        raise UsageError(f"{place} is a list without parts")
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and part.get("type", "text") != "text":
            raise UsageError(f"{place} has a part of type {part['type']!r}; texts alone are taken")


def _as_messages(messages, roles):
    """Messages as a template takes them: keys without a value are left out, reasoning has its names of old and new."""
    if isinstance(messages, (str, collections.abc.Mapping)):
        raise UsageError('messages are a list: [{"role": "user", "content": "..."}]')
    made = []
    for i, message in enumerate(_folder.as_list(messages, "messages")):
        place = f"messages[{i}]"
        message = _plain(message, place)
        if not isinstance(message, dict):
            raise UsageError(f'{place} is no {{"role": ..., "content": ...}}')
        message = {key: value for key, value in message.items() if value is not None}
        role = message.get("role")
        if not isinstance(role, str) or role not in roles:
            raise UsageError(f"{place} has the role {role!r}; usual are system, user, assistant and tool")
        _check_content(message.get("content"), f"{place}['content']")
        if "content" not in message and not (role == "assistant" and any(map(message.get, ("tool_calls", *REASONING)))):
            raise UsageError(f"{place} has no content")
        reasoning = next((message[key] for key in REASONING if key in message), None)
        if reasoning is not None:
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        made.append(message)
    if not made:
        raise UsageError("there are no messages: an answer needs at least one")
    return made


class Marks:
    """Two characters around the control tokens of contents, which the contents and the template do not have."""

    def __init__(self, control, find, given):
        free = (chr(code) for code in PRIVATE if chr(code) not in given)
        self.begin, self.end = next(free), next(free)
        longest = sorted(control, key=len, reverse=True)
        self._literal = re.compile("|".join(map(re.escape, longest)) or "(?!)")
        self._find, self.marked = find, set()

    def _spans(self, text):
        """Where control tokens are: as they are written, or as the tokenizer finds them after its normalizer."""
        spans = sorted([match.span() for match in self._literal.finditer(text)] + self._find(text))
        end = 0
        for first, last in spans:
            if first >= end and last > first:
                yield first, last
                end = last

    def put(self, value):
        """The value with marks, in texts and in keys at any depth."""
        if isinstance(value, str):
            made, at = [], 0
            for first, last in self._spans(value):
                self.marked.add(value[first:last])
                made += [value[at:first], self.begin, value[first:last], self.end]
                at = last
            return "".join(made) + value[at:] if made else value
        if isinstance(value, dict):
            return {self.put(key): self.put(item) for key, item in value.items()}
        return [self.put(item) for item in value] if isinstance(value, list) else value

    def split(self, text):
        """[text, marked token, text, ...]; a mark that lost its other one (a template may cut texts) ends a text."""
        inner = "|".join(map(re.escape, sorted(self.marked, key=len, reverse=True))) or "(?!)"
        return re.split(f"{self.begin}({inner}){self.end}|[{self.begin}{self.end}]", text)


# ---- messages to tokens ----

class ChatTemplate:
    """The chat template of a folder, with its tokenizer."""

    def __init__(self, folder, tokenizer, seconds=TEMPLATE_SECONDS):
        self.folder, self.tokenizer = folder, tokenizer
        self.templates, self.named = templates(folder), named_tokens(folder)
        if not self.templates:
            raise UsageError(f"{folder}: there is no chat template, neither chat_template.jinja nor a key of "
                             "tokenizer_config.json; generate() continues texts")
        if importlib.util.find_spec("jinja2") is None:
            raise EnvError("chat templates need the package jinja2: pip install tfmc[text]; else write the text around "
                           "the messages yourself, for generate()")
        self._renderer = Renderer(f"{folder}: the chat template", seconds)
        self._parts = {}

    def _ask(self, request):
        made = self._renderer.ask(request)
        if "error" in made:
            raise UsageError(f"{self.folder}: the chat template does not take these messages: {made['error']}")
        return made

    def _choose(self, tools):
        """(template, what it writes, names that it takes, control tokens)"""
        name = "tool_use" if tools is not None and "tool_use" in self.templates else "default"
        if name not in self.templates:
            raise UsageError(f"{self.folder}: there are chat templates {', '.join(sorted(self.templates))}, none of which "
                             "is the default")
        if name not in self._parts:
            made = self._ask({"template": self.templates[name], "literals": True})
            self._check_named(made["names"])
            self._parts[name] = made["texts"], set(made["names"]), self._control(made["texts"])
        return (self.templates[name], *self._parts[name])

    def _check_named(self, names):
        """A token that the class of the tokenizer knows, and no file names, would be written as nothing."""
        kind = _folder.read(self.folder, "tokenizer_config.json").get("tokenizer_class")
        missing = [name for name in names if name in NAMED and name not in self.named]
        if missing and kind not in PLAIN_CLASSES:
            raise InputError(f"{self.folder}: the chat template writes {missing[0]}, which neither tokenizer_config.json nor "
                             "special_tokens_map.json names")

    def _control(self, texts):
        """{text: id} of the tokens that are the template's to write: special ones, ends, and added ones that it writes."""
        together = "\0".join(texts)
        ends = set(end_tokens(self.folder, self.tokenizer))
        return {token.content: number for number, token in self.tokenizer.get_added_tokens_decoder().items()
                if token.special or number in ends or (token.content in together and not token.content.isspace())}

    def _ids(self, control):
        """Ids that contents must not have: those of control tokens but for what stands for unknown letters."""
        return set(control.values()) - set(self._whole(UNKNOWN))

    def _find(self, control):
        """What finds control tokens as the tokenizer does: [(first, last)] in a text."""
        ids = self._ids(control)

        def find(text):
            made = self.tokenizer.encode(text, add_special_tokens=False)
            return [span for number, span in zip(made.ids, made.offsets) if number in ids]
        return find

    def takes(self, variable):
        """Whether the default template reads a variable of this name."""
        return variable in self._choose(None)[2]

    def tokens(self, messages, tools=None, variables=None):
        """The ids of messages, up to where the answer begins. tools: JSON schemas. variables: more of what the template
        knows, {"enable_thinking": False}."""
        parts, control = self._parts_of(messages, tools, variables, True)
        return self._encode(parts, control)

    def text(self, messages, tools=None, variables=None, add_generation_prompt=True):
        """What the template writes of messages."""
        return "".join(part or "" for part in self._parts_of(messages, tools, variables, add_generation_prompt)[0])

    def _parts_of(self, messages, tools, variables, add_generation_prompt):
        """(texts around and between marks, control tokens)"""
        tools = _plain(tools, "tools")
        own = {"messages", "tools"} & set(variables or {})
        if own:
            raise UsageError(f"{min(own)} is no variable: it is given by itself")
        template, texts, names, control = self._choose(tools)
        given = {"messages": _as_messages(messages, ROLES | set(texts)), "tools": tools,
                 **_plain(dict(variables or {}), "variables")}
        if tools and "tools" not in names:
            raise UsageError(f"{self.folder}: the chat template knows no tools")
        unknown = set(variables or {}) - names
        if unknown:
            raise UsageError(f"{self.folder}: the chat template has no variable {sorted(unknown)[0]!r}; it takes "
                             + ", ".join(sorted(names)))
        whole = json.dumps(given, ensure_ascii=False)
        marks = Marks(control, self._find(control), whole + template)
        settings = {name: value for name, value in self.named.items() if value is not None}
        request = {"template": template, "marks": marks.begin + marks.end,
                   "variables": {"documents": None, "add_generation_prompt": add_generation_prompt, **settings,
                                 **{name: marks.put(value) for name, value in given.items()}},
                   "bytes": max(LEAST_BYTES, BYTES_FOR_ONE * len(whole))}
        return marks.split(self._ask(request)["text"]), control

    def _encode(self, parts, control):
        """Ids of what lies between marks (every second part) and around them."""
        made, kept = self._whole(parts[0]), self._ids(control)
        for i, part in enumerate(parts[1:], start=1):
            if not part:
                continue
            ids = self._behind(self._as_text if i % 2 else self._whole, part)
            if i % 2 and kept & set(ids):
                ids = [number for letter in part for number in self._behind(self._as_text, letter)]
            if i % 2 and kept & set(ids):
                raise InputError(f"{self.folder}: a message holds {part!r}, which the tokenizer has no other tokens for")
            made += ids
        return made

    def _whole(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def _as_text(self, text):
        """Ids of a text in which no added token is looked for."""
        parts = self.tokenizer
        if parts.normalizer is not None:
            text = parts.normalizer.normalize_str(text)
        words = [text] if parts.pre_tokenizer is None else [word for word, _ in parts.pre_tokenizer.pre_tokenize_str(text)]
        return [token.id for word in words for token in parts.model.tokenize(word)]

    def _behind(self, encode, text):
        """Ids of a text that stands behind another: tokenizers of SentencePiece put a space before the first one."""
        line = self._whole("\n")
        ids = encode("\n" + text)
        return ids[len(line):] if ids[:len(line)] == line else encode(text)
