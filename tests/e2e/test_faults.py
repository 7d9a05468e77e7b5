#!/usr/bin/env python3
"""Disks that fail and processes that are killed: what stood in an output file stays, or the new content is complete.
usage: test_faults.py TFMC [KILLS]

Needs strace. Every call that writes the output fails once, with each of several errors; then the command is killed at
random times. The last line is 'N passed, N failed'.
"""
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile

MODEL = "model M { forward(x: f32[n, 1000]) { return y = x * 2 } }"
CALLS = {"write": ["ENOSPC", "EIO", "EDQUOT"], "fsync": ["EIO", "ENOSPC"], "fchmod": ["EPERM"], "linkat": ["EACCES", "ENOSPC"],
         "rename": ["EIO", "ENOSPC", "EACCES"], "openat": ["EMFILE", "EACCES"]}
OLD = b"what stood there"


def is_complete(path):
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    (tensor,) = json.loads(raw[8:8 + size]).values()
    return len(raw) == 8 + size + tensor["data_offsets"][1]


def command(tfmc):
    return [tfmc, "run", "m.tfm", "--engine=reference", "--input=x=200x1000", "-o", "out"]


def inject(tfmc, folder, call, error, when):
    """None if the call was never made that often, else whether the fault was survived as it should be."""
    out, log = folder / "out", folder / "log"
    out.write_bytes(OLD)
    trace = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}"]
    proc = subprocess.run(trace + command(tfmc), cwd=folder, capture_output=True, timeout=120)
    if "(INJECTED)" not in log.read_text():
        return None
    left = [name for name in os.listdir(folder) if name not in ("m.tfm", "out", "log")]
    if proc.returncode == 0:
        return is_complete(out) and not left
    not_started = proc.returncode == 127 and b"error while loading shared libraries" in proc.stderr
    return (proc.returncode == 3 or not_started) and out.read_bytes() == OLD and not left and b"error" in proc.stderr


def faults(tfmc, folder):
    for call, errors in CALLS.items():
        for error in errors:
            for when in range(1, 40):
                survived = inject(tfmc, folder, call, error, when)
                if survived is None:
                    break
                yield f"{call} number {when} fails with {error}", survived


def kills(tfmc, folder, count):
    rng, out = random.Random(1), folder / "out"
    for i in range(count):
        out.write_bytes(OLD)
        proc = subprocess.Popen(command(tfmc), cwd=folder, stderr=subprocess.DEVNULL)
        try:
            proc.wait(rng.uniform(0, 0.06))
        except subprocess.TimeoutExpired:
            proc.send_signal(signal.SIGKILL)
        proc.wait()
        left = [name for name in os.listdir(folder) if name not in ("m.tfm", "out", "log")]
        for name in left:
            os.unlink(folder / name)
        yield f"kill {i}", (out.read_bytes() == OLD or is_complete(out)) and len(left) <= 1


def main(tfmc, count="200"):
    passed = failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "m.tfm").write_text(MODEL)
        for tests in (faults(os.path.abspath(tfmc), folder), kills(os.path.abspath(tfmc), folder, int(count))):
            for what, survived in tests:
                passed, failed = passed + survived, failed + (not survived)
                if not survived:
                    print(f"FAIL {what}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
