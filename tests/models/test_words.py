#!/usr/bin/env python3
"""usage: test_words.py TFMC MODELS

Every parameter of every family with a value that means nothing. A word that nobody knows, the name of a function without
quotes, a list of such words: an error that names the parameter, by whatever task it is read, or a place of weights, which
is seen in their names; never the last branch of an `else`. With TFM_LONG whole numbers below 0 and flags that are none, too:
errors where the model reads them.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import unittest

TFMC, MODELS = sys.argv[1], pathlib.Path(sys.argv[2])
WORD = '"nobody-knows"'
# Settings of generation, which the model does not compute with, and numbers of any sign.
NOT_SIZES = {"bos", "eos", "pad", "start", "max_length", "high", "loud", "scale", "most", "source_score_cap"}
# Sizes that count back from the end, or from which others are taken.
ANY_SIGN = {"gemma4.own", "lfm2.ffn"}
# Lists of numbers, whose elements are compared with numbers.
NUMBERS = {"full", "faded", "turned", "scored", "dense", "near", "far"}


def parameters(text):
    """[(name, its default)] of the model in a family's text."""
    text = re.sub(r"^checkpoint .*?^}$", "", text, flags=re.M | re.S)
    head = re.search(r"^model \w+\((.*?)\) \{$", text, re.M | re.S).group(1)
    found, depth, quoted, at = [], 0, False, 0
    for i, c in enumerate(head + ","):
        quoted ^= c == '"'
        depth += 0 if quoted else (c in "([") - (c in ")]")
        if c == "," and not depth and not quoted:
            found.append([part.strip() for part in re.sub(r"\s+", " ", head[at:i]).split(" = ", 1)])
            at = i + 1
    return [tuple(pair) for pair in found]


def tasks(text):
    found = re.search(r"require task in (\[[^]]*\])", text)
    return re.findall(r'"(\w+)"', found.group(1)) if found else []


class Family:
    def __init__(self, path):
        self.path, self.text = path, path.read_text()
        self.given = parameters(self.text)
        self.tasks = tasks(self.text)
        names = [name for name, _ in self.given]
        self.base = ["depth=2"] if "depth" in names else []
        if path.stem == "gpt_neo":
            self.base.append("times=1")
        if "window" in names:
            self.base.append("window=8")
        self.known = {}

    def dumped(self, *defined):
        arguments = [part for one in defined for part in ("-D", one)]
        done = subprocess.run([TFMC, "dump", self.path, "--stage=primitive", *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def settings(self):
        """Those by which a parameter may be read: each task, and what switches parts on."""
        yield ()
        for task in self.tasks:
            yield (f'task="{task}"',)
        for name, value in (("kernel", "3"), ("sentence", '[["tokens"]]')):
            if any(name == own for own, _ in self.given) and (name != "sentence" or "embed" in self.tasks):
                yield (f"{name}={value}", *(['task="embed"'] if name == "sentence" else []))

    def whole(self, more):
        if more not in self.known:
            self.known[more] = self.dumped(*self.base, *more)
        return self.known[more]

    def fault(self, name, value, place=False):
        """What is wrong with the answer to the value; None: it is refused by name, or it is a place."""
        for more in self.settings():
            if any(one.startswith(name + "=") for one in more):
                continue
            code, before, _ = self.whole(more)
            if code:
                continue
            code, after, said = self.dumped(*[one for one in self.base if not one.startswith(name + "=")], *more, f"{name}={value}")
            if code == 0 and after == before:
                continue  # not read with these settings
            if code == 0 and not (place and value.strip('"') in after):
                return f"{' '.join(more)}: {name} = {value} is taken for something else"
            named = re.search(rf"\b({name}|{name.removesuffix('s')})\b", said)
            if code == 1 and not named:
                return f"{' '.join(more)}: the message has no {name}:\n{said}"
            if code not in (0, 1):
                return f"{' '.join(more)}: exit code {code}\n{said}"
            return None
        return f"{name} = {value} is read with no settings"


def tried(path):
    family, faults, count = Family(path), [], 0
    for name, value in family.given:
        if value.startswith('"'):
            tries = [(WORD, True), ("relu", False)]
        elif value.startswith("[") and name not in NUMBERS:
            tries = [(f"[{WORD}, {WORD}]", True)]
        elif re.fullmatch(r"-?\d+", value) and name not in NOT_SIZES and f"{path.stem}.{name}" not in ANY_SIGN:
            tries = [("-1", None)]
        elif value in ("true", "false"):
            tries = [("3", None)]
        else:
            continue
        for wrong, place in tries:
            if place is None and not os.environ.get("TFM_LONG"):
                continue
            count += 1
            if place is None:  # an error wherever the number is read, which need not be in these settings
                code, after, said = family.dumped(*[one for one in family.base if not one.startswith(name + "=")], f"{name}={wrong}")
                fault = None if code == 1 or (code == 0 and after == family.whole(())[1]) else f"{name} = {wrong}: exit code {code} {said}"
            else:
                fault = family.fault(name, wrong, place)
            if fault:
                faults.append(f"{path.name}: {fault}")
    return count, faults


class Words(unittest.TestCase):
    def test_every_parameter_of_every_family(self):
        paths = sorted(MODELS.glob("*.tfm"))
        self.assertGreater(len(paths), 60)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            results = list(pool.map(tried, paths))
        self.assertGreater(sum(count for count, _ in results), 1000 if os.environ.get("TFM_LONG") else 300)
        faults = [fault for _, faults in results for fault in faults]
        self.assertFalse(faults, "\n".join(faults))


if __name__ == "__main__":
    run = unittest.main(argv=sys.argv[:1], exit=False).result
    print(f"{run.testsRun - len(run.failures) - len(run.errors)} passed, {len(run.failures) + len(run.errors)} failed")
    sys.exit(not run.wasSuccessful())
