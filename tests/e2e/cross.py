#!/usr/bin/env python3
"""Compiled libraries for other machines: their bits against those of libraries for this one.

usage: cross.py TFMC [--target=TRIPLE ...] [--march=LIST ...] [--threads=N ...] [--cc=NAME] [--qemu-option=TEXT ...] CASE... [-v]
       cross.py TFMC --everywhere [--target=TRIPLE ...] [--threads=N ...] [--log=FILE] [--minutes=N] [--part=I/N]
                CASE... [-v]
       cross.py TFMC [--target=TRIPLE ...] --choices CASE [-v]

CASE is a case folder or a folder of them (tests/goldens/README.md). Each case that runs is compiled here for this machine
(x86-64-v3, whose products are fused with sums) and with --target for every TRIPLE (all that tfmc holds a runtime for), and
for each LIST of its instruction sets (its default), without a C compiler unless --cc names one. cross_run.c runs both on
the case's inputs, the other one under qemu; outputs, and what is generated with its scores, must be equal to the bit, but
that a NaN is a NaN. The packed weights must be the same file. With --everywhere each case runs on every row of EVERYWHERE
(--log, --minutes, --part: sweep.py). With --choices a library of all instruction sets of a family must choose the best that
each CPU of CHOICES has, and one of a single set must refuse a CPU by the name of what that lacks. What is missing (a
runtime, TRIPLE-gcc for cross_run.c, qemu) is said and not counted. Needs numpy and safetensors. qemu 7.2 ends now and then,
on RISC-V, in an assertion of its own (decode_save_opc); 10 does not. The last line is 'N passed, N failed'.
"""
import copy
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "goldens"))
import check  # noqa: E402
import compiled  # noqa: E402
import sweep  # noqa: E402

HOME, FUSED = "x86_64-linux-gnu", "x86-64-v3"
# What qemu's CPU has unless --qemu-option says otherwise: that of RISC-V has no vectors by itself.
CPUS = {"riscv64": ["-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0"]}
# Of each family: its instruction sets, from the least; what is chosen on CPUs of qemu; what one set refuses.
RV64 = "rv64,v=true,vext_spec=v1.0,vlen="
CHOICES = {
    "aarch64-linux-gnu": ("armv8-a,armv8.2-a-dotprod,armv8.6-a-i8mm",
                          {"cortex-a53": "armv8-a", "cortex-a72": "armv8-a", "neoverse-n1": "armv8.2-a-dotprod", "a64fx": "armv8-a",
                           "neoverse-v1": "armv8.6-a-i8mm", "max": "armv8.6-a-i8mm"},
                          [("armv8.2-a-dotprod", "cortex-a72", "DotProd"), ("armv8.6-a-i8mm", "neoverse-n1", "I8MM")]),
    "riscv64-linux-gnu": ("rv64gc,rv64gcv,rv64gcv-zvl256b",
                          {"rv64": "rv64gc", f"{RV64}128": "rv64gcv", f"{RV64}256": "rv64gcv-zvl256b", f"{RV64}512": "rv64gcv-zvl256b"},
                          [("rv64gcv", "rv64", "V"), ("rv64gcv-zvl256b", "rv64", "V"), ("rv64gcv-zvl256b", f"{RV64}128", "Zvl256b")]),
}
MODULES = "wasm32"  # its cases are wasm.py's
# Machine, instruction set, CPU of qemu; those of INTEGERS concern cases that hold int8 or int4, as compiled libraries do.
EVERYWHERE = [("aarch64-linux-gnu", "armv8-a", "cortex-a53"), ("riscv64-linux-gnu", "rv64gcv", f"{RV64}128"),
              ("riscv64-linux-gnu", "rv64gcv-zvl256b", f"{RV64}256")]
INTEGERS = [("aarch64-linux-gnu", "armv8.2-a-dotprod", "max"), ("aarch64-linux-gnu", "armv8.6-a-i8mm", "max")]


def call(*command, timeout=300):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace", timeout=timeout)


class Machine:
    """Where cross_run runs: this machine, or another one by way of qemu."""

    def __init__(self, triple, folder, options):
        self.triple, self.lacks, self.start, self.emulator = triple, "", [], ""
        compiler, family = ("cc" if triple == HOME else f"{triple}-gcc"), triple.split("-")[0]
        if triple != HOME:
            emulator = next((p for p in (f"qemu-{family}", f"qemu-{family}-static") if shutil.which(p)), None)
            self.emulator = emulator or ""
            self.start = [self.emulator, *(options or CPUS.get(family, [])), "-L", f"/usr/{triple}"]
            self.lacks = "" if emulator else f"no qemu-{family} (Debian: qemu-user)"
        if not shutil.which(compiler):
            self.lacks = f"no {compiler} (Debian: gcc-{triple})"
        if self.lacks:
            return
        self.program = os.path.join(folder, f"cross_run-{triple}")
        includes = [HERE.parents[1] / "runtime/include", HERE.parents[1] / "runtime", generated_headers()]
        made = call(compiler, "-std=c17", "-D_GNU_SOURCE", "-O1", *[f"-I{i}" for i in includes], HERE / "cross_run.c", "-ldl", "-lm",
                    "-o", self.program)
        if made.returncode:
            raise SystemExit(made.stderr)

    def run(self, *arguments):
        return call(*self.start, self.program, *arguments)

    def on(self, cpu):
        """The same with another CPU."""
        other = copy.copy(self)
        other.start = [self.emulator, "-cpu", cpu, "-L", f"/usr/{self.triple}"]
        return other


def generated_headers():
    return os.path.join(os.path.dirname(os.path.abspath(TFMC)), "generated/include")


class Case:
    def __init__(self, folder, spec, tmp):
        self.folder, self.spec, self.tmp = folder, spec, tmp
        path = os.path.join(folder, "inputs.safetensors")
        self.inputs = load_file(path) if os.path.exists(path) else {}
        self.options = [f"-D{name}={value}" for name, value in spec.get("defines", {}).items()] + spec.get("options", [])
        weights = check.packaged_weights(spec) if "weights_from" in spec else os.path.join(folder, "weights.safetensors")
        self.options += ["--weights", weights] if os.path.exists(weights) else []

    def compile(self, name, *options, name_of="libm.so"):
        out = os.path.join(self.tmp, name, name_of)
        os.mkdir(os.path.dirname(out))
        made = call(TFMC, "compile", f"{self.folder}/model.tfm", *self.options, "-q", "-o", out, *options)
        if made.returncode:
            raise Failed(f"compile {name}: exit {made.returncode}: {made.stderr[:300]}")
        return out

    def value(self, tensor):
        """An input, as the type that the library takes."""
        return np.ascontiguousarray(self.inputs[tensor["name"]], compiled.DTYPES[compiled.sizes_of(tensor["type"])[0]])

    def prepare(self, about):
        """Writes the call: members of the args struct, as cross_run.c reads them."""
        if "generate" in self.spec:
            self.add_prompt(about)
        given = {t["name"]: self.value(t) for t in about["inputs"] if t["name"] in self.inputs}
        sizes = {}
        for tensor in (t for t in about["inputs"] if t["name"] in given):
            for size, n in zip(compiled.sizes_of(tensor["type"])[1], given[tensor["name"]].shape):
                if not size.isdigit():
                    sizes[size] = n
        lengths = {name.split(".")[0]: v for name, v in self.inputs.items() if name.endswith(".lengths")}
        inputs, outputs = about["inputs"], about["outputs"]
        order = {"symbols": iter(about["sizes"]), "inputs": iter(inputs), "outputs": iter(outputs), "capacities": iter(outputs),
                 "lengths": iter(about["generate"].get("ragged_sources", []) if about["generate"] else [])}
        words = [struct.pack("<q", len(about["args"]))]
        for group, member in about["args"]:
            words.append(self.member(group, next(order[group], member), given, sizes, lengths))
        with open(os.path.join(self.tmp, "call"), "wb") as file:
            file.write(b"".join(words))

    def member(self, group, what, given, sizes, lengths):
        if group == "symbols":
            return struct.pack("<qq", 0, sizes.get(what, 0))
        if group == "inputs":
            return buffer(given.get(what["name"]))
        if group == "outputs" and "generate" not in self.spec:
            dtype, dims = compiled.sizes_of(what["type"])
            n = int(np.prod([int(eval(d, {"min": min, "max": max}, dict(sizes))) for d in dims]))
            return struct.pack("<qq", 2, n * np.dtype(compiled.DTYPES[dtype]).itemsize)
        if group == "lengths":
            given = lengths.get(what["name"] if isinstance(what, dict) else what)
            return buffer(None if given is None else given.astype(np.int64))
        return struct.pack("<qq", 0, 0)

    def add_prompt(self, about):
        """The start token, where the case has no prompt."""
        tokens = next(t for t in about["inputs"] if t["name"] == about["generate"]["input"])
        if tokens["name"] not in self.inputs:
            start = self.spec["generate"].get("decoder_start_token_id", 0)
            rows = len(next(iter(self.inputs.values()))) if len(compiled.sizes_of(tokens["type"])[1]) > 1 else None
            self.inputs[tokens["name"]] = np.full((rows, 1) if rows else (1,), start, np.int32)
        self.prompt = self.inputs[tokens["name"]]

    def arguments(self, out, threads):
        rest = [os.path.join(self.tmp, "call"), out, threads]
        if "generate" not in self.spec:
            return rest
        options = [f"{name}={text_of(value)}" for name, value in self.spec["generate"].items()]
        rows = self.prompt.shape[0] if self.prompt.ndim > 1 else 1
        return [*rest, f"{rows}:{self.prompt.shape[-1]}", *options]

    def run(self, machine, library, about, threads):
        weights = os.path.join(os.path.dirname(library), "m.tfmw")
        out = os.path.join(self.tmp, "out")
        ran = machine.run(library, about["prefix"], weights if os.path.exists(weights) else "-", *self.arguments(out, threads))
        if ran.returncode:
            raise Failed(f"{machine.triple}: exit {ran.returncode}: {ran.stderr[-300:]}")
        return pathlib.Path(out).read_bytes()


class Failed(Exception):
    pass


def text_of(value):
    return ",".join(map(str, value)) if isinstance(value, list) else json.dumps(value).strip('"')


def buffer(array):
    if array is None:
        return struct.pack("<qq", 0, 0)
    data = np.ascontiguousarray(array).tobytes()
    return struct.pack("<qq", 1, len(data)) + data + bytes(-len(data) % 8)


def differ(one, two):
    """How many words differ; words that are NaN as f32 are equal."""
    if len(one) != len(two):
        return f"{len(one)} and {len(two)} bytes"
    if len(one) % 4:
        return sum(a != b for a, b in zip(one, two))
    a, b = np.frombuffer(one, np.uint32), np.frombuffer(two, np.uint32)
    are_nan = ((a & 0x7FFFFFFF) > 0x7F800000) & ((b & 0x7FFFFFFF) > 0x7F800000)
    return int(((a != b) & ~are_nan).sum())


def weights_of(library):
    packed = pathlib.Path(library).with_name("m.tfmw")
    return packed.read_bytes() if packed.exists() else None


class AtHome:
    """What this machine's library of a case is and gives, kept for the last case: several machines are held against it."""

    def __init__(self, machine):
        self.machine, self.case, self.kept = machine, None, None

    def of(self, folder, spec):
        """What `info` says, the packed weights, the results."""
        if self.case != (folder, spec):
            with tempfile.TemporaryDirectory() as tmp:
                case = Case(folder, spec, tmp)
                library = case.compile("home", f"-march={FUSED}")
                about = json.loads(call(TFMC, "info", library, "--json").stdout)
                case.prepare(about)
                self.kept = about, weights_of(library), case.run(self.machine, library, about, 1)
            self.case = folder, spec
        return self.kept


def try_case(folder, spec, machines, threads, linking, tmp):
    """What is wrong with a case on a machine, or None."""
    case, (home, there) = Case(folder, spec, tmp), machines
    try:
        about, weights, want = home.of(folder, spec)
        library = case.compile("there", f"--target={there.triple}", *linking)
        if weights is not None and weights != weights_of(library):
            return "other packed weights"
        case.prepare(about)
        for n in threads:
            n_differ = differ(want, case.run(there, library, about, n))
            if n_differ:
                return f"{n} threads: {n_differ} of {len(want) // 4} words differ"
    except Failed as failed:
        return str(failed)
    wanted = load_file(os.path.join(folder, "expected.safetensors"))
    return None if want or not any(values.size for values in wanted.values()) else "no output"


def try_choice(folder, spec, machine, march, wanted, tmp):
    """What a library of some instruction sets chooses when it is opened, or why it refuses, must end so."""
    library = Case(folder, spec, tmp).compile("all", f"-march={march}")
    about = json.loads(call(TFMC, "info", library, "--json").stdout)
    ran = machine.run(library, about["prefix"], os.path.join(os.path.dirname(library), "m.tfmw"))
    got = (ran.stderr if ran.returncode else ran.stdout).strip()
    return None if got.endswith(wanted) else f"{got!r}, not {wanted!r}"


def try_choices(tally, folder, spec, there):
    sets, chosen, refused = CHOICES[there.triple]
    for cpu, wanted in chosen.items():
        if "unable to find CPU" in there.on(cpu).run().stderr:
            print(f"not run: the choice on {cpu}: this {os.path.basename(there.emulator)} does not have it")
            continue
        tally.add(f"{folder} {cpu}: {wanted}", try_choice, folder, spec, there.on(cpu), sets, wanted)
    for march, cpu, lacks in refused:
        tally.add(f"{folder} {cpu} without {lacks}", try_choice, folder, spec, there.on(cpu), march,
                  f"is compiled for {march}: this CPU lacks {lacks}")


def triples(*leaving_out):
    """What tfmc holds runtimes for, beside that of this machine."""
    line = next((s for s in call(TFMC, "info").stdout.splitlines() if s.startswith("libraries for: ")), "")
    return [t for t in line.removeprefix("libraries for: ").split(", ") if t and t not in (HOME, *leaving_out)]


def holds_bytes(spec):
    """Whether the case asks for weights whose products are of bytes."""
    return any("int8" in option or "int4" in option or "a8" in option for option in spec.get("options", []))


def usable(triple, held, folder, home, options):
    """A machine, or None and why there is none."""
    there = Machine(triple, folder, options)
    lacks = there.lacks or home.lacks or ("" if triple in held else f"tfmc holds no runtime for {triple}")
    if lacks:
        print(f"not run: libraries for {triple}: {lacks}")
    return None if lacks else there


def try_everywhere(tally, roots, machines, threads):
    """machines: this one, and the others by their triples."""
    home, others = machines
    for folder, spec in tally.cases(roots, lambda spec: "expect_error" not in spec):
        for triple, march, cpu in EVERYWHERE + (INTEGERS if holds_bytes(spec) else []):
            if triple in others:
                tally.add(f"{folder} {march} {cpu} threads={threads}", try_case, folder, spec, (home, others[triple].on(cpu)), threads,
                          [f"-march={march}"])


def try_there(tally, roots, machines, threads, rest):
    """rest: options of linking, and the lists of instruction sets."""
    there, (linking, sets) = machines[1], rest
    for case, spec in tally.cases(roots, lambda spec: "expect_error" not in spec):
        for march in sets or [None]:
            how = [f"-march={march}"] if march else []
            tally.add(" ".join([case, f"--target={there.triple}", *how]), try_case, case, spec, machines, threads, linking + how)


def main(argv):
    def options(name):
        return [a.split("=", 1)[1] for a in argv if a.startswith(f"--{name}=")]
    roots = [a for a in argv[1:] if not a.startswith("-")]
    tally = sweep.Tally(argv, TFMC)
    threads, held = options("threads") or ["1", "3"], triples(MODULES)
    rest = [f"--cc={cc}" for cc in options("cc")], options("march")
    if not (options("target") or held):
        print("not run: this tfmc holds no runtime for another machine")
    with tempfile.TemporaryDirectory() as folder:
        home = Machine(HOME, folder, [])
        others = {triple: usable(triple, held, folder, home, options("qemu-option")) for triple in options("target") or held}
        others = {triple: there for triple, there in others.items() if there}
        if "--everywhere" in argv:
            try_everywhere(tally, roots, (AtHome(home), others), threads)
        elif "--choices" in argv:
            for there in (there for triple, there in others.items() if triple in CHOICES):
                for case, spec in tally.cases(roots, lambda spec: "expect_error" not in spec):
                    try_choices(tally, case, spec, there)
        else:
            for there in others.values():
                try_there(tally, roots, (AtHome(home), there), threads, rest)
    return tally.end()


if __name__ == "__main__":
    TFMC = os.path.abspath(sys.argv[1])
    sys.exit(main(sys.argv[1:]))
