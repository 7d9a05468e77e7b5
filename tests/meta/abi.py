#!/usr/bin/env python3
"""usage: abi.py LIBTFM SOURCE [--write]

Types and functions of libtfm (built with debug information) must be those of libtfm.abi: programs that were built against
an earlier one go on working. More functions are welcome (exported_symbols.txt has them). Who changes others on purpose
makes the list anew with --write, and says so in the changelog. Needs abidw and abidiff (abigail-tools).
The last line is `N passed, N failed`.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

BASELINE = pathlib.Path(__file__).with_name("libtfm.abi")


def write(library, source, out):
    with tempfile.TemporaryDirectory() as headers:
        made = pathlib.Path(library).resolve().parent / "generated/include/tfm"
        for folder in (made, "runtime/include/tfm", "compiler/api/include/tfm"):
            shutil.copytree(pathlib.Path(source, folder), pathlib.Path(headers, "tfm"), dirs_exist_ok=True)
        subprocess.run(["abidw", "--headers-dir", headers, "--exported-interfaces-only", "--drop-private-types", "--no-corpus-path",
                        "--no-comp-dir-path", "--no-show-locs", "--out-file", out, library], check=True)


def main():
    library, source = sys.argv[1:3]
    if not shutil.which("abidw"):
        print("not run: the interface of libtfm (no abidw; install abigail-tools)")
        print("0 passed, 0 failed")
        return 77
    if sys.argv[3:] == ["--write"]:
        write(library, source, BASELINE)
    with tempfile.TemporaryDirectory() as folder:
        now = pathlib.Path(folder, "now.abi")
        write(library, source, now)
        proc = subprocess.run(["abidiff", "--no-added-syms", str(BASELINE), str(now)], capture_output=True, text=True)
    if proc.returncode:
        print(proc.stdout + proc.stderr)
        print("FAIL: the interface of libtfm changed; if it had to: ", " ".join(sys.argv[:3]), "--write")
    print("0 passed, 1 failed" if proc.returncode else "1 passed, 0 failed")
    return proc.returncode


sys.exit(main())
