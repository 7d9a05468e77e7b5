#!/usr/bin/env python3
"""usage: check_found.py ROOT

tests/found.md names tests that exist: in each row a file, and behind it functions, modules or suites that stand in that file; before
a file, cases and modules that stand alone. No number of a table is left out.
"""
import pathlib
import re
import sys

# The last number of each kind that was found; sums have none.
NUMBERS = {"Checkpoints": [str(i) for i in range(1, 20)], "Modules of torch, and training": [str(i) for i in range(1, 23)],
           "Looking inside": [f"E{i}" for i in range(1, 10)],
           "A newcomer's trial": [f"{kind}{i}" for kind, last in (("D", 14), ("T", 12)) for i in range(1, last + 1)]}
FILE = re.compile(r"[\w/-]+\.(?:py|c|tfm)")
CASES = "tests/models/cases/{}.json", "tests/{}/case.json", "tests/goldens/train/{}/case.json"


def defined(name):
    """A function, class or test of that name, with or without `test_`."""
    return re.compile(rf"(?:\bdef |\bclass |\bvoid |\bTest\(\w+, )(?:test_)?{name}\b")


def files_of(token, root):
    return [path for part in ("tests", "python/tests") for path in (root / part).rglob(pathlib.PurePath(token).name)
            if f"/{path.relative_to(root).as_posix()}".endswith(f"/{token}")]


def stands(name, files, root):
    """In the file, or where none was named among the idioms; or it is a case."""
    files = files or (root / "python/tests").glob("idioms_*.py")
    return any((root / case.format(name)).exists() for case in CASES) or any(defined(name).search(path.read_text()) for path in files)


def faults(row, root):
    files = []
    for token in re.findall(r"`([^`]+)`", row):
        if FILE.fullmatch(token):
            files = files_of(token, root)
            if not files:
                yield f"there is no {token}"
        elif not stands(token, files, root):
            yield f"{token} stands in none of {', '.join(path.name for path in files) or 'the cases and idioms'}"


def main():
    root = pathlib.Path(sys.argv[1])
    found, seen, tests = [], {}, 0
    for title, body in re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", (root / "tests/found.md").read_text(), re.M):
        rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in re.findall(r"^\| .*\|$", body, re.M)[1:]]
        for cells in rows:
            tests += len(re.findall("`", cells[-2])) // 2
            found += [f"{title}, {cells[0]}: {fault}" for fault in faults(cells[-2], root)]
            found += [] if "`" in cells[-2] else [f"{title}, {cells[0]}: no test is named"]
        seen[title] = {number for cells in rows for number in cells[0].split(", ")}
    found += [f"{title}: there is no row {number}" for title, numbers in NUMBERS.items() for number in numbers
              if number not in seen.get(title, ())]
    print("\n".join(found) or f"{tests} tests and files of tests/found.md are there")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
