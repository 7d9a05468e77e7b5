#!/usr/bin/env python3
"""usage: check_goldens.py ROOT

Every golden case is complete: a model, a description, and either expected outputs or the message it must be refused with.
"""
import json
import pathlib
import sys

LEAST_CASES = 150


def faults(case):
    spec = json.loads((case / "case.json").read_text())
    if not spec.get("note"):
        yield "it does not say what it is about"
    if not (case / "model.tfm").exists():
        yield "it has no model.tfm"
    if "expect_error" in spec:
        if spec.get("stage") not in ("check", "load", "run"):
            yield "it does not say when it is refused"
    elif not (case / "expected.safetensors").exists():
        yield "it has no expected.safetensors"


def main():
    goldens = pathlib.Path(sys.argv[1]) / "tests" / "goldens"
    cases = sorted(f.parent for f in goldens.glob("**/case.json"))
    found = [f"{case}: {fault}" for case in cases for fault in faults(case)]
    if len(cases) < LEAST_CASES:
        found.append(f"only {len(cases)} cases; there were {LEAST_CASES} and more")
    print("\n".join(found) or f"{len(cases)} cases are complete")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
