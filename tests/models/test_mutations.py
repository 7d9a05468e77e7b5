#!/usr/bin/env python3
"""usage: test_mutations.py TFMC CASES MUTATIONS [CASE ...]

A part of the changes of mutate.py: each folder of a case with one key or one tensor changed gives what transformers computed
from it (recorded by mutate.py --record), or is refused where it was refused. The last line is 'N passed, N failed'.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np

import checkpoint
import mutations
from import_and_run import Crash, Ours, Refused, write

TOLERANCE = 2e-5  # of the sums, relative to the largest number of the output


def arrays(inputs):
    found = {k: np.array(v) for k, v in inputs.items()}
    return {k: np.ascontiguousarray(v, np.float32 if v.dtype.kind == "f" else np.int32) for k, v in found.items()}


class Case:
    def __init__(self, tfmc, case, folder):
        self.case, self.folder = case, folder
        self.files = mutations.with_early_end(case)
        self.tensors = {n: np.array(checkpoint.weight(n, s, case["gain"]), order="C") for n, s in case["weights"].items()}
        self.inputs = arrays(case["inputs"])
        masked = case.get("masked") or ("attention_mask" if "modules.json" in self.files else None)
        self.mask = self.inputs[masked] != 0 if masked else None
        self.ours = Ours(tfmc, folder, [o for o in case.get("options", []) if "fusion" not in o])

    def made(self, mutation):
        if mutation[0] == "made":
            files, tensors = mutations.made(mutation, self.case | dict(files=self.files))
        else:
            files, tensors = mutations.apply(mutation, self.files, self.tensors)
        write(self.folder, files, tensors)
        if mutation[0].startswith("tokens"):
            return self.ours.tokens({k: v for k, v in self.inputs.items() if k != self.case["grows"] or not self.case["encoder"]})
        return self.ours.outputs(self.inputs, json.dumps(mutation) if mutation[0] in ("made", "tensor") else None)

    def fault(self, mutation, wanted):
        try:
            found = self.made(mutation)
        except Refused as refusal:
            return None if wanted is None else f"refused: {str(refusal)[:300]}"
        except Crash as crash:
            return str(crash)
        if wanted is None:
            return "not refused"
        if isinstance(wanted, list):
            return None if found == wanted else f"tokens {found}, wanted {wanted}"
        if self.mask is not None:
            found = {k: v[self.mask] if v.shape[:self.mask.ndim] == self.mask.shape else v for k, v in found.items()}
        sums = mutations.shortened(found)
        if sorted(sums) != sorted(wanted):
            return f"outputs {sorted(sums)}, wanted {sorted(wanted)}"
        worst = max(max(abs(a - b) for a, b in zip(sums[k], wanted[k])) / max(wanted[k][-1], 1e-30) for k in wanted)
        return None if worst < TOLERANCE else f"differs by {worst:.2g} of the largest number"


def main():
    tfmc, cases, recorded, only = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4:]
    passed = failed = 0
    for path in sorted(p for p in recorded.glob("*.json") if p.stem in only or not only):
        with tempfile.TemporaryDirectory() as folder:
            case = Case(tfmc, json.loads((cases / path.name).read_text()), pathlib.Path(folder))
            for mutation, wanted in json.loads(path.read_text()):
                fault = case.fault(mutation, wanted)
                passed, failed = passed + (fault is None), failed + (fault is not None)
                if fault:
                    print(f"FAIL  {path.stem}: {json.dumps(mutation)[:200]}: {fault}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0 or not passed


if __name__ == "__main__":
    sys.exit(main())
