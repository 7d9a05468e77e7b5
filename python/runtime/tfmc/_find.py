"""The compiler: where it is, and running its commands. What only that needs is imported there: `import tfmc` is quick."""
import os

from . import _core
from ._errors import CompileError, EnvError, InternalError, OutOfMemory, UsageError, diagnostics, render

DISTRIBUTION = "tfmc-compiler"


def _of_distribution():
    """The command that the distribution tfmc-compiler installed, wherever its scripts went."""
    import importlib.metadata as metadata  # slow to import, and not needed by who only loads
    try:
        files = metadata.files(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        path = file.locate()
        if file.name == "tfmc" and os.access(path, os.X_OK):
            return os.path.abspath(path)
    return None


def compiler(given=None):
    """The first that there is of: the argument, TFM_COMPILER, the distribution's, tfmc on PATH."""
    import shutil
    found = os.fspath(given) if given else os.environ.get("TFM_COMPILER") or _of_distribution() or shutil.which("tfmc")
    if not found:
        raise EnvError(f"the compiler is not installed: pip install {DISTRIBUTION}=={_core.version()}")
    return found


EXITS = {1: CompileError, 2: UsageError, 3: EnvError, 4: OutOfMemory}


TEXT = "<text>"


def command(arguments, *, given=None, text=None, on_message=None):
    """What `tfmc ARGUMENTS` prints; the argument TEXT stands for a file with `text`. Errors become exceptions;
    warnings go to on_message."""
    if text is None:
        return _run(arguments, given, None, on_message, "\0")
    import tempfile
    with tempfile.TemporaryDirectory(prefix="tfmc-") as folder:
        path = os.path.join(folder, "model.tfm")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return _run([path if a == TEXT else a for a in arguments], given, text, on_message, path)


def _run(arguments, given, text, on_message, path):
    import subprocess
    program = compiler(given)
    try:
        done = subprocess.run([program, arguments[0], "--diagnostics=json", *arguments[1:]], capture_output=True,
                              stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace")
    except OSError as error:
        raise EnvError(f"the compiler {program!r} cannot be started: {error.strerror}") from error
    messages = diagnostics(done.stderr.replace(path, TEXT).splitlines())
    errors = [m for m in messages if m.severity == "error"]
    if done.returncode:
        kind = EXITS.get(done.returncode, InternalError)
        said = render(errors, text) or done.stderr.strip() or f"tfmc ended with {done.returncode}"
        raise kind(said, place=errors[0].place if errors else None, diagnostics=messages)
    for message in messages:
        if on_message:
            on_message(message)
    return done.stdout
