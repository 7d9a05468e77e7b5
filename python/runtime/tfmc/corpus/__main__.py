"""python -m tfmc.corpus embed|translate INPUT... OUTPUT --model FOLDER: the functions of tfmc.corpus as a command.

The last line of the standard output is the summary, a JSON object. The exit code is 0 if all parts are done, 1 if not,
2 if the call is wrong.
"""
import argparse
import contextlib
import inspect
import json
import os
import sys

from .. import corpus
from .._errors import Error, UsageError

HELP = {
    "model": "a checkpoint's folder, or a .tfmm file", "tokenizer": "the folder of tokenizer.json, for a .tfmm file",
    "column": "the column of the texts (text)", "prompt": "what stands before each text",
    "prompt_name": "a prompt of the folder", "normalize": "vectors of length 1", "format": "parquet or jsonl",
    "part_bytes": "bytes of text or JSON lines that make a part (1048576)", "batch_tokens": "tokens of a run",
    "threads": "threads of a worker (1)", "engine": "processes, ray or here",
    "workers": "how many workers (the CPUs by the threads)",
    "part": "I/N: every N-th part from the I-th on, counted from 0",
    "retries": "how often a part is tried again (2)", "max_errors": "rows without a result that end the job",
    "target": "the language that is wanted", "source": "the language of the texts",
    "num_beams": "beams of the search (1)", "max_new_tokens": "tokens of a translation at most",
}
NUMBERS = {"part_bytes", "batch_tokens", "threads", "workers", "retries", "max_errors", "num_beams", "max_new_tokens"}


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tfmc.corpus", description=__doc__.split("\n\n")[0])
    tasks = parser.add_subparsers(dest="task", required=True)
    for name in ("embed", "translate"):
        function = getattr(corpus, name)
        task = tasks.add_parser(name, help=function.__doc__.split("\n")[0])
        task.add_argument("inputs", nargs="+", help="files, folders or patterns: .parquet, .jsonl, .txt")
        task.add_argument("output", help="the folder of the results")
        more = ["num_beams", "max_new_tokens"] if name == "translate" else []
        names = [n for n in inspect.signature(function).parameters if n in HELP] + more
        for option in names:
            flag = f"--{option.replace('_', '-')}"
            if option == "normalize":
                task.add_argument(flag, action="store_true", default=None, help=HELP[option])
            else:
                task.add_argument(flag, type=int if option in NUMBERS else str, required=option == "model",
                                  default=argparse.SUPPRESS, help=HELP[option])
        task.add_argument("--keep", default="", metavar="NAME,...", help="columns that are copied to the output")
        task.add_argument("--truncate", action=argparse.BooleanOptionalAction, default=name == "embed",
                          help="cut texts that are too long; else they have no result")
        task.add_argument("--no-progress", dest="progress", action="store_false", help="say nothing while it runs")
    return parser


def main(arguments=None):
    given = vars(_parser().parse_args(arguments))
    given["keep"] = [name for name in given["keep"].split(",") if name]
    task = getattr(corpus, given.pop("task"))
    try:
        summary = task(given.pop("inputs"), given.pop("output"), **{k: v for k, v in given.items() if v is not None})
    except (Error, OSError) as error:
        print(f"tfmc.corpus: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("tfmc.corpus: interrupted; the same call goes on", file=sys.stderr)
        return 130
    with contextlib.suppress(OSError):  # nobody wants to know; the parts are done all the same
        print(json.dumps(summary._asdict()), flush=True)
    _give_up_unheard()
    return 0


def _give_up_unheard():
    """What could not be said goes nowhere: the interpreter would try again at its end, and exit with 120."""
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


if __name__ == "__main__":
    sys.exit(main())
