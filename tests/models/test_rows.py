#!/usr/bin/env python3
"""usage: test_rows.py CASES [CASE ...]

Rows of a batch have the bits that each of them has alone, wherever it stands, and where its padding is taken off; of every
case, or those that are named. Needs the package tfmc (PYTHONPATH, TFM_COMPILER). The last line is 'N passed, N failed'.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import tfmc

import checkpoint
from case_outputs import arrays

CASES = pathlib.Path(sys.argv[1])
# Where what stands behind a text or a sound is read too, as in transformers: docs/import.md says so of each.
READS_PADDING = {"mobilebert": lambda config: True, "moonshine_streaming": lambda config: True,  # which takes whole frames
                 "moonshine": lambda config: True,
                 "wav2vec2": lambda config: config["feat_extract_norm"] == "group"}


def shape_of(tensor):
    """The sizes of a type, names and numbers."""
    return tensor[1]


def same(what, alone, batch, row, mask):
    for name, a in alone.items():
        b = batch[name][row:row + 1]
        if a.ndim > 1 and b.ndim > 1 and a.shape[1] < b.shape[1]:  # what was padding
            b = b[:, :a.shape[1]]
        assert a.shape == b.shape, f"{what}: {name} is {a.shape}, in the batch {b.shape}"
        if mask is not None and a.shape[:2] == mask[None].shape:
            a, b = a[:, mask], b[:, mask]
        assert a.tobytes() == b.tobytes(), f"{what}: {name} differs by {np.abs(a - b).max():.2g}"


def without_padding(inputs, row):
    """The row alone, cut behind its last token; None: it has no padding there."""
    mask = inputs.get("attention_mask")
    if mask is None or mask.shape[0] <= row or not (ends := np.flatnonzero(mask[row])).size or ends[-1] + 1 == mask.shape[1]:
        return None
    n, time = ends[-1] + 1, mask.shape[1]
    own = {"decoder_input_ids", "decoder_attention_mask"}
    return {k: v[:, :n] if k not in own and v.ndim == 2 and v.shape[1] == time else v for k, v in inputs.items()}


def run(case):
    """How many rows were compared."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write(case, pathlib.Path(folder))
        size = {k: int(v) for option in case.get("options", []) if (parts := option.split("=")) and parts[0] == "size" for k, v in [parts]}
        model = tfmc.from_pretrained(folder, threads=1, config=size)
    inputs, config, count = arrays(case["inputs"]), case["files"].get("config.json", {}), 0
    symbols = {shape_of(t)[0] for t in model.outputs.values()}
    assert len(symbols) == 1, f"outputs of {symbols}"
    symbol = symbols.pop()
    of_row = [k for k in inputs if shape_of(model.inputs[k])[0] == symbol]
    batch = model.run(inputs)
    n, masked = len(inputs[of_row[0]]), inputs.get(case["masked"]) if case["masked"] else None
    turned = model.run({k: v[::-1].copy() if k in of_row else v for k, v in inputs.items()})
    for row in range(n):
        mask = masked[row] != 0 if masked is not None else None
        alone = {k: v[row:row + 1].copy() if k in of_row else v for k, v in inputs.items()}
        made = model.run(alone)
        same(f"row {row}", made, batch, row, mask)
        same(f"row {row} at another place", made, turned, n - 1 - row, mask)
        count += 2
        cut = without_padding(inputs, row)
        if cut and not READS_PADDING.get(config.get("model_type"), lambda config: False)(config):
            cut = {k: np.ascontiguousarray(v[row:row + 1] if k in of_row else v) for k, v in cut.items()}
            same(f"row {row} without padding", model.run(cut), batch, row, mask[:cut["attention_mask"].shape[1]] if mask is not None else None)
            count += 1
    return count


def main():
    passed = failed = 0
    for path in sorted(p for p in CASES.glob("*.json") if p.stem in sys.argv[2:] or not sys.argv[2:]):
        try:
            passed += run(json.loads(path.read_text()))
            print(f"ok    {path.stem}", flush=True)
        except (AssertionError, tfmc.Error) as fault:
            failed += 1
            print(f"FAIL  {path.stem}: {str(fault)[:600]}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed != 0 or not passed


sys.exit(main())
