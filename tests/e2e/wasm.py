#!/usr/bin/env python3
"""Models as WebAssembly modules: their bits against those of libraries for this machine.

usage: wasm.py TFMC [--module=plain|relaxed|deterministic ...] [--log=FILE] [--minutes=N] [--part=I/N] CASE... [-v]

CASE is a case folder or a folder of them (tests/goldens/README.md). Each case that runs is compiled for this machine and with
--target=wasm32. m.wasm, run by wasmtime, must give the bits of -march=x86-64, and m-relaxed.wasm, which wasmtime fuses as
x86-64-v3 does, those of -march=x86-64-v3: outputs, and what is generated with its scores; a NaN is a NaN. "deterministic" is
m-relaxed.wasm where wasmtime takes for every relaxed instruction what the specification names for machines that must agree;
without --module the other two run. The packed weights must be the same file, and modules import nothing. What is missing (a
runtime for wasm32 in TFMC, wasmtime) is said and not counted; --log, --minutes and --part are those of sweep.py. Needs
numpy, safetensors and wasmtime. The last line is 'N passed, N failed'.
"""
import json
import os
import pathlib
import struct
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "goldens")]
import cross  # noqa: E402
import sweep  # noqa: E402

try:
    import wasmtime
except ImportError:
    wasmtime = None

TRIPLE = "wasm32"
MODULES = {"plain": ("m.wasm", "x86-64"), "relaxed": ("m-relaxed.wasm", "x86-64-v3"),
           "deterministic": ("m-relaxed.wasm", "x86-64-v3")}
USUAL = ["plain", "relaxed"]
ERROR_BYTES, ERROR_MESSAGE, MESSAGE_BYTES = 524, 4, 512
GENERATED = {"n": 0, "width": 8, "sequences": 16, "lengths": 20, "scores": 24, "token_scores": 40, "bytes": 48}


class Refused(Exception):
    """What the module says: a status and a message."""

    def __init__(self, status, message):
        super().__init__(f"status {status}: {message}")
        self.status, self.message = status, message


class Module:
    """A module in wasmtime, and its memory."""

    engines, compiled = {}, {}

    def __init__(self, path, about, is_deterministic=False):
        engine = Module.engines.get(is_deterministic)
        if engine is None:
            config = wasmtime.Config()
            config.wasm_relaxed_simd = True
            config.wasm_relaxed_simd_deterministic = is_deterministic
            engine = Module.engines[is_deterministic] = wasmtime.Engine(config)
        # Wasmtime compiles all of a module, which takes longer than most calls: once for each content.
        data = pathlib.Path(path).read_bytes()
        module = Module.compiled.get((is_deterministic, data))
        if module is None:
            module = Module.compiled[is_deterministic, data] = wasmtime.Module(engine, data)
        if module.imports:
            raise cross.Failed(f"{path} imports {[i.name for i in module.imports]}")
        self.about, self.store = about, wasmtime.Store(engine)
        self.exports = wasmtime.Instance(self.store, module, []).exports(self.store)
        self.error = self.take(ERROR_BYTES)

    def call(self, name, *rest):
        return self.exports[f"{self.about['prefix']}_{name}"](self.store, *rest)

    def take(self, n):
        at = self.call("allocate", n) & 0xFFFFFFFF
        if not at:
            raise Refused(4, f"no memory for {n} bytes")
        return at

    def put(self, data, at=None):
        at = self.take(len(data)) if at is None else at
        self.exports["memory"].write(self.store, data, at)
        return at

    def read(self, at, n):
        return bytes(self.exports["memory"].read(self.store, at, at + n))

    def word(self, at, form="<I"):
        return struct.unpack(form, self.read(at, struct.calcsize(form)))[0]

    def run(self, name, *rest):
        status = self.call(name, *rest, self.error)
        if status:
            raise Refused(status, self.read(self.error + ERROR_MESSAGE, MESSAGE_BYTES).split(b"\0")[0].decode())

    def open(self, weights):
        """weights: the bytes of the .tfmw file; None: the module holds them. Returns a context."""
        out = self.take(8)
        if weights is None:
            self.run("open", 0, out)
        else:
            self.run("open_memory", self.put(weights), len(weights), out)
        self.model = self.word(out)
        self.run("context_new", self.model, 0, out)
        return self.word(out)


def known(loader):
    """What the loader knows of the model."""
    line = next(s for s in pathlib.Path(loader).read_text().splitlines() if s.startswith("const MODEL = "))
    return json.loads(line.removeprefix("const MODEL = ").removesuffix(";"))


def read_call(module, data):
    """The call that cross.Case wrote: the address of the args struct, and places and sizes of outputs."""
    n, at, outputs = struct.unpack_from("<q", data)[0], 8, []
    words = [8 * (n + 1)]
    for _ in range(n):
        kind, value = struct.unpack_from("<qq", data, at)
        at += 16
        if kind == 0:
            words.append(value)
            continue
        content = data[at:at + value] if kind == 1 else bytes(value)
        at += -(-value // 8) * 8 if kind == 1 else 0
        words.append(module.put(content or bytes(8)))
        if kind == 2:
            outputs.append((words[-1], value))
    return module.put(struct.pack(f"<{len(words)}q", *words)), outputs


def put_option(module, at, about, text):
    name, value = text.split("=", 1)
    if name not in about["options"]:  # a start token, which is in the prompt
        return
    kind, offset = about["options"][name]
    if kind == "real":
        data = struct.pack("<d", float(value))
    elif kind == "flag":
        data = struct.pack("<i", value == "true")
    elif kind == "early":
        data = struct.pack("<i", {"never": 2, "true": 1}.get(value, 0))
    elif kind == "tokens":
        tokens = [int(t) for t in value.split(",")]
        data = struct.pack("<QQ", module.put(struct.pack(f"<{len(tokens)}q", *tokens)), len(tokens))
    else:
        data = struct.pack("<q", int(value))
    module.put(data, at + offset)


def generated(module, at):
    """As cross_run.c writes it."""
    n, width = (module.word(at + GENERATED[name], "<q") for name in ("n", "width"))
    pointer = {name: module.word(at + GENERATED[name]) for name in ("sequences", "lengths", "scores", "token_scores")}
    parts = [struct.pack("<qq", n, width), module.read(pointer["lengths"], 8 * n), module.read(pointer["sequences"], 4 * n * width)]
    parts += [module.read(pointer["scores"], 4 * n)] if pointer["scores"] else []
    return b"".join([*parts, module.read(pointer["token_scores"], 4 * n * width)])


def generate(module, context, args, prompt, options):
    rows, longest = map(int, prompt.split(":"))
    about = module.about["generate"]
    lengths = [max(longest - i, 1 if longest else 0) for i in range(rows)]
    at, result = module.put(struct.pack("<Q", about["bytes"]) + bytes(about["bytes"] - 8)), module.put(bytes(GENERATED["bytes"]))
    module.call("generate_defaults", at)
    for text in [*options, "return_token_scores=true"]:
        put_option(module, at, about, text)
    module.run("generate", context, args, module.put(struct.pack(f"<{rows}q", *lengths)), at, result)
    return generated(module, result)


class Engine:
    """wasmtime, in the place of cross.Machine."""

    triple = TRIPLE

    def __init__(self, is_deterministic):
        self.is_deterministic = is_deterministic

    def run(self, module, prefix, weights, call, out, _threads, *generation):
        loader = pathlib.Path(module.replace("-relaxed.wasm", ".wasm")).with_suffix(".mjs")
        loaded = Module(module, known(loader), self.is_deterministic)
        result = type("Result", (), {"returncode": 0, "stderr": ""})()
        try:
            context = loaded.open(None if loaded.about["embedded"] else pathlib.Path(weights).read_bytes())
            args, outputs = read_call(loaded, pathlib.Path(call).read_bytes())
            if generation:
                data = generate(loaded, context, args, generation[0], generation[1:])
            else:
                loaded.run("forward", context, args)
                data = b"".join(loaded.read(at, n) for at, n in outputs)
            pathlib.Path(out).write_bytes(data)
        except (Refused, wasmtime.WasmtimeError, wasmtime.Trap) as error:
            result.returncode, result.stderr = 3, str(error)
        return result


def try_case(folder, spec, home, names, tmp):
    """What is wrong with a case and MODULES of these names, or None."""
    case = cross.Case(folder, spec, tmp)
    try:
        loader = case.compile("there", f"--target={TRIPLE}", name_of="m")
        weights = pathlib.Path(tmp, "there/m.tfmw")
        for name in names:
            module, march = MODULES[name]
            library = case.compile(name, f"-march={march}")
            packed = pathlib.Path(library).with_name("m.tfmw")
            if packed.exists() != weights.exists() or packed.exists() and packed.read_bytes() != weights.read_bytes():
                return "other packed weights"
            about = json.loads(cross.call(cross.TFMC, "info", library, "--json").stdout)
            case.prepare(about)
            want = case.run(home, library, about, 1)
            engine = Engine(name == "deterministic")
            n_differ = cross.differ(want, case.run(engine, os.path.join(os.path.dirname(loader), module), about, 1))
            if n_differ:
                return f"{name}: {n_differ} of {len(want) // 4} words differ from {march}"
            wanted = load_file(os.path.join(folder, "expected.safetensors"))
            if not want and any(values.size for values in wanted.values()):
                return "no output"
    except cross.Failed as failed:
        return str(failed)
    return None


def main(argv):
    names = [a.split("=", 1)[1] for a in argv if a.startswith("--module=")] or USUAL
    roots = [a for a in argv[1:] if not a.startswith("-")]
    tally = sweep.Tally(argv, cross.TFMC)
    with tempfile.TemporaryDirectory() as folder:
        home = cross.Machine(cross.HOME, folder, [])
        lacks = home.lacks or ("" if TRIPLE in cross.triples() else "this tfmc holds no runtime for it")
        lacks = lacks or ("" if wasmtime else "no wasmtime (pip install wasmtime)")
        if lacks:
            print(f"not run: modules for {TRIPLE}: {lacks}")
            return tally.end()
        for case, spec in tally.cases(roots, lambda spec: "expect_error" not in spec):
            tally.add(f"{case} --target={TRIPLE} {' '.join(names)}", try_case, case, spec, home, names)
    return tally.end()


if __name__ == "__main__":
    cross.TFMC = os.path.abspath(sys.argv[1])
    sys.exit(main(sys.argv[1:]))
