#!/usr/bin/env python3
"""usage: test_refusals.py TFMC CASES

What a folder that is refused is told: why, which family it is of, and what to do next, in four lines at most. Of each type
a class that nothing computes and a key that nothing reads, of each family each setting for which it computes one value, or
some, with another one. fuzz_configs.py asks the same of every message that it gets. The last line is 'N passed, N failed'.
"""
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import checkpoint
from refusals import MOST_LINES, fault_of

TFMC, CASES = sys.argv[1], pathlib.Path(sys.argv[2])
MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"


def settings(model_type):
    """{key: a value that a family does not have}, of the families whose first type this is."""
    found = {}
    for path in MODELS.glob("*.tfm"):
        head, block = re.search(r"^checkpoint (.*?) \{\n(.*?)^\}", path.read_text(), re.M | re.S).groups()
        if model_type != re.findall(r'"([\w-]+)"', head)[0]:
            continue
        for key, value in re.findall(r"^  expect (\w+) = (\S+)$", block, re.M):
            found[key] = {"true": False, "false": True, "none": 3}.get(value, "nobody-knows" if value[0] == '"' else 77)
        for key in re.findall(r"^  require one_of\((\w+), (?:none, )?\"", block, re.M):
            found[key] = "nobody-knows"
    return {k: v for k, v in found.items() if k not in ("architecture", "model_type")}


def refused(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    done = subprocess.run([TFMC, "import", folder], capture_output=True, text=True)
    if done.returncode == 0:
        return None
    return f"exit code {done.returncode}" if done.returncode != 1 else done.stderr


def of_type(case):
    """(how many messages were right, what is wrong) of the case's type."""
    config, right, faults = case["files"]["config.json"], 0, []
    kind = config["model_type"]
    name = re.sub(r"(Model|For\w+|LMHeadModel|MTModel|WithProjection)$", "", config["architectures"][0])
    changes = {"a class": dict(architectures=[f"{name}ForNobody"]), "a key": dict(scale_of_dreams=3)}
    changes |= {key: {key: value} for key, value in settings(config.get("text_config", {}).get("model_type", kind)).items()}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        checkpoint.write(case, folder)
        for what, change in changes.items():
            if "text_config" in config and what not in ("a class", "a key"):
                change = change | dict(text_config=config["text_config"] | change)
            stderr = refused(folder, config | change)
            fault = "it is taken" if stderr is None else fault_of(stderr)
            lines = (stderr or "").strip().split("\n")
            if not fault and stderr.count(": error: ") == 1 and len(lines) > MOST_LINES:
                fault = f"{len(lines)} lines"
            if not fault and what in ("a class", "a key") and stderr.count(": error: ") != 1:
                fault = "more than one error"
            right += not fault
            faults += [f"{kind}, {what}: {fault}\n{stderr or ''}"] if fault else []
    return right, faults


def main():
    cases = {}
    for path in sorted(CASES.glob("*.json")):
        case = json.loads(path.read_text())
        if "modules.json" not in case["files"]:  # which take bodies, whatever the class
            cases.setdefault(case["files"]["config.json"]["model_type"], case)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(of_type, cases.values()))
    faults = [fault for _, of in results for fault in of]
    print("\n".join(faults))
    print(f"{sum(right for right, _ in results)} passed, {len(faults)} failed")
    return bool(faults) or len(cases) < 100


sys.exit(main())
