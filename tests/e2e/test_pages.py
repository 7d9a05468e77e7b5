#!/usr/bin/env python3
"""What pages show can be copied: programs of C say how long their structs are and have a line that compiles them, such lines
find the libraries when the program runs, CMake's targets are named, virtual environments have their package.

usage: test_pages.py ROOT [unittest arguments]

In: the Markdown of the project. Needs Python's own library. test_documents.py and test_install.py run the commands; this
looks at what they cannot see, because it works by luck on the machine that runs them: another version of a struct, a
folder that this machine's linker searches, a package that the tests need.
"""
import os
import pathlib
import re
import sys
import unittest

import tally

ROOT = pathlib.Path(os.path.abspath(sys.argv[1])) if len(sys.argv) > 1 else None
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.M | re.S)


def pages():
    return sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*/*.md")])


def blocks(page, *kinds):
    return [text for kind, text in FENCED.findall(page.read_text()) if kind in kinds]


def lines(page):
    """Commands, in fences or indented by four, lines that end with \\ joined."""
    return re.sub(r"\\\n *", "", page.read_text()).splitlines()


class Pages(unittest.TestCase):
    def test_structs_say_how_long_they_are(self):
        """A library of another version reads no member that this one does not have."""
        found = 0
        for page in pages():
            for text in blocks(page, "c"):
                for name, rest in re.findall(r"\b(\w+_args|tfm_\w+_options|tfm_\w+_result) \w+ = \{([^;]*)", text):
                    with self.subTest(page=page.name, struct=name):
                        self.assertIn(".struct_size = sizeof", rest)
                    found += 1
        self.assertGreater(found, 8)

    def test_every_program_has_a_line_that_compiles_it(self):
        found = 0
        for page in pages():
            commands = "\n".join(lines(page))
            for text in blocks(page, "c"):
                named = re.match(r"/\* ([\w.]+\.c) \*/", text)
                if not named and "int main(" not in text:
                    continue
                with self.subTest(page=page.name, program=text[:40]):
                    self.assertTrue(named, "a program without a name")
                    self.assertRegex(commands, rf"(?m)^ *(?:cc|gcc|clang|\$CC)\b.* {re.escape(named[1])}\b")
                found += 1
        self.assertGreater(found, 4)

    def test_programs_find_their_libraries(self):
        """Where a program is linked with a shared library that lies in no folder of the system, the line says where."""
        found = 0
        for page in pages():
            for command in lines(page):
                if not re.match(r" *cc\b.* -o \w+", command) or " -shared" in command or " -ltfm_runtime" in command:
                    continue
                if re.search(r" -l(?!m\b|pthread\b|dl\b)\w+|pkg-config", command):
                    with self.subTest(page=page.name, command=command.strip()):
                        self.assertIn("-Wl,-rpath", command)
                    found += 1
        self.assertGreater(found, 4)

    def test_every_run_has_a_folder_of_its_own(self):
        """A run refuses the folder of another: a page that is followed from top to bottom would end there. Commands with
        --resume belong to those before them; so do loops of Python with a line that resumes."""
        found = 0
        for page in pages():
            taken = {}
            for number, (kind, text) in enumerate(FENCED.findall(page.read_text())):
                names = re.findall(r"--out[ =](\w+)", text) + re.findall(r'\bout="(\w+)"', text) + re.findall(
                    r'(?:\w+\.save|tfm_trainer_save)\((?:trainer, )?"(\w+)"', text)
                for name in set(names):
                    with self.subTest(page=page.name, folder=name):
                        self.assertEqual(taken.setdefault(name, number), number, "two blocks write to it")
                    found += 1
        self.assertGreater(found, 5)

    def test_targets_of_cmake_are_named(self):
        targets = re.findall(r"add_(?:library|executable)\((Tfm::\w+)", (ROOT / "cmake/TfmConfig.cmake.in").read_text())
        self.assertGreater(len(targets), 2)
        text = "".join(page.read_text() for page in pages())
        for target in targets:
            self.assertIn(f"`{target}`", text)

    def test_environments_of_python_have_their_package(self):
        """Debian's Python makes none without it, and `make` does not install it."""
        readme = (ROOT / "README.md").read_text()
        places = [match.start() for match in re.finditer(r"^    python3 -m venv", readme, re.M)]
        self.assertTrue(places)
        for place in places:
            self.assertIn("python3-venv", readme[:place])


if __name__ == "__main__":
    sys.argv.pop(1)
    sys.exit(tally.run())
