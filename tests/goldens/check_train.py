#!/usr/bin/env python3
"""Run tfmc on the cases of make_train_goldens.py and compare with what PyTorch expects.

usage: check_train.py TFMC CASE... [--option=ARG ...] [-v]

CASE is a case folder or a folder of them; the format and the tolerance are in make_train_goldens.py. --option is handed to
tfmc as it is. A bad case passes when tfmc exits with 1, prints the expected words on stderr and leaves no output file.
The last line is 'N passed, N failed'. Needs Python's own library alone.
"""
import array
import json
import os
import struct
import subprocess
import sys
import tempfile


def load_file(path):
    """{name: (shape, f32 numbers)}"""
    with open(path, "rb") as file:
        data = file.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}"
        begin, end = entry["data_offsets"]
        out[name] = entry["shape"], array.array("f", data[8 + n + begin:8 + n + end])
    return out


def cases_in(path):
    if os.path.exists(os.path.join(path, "case.json")):
        return [path]
    return [os.path.join(path, n) for n in sorted(os.listdir(path)) if os.path.exists(os.path.join(path, n, "case.json"))]


def command(tfmc, case, spec, out, options):
    train = spec.get("train", {})
    verb = "check" if spec.get("stage") == "check" else "evaluate" if train.get("mode") == "evaluate" else "train"
    args = [tfmc, verb, os.path.join(case, "model.tfm")]
    for name, value in spec.get("defines", {}).items():
        args += ["-D", f"{name}={value}"]
    for option, file in (("--weights", "weights"), ("--batches", "inputs")):
        if verb != "check" and os.path.exists(os.path.join(case, file + ".safetensors")):
            args += [option, os.path.join(case, file + ".safetensors")]
    if train.get("mode") == "initial":
        args += ["--steps", "0", "--seed", str(train["seed"])]
    elif verb == "train":
        args += ["--steps", str(train["steps"]), "--accumulate", str(train["accumulate"]), "--seed", str(train["seed"]), "--gradients"]
    return args + (["--output", out] if verb != "check" else []) + options


def compare(spec, got, want):
    """What is wrong, or None; and the largest share of the tolerance that is used."""
    largest = max([abs(x) for name, (_, xs) in want.items() if name.startswith("grad.") for x in xs] or [0.0])
    used = 0.0
    for name in sorted({n for n in got if n.startswith("grad.")} | set(want)):
        if name not in got or name not in want:
            return f"{name} is {'missing' if name in want else 'too much'}", used
        (g_shape, g), (w_shape, w) = got[name], want[name]
        if g_shape != w_shape:
            return f"{name}: shape {g_shape}, wanted {w_shape}", used
        limit = spec["gtol"] * (max(map(abs, w), default=0) + 0.1 * largest)
        for i, (x, y) in enumerate(zip(g, w)):
            share = abs(x - y) / (limit if name.startswith("grad.") else spec["atol"] + spec["rtol"] * abs(y))
            if not share <= 1:
                return f"{name}: element {i} of {len(w)} is {x}, wanted {y}", used
            used = max(used, share)
    return None, used


def judge(case, spec, proc, out):
    if "expect_error" in spec:
        words = [spec["expect_error"]] if isinstance(spec["expect_error"], str) else spec["expect_error"]
        missing = [w for w in words if w.lower() not in proc.stderr.lower()]
        if proc.returncode != 1:
            return f"exit {proc.returncode}, wanted 1: {proc.stderr[:200]!r}", 0
        if missing:
            return f"message lacks {missing}: {proc.stderr[:300]!r}", 0
        return "output file left behind" if os.path.exists(out) else None, 0
    if proc.returncode != 0:
        return f"exit {proc.returncode}: {proc.stderr[:300]!r}", 0
    return compare(spec, load_file(out), load_file(os.path.join(case, "expected.safetensors")))


def main(argv):
    options = [a.split("=", 1)[1] for a in argv if a.startswith("--option=")]
    tfmc, *roots = [a for a in argv if not a.startswith("-")]
    counts = [0, 0]
    for case in [c for root in roots for c in cases_in(root)]:
        spec = json.load(open(os.path.join(case, "case.json")))
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.safetensors")
            try:
                proc = subprocess.run(command(tfmc, case, spec, out, options), capture_output=True, text=True, errors="replace", timeout=600)
                why, used = judge(case, spec, proc, out)
            except Exception as error:  # a harness fault is a failed case, never a skipped one
                why, used = repr(error), 0
        counts[why is not None] += 1
        if why or "-v" in argv:
            print(f"FAIL {case}: {why}" if why else f"ok   {case} ({used:.1%} of the tolerance)")
    print(f"{counts[0]} passed, {counts[1]} failed")
    return counts[1] != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
