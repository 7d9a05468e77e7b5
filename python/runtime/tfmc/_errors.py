"""Exceptions: what libtfm and the compiler refuse, with the place and the messages."""
import collections
import json

# The numbers of tfm_status and tfm_reason (tfm/types.h).
INPUT, USAGE, ENV, NOMEM, CANCELLED, DIVERGED, INTERNAL = 1, 2, 3, 4, 6, 7, 70
REASONS = ("other", "type", "shape", "value", "check", "arithmetic")


class Diagnostic(collections.namedtuple("Diagnostic", "severity code text file line column end_line end_column notes",
                                        defaults=(None, None, None, None, None, ()))):
    """One message of the compiler. `line` and `column` count from 1; None: the message has no place in a text."""

    __slots__ = ()

    @property
    def place(self):
        """"model.tfm:12:5", the file alone, or None."""
        return self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"

    def __str__(self):
        code = f" [{self.code}]" if self.code else ""
        return f"{self.place or 'tfmc'}: {self.severity}: {self.text}{code}"


def diagnostic(data, severity="note"):
    """A Diagnostic of an object that the compiler prints with --diagnostics=json."""
    return Diagnostic(data.get("severity", severity), data.get("code", ""), data["message"], data.get("file"),
                      data.get("line"), data.get("column"), data.get("end_line"), data.get("end_column"),
                      tuple(diagnostic(note) for note in data.get("notes", ())))


def diagnostics(lines):
    """The messages among the lines; what is no JSON was not said by tfmc itself."""
    found = []
    for line in lines:
        if line.startswith("{"):
            found.append(diagnostic(json.loads(line)))
    return found


def excerpt(message, text):
    """The line that a message is about, with a caret below; "" without a text."""
    source = text
    if source is None and message.file:
        try:
            with open(message.file, encoding="utf-8", errors="replace") as file:
                source = file.read()
        except (OSError, ValueError):
            return ""
    lines = (source or "").split("\n")
    if not message.line or message.line > len(lines):
        return ""
    line = lines[message.line - 1]
    begin = len(line.encode()[:message.column - 1].decode(errors="replace"))  # columns count bytes
    end = len(line)
    if message.end_line == message.line and message.end_column:
        end = len(line.encode()[:message.end_column - 1].decode(errors="replace"))
    blank = "".join("\t" if c == "\t" else " " for c in line[:begin])
    return f"\n{message.line:5} | {line}\n      | {blank}^{'~' * (end - begin - 1)}"


def render(messages, text=None):
    """What the command prints of them. `text`: the source, if it is no file."""
    return "\n".join("\n".join([f"{m}{excerpt(m, text)}", *map(str, m.notes)]) for m in messages)


class Error(Exception):
    """What all exceptions of this package have in common.

    status: "input", "usage", "env", "nomem", "cancelled", "diverged" or "internal"; reason: "type", "shape", "value", "check",
    "arithmetic" or "other"; place: "model.tfm:12:5" or None; diagnostics: messages of the compiler.
    """

    status = "internal"

    def __init__(self, message="", *, reason="other", place=None, diagnostics=()):
        super().__init__(message)
        self.reason, self.place, self.diagnostics = reason, place, tuple(diagnostics)

    def __reduce__(self):
        return _unpickle, (type(self), str(self), self.reason, self.place, self.diagnostics)

    def __str__(self):
        return self.args[0] if self.args else ""


def _unpickle(kind, message, reason, place, messages):
    return kind(message, reason=reason, place=place, diagnostics=messages)


class InputError(Error, ValueError):
    """Data, a size, an id or an option was refused: other data may succeed."""

    status = "input"


class CompileError(InputError):
    """The model, its configuration or its weights are wrong."""


class UsageError(Error, TypeError):
    """A function was called wrongly: the program has a mistake."""

    status = "usage"


class EnvError(Error, OSError):
    """A file, the CPU, the system or a version does not fit."""

    status = "env"


class OutOfMemory(Error, MemoryError):
    """There is not enough memory."""

    status = "nomem"


class Cancelled(Error):
    """The deadline passed, or the call was stopped."""

    status = "cancelled"


class Diverged(Error, ArithmeticError):
    """A loss or a gradient of training is not finite. The weights are those of the step before.

    step: which it was; of fit also first: what made the first number that was not finite, and checkpoint: the folder of the
    newest (None: not known).
    """

    status = "diverged"
    step = first = checkpoint = None


class InternalError(Error, RuntimeError):
    """A mistake of tfmc."""


KINDS = {INPUT: InputError, USAGE: UsageError, ENV: EnvError, NOMEM: OutOfMemory, CANCELLED: Cancelled,
         DIVERGED: Diverged,
         INTERNAL: InternalError}


def make(status, reason, message, place):
    """The exception for an error of libtfm."""
    text = f"{place}: {message}" if place else message
    return KINDS.get(status, InternalError)(text, reason=REASONS[reason], place=place)
