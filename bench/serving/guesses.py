#!/usr/bin/env python3
"""What guesses gain when a model writes given texts: the scheduler of tfmc-serve with and without them, in turns.

usage: guesses.py FOLDER [--types f32,bf16,int8,int4] [--kinds edit,...] [--texts N] [--tokens N] [--rounds N] [--threads N] [--length N]

In: a checkpoint that writes, with tokens of bytes (make_models.py gpt2), and this project's repository. Kinds of texts:
  edit    a file of a commit, written again with its edits, the file before in the prompt
  part    the same prompt, and the lines that the commit changed, with three lines around them
  list    JSON records with the same members, one for each file of the project
  record  one JSON object with members and values at random
  code    the rest of a file whose beginning is in the prompt
  prose   the same of a document
A mask lets each step choose nothing but the text's next token, so models with random weights write these texts; steps,
costs, guesses and choices are those of the server. One row at a time, of at most --length tokens with its prompt.
Out: for each kind and type of weights tokens a step, tokens a second without and with guesses, and the median of the
ratios. Refused: texts that came out otherwise with guesses than without.
"""
import argparse
import difflib
import json
import pathlib
import random
import statistics
import subprocess
import sys
import types

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "python" / "serve"))

import tfmc  # noqa: E402
from tfmc_serve.guesses import Guesser  # noqa: E402
from tfmc_serve.metrics import Metrics  # noqa: E402
from tfmc_serve.pieces import Text  # noqa: E402
from tfmc_serve.scheduler import Job, Row, Scheduler  # noqa: E402
from tfmc_serve.texts import read_place  # noqa: E402
from tfmc_serve.writers import ServedWriter  # noqa: E402

import time  # noqa: E402


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True).stdout


def commits():
    """(file before, file after) of small changes, the newest first."""
    commit = ""
    for line in git("log", "--no-merges", "--diff-filter=M", "--name-only", "--format=commit %H", "-n", "400", "--", "*.c", "*.py",
                    "*.md").splitlines():
        if line.startswith("commit "):
            commit = line.split()[1]
        elif line:
            yield git("show", f"{commit}^:{line}"), git("show", f"{commit}:{line}")


def edits(tokenizer, length, part):
    for before, after in commits():
        prompt, text = encode(tokenizer, before + "\n"), encode(tokenizer, after)
        if part:
            text = encode(tokenizer, "".join(
                line[1:] for line in difflib.unified_diff(before.splitlines(True), after.splitlines(True), n=3)
                if line[0] in " +" and not line.startswith("+++")))
        if 40 <= len(text) and len(prompt) + len(text) < length:
            yield prompt, text


def rests(tokenizer, pattern):
    choose, paths = random.Random(2), sorted(ROOT.glob(pattern))
    for path in choose.sample(paths, len(paths)):
        ids = encode(tokenizer, path.read_text(encoding="utf-8"))
        if len(ids) > 400:
            yield ids[:64], ids[64:]


def listed():
    """This project's files as records."""
    for line in git("ls-tree", "-r", "-l", "HEAD").splitlines():
        mode, kind, _, size, name = line.split(None, 4)
        yield {"name": name, "kind": kind, "size": int(size), "is_executable": mode == "100755",
               "language": {"c": "C", "h": "C", "py": "Python", "md": "text"}.get(name.rpartition(".")[2]), "owner": "root"}


def records(tokenizer, single):
    choose, entries = random.Random(3), list(listed())
    words = sorted({word for entry in entries for word in entry["name"].replace("/", "_").replace(".", "_").split("_")})
    while True:
        at = choose.randrange(len(entries) - 30)
        made = entries[at:at + 30]
        if single:
            made = {word: choose.choice((choose.randrange(10 ** 6), choose.choice(words), choose.random() < 0.5))
                    for word in choose.sample(words, 60)}
        yield encode(tokenizer, "As JSON: "), encode(tokenizer, json.dumps(made))


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def texts_of(kind, tokenizer, length):
    if kind in ("edit", "part"):
        return edits(tokenizer, length, kind == "part")
    if kind in ("list", "record"):
        return records(tokenizer, kind == "record")
    return rests(tokenizer, {"code": "compiler/*/*.c", "prose": "docs/*.md"}[kind])


class Forced:
    """In place of a grammar's follower: masks that leave one token."""

    def __init__(self, ids, vocab):
        self.ids, self.words, self.at = ids, (vocab + 31) // 32, 0

    def masks(self, guesses):
        made = np.zeros((1 + len(guesses), self.words), np.uint32)
        for i, token in enumerate(self.ids[self.at:self.at + 1 + len(guesses)]):
            made[i, token // 32] = 1 << token % 32
        return made.tobytes()

    def take(self, ids, ends):
        self.at += len(ids)


class Written:
    """A scheduler that is called from here."""

    def __init__(self, served, speculate):
        options = types.SimpleNamespace(max_rows=4, step_ms=100, speculate=speculate, prefixes="off", cache_bytes=0)
        loop = types.SimpleNamespace(call_soon_threadsafe=lambda work: work())
        self.served, self.scheduler = served, Scheduler(served, options, loop, Metrics(), sys.exit)
        self.scheduler.warm_up()

    def write(self, prompt, text):
        """(its ids, steps, seconds) after the prompt was read"""
        scheduler, job = self.scheduler, Job("")
        chooser = scheduler.chooser(prompt, len(prompt) + len(text), 1, 0, None, {"eos_token_id": []})
        row = Row(job, 0, chooser, Text(self.served.tokenizer, prompt, (), frozenset()), prompt, None,
                  Forced(text, self.served.vocab))
        row.guesser = Guesser()
        row.guesser.add(prompt)
        job.rows.append(row)
        scheduler._waiting.append(row)
        while not row.has_read:
            scheduler._turn()
        began, steps = time.perf_counter(), 0
        while scheduler._running:
            scheduler._turn()
            steps += 1
        seconds = time.perf_counter() - began
        if job.fault is not None:
            sys.exit(job.fault.message)
        return chooser.ids()[len(prompt):], steps, seconds


def measure(served, kinds, arguments, name):
    without, guessed = Written(served, 0), Written(served, -1)
    for kind in kinds:
        pairs = []
        for prompt, text in texts_of(kind, served.tokenizer, arguments.length):
            pairs.append((prompt, text[:arguments.tokens]))
            if len(pairs) == arguments.texts:
                break
        steps, tokens, rates = 0, 0, {0: [], 1: []}
        for _ in range(arguments.rounds):
            seconds = [0.0, 0.0]
            for prompt, text in pairs:
                for i, writer in enumerate((without, guessed)):
                    made, took, time_of = writer.write(prompt, text)
                    if list(made) != text:
                        sys.exit(f"{kind}: another text was written")
                    seconds[i] += time_of
                steps += took
                tokens += len(text) - 1
            for i in (0, 1):
                rates[i].append(sum(len(text) - 1 for _, text in pairs) / seconds[i])
        ratio = statistics.median(b / a for a, b in zip(*rates.values()))
        print(f"| {kind} | {name} | {tokens / steps:.2f} | {statistics.median(rates[0]):.1f} | {statistics.median(rates[1]):.1f} | "
              f"{ratio:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--types", default="f32,bf16,int8,int4")
    parser.add_argument("--kinds", default="edit,part,list,record,code,prose")
    for name, default in (("texts", 3), ("tokens", 300), ("rounds", 1), ("threads", 2), ("length", 2000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    pool = tfmc.Pool(arguments.threads)
    print("| text | weights | tokens a step | tokens a second without | with guesses | times as fast |\n|---|---|---|---|---|---|")
    for name in arguments.types.split(","):
        served = ServedWriter(read_place(arguments.folder), pool, None, None if name == "f32" else name)
        measure(served, arguments.kinds.split(","), arguments, name)


if __name__ == "__main__":
    main()
