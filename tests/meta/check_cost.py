#!/usr/bin/env python3
"""usage: check_cost.py ROOT [--build FOLDER [--together]] [NAME...]
          check_cost.py ROOT --record NAME CHANGED-TREE
          check_cost.py ROOT --page

What a change of each usual kind costs: patches/NAME.patch is an example of it, small and complete. Each must apply, and
touch at most as many product files as its head allows. With --build it is applied to a copy of the sources in FOLDER
(the working tree's, those that git knows; a new folder below build/ is best), its targets are built there, and its check
is run; the copy is built once before, and patched back after each. With --together as many patches as apply one after the
other are built at once, without the build before, and each is then checked: much less is compiled, but a fault may be
another patch's. --record writes the patch anew, from what a git
worktree has changed since its last commit, and keeps the head; --page prints what docs/architecture.md shows of them.

The head of a patch, before `diff --git`:

    Change: a unary operation               what stands in bold on the page
    Files: 4                                product files, at most
    Targets: tfmc                           of the build
                                            then Markdown: what a reader must know, and
    - `compiler/graph/ops.def`: a row       a line for each product file that the patch touches
    Check:                                  and, to the end, a script for bash, which runs in the patched copy with
      "$tfmc" run ...                       $tfmc, $build and $python, and whose failure is the patch's

Product files are those that are built or installed: not tests, documents, examples or benchmarks, and not the tables in
documents, which are printed anew.
"""
import argparse
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

NO_PRODUCT = ("tests/", "docs/", "examples/", "bench/", "python/tests/", "python/serve/tests/", ".")
HEAD = re.compile(r"\AChange: (?P<change>[^\n]+)\nFiles: (?P<files>\d+)\nTargets: (?P<targets>[^\n]+)\n\n(?P<text>.*?)\n"
                  r"Check:\n(?P<check>.*?)(?P<diff>^diff --git .*)\Z", re.M | re.S)
BUILD = "build/release"  # as deep as the sources' own, so that ccache finds what they compiled
TOUCHED = re.compile(r"^diff --git a/(\S+) b/(\S+)$", re.M)
FILE_LINE = re.compile(r"^- `([^`]+)`", re.M)


class Patch:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        match = HEAD.match(path.read_text())
        if not match:
            raise SystemExit(f"{path}: its head is not as {pathlib.Path(__file__).name} says")
        self.change, self.limit, self.targets = match["change"], int(match["files"]), match["targets"].split()
        self.text, self.check, self.diff = match["text"].strip(), textwrap.dedent(match["check"]), match["diff"]
        self.created = re.findall(r"^diff --git a/(\S+) .*\nnew file mode", self.diff, re.M)
        self.touched = sorted({name for pair in TOUCHED.findall(self.diff) for name in pair})

    def product_files(self):
        return [name for name in self.touched if not name.startswith(NO_PRODUCT) and not name.endswith(".md")]

    def faults(self, root):
        product, told = self.product_files(), set(FILE_LINE.findall(self.text))
        if len(product) > self.limit:
            yield f"it touches {len(product)} product files, {self.limit} are allowed: {' '.join(product)}"
        for name in sorted(told ^ set(product)):
            yield f"`{name}` has no line in its head" if name in product else f"its head tells of `{name}`, which it leaves as it is"
        applied = git_apply(root, self.path, "--check")
        if applied.returncode:
            yield f"it does not apply; mend it in a worktree and --record it\n{applied.stderr.strip()}"

    def page(self):
        n = len(self.product_files())
        return (f"**{self.change[0].upper()}{self.change[1:]}**: {n} file{'s' * (n != 1)} "
                f"([{self.path.name}](../tests/meta/patches/{self.path.name})).\n\n{self.text}\n")


def patches(root, names=()):
    folder = root / "tests/meta/patches"
    found = [Patch(path) for path in sorted(folder.glob("*.patch"))]
    if missing := set(names) - {patch.name for patch in found}:
        sys.exit(f"{folder}: there is no {', '.join(sorted(missing))}")
    return [patch for patch in found if not names or patch.name in names]


def page(root):
    return "\n".join(patch.page() for patch in patches(root))


def git_apply(folder, patch, *options):
    """git must not take the folder for a part of a repository that it lies in by chance."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
    return subprocess.run(["git", "apply", *options, str(patch.resolve())], cwd=folder, env=environment, capture_output=True,
                          text=True)


def copy_sources(root, folder):
    """The files that git knows, or all but build/ where there is no git. What is as it was keeps its time, for ninja; what
    is no longer there, or a patch left behind that was interrupted, goes."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True)
    names = set(listed.stdout.split("\0")[:-1]) if not listed.returncode else {
        str(f.relative_to(root)) for f in root.glob("**/*") if f.is_file() and f.relative_to(root).parts[0] not in ("build", ".git")}
    mark = folder / "build" / "copied"  # nothing goes from a folder that is no copy
    for there in folder.glob("**/*") if mark.exists() else ():
        path = there.relative_to(folder)
        if path.parts[0] != "build" and there.is_file() and not (str(path) in names and (root / path).is_file()):
            there.unlink()
    for name in names:
        here, there = root / name, folder / name
        if here.is_file() and not (there.is_file() and there.read_bytes() == here.read_bytes()):
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(here, there)
    mark.parent.mkdir(exist_ok=True)
    mark.touch()


def build(copy, targets):
    log = subprocess.run(["cmake", "--build", str(copy / BUILD), "--target", *targets], capture_output=True, text=True)
    return "" if not log.returncode else "it does not build\n" + "\n".join((log.stdout + log.stderr).splitlines()[-40:])


def targets_of(chosen):
    return sorted({target for patch in chosen for target in patch.targets})


def check(patch, copy, root):
    """What is wrong with the copy, in which it was built, by its check, or an empty text; and the last line that it printed."""
    python = root / "build/venv/bin/python"
    environment = {**os.environ, "tfmc": str(copy / BUILD / "tfmc"), "build": str(copy / BUILD), "TFM_CACHE_DIR": "",
                   "python": str(python if python.exists() else sys.executable)}
    ran = subprocess.run(["bash", "-euo", "pipefail", "-c", patch.check], cwd=copy, env=environment, capture_output=True,
                         text=True)
    if ran.returncode:
        return f"its check fails, {ran.returncode}\n{ran.stdout}{ran.stderr}", ""
    return "", (ran.stdout.splitlines() or [""])[-1]


def try_out(some, copy, root):
    """Builds those of the patches that apply one after the other, and runs their checks: a patch, and what `check` says,
    each. The copy is as it was afterwards."""
    applied, refused = [], ""
    for patch in some:
        result = git_apply(copy, patch.path)
        if not result.returncode:
            applied.append(patch)
        elif len(some) == 1:
            refused = f"it does not apply\n{result.stderr.strip()}"
    try:
        fault = refused or build(copy, targets_of(applied))
        for patch in applied or some:
            yield patch, *((fault, "") if fault else check(patch, copy, root))
    finally:
        for patch in reversed(applied):
            git_apply(copy, patch.path, "--reverse")


def try_all(chosen, copy, root, together):
    """Whether each patch was at fault. Of those that are tried together the ones that did not apply come in the next turn,
    which has at least one fewer."""
    copy_sources(root, copy)
    subprocess.run(["scripts/configure.sh", BUILD, "", "tests"], cwd=copy, check=True, stdout=subprocess.DEVNULL)
    if not together and (fault := build(copy, targets_of(chosen))):
        sys.exit(f"the sources without a patch: {fault}")
    left = list(chosen)
    while left:
        for patch, fault, said in try_out(list(left) if together else left[:1], copy, root):
            left.remove(patch)
            print(f"{'FAIL' if fault else 'ok'} {patch.name}: {len(patch.product_files())} files" +
                  (f": {fault or said}" if fault or said else ""), flush=True)
            yield bool(fault)


def record(root, name, tree):
    path = root / "tests/meta/patches" / f"{name}.patch"
    with tempfile.TemporaryDirectory() as scratch:  # an index of its own, so that the tree's stays as it is
        git = functools.partial(subprocess.run, cwd=tree, env={**os.environ, "GIT_INDEX_FILE": scratch + "/index"},
                                capture_output=True, text=True, check=True)
        git(["git", "read-tree", "HEAD"])
        git(["git", "add", "--all", "."])
        diff = git(["git", "diff", "--cached", "--no-ext-diff", "--no-color", "--no-renames", "--unified=1", "HEAD", "--", ".",
                    ":!tests/meta/patches"]).stdout
    if not diff:
        sys.exit(f"{tree}: nothing is changed there")
    touched = sorted(name for name, _ in TOUCHED.findall(diff))
    head = path.read_text().partition("diff --git ")[0] if path.exists() else (
        f"Change: {name}\nFiles: {len(touched)}\nTargets: tfmc\n\n" + "".join(f"- `{name}`: \n" for name in touched) +
        "\nCheck:\n  \"$tfmc\" help >/dev/null\n")
    path.parent.mkdir(exist_ok=True)
    path.write_text(head + re.sub(r"^index .*\n", "", diff, flags=re.M))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--build", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--record", nargs=2, metavar=("NAME", "CHANGED-TREE"))
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_intermixed_args()
    if arguments.record:
        return record(arguments.root, *arguments.record)
    if arguments.page:
        return print(page(arguments.root), end="")
    chosen = patches(arguments.root, arguments.names)
    if not chosen:
        sys.exit("there are no patches")
    faults = [f"{patch.path}: {fault}" for patch in chosen for fault in patch.faults(arguments.root)]
    print("\n".join(faults) or f"{len(chosen)} patches apply: " +
          ", ".join(f"{patch.name} {len(patch.product_files())} of {patch.limit}" for patch in chosen))
    failed = bool(faults)
    if arguments.build and not faults:
        arguments.build.mkdir(parents=True, exist_ok=True)
        failed = any([*try_all(chosen, arguments.build.resolve(), arguments.root.resolve(), arguments.together)])
    return failed


if __name__ == "__main__":
    sys.exit(main())
