#!/usr/bin/env python3
"""How many wrong lines the tests notice: lines of the compiler and the runtime are made wrong at random, one at a time.

usage: mutants.py ROOT [--count N] [--seed S] [--only REGEX] [--test COMMAND]... [--least PERCENT] [--folder DIR] [--jobs N]
                       [--no-first-run]

The tracked files of ROOT are copied into DIR (build/mutants); the wrong lines are made, built and tested there, never in
ROOT. Each line is wrong in one of these ways: another operator, a constant off by one, a condition negated, a condition
left out, a statement left out, two arguments swapped. The draw depends on the seed and on the sources. CHECKs, text and
comments are left alone, and files that end processes or empty folders: a wrong line there could hurt the machine. A line
that does not compile is counted apart, and another is drawn.

The tests are commands, run in DIR in this order until one fails or hangs; {build} stands for the build folder, {jobs} for
the number of processors, {python} for a Python with NumPy. By default: the programs of tests/unit that are nearest to the
changed file, the golden cases, the other quick tests of ctest, the command line, then what is slow; what a command needs
is built just before it, so a line that is noticed at once costs seconds. All but the first must pass before the first
wrong line, which --no-first-run takes for granted. A line that is not noticed is printed with its change: either a test
is missing, or the line changes nothing that a user could see; only a reader can tell.

--only takes files whose path matches. The last line is `N of M noticed (P %)`; below --least it is a failure.
"""
import argparse
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys

SLOW = r"test_(decoding_(best|bits|together)|live_rows|long_.*)|library_.*|quantize|weight_memory|make|install"
OTHERWISE = r"check_.*|pool_model|abi|exported_symbols|cli"  # about the text of the sources, or with a command of its own
GOLDENS = "{python} tests/goldens/check.py {build}/tfmc --first-failure tests/goldens tests/goldens/ragged "
NEAREST = 6  # programs of tests/unit
# What is built, and the command.
TESTS = [("tfmc", GOLDENS + "tests/goldens/lang11 tests/cases"),
         ("unit_tests tfm_shared", "ctest --test-dir {build} -j {jobs} --stop-on-failure --timeout 240 "
                                   f"-E '^({SLOW}|{OTHERWISE})$'"),
         ("tfmc", "ctest --test-dir {build} --timeout 300 -R '^cli$'"),
         ("tfmc", GOLDENS + "tests/cases --generate"),
         ("tfmc", GOLDENS + "tests/goldens/lang11 --option=--engine=reference"),
         ("unit_tests tfm_shared", f"ctest --test-dir {{build}} -j {{jobs}} --stop-on-failure --timeout 400 -R '^({SLOW})$'")]
MOST_SECONDS = 900  # of one command; then it hangs
MOST_MEMORY = 16 << 30  # addresses of one process
DANGEROUS = re.compile(r"\b(kill|unlinkat)\(")
FOLDERS = ["compiler/**/*.c", "runtime/**/*.c"]

OTHER = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "&&": "||", "||": "&&", "+": "-", "-": "+",
         "*": "+", "/": "*", "%": "/", "|": "&", "&": "|", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=", "|=": "="}
OPERATOR = re.compile(r" ([=!<>]=|&&|\|\||<<|>>|[-+|]=|[-+*/%<>|&]) ")
CONSTANT = re.compile(r"(?<![\w.])\d+(?![\w.])")
ARGUMENTS = re.compile(r"\w\(([\w.>\[\]-]+), ([\w.>\[\]-]+)[,)]")
STATEMENT = re.compile(r"\s+(?:(?:\*?[\w.>\[\]()-]+(?:\[.*\])? [-+*/|&^]?= .*)|(?:\w+\(.*\))|(?:[\w.>\[\]-]+(?:\+\+|--)));$")


def only_code(text):
    """The text with blanks for comments, strings and characters; every place stays where it was."""
    other = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return other.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def end_of_condition(line, begin):
    """The place behind the parenthesis that closes the one at `begin`; None if another line has it."""
    depth = 0
    for at in range(begin, len(line)):
        depth += {"(": 1, ")": -1}.get(line[at], 0)
        if depth == 0:
            return at + 1
    return None


def changes_of(line, code):
    """Every (kind, wrong line) of a line, whose code alone is `code`."""
    for found in OPERATOR.finditer(code):
        yield "operator", line[:found.start(1)] + OTHER[found[1]] + line[found.end(1):]
    for found in CONSTANT.finditer(code):
        for n in {int(found[0]) + 1, max(int(found[0]) - 1, 0)} - {int(found[0])}:
            yield "constant", line[:found.start()] + str(n) + line[found.end():]
    for found in ARGUMENTS.finditer(code):
        if found[1] != found[2]:
            yield "arguments", line[:found.start(1)] + found[2] + ", " + found[1] + line[found.end(2):]
    begin = code.find("if (")
    end = end_of_condition(code, begin + 3) if begin >= 0 else None
    if end:
        yield "negated", line[:begin + 4] + "!(" + line[begin + 4:end - 1] + ")" + line[end - 1:]
        if code.rstrip().endswith(";") and not code[:begin].strip():
            yield "no condition", line[:begin] + line[end:].lstrip()
            yield "no statement", line[:begin] + ";"
    elif STATEMENT.match(code):
        yield "no statement", line[:len(line) - len(line.lstrip())] + ";"


def all_changes(root, only):
    """{kind: [(path, number of the line, wrong line)]}; only lines within functions."""
    changes = {}
    for path in sorted(p for pattern in FOLDERS for p in root.glob(pattern) if re.search(only, str(p.relative_to(root)))):
        text = path.read_text()
        if DANGEROUS.search(text):
            continue
        for number, (line, code) in enumerate(zip(text.split("\n"), only_code(text).split("\n"))):
            if not code.startswith("  ") or "CHECK(" in code or code.rstrip().endswith("\\"):
                continue
            for kind, wrong in changes_of(line, code):
                changes.setdefault(kind, []).append((path.relative_to(root), number, wrong))
    return changes


def draw(changes, seed):
    """Wrong lines without end; every kind is as likely, no line is drawn twice."""
    rng = random.Random(seed)
    for kind in sorted(changes):
        rng.shuffle(changes[kind])
    while any(changes.values()):
        kind = rng.choice(sorted(kind for kind in changes if changes[kind]))
        yield kind, *changes[kind].pop()


class Trial:
    def __init__(self, root, folder, jobs, tests):
        self.root, self.folder, self.build, self.jobs = root, folder, folder / "build/release", jobs
        python = root / "build/venv/bin/python"
        names = {"build": self.build, "jobs": jobs, "python": python if python.exists() else sys.executable}
        self.tests = [(targets, test.format(**names)) for targets, test in tests]

    def run(self, command):
        """Whether the command succeeds, and what it printed."""
        environment = dict(os.environ, TFM_CACHE_DIR="", GOLDEN_WEIGHTS=str(self.root / "build/weights"))
        process = subprocess.Popen(command, shell=True, cwd=self.folder, env=environment, text=True, errors="replace",
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY)))
        try:
            return process.communicate(timeout=MOST_SECONDS)[0], process.returncode == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return process.communicate()[0] + "\nit hangs", False
        except BaseException:
            os.killpg(process.pid, 9)
            raise

    def copy(self):
        names = subprocess.run(["git", "ls-files", "-z"], cwd=self.root, capture_output=True, text=True, check=True).stdout
        for name in filter(None, names.split("\0")):
            source, target = self.root / name, self.folder / name
            if not source.is_file() or (target.is_file() and source.read_bytes() == target.read_bytes()):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
        if not (self.build / "build.ninja").exists():
            said, good = self.run("cmake --preset release")
            if not good:
                sys.exit(said + "the copy cannot be configured")

    def builds(self, targets):
        said, good = self.run(f"cmake --build {self.build} -j {self.jobs} --target {targets}")
        return good, said

    def nearest(self, path):
        """What is tried first, in the form of TESTS: programs of tests/unit that have most words in common with the names of
        the file and its functions. Empty: none has any."""
        functions = re.findall(r"^[a-z][^\n;={]*?(\w+)\([^;]*?\) \{$", (self.folder / path).read_text(), re.M)
        stem = set(re.split("[_-]", path.stem))
        near = {}
        for test in (self.folder / "tests/unit").glob("test_*.c"):
            text = test.read_text()
            near[test.stem] = (len(stem.union(functions).intersection(re.findall(r"\w+", text))) +
                               3 * len(stem.intersection(test.stem.split("_"))) + (f'"{path.parent.name}/' in text))
        best = [name for name in near if near[name] and not re.fullmatch(SLOW, name)]
        best = sorted(best, key=lambda name: (-near[name], name))[:NEAREST]
        command = f"ctest --test-dir {self.build} -j {self.jobs} --stop-on-failure --timeout 240 -R '^({'|'.join(best)})$'"
        return [(" ".join(best), command)] * bool(best)

    def noticed(self, first=()):
        """What noticed it; None: nothing did."""
        for targets, test in [*first, *self.tests]:
            good, said = self.builds(targets)
            if good:
                said, good = self.run(test)
            if good:
                continue
            found = re.search(r"^\s*\d+ - (\S+) \(", said, re.M) or re.search(r"^(?:FAIL|bad)\W+(\S+)", said, re.M)
            return found[1] if found else f"{' '.join(test.split()[:2])}: {said.strip().splitlines()[-1]}"
        return None

    def judge(self, path, number, wrong):
        """False: it does not compile. Else what noticed it, or None."""
        file = self.folder / path
        text = file.read_text()
        lines = text.split("\n")
        lines[number] = wrong
        file.write_text("\n".join(lines))
        try:
            return self.noticed(self.nearest(path)) if self.builds("tfmc")[0] else False
        finally:
            file.write_text(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--test", action="append")
    parser.add_argument("--least", type=float, default=0)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--no-first-run", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    root = args.root.resolve()
    tests = [("tfmc unit_tests tfm_shared", test) for test in args.test or []] or TESTS
    trial = Trial(root, (args.folder or root / "build/mutants").resolve(), args.jobs, tests)
    trial.copy()
    good, said = trial.builds("tfmc unit_tests tfm_shared")
    by = said[-2000:] if not good else None if args.no_first_run else trial.noticed()
    if by:
        sys.exit(f"it fails without a wrong line: {by}")
    noticed, unnoticed, broken = 0, 0, 0
    for kind, path, number, wrong in draw(all_changes(trial.folder, args.only), args.seed):
        if noticed + unnoticed == args.count:
            break
        right, by = (trial.folder / path).read_text().split("\n")[number], trial.judge(path, number, wrong)
        noticed, unnoticed, broken = noticed + bool(by), unnoticed + (by is None), broken + (by is False)
        if by is False:
            continue
        print(f"{'noticed' if by else 'NOT NOTICED'} {path}:{number + 1}: {kind}\n    - {right.strip()}\n    + {wrong.strip()}")
        print(f"    {by or ''}", flush=True)
    share = 100 * noticed / max(noticed + unnoticed, 1)
    print(f"{broken} more did not compile")
    print(f"{noticed} of {noticed + unnoticed} noticed ({share:.0f} %)")
    return share < args.least


if __name__ == "__main__":
    sys.exit(main())
