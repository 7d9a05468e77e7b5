#!/usr/bin/env python3
"""usage: test_fmt.py TFMC ROOT

tfmc fmt: the texts of the repository, and each again with blanks, line ends and comments put in at random, keep their
tokens, and what is laid out twice is the same. What a text means is its tree, which is compared too. Then how files are
written and refused. The last line is 'N passed, N failed'.
"""
import contextlib
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

import tally

TFMC, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
TOKEN = re.compile(r"""#[^\r\n]*|"(?:[^"\\\r\n]|\\.)*"|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\w+|\.\.\.|->|\*\*|//|[=!<>]=|\S""")


def fmt(text, *args):
    return subprocess.run([TFMC, "fmt", "-", *args], input=text.encode(), capture_output=True)


def tree(text, folder):
    """The tree without places. What a text includes is not at hand here."""
    path = folder / "tree.tfm"
    path.write_text(re.sub(r'(?m)^include "[^"]*"', "", text))
    shown = subprocess.run([TFMC, "dump", "--stage=ast", path], capture_output=True, text=True, check=True).stdout
    return re.sub(r"\b\d+:\d+(-\d+(:\d+)?)?", "", shown)


def scattered(text, rng):
    """The same tokens, far from any style. What begins a line goes on beginning one."""
    made, last = "", 0
    for found in TOKEN.finditer(text):
        gap, token = text[last:found.start()], found[0]
        last = found.end()
        if "\n" in gap:
            made += rng.choice(["\n", "\n\n\n", " # why\n", "\n  # alone\n", "\r\n\t"])
        elif made and not (made[-1] + token[0] in ("..", "//", "**") or token == "."):
            made += rng.choice(["", " ", "   ", "\t", "\n" if token in ("then", "else", "+", "and", "->") or made[-1] == "," else " "])
            if re.match(r"\w", token) and re.search(r"\w$", made):
                made += " "
        made += token
    return made + "\n"


def patched(text, diff):
    """The text with the changes of a unified diff. Lines end at LF alone."""
    old, made, at = re.findall(r"[^\n]*\n|[^\n]+", text), [], 0
    lines = re.findall(r"[^\n]*\n", diff)[2:]
    for i, line in enumerate(lines):
        if found := re.match(r"@@ -(\d+),(\d+) ", line):
            first = int(found[1]) - (found[2] != "0")
            made += old[at:first]
            at = first
        elif line[0] in " -":
            bare = i + 1 < len(lines) and lines[i + 1][0] == "\\"
            assert old[at] == (line[1:-1] if bare else line[1:]), (old[at], line)
            made += [old[at]] * (line[0] == " ")
            at += 1
        elif line[0] == "+":
            made.append(line[1:])
    return "".join(made + old[at:])


class Format(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def holds(self, made, text, what):
        """Whether `made` is `text` in the one style."""
        self.assertEqual(TOKEN.findall(made), TOKEN.findall(text.removeprefix("\ufeff")), what)
        for line in made.splitlines():
            self.assertEqual(line, line.rstrip(), what)
            code = line.partition("#")[0].rstrip()
            self.assertTrue(len(code) <= 120 or '"' in code or max(map(len, code.split())) > 60, f"{what}: {line}")

    def laid_out(self, text, what):
        done = fmt(text)
        self.assertEqual(done.returncode, 0, f"{what}: {done.stderr.decode()}")
        made = done.stdout.decode()
        self.holds(made, text, what)
        self.assertEqual(fmt(made).stdout.decode(), made, f"{what}: a second time it changes")
        return made

    def all_laid_out(self, texts):
        """what -> text, of those that parse; and that a second time nothing changes."""
        paths = {what: self.work / f"{i}.tfm" for i, what in enumerate(texts)}
        for what, text in texts.items():
            paths[what].write_bytes(text.encode())
        every, first = list(paths.values()), ""
        for i in range(0, len(every), 10):  # of more than twenty errors not all are shown
            first += subprocess.run([TFMC, "fmt", *every[i:i + 10]], capture_output=True, text=True).stderr
            check = subprocess.run([TFMC, "fmt", "--check", *every[i:i + 10]], capture_output=True, text=True).stderr
            self.assertNotIn("one style", check)
        made = {what: path.read_bytes().decode() for what, path in paths.items() if f"{path}:" not in first}
        for what, text in made.items():
            self.holds(text, texts[what], what)
        return made

    def test_every_text_of_the_repository_keeps_its_meaning(self):
        rng, texts = random.Random(5), {}
        for path in sorted(ROOT.rglob("*.tfm")):
            if "build" not in path.relative_to(ROOT).parts:
                with contextlib.suppress(UnicodeDecodeError):
                    texts[path] = path.read_bytes().decode()
        made = self.all_laid_out(texts)
        self.assertGreater(len(made), 500)
        other = self.all_laid_out({path: scattered(texts[path], rng) for path in made})
        self.assertEqual(len(other), len(made))
        for n, path in enumerate(made):
            if n % 12 == 0 or path.parent.name in ("models", "std"):
                wanted = tree(texts[path], self.work)
                self.assertEqual(tree(made[path], self.work), wanted, path)
                self.assertEqual(tree(other[path], self.work), wanted, path)

    def test_all_texts_of_the_repository_are_in_the_style(self):
        """But for those with faults, whose places are recorded, and the case that is about odd layout."""
        def is_kept(path):
            case = next((folder / "case.json" for folder in path.parents if (folder / "case.json").exists()), None)
            return case and "expect_error" in json.loads(case.read_text())

        left = (ROOT / "build", ROOT / "tests/errors", ROOT / "tests/fuzz", ROOT / "tests/goldens/lang-lexical")
        read = [path for path in sorted(ROOT.rglob("*.tfm"))
                if not any(path.is_relative_to(folder) for folder in left) and not is_kept(path)]
        self.assertGreater(len(read), 380)
        for i in range(0, len(read), 10):  # of more than twenty errors not all are shown
            done = subprocess.run([TFMC, "fmt", "--check", *read[i:i + 10]], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_a_difference_says(self):
        """The unified diff leads from the text to what is made of it."""
        rng = random.Random(8)
        path = self.work / "one.tfm"
        for name in sorted((ROOT / "models").glob("*.tfm"))[::4]:
            text = scattered(name.read_text(), rng)
            path.write_bytes(text.encode())
            done = subprocess.run([TFMC, "fmt", "--diff", path], capture_output=True)
            self.assertEqual((done.returncode, done.stderr, path.read_bytes()), (0, b"", text.encode()))
            made = subprocess.run([TFMC, "fmt", "--stdin"], input=text.encode(), capture_output=True).stdout
            self.assertEqual(patched(text, done.stdout.decode()), made.decode())
        path.write_text("fn f(x) = x\n")
        self.assertEqual(subprocess.run([TFMC, "fmt", "--diff", path], capture_output=True).stdout, b"")
        path.write_text("fn f(x)=x")
        done = subprocess.run([TFMC, "fmt", "--diff", "--check", path], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, f"--- {path}\n+++ {path}\n@@ -1,1 +1,1 @@\n-fn f(x)=x\n\\ No newline at end of file\n+fn f(x) = x\n")

    def test_no_file_or_both(self):
        for args in ([], ["--stdin", "x.tfm"]):
            done = subprocess.run([TFMC, "fmt", *args], input="", capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn("name files, or give --stdin without any", done.stderr)

    def test_what_is_included_stays(self):
        (self.work / "part.tfm").write_text("layer A(d){forward(x)=x}")
        (self.work / "main.tfm").write_text('include"part.tfm"  # why\nmodel M{forward(x:f32[n]){return y=x}}')
        self.assertEqual(subprocess.run([TFMC, "fmt", self.work / "main.tfm"]).returncode, 0)
        self.assertEqual((self.work / "part.tfm").read_text(), "layer A(d){forward(x)=x}")
        self.assertEqual((self.work / "main.tfm").read_text(),
                         'include "part.tfm" # why\n\nmodel M { forward(x: f32[n]) { return y = x } }\n')

    def test_the_style(self):
        cases = {
            "layer A(d){forward(x)=x}\nmodel M(d=2){\n a=Linear(d,d) as \"a\"\n long = Linear(d,d)as \"b\" # end\n\n\n forward(x:f32[n,d]){\n"
            "  y=a( x )\n  if d>1{ y=y+1 }\n  else{\n y=-y*x[ :,1:d-1 ]\n}\n  return y=y\n }\n\n}":
            "layer A(d) { forward(x) = x }\n\nmodel M(d = 2) {\n  a    = Linear(d, d) as \"a\"\n  long = Linear(d, d) as \"b\" # end\n\n"
            "  forward(x: f32[n, d]) {\n    y = a(x)\n    if d > 1 { y = y + 1 } else {\n      y = -y * x[:, 1 : d - 1]\n    }\n"
            "    return y = y\n  }\n}\n",
            "fn f(x)=x\nfn g(x)\n=x#why\n": "fn f(x) = x\nfn g(x) = x #why\n",
            "model M{forward(x:f32[n]){return y=x\n+1}\ntrain f{lr=1 warmup=2\nsteps=3}\nfn f(x:f32[n])=sum(x)}\n":
            "model M {\n  forward(x: f32[n]) {\n    return y = x +\n           1\n  }\n  train f {\n    lr = 1  warmup = 2\n    steps = 3\n  }\n"
            "  fn f(x: f32[n]) = sum(x)\n}\n",
            "": "",
            "# alone": "# alone\n",
        }
        for text, wanted in cases.items():
            self.assertEqual(self.laid_out(text, text), wanted)

    def test_long_lines_break_where_the_fewest_brackets_are_open(self):
        names = ", ".join(f"parameter{i} = {i}" for i in range(12))
        made = self.laid_out("layer L(" + names + ") {\n  fn f(x) = x * (parameter0 + parameter1) + parameter2 * (parameter3 + parameter4) + "
                             "parameter5 * (parameter6 + parameter7)\n}\n", "long")
        self.assertEqual(made.splitlines()[1], "        parameter7 = 7, parameter8 = 8, parameter9 = 9, parameter10 = 10, parameter11 = 11) {")
        path, name = "p" * 70, "w" * 60
        made = self.laid_out(f'layer L {{\n  weight {name}: [1, 2] as "{path}"\n  x = 1\n}}\n', "a weight")
        self.assertEqual(made.splitlines()[1:3], [f"  weight {name}: [1, 2]", f'      as "{path}"'])
        made = self.laid_out(f"fn g(x) = [{', '.join(map(str, range(20000)))}]\n", "a long list")
        self.assertGreater(len(made.splitlines()), 900)
        made = self.laid_out("layer L(" + names + ") {\n  fn f(x) = x * (parameter0 + parameter1) + parameter2 * (parameter3 + parameter4) + "
                             "parameter5 * (parameter6 + parameter7)\n}\n", "long")
        self.assertIn("  fn f(x) =\n    x * (parameter0 + parameter1) + ", made)

    def test_files_are_replaced_only_where_they_differ(self):
        good, other, bad = self.work / "good.tfm", self.work / "other.tfm", self.work / "bad.tfm"
        good.write_text("fn f(x) = x\n")
        other.write_text("fn f(x)=x")
        bad.write_text("fn f(x = x\n")
        before = good.stat().st_mtime_ns
        check = subprocess.run([TFMC, "fmt", "--check", good, other], capture_output=True, text=True)
        self.assertEqual((check.returncode, other.read_text()), (1, "fn f(x)=x"))
        self.assertIn(f"{other}: error: the text is not in the one style", check.stderr)
        self.assertNotIn("good.tfm", check.stderr)
        done = subprocess.run([TFMC, "fmt", good, bad, other], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("bad.tfm:1:11: error", done.stderr)
        self.assertEqual((good.stat().st_mtime_ns, bad.read_text(), other.read_text()), (before, "fn f(x = x\n", "fn f(x) = x\n"))
        self.assertEqual(subprocess.run([TFMC, "fmt", self.work / "none.tfm"], capture_output=True).returncode, 3)


if __name__ == "__main__":
    sys.exit(tally.run(sys.argv[:1]))
