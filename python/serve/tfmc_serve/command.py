"""The command tfmc-serve: its options, which are also variables TFMC_SERVE_NAME.

An option that is not there is refused, on the command line and as a variable.
"""
from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import pathlib
import sys
from typing import Any, NoReturn

import tfmc

from .guesses import MOST
from .logs import set_log, tell
from .service import Options, Service, version
from .serving import serve
from .texts import read_place

PREFIX = "TFMC_SERVE_"
EPILOG = """MODEL is a checkpoint's folder, which the compiler compiles, or FOLDER=FILE.tfmm, which needs none.
NAME:MODEL gives it another name than the folder's; NAME:KIND:MODEL says what it is: embed, classify, rerank or write.
Every option is also a variable, --max-body as TFMC_SERVE_MAX_BODY. Nothing is ever fetched."""


def number(kind: type, least: float, most: float) -> Any:
    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number between {least:g} and {most:g}")
        return value
    return read


def cache_bytes(text: str) -> int:
    share = text.removesuffix("%")
    try:
        value = float(share) if share != text else int(text)
    except ValueError:
        value = 0
    if share != text and 0 < value <= 100:
        return int(value / 100 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if share != text or not 1 << 16 <= value < 1 << 60:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of bytes (65536 or more) nor a share like 25%")
    return int(value)


def guesses(text: str) -> int:
    if text in ("off", "auto"):
        return 0 if text == "off" else -1
    if not text.isdigit() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is none of off, auto and 1 to {MOST}")
    return int(text)


class Version(argparse.Action):
    """Looked up when it is asked for: that takes as long as half of all imports."""

    def __call__(self, asked: argparse.ArgumentParser, *given: Any) -> None:
        print(f"tfmc-serve {version()}")
        asked.exit()


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """As argparse tells it, by the log: a standard error that nobody reads must not keep the process."""
        tell(f"{self.format_usage()}{self.prog}: error: {message}")
        self.exit(2)


def parser() -> argparse.ArgumentParser:
    made = Parser(
        "tfmc-serve", description="Serves embeddings, rerankers, classifiers and models that write over HTTP.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    add = made.add_argument
    add("models", nargs="+", metavar="MODEL")
    add("--host", metavar="ADDRESS", default="127.0.0.1", help="where to listen (%(default)s)")
    add("--port", type=number(int, 0, 65535), metavar="N", default=8080, help="its port (%(default)s); 0: a free one, see the log")
    add("--fd", type=number(int, 0, 2 ** 20), metavar="N", help="a socket that is open already, as systemd gives it: 3")
    add("--threads", type=number(int, 1, 1024), metavar="N", help="threads that compute (one for each processor)")
    add("--quantize", metavar="RULES", help="rules as `tfmc compile` takes them, such as int8")
    add("--max-length", type=number(int, 1, 2 ** 20), metavar="N",
        help="tokens of a text; of a row that is written, with its prompt (what the folder says, else 4096)")
    add("--max-waiting", type=number(int, 1, 10 ** 6), default=512, metavar="N",
        help="requests at a time; more get 429 (%(default)s)")
    add("--max-inputs", type=number(int, 1, 10 ** 6), default=256, metavar="N",
        help="texts of a request; more get 413 (%(default)s)")
    add("--max-body", type=number(int, 1, 10 ** 9), default=2_000_000, metavar="BYTES",
        help="of a request; more get 413 (%(default)s)")
    add("--timeout", type=number(float, 0.001, 10 ** 6), default=300.0, metavar="S",
        help="seconds from the head of a request to its answer; then 504 (%(default)g)")
    add("--api-key-file", type=pathlib.Path, metavar="FILE", help="lines NAME KEY; read again after SIGHUP")
    add("--metrics-port", type=number(int, 0, 65535), metavar="N", help="a second port, for /metrics, /health and /ready alone")
    add("--origin", metavar="URL", help="whose web pages may ask (CORS), like https://example.org (none)")
    add("--grace", type=number(float, 0, 10 ** 6), default=30.0, metavar="S",
        help="seconds for what runs when a signal ends the server (%(default)g)")
    add("--max-rows", type=number(int, 1, 1024), default=32, metavar="N", help="rows that a model writes at a time (%(default)s)")
    add("--cache-bytes", type=cache_bytes, default="25%", metavar="N",
        help="of the caches of a model that writes, or N%% of the memory, taken as needed (25%%)")
    add("--step-ms", type=number(float, 1, 10 ** 6), default=100.0, metavar="N",
        help="ms that reading prompts may delay rows that write (%(default)g)")
    add("--speculate", type=guesses, default="auto", metavar="N",
        help="guesses of a step: auto, those that pay; off; or all that there are, at most 1 to 15 (auto)")
    add("--prefixes", choices=("on", "off", "shared"), default="on",
        help="keep beginnings of rows that were computed; shared: for all keys (%(default)s)")
    add("--log", choices=("text", "json"), default="text", help="the form of the log, on standard error (%(default)s)")
    add("--check", action="store_true", help="load the models, compute once, say what there is, and end")
    add("--version", action=Version, nargs=0, default=argparse.SUPPRESS, help="say which one this is, and end")
    return made


def read_options(arguments: list[str], environment: dict[str, str]) -> Options:
    made = parser()
    flags = {action.dest: action for action in made._actions if action.option_strings}
    before = []
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX):
            continue
        action = flags.get(name[len(PREFIX):].lower())
        if action is None or action.dest in ("help", "version"):
            made.error(f"{name}: there is no such option")
        if action.nargs == 0:
            if text.lower() not in ("0", "1", "false", "true", ""):
                made.error(f"{name}: {text!r} is neither 0 nor 1")
            before += [action.option_strings[0]] if text.lower() in ("1", "true") else []
        else:
            before.append(f"{action.option_strings[0]}={text}")
    given = made.parse_args([*before, *arguments])
    try:
        places = tuple(map(read_place, given.models))
    except ValueError as error:
        made.error(str(error))
    if given.origin is not None and (given.origin == "*" or "://" not in given.origin or given.origin.endswith("/")):
        made.error(f"--origin: {given.origin!r} is no origin, like https://example.org")
    settings = {name: value for name, value in vars(given).items() if name != "models"}
    return Options(places=places, **settings)


# ---- the command ----

def open_standard_files() -> None:
    """Where the shell has closed one (2>&-): else the next file or connection got its number, and what the log is told."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    # Nothing of what cannot be written, to a full disk, is kept: Python would end with another code for it.
    if sys.stderr is sys.__stderr__:
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True)


async def check(options: Options) -> None:
    service = Service(options)
    service.start()
    await service.load()
    for served in service.models.values():
        print(json.dumps({"name": served.name, **served.settings()}))
    speed = service.batcher.seconds_per_token
    print(f"{service.threads} threads; {f'{1 / speed:.0f} tokens a second; ' if speed else ''}on "
          f"{options.host}:{options.port}{'' if options.api_key_file else ', without keys'}")
    service.close()


def main(arguments: list[str] | None = None) -> int:
    open_standard_files()
    set_log("text")
    options = read_options(sys.argv[1:] if arguments is None else arguments, dict(os.environ))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the workers have the processors
    set_log(options.log)
    try:
        if options.check:
            asyncio.run(check(options))
            return 0
        return serve(options)
    except (OSError, ValueError, tfmc.Error) as error:
        tell(f"tfmc-serve: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
