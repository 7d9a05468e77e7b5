#!/usr/bin/env python3
"""usage: missing_keys.py TFMC CASES [CASE ...] [--pairs]

A key that is missing means what the config class of transformers has for it. For each case: config.json without one key (with
--pairs also without two) must be imported as the model that the class's own value gives when it is written out, or be refused.
Tokens of generation are none of the class's, wherever they stand: transformers reads
them from the files. No model is computed, so this takes milliseconds for a key. The last line is 'N passed, N failed'. Needs transformers.
"""
import argparse
import itertools
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import transformers as hf

import checkpoint
import mutations

hf.logging.set_verbosity(logging.CRITICAL)
logging.disable(logging.CRITICAL)


class Case:
    def __init__(self, tfmc, case, folder):
        self.tfmc, self.folder, self.config = tfmc, folder, case["files"]["config.json"]
        self.kept = {}
        checkpoint.write(case, folder)

    def imported(self, config):
        """The text of the model, or none and the message."""
        key = json.dumps(config, sort_keys=True)
        if key not in self.kept:
            (self.folder / "config.json").write_text(key)
            done = subprocess.run([self.tfmc, "import", self.folder], capture_output=True, text=True, timeout=60)
            self.kept[key] = (done.stdout if done.returncode == 0 else None, done.stderr)
        return self.kept[key]

    def resolved(self, config):
        """All that the class makes of the config, written out; none where it makes nothing of it."""
        try:
            made = hf.AutoConfig.for_model(**config).to_dict()
        except Exception:  # what the class's own checks refuse
            return None
        return json.loads(json.dumps(completed(made, self.config), default=str))

    def fault(self, paths):
        config = self.config
        for path in paths:
            config = mutations.apply(["json", "config.json", list(path), mutations.GONE], {"config.json": config}, None)[0]["config.json"]
        text, _ = self.imported(config)
        if text is None:
            return None
        whole = self.resolved(config)
        if whole is None:
            return "the class of transformers refuses it"
        other, message = self.imported(whole)
        if other is None:
            return f"written out it is refused: {message.strip().splitlines()[0][:200]}"
        if other == text or self.graph(other) == self.graph(text):
            return None
        lines = [(a.strip(), b.strip()) for a, b in zip(text.splitlines(), other.splitlines()) if a != b]
        return "; ".join(f"{' '.join(x for x in a.split(', ') if x not in b)}, written out "
                         f"{' '.join(x for x in b.split(', ') if x not in a)}" for a, b in lines)[:300]

    def graph(self, text):
        """What the model computes, and how it writes: the same for texts that say the same in other words. How many tokens it
        may write at most is no number of the model.
        """
        text = re.sub(r"\bmax_length = \d+", "max_length = 64", text)
        (self.folder / "model.tfm").write_text(text)
        done = subprocess.run([self.tfmc, "dump", "--stage", "graph", self.folder / "model.tfm", "--weights", self.folder], capture_output=True,
                              text=True, timeout=60)
        return done.stdout if done.returncode == 0 else text


def completed(made, config):
    """What the class has for the keys of the folder and those of its own type."""
    common = hf.PreTrainedConfig().to_dict()
    kept = {k: v for k, v in made.items() if k in config and config[k] is None or v is not None and (k in config or k not in common)}
    return kept | {k: completed(made[k], v) for k, v in config.items() if isinstance(v, dict) and isinstance(made.get(k), dict)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[0][7:])
    parser.add_argument("tfmc")
    parser.add_argument("cases", type=pathlib.Path)
    parser.add_argument("only", nargs="*")
    parser.add_argument("--pairs", action="store_true")
    args = parser.parse_args()
    passed = failed = 0
    for path in [args.cases / f"{n}.json" for n in args.only] or sorted(args.cases.glob("*.json")):
        with tempfile.TemporaryDirectory() as folder:
            case = Case(args.tfmc, json.loads(path.read_text()), pathlib.Path(folder))
            keys = [p for p, _ in mutations.places(case.config) if p[0] not in ("id2label", "label2id", "model_type")]
            known = set()
            for size in (1, 2) if args.pairs else (1,):
                for paths in itertools.combinations(keys, size):
                    if known.intersection(paths) or any(a == b[:len(a)] for a, b in itertools.permutations(paths, 2)):
                        continue
                    fault = case.fault(paths)
                    passed, failed = passed + (fault is None), failed + (fault is not None)
                    if fault:
                        known.update(paths if size == 1 else ())
                        print(f"FAIL  {path.stem}: without {' and '.join('.'.join(map(str, p)) for p in paths)}: {fault}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed != 0 or not passed


if __name__ == "__main__":
    sys.exit(main())
