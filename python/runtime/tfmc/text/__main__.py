"""tfmc generate FOLDER [TEXT]: what a checkpoint writes after a text, or answers to a message.

The command of the compiler starts this program (python -m tfmc.text generate) where it is given a folder: tokenizers and
chat templates are packages of Python. The text is printed while it is written. The exit code is that of tfmc: 1 for a
model that is refused, 2 for a call that is wrong, 3 for what is missing.
"""
import argparse
import pathlib
import signal
import sys

from .. import _generate
from .._errors import EnvError, Error, UsageError
from . import _folder
from ._writer import Writer

NEW_TOKENS = 256  # where neither the folder nor the options set a limit
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")  # tokens that a row may have
OPTIONS = {"count": int, "limit": int, "real": float, "token": int, "seed": int}  # kinds of options of generation, and what reads them


def _tokens(text):
    return [int(part) for part in text.split(",")]


def _parser():
    parser = argparse.ArgumentParser(prog="tfmc", description=__doc__.split("\n\n")[0])
    command = parser.add_subparsers(dest="command", required=True).add_parser(
        "generate", help="write a text", description=__doc__.split("\n\n")[0])
    command.add_argument("folder", help="a checkpoint's folder, with tokenizer.json, or a GGUF file")
    command.add_argument("text", nargs="?", help="the text; without it, or as -, the standard input")
    command.add_argument("--chat", action="store_true", help="the text is a message of a user, in the folder's chat template")
    command.add_argument("--system", metavar="TEXT", help="with --chat: the message of the system before it")
    command.add_argument("--adapter", metavar="FOLDER", action="append", default=argparse.SUPPRESS,
                         help="an adapter of peft (LoRA), which is merged; may be repeated")
    command.add_argument("--tokenizer", metavar="FOLDER", help="where tokenizer.json is, for a GGUF file")
    for name, help in (("family", "a .tfm file with a checkpoint block"), ("quantize", "as in `tfmc compile`"),
                       ("march", "an instruction set")):
        command.add_argument(f"--{name}", default=argparse.SUPPRESS, help=help)
    command.add_argument("--threads", type=int, default=argparse.SUPPRESS, help="threads (the CPUs)")
    group = command.add_argument_group("options of generation, as in generation_config.json")
    for name, kind in _generate.OPTIONS.items():
        flag = f"--{name.replace('_', '-')}"
        if kind == "flag" and name != "return_token_scores":
            group.add_argument(flag, action="store_true", default=argparse.SUPPRESS)
        elif kind == "tokens":
            group.add_argument(flag, type=_tokens, metavar="ID,...", default=argparse.SUPPRESS)
        elif kind in OPTIONS:
            group.add_argument(flag, type=OPTIONS[kind], metavar=kind.upper(), default=argparse.SUPPRESS)
    return parser


def _limited(writer, prompt, options):
    """The options, with a limit of length if nothing sets one."""
    limits = {"max_length", "max_new_tokens"}
    settings = _folder.read(writer.folder, "generation_config.json")
    if limits & set(options) or any(settings.get(name) is not None for name in limits):
        return options
    config = _folder.read(writer.folder, "config.json")
    places = [config.get(name) for name in POSITIONS if isinstance(config.get(name), int)]
    return {"max_new_tokens": max(1, min([NEW_TOKENS, *(n - len(prompt) for n in places)])), **options}


def _read(text):
    if text is not None and text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the standard input is no UTF-8: {error.reason}, at byte {error.start}") from None


def run(given):
    text = _read(given.pop("text"))
    folder, is_chat, system = given.pop("folder"), given.pop("chat"), given.pop("system")
    given.pop("command")
    if system is not None and not is_chat:
        raise UsageError("--system is for --chat")
    tokenizer = given.pop("tokenizer")
    if not pathlib.Path(folder).exists():
        raise EnvError(f"{folder}: there is no such folder")
    if not pathlib.Path(folder).is_dir() and tokenizer is None:
        raise UsageError("the tokenizer in a GGUF file is not read: --tokenizer=FOLDER says where tokenizer.json is")
    compiling = {name: given.pop(name) for name in ("family", "quantize", "march", "threads", "adapter") if name in given}
    writer = Writer(folder, folder=tokenizer, **compiling)
    if is_chat:
        messages = [{"role": "system", "content": system}] * (system is not None) + [{"role": "user", "content": text}]
        pieces = writer.chat(messages, stream=True, **_limited(writer, writer.tokens_of(messages), given))
    else:
        _folder.check_text(text, "the text")
        pieces = writer.stream(text, **_limited(writer, writer.tokenizer.encode(text).ids, given))
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    print()


def main(arguments=None):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    given = vars(_parser().parse_args(arguments))
    try:
        run(given)
    except BrokenPipeError:
        return 0
    except Error as error:
        print(f"tfmc: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 3 if isinstance(error, EnvError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
