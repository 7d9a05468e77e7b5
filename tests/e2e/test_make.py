#!/usr/bin/env python3
"""What `make` does before it compiles: dependencies, the folder, the compiler. usage: test_make.py [unittest arguments]

Stand-ins for dpkg-query, apt-get and compilers take the place of machines that this one is not: one without packages,
one without a network, one with an old compiler. Nothing is installed and nothing is compiled.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What only tests need: `make` must not ask for it.
TESTS_ONLY = {"g++", "pkg-config", "libcriterion-dev", "locales", "graphviz", "python3", "python3-dev", "python3-venv",
              "universal-ctags", "strace", "abigail-tools", "valgrind", "ca-certificates"}
NO_NETWORK = """#!/bin/bash
echo "$@" >>"$(dirname "$0")/asked"
case "$*" in
  *update*) echo "Err:1 http://deb.debian.org/debian bookworm InRelease"
            echo "  Temporary failure resolving 'deb.debian.org'"
            echo "W: Some index files failed to download." >&2 ;;
  *) echo "Reading package lists..."; echo "E: Unable to locate package gcc" >&2; exit 100 ;;
esac
"""
BROKEN = """#!/bin/bash
case "$*" in *update*) exit 0 ;; esac
echo "E: Unable to locate package llvm-19-dev" >&2
exit 100
"""


class Make(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()

    def stand_in(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run_in(self, *command, code=0, cwd=ROOT, **environment):
        for name in ("CC", "CMAKE_C_COMPILER_LAUNCHER", "MAKEFLAGS", "MAKELEVEL"):
            environment.setdefault(name, None)
        env = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "TMPDIR": str(self.folder), **environment}
        env = {name: value for name, value in env.items() if value is not None}
        proc = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
        self.assertEqual(proc.returncode, code, proc.stdout + proc.stderr)
        return proc


class Dependencies(Make):
    def setUp(self):
        super().setUp()
        self.stand_in("dpkg-query", "#!/bin/sh\necho not-installed\nexit 1\n")
        self.stand_in("sudo", '#!/bin/sh\nexec "$@"\n')

    def asked(self, *args):
        """The packages that are named on a machine that has none."""
        self.stand_in("apt-get", NO_NETWORK)
        proc = self.run_in("scripts/install-dependencies.sh", *args, code=1)
        first, = proc.stdout.splitlines()
        self.assertTrue(first.startswith("installing: "), first)
        return set(first.split()[1:])

    def test_two_lists(self):
        build, tests = self.asked(), self.asked("tests")
        self.assertLessEqual({"gcc", "llvm-19-dev", "ninja-build"}, build)
        self.assertEqual(build & TESTS_ONLY, set())
        self.assertLessEqual(build | TESTS_ONLY, tests)
        self.assertLessEqual(tests | {"clang-19"}, self.asked("all"))

    def test_no_network(self):
        for arguments in ["scripts/install-dependencies.sh"], ["make", "-s", f"BUILD={self.folder}/b"]:
            self.stand_in("apt-get", NO_NETWORK)
            proc = self.run_in(*arguments, code=2 if arguments[0] == "make" else 1)
            lines = [line for line in proc.stderr.splitlines() if not line.startswith("make")]
            self.assertEqual(len(lines), 1, proc.stderr)
            self.assertTrue(lines[0].startswith("no network: cannot install gcc libc6-dev cmake"), lines[0])
            self.assertIn("update", (self.bin / "asked").read_text())
        self.assertFalse((self.folder / "b").exists())
        self.assertEqual([path.name for path in self.folder.iterdir()], ["bin"])

    def test_no_such_package(self):
        self.stand_in("apt-get", BROKEN)
        proc = self.run_in("scripts/install-dependencies.sh", code=1)
        self.assertIn("apt-get cannot install gcc", proc.stderr)
        self.assertTrue(proc.stderr.endswith("E: Unable to locate package llvm-19-dev\n"), proc.stderr)
        self.assertNotIn("network", proc.stderr)

    def test_nothing_missing(self):
        self.stand_in("dpkg-query", "#!/bin/sh\nprintf installed\n")
        self.stand_in("apt-get", "#!/bin/sh\ntouch \"$(dirname \"$0\")/asked\"\n")
        proc = self.run_in("scripts/install-dependencies.sh", "all")
        self.assertEqual((proc.stdout, proc.stderr, (self.bin / "asked").exists()), ("", "", False))


class Configure(Make):
    def setUp(self):
        super().setUp()
        self.stand_in("dpkg-query", "#!/bin/sh\nprintf installed\n")
        self.build = self.folder / "a folder"

    def configure(self, *arguments, **options):
        return self.run_in("make", "configure", f"BUILD={self.build}", *arguments, **options)

    def compiler(self):
        cache = (self.build / "CMakeCache.txt").read_text()
        line, = (line for line in cache.splitlines() if line.startswith("CMAKE_C_COMPILER:"))
        return os.path.basename(line.split("=")[1])

    def test_compilers(self):
        self.configure()
        self.assertEqual(self.compiler(), "gcc")
        ninja = self.build / "build.ninja"
        made = ninja.stat().st_mtime_ns
        for other in {}, {"CC": "gcc"}, {"CC": "cc"}:
            self.configure(**other)
            self.assertEqual(ninja.stat().st_mtime_ns, made, "nothing has changed")
        self.stand_in("other", '#!/bin/sh\nexec gcc "$@"\n')
        self.configure("CC=other")
        self.assertEqual(self.compiler(), "other")
        self.configure()
        self.assertEqual(self.compiler(), "other", "the compiler of a folder stays until another is named")
        self.stand_in("launcher", '#!/bin/sh\nexec "$@"\n')
        self.configure(CC="launcher gcc")
        self.assertEqual(self.compiler(), "launcher")
        rules = (self.build / "CMakeFiles" / "rules.ninja").read_text()
        self.assertTrue("/launcher gcc " in rules, "the second word of CC is lost")

    def test_an_unsuitable_compiler(self):
        self.stand_in("old", '#!/bin/sh\nexec gcc -U__GNUC__ -D__GNUC__=7 -U__GNUC_MINOR__ -D__GNUC_MINOR__=5 "$@"\n')
        said = " ".join(self.configure("CC=old", code=2).stderr.split())
        self.assertIn("/old is GNU 7.5.", said)
        self.assertIn("CC=gcc make", said)
        self.configure("CC=gcc")
        self.assertEqual(self.compiler(), "gcc")

    def test_sources_that_are_read_only(self):
        """The sources may not change, and a user who may not write there can prepare a folder of his own."""
        source = self.folder / "source"
        names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
        if names.returncode:
            self.skipTest("the sources are not under git")
        for name in filter(None, names.stdout.split("\0")):
            if name.startswith(("tests/goldens", "tests/cases")) or not (ROOT / name).is_file():
                continue
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
        before = sorted((path, path.lstat().st_mtime_ns) for path in source.rglob("*"))
        subprocess.run(["chmod", "-R", "a-w", source], check=True)
        self.addCleanup(subprocess.run, ["chmod", "-R", "u+w", source])
        make = ["make", "configure", f"BUILD={self.build}"]
        if os.geteuid() == 0:  # who may write everywhere
            for folder in (self.folder, self.bin):
                folder.chmod(0o755)
            if not all(folder.stat().st_mode & 1 for folder in self.folder.parents):
                self.skipTest("another user cannot reach the folder for temporary files")
            self.build.mkdir(mode=0o777)
            self.build.chmod(0o777)
            make = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *make]
        self.run_in(*make, cwd=source, TMPDIR=str(self.build), HOME=str(self.build))
        self.assertTrue((self.build / "build.ninja").is_file())
        self.assertEqual(sorted((path, path.lstat().st_mtime_ns) for path in source.rglob("*")), before)


class Progress(unittest.TestCase):
    def test_how_far_the_tests_are(self):
        """The line that comes every eight seconds: stages of how many, unit tests of how many."""
        with tempfile.TemporaryDirectory() as work:
            script = pathlib.Path(work, "check.sh")  # has the name of the one whose stages are counted
            script.write_text(f"""work={work}
. scripts/stages.sh
echo "unit tests" >$work/0.name
printf '  1/110 Test  #1: a ...   Passed\n 84/110 Test  #84: b ...   Passed\n' >$work/0.log
echo ended >$work/1.name; touch $work/1.log $work/1.ended
echo "golden cases" >$work/2.name; printf 'ok   a\nok   b\n' >$work/2.log
running
""")
            said = subprocess.run(["bash", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        planned = len([line for line in (ROOT / "scripts/check.sh").read_text().splitlines()
                       if line.lstrip().startswith(("stage \"", "stage_alone \""))])
        self.assertEqual(said, f"1 of about {planned} stages; unit tests (84 of 110 done), golden cases (2 passed)\n")


if __name__ == "__main__":
    unittest.main()
