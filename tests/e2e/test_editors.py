#!/usr/bin/env python3
"""usage: test_editors.py PRINT_TOKENS ROOT

The grammars of editors agree with the tables of the compiler, the tables with the scanner, and what a grammar makes of every
.tfm file of the repository with the tokens of the compiler: comments, strings, numbers, words of the language, marks. Vim is
asked itself, where there is one.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import tally

TOKENS, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
WORDS = dict(re.findall(r'^WORD\("(\w+)", (\w+)\)', (ROOT / "compiler/parse/words.def").read_text(), re.M))
SCOPES = {"ITEM": "storage.type", "STATEMENT": "keyword.control", "OPERATOR": "keyword.operator.word", "CONSTANT": "constant.language"}
KINDS = {"comment": ["comment"], "string": ["string"], "number": ["constant.numeric"], "mark": ["keyword.operator", "punctuation"]}


def tokens_of(paths):
    """Path -> [(kind, begin, end)], in bytes."""
    found, printed = {}, subprocess.run([TOKENS, *paths], capture_output=True, text=True, check=True).stdout
    for line in printed.splitlines():
        if line.startswith("# "):
            last = found[pathlib.Path(line[2:])] = []
        else:
            kind, begin, end = line.split()
            last.append((kind, int(begin), int(end)))
    return found


def texts():
    """Those that parse: of others the scanner's tokens are not defined."""
    left = (ROOT / "build", ROOT / "tests/errors", ROOT / "tests/fuzz")
    return [path for path in sorted(ROOT.rglob("*.tfm")) if not any(path.is_relative_to(folder) for folder in left)
            and not path.parent.name.startswith("bad-")]


class TextMate:
    """What an editor does with a grammar whose patterns all match within a line: the leftmost wins, of those the first."""

    def __init__(self, grammar):
        self.patterns = [(re.compile(p["match"]), p.get("name"), {int(k): c["name"] for k, c in p.get("captures", {}).items()})
                         for p in grammar["patterns"]]
        assert not any({"begin", "end", "include", "patterns"} & p.keys() for p in grammar["patterns"])

    def scopes(self, line):
        """[(begin, end, scope)]"""
        at, found = 0, []
        while at < len(line):
            best = None
            for number, (pattern, name, captures) in enumerate(self.patterns):
                match = pattern.search(line, at)
                if match and match.end() > match.start() and (best is None or match.start() < best[0].start()):
                    best = match, name, captures
            if not best:
                break
            match, name, captures = best
            found += [(match.start(), match.end(), name)] if name else [(*match.span(group), scope) for group, scope in captures.items()]
            at = match.end()
        return found


def wanted_scopes(kind, text):
    if kind != "word":
        return KINDS[kind]
    group = WORDS.get(text)
    return [SCOPES[group]] if group in SCOPES else ["variable", "entity.name", "support", "storage.type"]


class Grammars(unittest.TestCase):
    def test_they_are_made_of_the_tables(self):
        done = subprocess.run([sys.executable, ROOT / "editors/make_grammars.py", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_words_are_those_of_the_scanner(self):
        scanner = (ROOT / "grammar/tfm.l").read_text()
        words = set(re.findall(r'^"([a-z]+)"\s+return', scanner, re.M))
        self.assertEqual(words, {word for word, group in WORDS.items() if group != "BESIDE"})
        beside = set(re.findall(r'strcmp\(word, "(\w+)"\) == 0', (ROOT / "compiler/parse/tokens.c").read_text()))
        self.assertEqual(beside, {word for word, group in WORDS.items() if group == "BESIDE"})

    def test_textmate_has_the_tokens_of_the_compiler(self):
        grammar = TextMate(json.loads((ROOT / "editors/vscode/syntaxes/tfm.tmLanguage.json").read_text()))
        n = 0
        for path, tokens in tokens_of(texts()).items():
            data = path.read_bytes()
            lines, starts, at = re.findall(rb"[^\r\n]*(?:\r\n|\r|\n|$)", data), [], 0
            scopes = {}
            for line in lines:
                text = line.decode().rstrip("\r\n")
                for begin, end, scope in grammar.scopes(text):
                    scopes[at + len(text[:begin].encode())] = at + len(text[:end].encode()), scope
                at += len(line)
            for kind, begin, end in tokens:
                text = data[begin:end].decode()
                self.assertTrue(begin in scopes, f"{path}: {text} at byte {begin} has no scope")
                last, scope = scopes[begin]
                if kind == "comment":
                    last = begin + len(data[begin:last].decode().rstrip().encode())
                self.assertEqual(last, end, f"{path}: {text} at byte {begin}: {scope}")
                self.assertTrue(any(scope.startswith(wanted) for wanted in wanted_scopes(kind, text)), f"{path}: {text}: {scope}")
                n += 1
        self.assertGreater(n, 50000)

    @unittest.skipUnless(shutil.which("vim"), "there is no vim")
    def test_vim_has_the_tokens_of_the_compiler(self):
        probe = subprocess.run(["vim", "--version"], capture_output=True, text=True).stdout
        if "+syntax" not in probe or "+eval" not in probe:
            self.skipTest("this vim has no syntax")
        groups = {"comment": {"tfmComment", "tfmTodo"}, "string": {"tfmString"}, "number": {"tfmNumber"}, "mark": {"tfmMark", ""}}
        of_words = {"ITEM": {"tfmItem"}, "STATEMENT": {"tfmStatement"}, "OPERATOR": {"tfmOperator"}, "CONSTANT": {"tfmConstant"}}
        paths = [ROOT / "models/bert.tfm", ROOT / "models/t5.tfm", ROOT / "compiler/elaborate/std/std.tfm", ROOT / "compiler/elaborate/std/losses.tfm"]
        for path, tokens in tokens_of(paths).items():
            with tempfile.TemporaryDirectory() as folder:
                script = pathlib.Path(folder) / "ask.vim"
                script.write_text("set nocompatible encoding=utf-8\nsyntax on\nsyntax clear\nunlet! b:current_syntax\nsource %s\nlet names = []\nfor at in [%s]\n"
                                  "  let line = byte2line(at + 1)\n  let column = at + 2 - line2byte(line)\n"
                                  "  call add(names, synIDattr(synID(line, column, 1), 'name'))\nendfor\ncall writefile(names, '%s/names')\nqall!\n"
                                  % (ROOT / "editors/vim/syntax/tfm.vim", ", ".join(str(t[1]) for t in tokens), folder))
                subprocess.run(["vim", "-u", "NONE", "-i", "NONE", "-n", "-es", "-S", script, path], stdin=subprocess.DEVNULL,
                               capture_output=True, timeout=120, env={"HOME": folder, "TERM": "dumb", "PATH": "/usr/bin:/bin"})
                names = (pathlib.Path(folder) / "names").read_text().splitlines()
            data = path.read_bytes()
            self.assertEqual(len(names), len(tokens))
            for (kind, begin, end), name in zip(tokens, names):
                text = data[begin:end].decode()
                wanted = of_words.get(WORDS.get(text)) if kind == "word" else groups[kind]
                if wanted:
                    self.assertIn(name, wanted, f"{path}: {text} at byte {begin}")
                else:
                    self.assertIn(name, {"", "tfmType", "tfmLayer", "tfmFunction", "tfmItem"}, f"{path}: {text} at byte {begin}")

    def test_the_extension_names_what_is_there(self):
        folder = ROOT / "editors/vscode"
        package = json.loads((folder / "package.json").read_text())
        json.loads((folder / "language-configuration.json").read_text())
        self.assertTrue((folder / package["main"]).exists())
        self.assertTrue((folder / package["contributes"]["grammars"][0]["path"]).exists())
        settings = {name.removeprefix("tfmc.") for name in package["contributes"]["configuration"]["properties"]}
        reads = set(re.findall(r'json_object_get\(settings, "(\w+)"\)', (ROOT / "compiler/lsp/open_texts.c").read_text()))
        self.assertEqual(settings - {"path"}, reads)


if __name__ == "__main__":
    sys.exit(tally.run(sys.argv[:1]))
