#!/usr/bin/env python3
"""usage: make_ages.py WHEELS CASES FILE [--show]

Writes what test_ages.py reads: of each class of the cases that releases of transformers before 5.0 have, its config as three
of them write it, the first, the last and one between. WHEELS: a folder with those releases, as
`pip download --no-deps transformers==VERSION` fetches them; classes that FILE has already are left alone. What transformers of today computes from the older config
with the same weights must be what the case has (within 1e-5); where it is not, because a setting of the case is younger
than the release, another case of the class stands for it. Needs torch and transformers.
"""
import argparse
import collections
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

import numpy as np
import torch

import checkpoint
from theirs import Declined, Theirs, architecture

MOST_CASES, MOST_BYTES = 4, 9 << 30  # of a class; of memory
HERE = pathlib.Path(__file__).resolve().parent


def number(wheel):
    return tuple(map(int, re.search(r"transformers-([\d.]+)", wheel.name)[1].split(".")))


def older_configs(wheel, configs):
    done = subprocess.run([sys.executable, HERE / "old_configs.py", wheel], input=json.dumps(configs), capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def files_of(case, config, version):
    """The folder's files as the release wrote them: generation_config.json came with 4.26."""
    files = case["files"] | {"config.json": config}
    return {k: v for k, v in files.items() if k != "generation_config.json" or version >= (4, 26)}


def difference(case, config, version):
    """None, or how what transformers makes of the older folder differs from what the case has."""
    arrays = {k: np.array(v) for k, v in case["inputs"].items()}
    inputs = {k: torch.from_numpy(np.ascontiguousarray(v, np.float32 if v.dtype.kind == "f" else np.int64)) for k, v in arrays.items()}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write(case | dict(files=files_of(case, config, version)), pathlib.Path(folder))
        try:
            made = Theirs(case).outputs(pathlib.Path(folder), config, inputs)
        except Declined as e:
            return str(e)
    for name, wanted in case["outputs"].items():
        b = np.array(wanted)
        a = made.get(name)
        if a is None or a.shape != b.shape:
            return f"{name}: {None if a is None else a.shape}"
        if case["masked"]:
            a, b = (x[arrays[case["masked"]] != 0] for x in (a, b))
        if np.abs(a - b).max() > 1e-5 * max(1, np.abs(b).max()):
            return f"{name} differs by {np.abs(a - b).max():.2g}"
    return None


def spread(versions):
    """The first, the last and one between."""
    return sorted({versions[0], versions[len(versions) // 2], versions[-1]}) if versions else []


def change(config, older):
    """[keys that are gone, keys with other values] of the config of today."""
    return [[k for k in config if k not in older], {k: v for k, v in older.items() if k not in config or config[k] != v or type(config[k]) is not type(v)}]


def write(rows, file):
    lines = [f"{json.dumps(n)}: " + json.dumps(rows[n], separators=(",", ":"), sort_keys=True) for n in sorted(rows)]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0][7:])
    parser.add_argument("wheels", type=pathlib.Path)
    parser.add_argument("cases", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))  # a size that got lost makes a model of billions
    cases = {p.stem: json.loads(p.read_text()) for p in sorted(args.cases.glob("*.json"))}
    cases = {n: c for n, c in cases.items() if "modules.json" not in c["files"] and architecture(c["files"].get("config.json", {}))}
    configs = {n: c["files"]["config.json"] for n, c in cases.items()}
    of_class = collections.defaultdict(list)
    for name, config in configs.items():
        of_class[config["model_type"], architecture(config)].append(name)
    named = {n: configs[n] for names in of_class.values() for n in names[:MOST_CASES]}
    older = {number(w): older_configs(w, named) for w in sorted(args.wheels.glob("*.whl"), key=number)}
    rows = collections.defaultdict(dict, json.loads(args.file.read_text()) if args.file.exists() else {})
    for names in of_class.values():
        names = names[:MOST_CASES]
        if rows.keys() & set(names):
            continue  # of a run before
        for version in spread([v for v in older if any(isinstance(older[v][n], dict) for n in names)]):
            for name in names:
                config = older[version][name]
                wrong = difference(cases[name], config, version) if isinstance(config, dict) else config
                if config is not None and wrong is None:
                    rows[name][".".join(map(str, version))] = change(configs[name], config)
                    break
                if args.show or name == names[-1]:
                    print(f"{name} {version}: {wrong}", flush=True)
        write(rows, args.file)
    print(f"{len(of_class)} classes, of {len(rows)} an older config, {sum(map(len, rows.values()))} configs")


if __name__ == "__main__":
    main()
