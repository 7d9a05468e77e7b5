#!/usr/bin/env python3
"""usage: test_changes.py TFMC ROOT

Names of nodes that passes keep (--names=stable), and what a pass changed (--diff): each node has one name, texts with names
are those with numbers, the changes of all passes one after the other lead from the first graph to the last, and what a
fusion does to each of twelve layers is a few lines.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import tally

TFMC, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
MODELS = ["models/bert.tfm", "models/t5.tfm", "tests/goldens/models/hf-mixtral.tfm", "tests/goldens/models/hf-swin.tfm", "tests/goldens/models/hf-llama.tfm"]
PASSES = re.findall(r'^PASS\(\w+, "([\w-]+)"', (ROOT / "compiler/passes/passes.def").read_text(), re.M)


def dump(*args):
    done = subprocess.run([TFMC, "dump", *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def patched(text, diff):
    old, made, at = text.splitlines(keepends=True), [], 0
    for line in diff.splitlines(keepends=True)[2:]:
        if found := re.match(r"@@ -(\d+),(\d+) ", line):
            first = int(found[1]) - (found[2] != "0")
            made += old[at:first]
            at = first
        elif line[0] in " -":
            assert old[at] == line[1:], (old[at], line)
            made += [old[at]] * (line[0] == " ")
            at += 1
        else:
            made.append(line[1:])
    return "".join(made + old[at:])


class Changes(unittest.TestCase):
    def test_names_stand_for_the_nodes_that_numbers_do(self):
        for model in MODELS:
            for stage in ("graph", "fused"):
                numbers, names = (dump(f"--stage={stage}", f"--names={kind}", ROOT / model) for kind in ("numbers", "stable"))
                defined = re.findall(r"^  %(\S+) = ", names, re.M)
                self.assertEqual(len(defined), len(set(defined)), model)
                number = {name: str(i) for i, name in enumerate(defined)}
                self.assertEqual(re.sub(r"(?<![\w\"])%([\w.]+)", lambda m: "%" + number[m[1]], names), numbers, model)

    def test_the_changes_of_all_passes_lead_to_the_last_graph(self):
        for model in MODELS[1:4]:
            shown = dump("--stage=fused", "--names=stable", "--print-after=all", "--diff", ROOT / model)
            parts = re.split(r"^# after ([\w-]+)(: \(unchanged\))?\n", shown, flags=re.M)
            text, n_changed = dump("--stage=fused", "--names=stable", f"--stop-after={parts[1]}", ROOT / model), 0
            last = re.search(r"^graph .*", parts[-1], re.M | re.S)[0]
            for name, unchanged, diff in list(zip(parts[1::3], parts[2::3], parts[3::3]))[1:]:
                if unchanged is None:
                    text = patched(text, diff[:diff.index("\n\n") + 1])
                    n_changed += 1
            self.assertEqual(text, last, model)
            self.assertGreater(n_changed, 5, model)

    def test_a_fusion_in_twelve_layers_is_a_few_lines_of_each(self):
        shown = dump("--stage=fused", "--print-after=fuse-attention", "--diff", ROOT / "models/bert.tfm").split("\ngraph ")[0]
        changed = [line for line in shown.splitlines() if re.match(r"[-+] ", line)]
        self.assertEqual(sum(" = attention " in line for line in changed), 12)
        self.assertLess(len(changed), 12 * 15)
        before, after = (set(dump("--stage=fused", "--names=stable", f"--stop-after={name}", ROOT / "models/bert.tfm").splitlines())
                         for name in (PASSES[PASSES.index("fuse-attention") - 1], "fuse-attention"))
        self.assertEqual(len(before ^ after), len(changed))  # of two commands, too

    def test_graphs_in_text_form(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.graph"
            path.write_text(dump("--stage=graph", ROOT / MODELS[4]))
            done = subprocess.run([TFMC, "opt", "--print-after=changed", "--diff", path], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("\n@@ -", done.stdout)

    def test_refusals(self):
        for args, wanted in ((["--diff"], "--print-after"), (["--names=stable", "--stage=fused", "-v"], "leave out --verbose"), (["--names=x"], "numbers")):
            done = subprocess.run([TFMC, "dump", *args, ROOT / MODELS[0]], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(wanted, done.stderr)


if __name__ == "__main__":
    sys.exit(tally.run(sys.argv[:1]))
