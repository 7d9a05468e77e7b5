#!/usr/bin/env python3
"""The golden cases through the Python package: usage: goldens.py [--saved] [--library] CASE... [-v]

CASE is a case folder or a folder of them (tests/goldens/README.md). Each is compiled by tfmc.compile, with --saved also
saved and loaded again, with --library also built as a library whose outputs must have the same bits, and called; its outputs must agree with the expected ones. Cases that are wrong before they run
must be refused with their words. Needs tfmc, numpy and safetensors. The last line is 'N passed, N failed'.
"""
import os
import pathlib
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

import tfmc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens"))
import check  # noqa: E402

RULE = "--quantize="
EXITS = {"input": 1, "usage": 2, "env": 3, "nomem": 4}
KINDS = {"i": np.int32, "f": np.float32, "b": np.bool_}


class Proc:
    """What check.judge wants to know of a command."""

    def __init__(self, returncode, stderr):
        self.returncode, self.stderr = returncode, stderr


def same_by_library(folder, spec, weights, rules, given, outputs, tmp):
    """Whether libNAME.so, loaded, gives the bits of `outputs`. Each has a name of its own: they stay in the process."""
    path = os.path.join(tmp, f"lib{os.path.basename(tmp)}.so")
    tfmc.build(pathlib.Path(folder) / "model.tfm", path, weights=weights, quantize=rules, march="native",
               config=spec.get("defines", {}), on_message=lambda message: None)
    by_library = tfmc.load(path).run(given)
    return all(by_library[n].tobytes() == a.tobytes() for n, a in outputs.items())


def computed(folder, spec, saved, library, tmp):
    weights = check.packaged_weights(spec) if "weights_from" in spec else os.path.join(folder, "weights.safetensors")
    inputs = os.path.join(folder, "inputs.safetensors")
    rules = ",".join(option.removeprefix(RULE) for option in spec.get("options", []))
    weights = weights if os.path.exists(weights) else None
    model = tfmc.compile(pathlib.Path(folder) / "model.tfm", weights=weights, quantize=rules or None,
                         config=spec.get("defines", {}), on_message=lambda message: None)
    if saved:
        model = tfmc.load(model.save(os.path.join(tmp, "model.tfmm")))
    given = load_file(inputs) if os.path.exists(inputs) else {}
    given = {n: a.astype(KINDS[a.dtype.kind], order="C") for n, a in given.items() if n in model.inputs}
    outputs = model.run(given)
    if library and not same_by_library(folder, spec, weights, rules or None, given, outputs, tmp):
        raise AssertionError("the library gives other bits")
    return outputs


def try_case(saved, library, folder, spec, tmp):
    proc, out = Proc(0, ""), os.path.join(tmp, "out.safetensors")
    try:
        save_file({n: np.ascontiguousarray(a).reshape(a.shape) for n, a in computed(folder, spec, saved, library, tmp).items()}, out)
    except tfmc.Error as error:
        proc = Proc(EXITS.get(error.status, 70), str(error))
    return check.judge(folder, spec, proc, out)


def can_be_said(spec):
    """Generation has tests of its own; of the command's options the package has the rules of numbers."""
    options = spec.get("options", [])
    return "generate" not in spec and spec.get("stage") != "run" and all(o.startswith(RULE) for o in options)


def main(argv):
    saved, library, roots = "--saved" in argv, "--library" in argv, [a for a in argv if not a.startswith("-")]
    tally = check.Tally("-v" in argv)
    for folder, spec in tally.cases(roots, can_be_said):
        tally.add(folder, try_case, saved, library, folder, spec)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
