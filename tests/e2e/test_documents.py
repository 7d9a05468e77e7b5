#!/usr/bin/env python3
"""docs/library.md and README.md, followed to the letter; examples/decoder.tfm. usage: test_documents.py BUILD [unittest arguments]

Writes the files that docs/library.md shows (blocks whose first line names one), installs BUILD and runs the page's
commands, in their order and in one shell. README.md: the commands on its own model, and on a
checkpoint of BERT. Needs numpy and safetensors. model.py runs if TFM_TORCH names a Python with PyTorch; else random weights stand for trained ones, and the reference interpreter
says what PyTorch would. The page makes all other files itself, in a folder that holds nothing but those that it shows.
Of the other pages docs/training.md alone has a block of commands, which test_install.py runs. Of the README's, `make` and what follows it are run by scripts/bare-debian.sh.
"""
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest

import tally

BUILD = None
PROJECT = pathlib.Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "library.md"
README = PROJECT / "README.md"
LANGUAGE = PROJECT / "docs" / "language.md"
EDITORS = PROJECT / "docs" / "editors.md"
TRAINING = PROJECT / "docs" / "training.md"
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:# |/\* )([\w.]+)(?: \*/)?\n")
# usage: STAND_IN TFMC MODEL WEIGHTS INPUTS OUTPUTS: writes the three files and prints the best class of each token.
STAND_IN = r"""
import re, subprocess, sys
import numpy as np
from safetensors.numpy import load_file, save_file
tfmc, model, weights_path, inputs_path, outputs_path = sys.argv[1:]
listed = subprocess.run([tfmc, "check", "-v", model], capture_output=True, text=True, check=True).stdout
listed = listed[listed.index("weights:"):]
random = np.random.default_rng(1)
weights = {name: random.normal(0, 0.05, [int(n) for n in dims.split(", ")]).astype(np.float32)
           for name, dims in re.findall(r"^  (\S+) +f32\[(.*)\]$", listed, re.MULTILINE)}
save_file(weights, weights_path)
save_file({"ids": np.array([[5, 81, 32, 7, 499], [14, 3, 90, 0, 0]])}, inputs_path)
subprocess.run([tfmc, "run", model, "--weights", weights_path, "--inputs", inputs_path, "--engine=reference", "-o",
                outputs_path], check=True)
for row in load_file(outputs_path)["scores"].argmax(-1).tolist():
    print(*row if isinstance(row, list) else [row])
"""
# usage: FOLDER MODELS: writes a checkpoint of BERT into the folder that README.md calls FOLDER.
FOLDER = r"""
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import checkpoint
pathlib.Path("FOLDER").mkdir()
checkpoint.write(json.loads((pathlib.Path(sys.argv[1]) / "cases" / "bert.json").read_text()), pathlib.Path("FOLDER"))
"""
PROGRAM = r"""
#include "model.h"
int main(void) {
  classifier_model *model;
  if (classifier_open("model.tfmw", &model, 0)) return 1;
  classifier_close(model);
  return 0;
}
"""


def blocks(page):
    return BLOCK.findall(page.read_text())


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.folder = self.home / "folder"
        self.folder.mkdir()

    def bash(self, commands, **environment):
        proc = subprocess.run(["bash", "-c", "set -e\n" + commands], cwd=self.folder, env={**os.environ, **environment},
                              capture_output=True, text=True, timeout=600)
        self.assertEqual(proc.returncode, 0, proc.stdout + proc.stderr)
        return proc.stdout


class Readme(Page):
    def test_every_command(self):
        (self.folder / "build").mkdir()
        (self.folder / "build" / "release").symlink_to(BUILD)
        (self.folder / "model.tfm").write_text(next(text for kind, text in blocks(README) if kind == "tfm"))
        (self.folder / "program.c").write_text(PROGRAM)
        subprocess.run([sys.executable, "-c", STAND_IN, os.path.join(BUILD, "tfmc"), "model.tfm", "w.safetensors",
                        "in.safetensors", "out.safetensors"], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-c", "import numpy; from safetensors.numpy import load_file;"
                        "numpy.save('ids.npy', load_file('in.safetensors')['ids'])"], cwd=self.folder, check=True)
        subprocess.run([sys.executable, "-c", FOLDER, str(PROJECT / "tests" / "models")], cwd=self.folder, check=True)
        commands = [text for kind, text in blocks(README) if kind == "sh" and not text.startswith("make")]
        self.assertGreater(len(commands), 2)
        out = self.bash("".join(commands) + "./program\n")
        self.assertIn("8 elements agree", out)


class Library(Page):
    def stand_in(self, name, text):
        path = self.home / "stand-ins" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def write_files(self):
        for language, text in blocks(PAGE):
            name = FILE.match(text)
            if language != "sh":
                self.assertTrue(name, f"a block without a file: {text[:60]}")
                (self.folder / name[1]).write_text(text)

    def test_every_command(self):
        self.write_files()
        torch = os.environ.get("TFM_TORCH")
        if not torch:
            files = ["tfmc", "tagger.tfm", "tagger.safetensors", "in.safetensors", "out.safetensors"]
            (self.folder / "model.py").write_text(f"import sys\nsys.argv[1:] = {files}\n" + STAND_IN)
        shown = sorted(FILE.match(text)[1] for language, text in blocks(PAGE) if language != "sh")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), shown, "the page makes whatever else it needs")
        self.stand_in("make", f'cmake --install "{BUILD}" --prefix "${{2#PREFIX=}}"\n')
        self.stand_in("python3", f'exec "{torch or sys.executable}" "$@"\n')
        out = self.bash("".join(text for kind, text in blocks(PAGE) if kind == "sh"), HOME=str(self.home),
                        PATH=f"{self.home}/stand-ins:{os.environ['PATH']}")
        self.compare(out)

    def compare(self, printed):
        lines = printed.splitlines()
        tags = [line for line in lines if re.fullmatch(r"\d( \d){4}", line)]
        self.assertEqual(len(tags), 8, printed)  # model.py, tag, tag_alone, tagging
        self.assertEqual(tags, tags[:2] * 4)
        firsts = [line for line in lines if line.startswith("5: ")]
        self.assertEqual(len(firsts), 2, printed)  # serve, any
        self.assertEqual(firsts, firsts[:1] * 2)
        heard, = re.findall(r"^(.*), heard of row 0$", printed, re.MULTILINE)
        written = re.findall(r"^(.*) written$", printed, re.MULTILINE)
        branched = re.findall(r"^(.*) branched$", printed, re.MULTILINE)
        self.assertEqual((len(written), len(branched)), (2, 3), printed)
        self.assertEqual(written[0], "5, 9, 3, 7, " + heard)
        self.assertTrue(heard.startswith(branched[0].split(", 2")[0]), printed)  # greedy too, but for the end
        self.assertIn("incremental; keeps 512 bytes for each token of a row", printed)
        for line in PAGE.read_text().splitlines():
            if line.startswith("The second worker is told: "):
                self.assertIn(line.split("`")[1], lines)


class Others(unittest.TestCase):
    def test_have_no_commands(self):
        """A page with blocks of commands needs a test like those above."""
        pages = [page for part in ("*.md", "docs/**/*.md", "examples/**/*.md", "bench/*.md", "grammar/*.md") for page in PROJECT.glob(part)]
        self.assertGreater(len(pages), 20)
        commands = {page for page in pages if any(kind in ("sh", "bash", "console", "shell") for kind, _ in blocks(page))}
        serving = PROJECT / "docs" / "serving.md"  # its requests are run by python/serve/tests/test_serve_clients.py
        self.assertEqual(commands, {README, PAGE, TRAINING, EDITORS, serving})

    def test_editors_lays_a_file_out(self):
        """The commands of docs/editors.md, on a model and a part that are not in the style; --diff and --check after it."""
        ugly = "model  M(d=4) { forward( x : f32[n,d] )  { return y=x+1 } }\n"
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "parts").mkdir()
            for name in ("model.tfm", "parts/part.tfm"):
                (folder / name).write_text(ugly)
            commands, = [text for kind, text in blocks(EDITORS) if kind == "sh"]
            ran = subprocess.run(["bash", "-e", "-c", commands], cwd=folder, capture_output=True, text=True,
                                 env=os.environ | {"PATH": f"{BUILD}:{os.environ['PATH']}"})
            self.assertEqual(ran.returncode, 0, ran.stderr)
            laid = (folder / "model.tfm").read_text()
            self.assertNotEqual(laid, ugly)
            self.assertEqual((folder / "parts/part.tfm").read_text(), laid)
            self.assertTrue(ran.stdout.endswith(laid), ran.stdout)


class Language(Page):
    def test_the_decoder(self):
        """Its caches are those of the whole model, and its head is the embedding."""
        tfmc = os.path.join(BUILD, "tfmc")
        (self.folder / "decoder.tfm").write_text((PROJECT / "examples" / "decoder.tfm").read_text())
        generate = f"{tfmc} generate decoder.tfm -D d=64 -D window=3 -D vocab=50 --random-weights=1 --input ids=2x5 -q"
        cached = self.bash(generate)
        self.assertEqual(len(cached.splitlines()), 2, cached)
        self.assertEqual(cached, self.bash(generate + " --recompute"))
        self.assertIn("a step computes new positions only", self.bash(generate + " --report"))
        self.assertNotIn("lm_head", self.bash(f"{tfmc} check -v decoder.tfm"))

    def test_the_experts(self):
        tfmc = os.path.join(BUILD, "tfmc")
        text = [text for kind, text in blocks(LANGUAGE) if kind == "tfm" and "layer Expert(" in text]
        (self.folder / "mixture.tfm").write_text(text[0])
        verify = f"{tfmc} verify mixture.tfm -D d=16 -D ffn=24 --random-weights=1 --input x=2x9x16"
        self.assertIn("(8 times)", self.bash(verify + " --require-fusion=experts --report"))


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    sys.exit(tally.run(verbosity=1))
