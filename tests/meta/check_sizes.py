#!/usr/bin/env python3
"""usage: check_sizes.py ROOT

No source file has more than 600 lines, no header more than 200 (program.h, which is data, 400), no function more than
80. Functions are measured by ctags; without it only files are.
"""
import json
import pathlib
import shutil
import subprocess
import sys

MOST_LINES, MOST_HEADER_LINES, MOST_FUNCTION_LINES = 600, 200, 80
LONG_HEADERS = {"program.h": 400}
PATTERNS = ["compiler/**/*.[chly]", "runtime/**/*.[ch]", "grammar/*.[ly]", "tests/**/*.[ch]", "compiler/**/*.def"]


def long_files(files):
    for file in files:
        lines = len(file.read_text().splitlines())
        limit = LONG_HEADERS.get(file.name, MOST_HEADER_LINES) if file.suffix == ".h" else MOST_LINES
        if lines > limit:
            yield f"{file}: {lines} lines; {limit} are allowed"


def long_functions(files):
    if not shutil.which("ctags"):
        print("functions are not measured: there is no ctags")
        return
    sources = "\n".join(str(f) for f in files if f.suffix == ".c")
    command = ["ctags", "--languages=C", "--kinds-C=f", "--fields=+ne", "--output-format=json", "-f", "-", "-L", "-"]
    for line in subprocess.run(command, input=sources, capture_output=True, text=True, check=True).stdout.splitlines():
        tag = json.loads(line)
        length = tag.get("end", tag["line"]) - tag["line"] + 1
        if length > MOST_FUNCTION_LINES:
            yield f"{tag['path']}:{tag['line']}: {tag['name']} has {length} lines; {MOST_FUNCTION_LINES} are allowed"


def main():
    root = pathlib.Path(sys.argv[1])
    files = sorted(f for pattern in PATTERNS for f in root.glob(pattern))
    found = list(long_files(files)) + list(long_functions(files))
    print("\n".join(found) or f"{len(files)} files are short enough")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
