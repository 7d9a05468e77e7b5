#!/usr/bin/env python3
"""compile and pack on disks that fail, and killed: each file stays what it was, or is complete; the library comes last.
usage: test_library_faults.py TFMC [KILLS]

Needs strace. Since the same input gives the same bytes, complete means: what an undisturbed command wrote. Every call that
writes fails once, in tfmc as in the linker that it starts; then both commands are killed at random times. The last line is
'N passed, N failed'.
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

MODEL = "model M { up = Linear(64, 64)\n forward(x: f32[n, 64]) { return y = up(x) } }"
CALLS = {"write": ["ENOSPC", "EIO"], "fsync": ["EIO"], "linkat": ["ENOSPC"], "rename": ["EIO", "EACCES"], "ftruncate": ["EIO"],
         "execve": ["EACCES"], "memfd_create": ["EMFILE"]}
MOST = 12  # times that one call is made to fail
OLD = b"what stood there"


class Command:
    def __init__(self, folder, arguments, outputs):
        self.folder, self.arguments, self.outputs = folder, arguments, outputs
        subprocess.run(arguments, cwd=folder, check=True, capture_output=True)
        self.good = {name: (folder / name).read_bytes() for name in outputs}
        self.expected = {*os.listdir(folder), "log"}

    def prepare(self):
        for name in self.outputs:
            (self.folder / name).write_bytes(OLD)

    def left(self):
        return [name for name in os.listdir(self.folder) if name not in self.expected]

    def whole(self):
        """Every output is old or complete, and the last one is complete only if the others are."""
        states = [(self.folder / name).read_bytes() for name in self.outputs]
        known = all(state in (OLD, self.good[name]) for state, name in zip(states, self.outputs))
        return known and (states[-1] == OLD or OLD not in states)

    def finished(self):
        return all((self.folder / name).read_bytes() == self.good[name] for name in self.outputs)


def save_weights(path):
    shapes = {"up.weight": [64, 64], "up.bias": [64]}
    header, data = {}, b""
    for name, shape in shapes.items():
        raw = struct.pack("<f", 0.5) * (shape[0] * (shape[1] if len(shape) > 1 else 1))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def inject(command, call, error, when):
    """None if the call was never made that often, else whether the fault was survived as it should be."""
    command.prepare()
    log = command.folder / "log"
    trace = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}"]
    proc = subprocess.run(trace + command.arguments, cwd=command.folder, capture_output=True, timeout=120)
    injected = [line for line in log.read_text(errors="replace").splitlines() if "(INJECTED)" in line]
    if not injected:
        return None
    if proc.returncode == 0:
        return command.finished() and not command.left()
    not_started = call == "execve" and when == 1
    told = b"error" in proc.stderr or any(" write(2," in line for line in injected)  # the message was what failed
    last_is_old = (command.folder / command.outputs[-1]).read_bytes() == OLD
    return not_started or (proc.returncode == 3 and told and command.whole() and last_is_old and not command.left())


def faults(command):
    for call, errors in CALLS.items():
        for error in errors:
            for when in range(1, MOST + 1):
                survived = inject(command, call, error, when)
                if survived is None:
                    break
                yield f"{command.arguments[1]}: {call} number {when} fails with {error}", survived


def kills(command, count):
    rng = random.Random(1)
    for i in range(count):
        command.prepare()
        proc = subprocess.Popen(command.arguments, cwd=command.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            proc.wait(rng.uniform(0, 0.4 if len(command.outputs) > 1 else 0.06))
        except subprocess.TimeoutExpired:
            proc.send_signal(signal.SIGKILL)
        proc.wait()
        left = command.left()
        for name in left:
            os.unlink(command.folder / name)
        yield f"{command.arguments[1]}: kill {i}", command.whole() and len(left) <= 1


def main(tfmc, count="200"):
    passed = failed = 0
    tfmc = os.path.abspath(tfmc)
    with tempfile.TemporaryDirectory() as name:
        folder, temporary = pathlib.Path(name) / "here", pathlib.Path(name) / "tmp"
        folder.mkdir()
        temporary.mkdir()
        os.environ["TMPDIR"] = str(temporary)
        (folder / "m.tfm").write_text(MODEL)
        save_weights(folder / "w.safetensors")
        weights = ["--weights", "w.safetensors"]
        compiling = Command(folder, [tfmc, "compile", "m.tfm", *weights, "-o", "libm.so"], ["m.tfmw", "m.h", "libm.so"])
        subprocess.run([tfmc, "compile", "m.tfm", "-o", "libp.so"], cwd=folder, check=True, capture_output=True)
        packing = Command(folder, [tfmc, "pack", "libp.so", *weights], ["p.tfmw"])
        compiling.expected = packing.expected
        for command in (packing, compiling):
            for tests in (faults(command), kills(command, int(count) // 2)):
                for what, survived in tests:
                    passed, failed = passed + survived, failed + (not survived)
                    if not survived:
                        print(f"FAIL {what}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
