#!/usr/bin/env python3
"""usage: fuzz_configs.py TFMC CASES [CASE ...]

`tfmc import --strict` of each case (of one for each model_type, if none is named) with each key of its config.json gone,
of other types, absurd, or unknown, also within objects. What comes out is the same model, another one by a default
that the family's block has (`first(key, ...)`, a flag that is false), or exit code 1, a message that names config.json
and the key, and no file. Files that are no JSON name their line. The last line is 'N passed, N failed'.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import checkpoint

TFMC, CASES = sys.argv[1], pathlib.Path(sys.argv[2])
HUGE, SECONDS = 2**62, 60
GONE = object()


def places(config, path=()):
    """Every key as a path, those of objects within too."""
    for key, value in config.items():
        yield path + (key,)
        if isinstance(value, dict):
            yield from places(value, path + (key,))


def value_at(config, path):
    for key in path:
        config = config[key]
    return config


def changed(config, path, value):
    copy = json.loads(json.dumps(config))
    inner = value_at(copy, path[:-1])
    if value is GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return copy


def other_types(value):
    kinds = {bool: ["yes", 7], int: ["7", 7.5, [], True], float: ["7", [], True], str: [7, []], list: [7, {}], dict: [7, "seven"],
             type(None): []}
    return kinds[type(value)]


class Import:
    def __init__(self, folder):
        self.folder, self.target = folder, folder / "model.tfm"

    def __call__(self, config):
        """The exit code, the model, and the messages."""
        text = config if isinstance(config, str) else json.dumps(config)
        (self.folder / "config.json").write_text(text)
        self.target.unlink(missing_ok=True)
        done = subprocess.run([TFMC, "import", self.folder, "-o", self.target, "--strict"], capture_output=True, text=True,
                              timeout=SECONDS)
        model = self.target.read_text() if self.target.exists() else None
        left = [p.name for p in self.folder.iterdir() if ".tfm" in p.name and p != self.target]
        assert done.returncode in (0, 1), f"exit code {done.returncode}: {done.stderr[-500:]}"
        assert "internal error" not in done.stderr, done.stderr
        assert (model is None) == (done.returncode == 1) and not left, f"exit code {done.returncode}, files {left}"
        return done.returncode, model, done.stderr


def names(stderr, path):
    """Whether a message names the file and the key, alone or with the objects around it."""
    dotted = ".".join(path)
    return "config.json" in stderr and bool(re.search(rf'"([\w.]+\.)?{re.escape(path[-1])}[".]', stderr) or dotted in stderr)


def check(run, whole, config, path, value, is_missing):
    code, model, stderr = run(changed(config, path, value))
    shown = "gone" if value is GONE else json.dumps(value)
    assert code or model == whole or is_missing, f"{'.'.join(path)} {shown}: another model without a word"
    assert not code or names(stderr, path), f"{'.'.join(path)} {shown}: {stderr[-700:]}"


def absurd(value):
    return [-1, HUGE] if type(value) is int else [-1e300] if type(value) is float else []


def not_json(run, config, path):
    text = json.dumps(changed(config, path, "MARK"))
    for bad in ("NaN", "1e400", "-Infinity", "01", "'x'", "[1,", "\\ud800", '"\\ud800"', "9" * 40):
        code, _, stderr = run(text.replace('"MARK"', bad))
        wanted = r"config\.json:\d+:\d+: error: this is not JSON"
        if "Infinity" in bad:  # Python's JSON has it, and some types have such numbers, at this key none
            wanted = r"is an infinite number \(-inf\)"
        assert code == 1 and re.search(wanted, stderr), f"{bad}: {stderr}"


def faults(run, case):
    """Runs all of it; yields what went wrong."""
    config = case["files"]["config.json"]
    code, whole, stderr = run(config)
    assert code == 0, stderr

    def attempt(function, *args):
        try:
            function(*args)
        except (AssertionError, subprocess.TimeoutExpired) as fault:
            return str(fault)

    for path in places(config):
        value = value_at(config, path)
        if path == ("architectures",) or path == ("model_type",):
            continue
        yield attempt(check, run, whole, config, path, GONE, True)
        for other in other_types(value):
            yield attempt(check, run, whole, config, path, other, False)
        for other in absurd(value):
            yield attempt(run, changed(config, path, other))
        if isinstance(value, dict):
            yield attempt(check, run, whole, config, path + ("scale_of_dreams",), 3, False)
    yield attempt(check, run, whole, config, ("scale_of_dreams",), 3, False)
    yield attempt(not_json, run, config, next(p for p in places(config) if isinstance(value_at(config, p), int)))


def chosen():
    if sys.argv[3:]:
        return [CASES / f"{name}.json" for name in sys.argv[3:]]
    found = {}
    for path in sorted(CASES.glob("*.json")):
        found.setdefault(json.loads(path.read_text())["files"]["config.json"]["model_type"], path)
    return list(found.values())


def main():
    passed = failed = 0
    for path in chosen():
        case = json.loads(path.read_text())
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.write(case, pathlib.Path(folder))
            for fault in faults(Import(pathlib.Path(folder)), case):
                passed, failed = passed + (fault is None), failed + (fault is not None)
                if fault is not None:
                    print(f"FAIL  {path.stem}: {fault}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0 or not passed


sys.exit(main())
