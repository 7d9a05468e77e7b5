#!/usr/bin/env python3
"""WebAssembly modules of whole models: what they write in a browser, embedded weights, types.

usage: test_web_models.py TFMC [-v]

A translator with beams, a chat model that samples, GPT-2 with beams and MiniLM in headless Chromium, both modules open in one
page at once: the tokens and the bits of libraries for this machine, x86-64 by m.wasm and x86-64-v3 by m-relaxed.wasm, which
has those of x86-64 too and says so where the engine does not fuse. Modules that hold their weights.
wasmtime's deterministic form of relaxed SIMD. The types as `tsc --strict` reads them. What is missing (a runtime for wasm32
in TFMC, wasmtime, Chromium, weights, tsc) is said and not counted. The last line is 'N passed, N failed'.
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "goldens")]
import check  # noqa: E402
import chromium  # noqa: E402
import cross  # noqa: E402
import test_web  # noqa: E402
import wasm  # noqa: E402

GOLDENS = HERE.parent / "goldens"
MARCH = {"plain": "x86-64", "relaxed": "x86-64-v3"}
# Engines: whether they fuse (None: as this machine does), and how Chromium becomes one.
ENGINES = [(None, []), (False, ["--js-flags=--no-enable-fma3"])]
# What is written, and what its case.json says otherwise: that of sampling draws one token only.
TRANSLATOR, BEAMS = ("gen-marian-beam", {}), ("gen-gpt2-beam", {})
CHAT = ("gen-llama-sample", {"max_new_tokens": 24, "seed": 7})


def spec_of(name, **changes):
    spec = json.loads((GOLDENS / name / "case.json").read_text())
    return {**spec, **changes}


# ---- in wasmtime ----

def embedded_weights(home, folder):
    spec = spec_of("encoder-stack")
    return wasm.try_case(str(GOLDENS / "encoder-stack"), {**spec, "options": [*spec.get("options", []), "--embed-weights"]}, home,
                         list(MARCH), folder)


def deterministic(home, folder):
    for name in ("encoder-stack", "gen-gpt2-beam"):
        with tempfile.TemporaryDirectory(dir=folder) as tmp:
            wrong = wasm.try_case(str(GOLDENS / name), spec_of(name), home, ["deterministic"], tmp)
        if wrong:
            return f"{name}: {wrong}"
    return None


# ---- in Chromium ----

PAGE = """<!doctype html><title>test</title><script type=module>
import { open } from './m.mjs';
let said = {};
try {
  const given = await (await fetch('inputs.json')).json();
  const bits = row => row ? [...new Uint32Array(row.slice().buffer)] : null;
  const written = ({ sequences, scores, token_scores }) =>
    ({ sequences: sequences.map(row => [...row]), scores: bits(scores), token_scores: token_scores.map(bits) });
  const models = {};
  for (const name of ['plain', 'relaxed']) models[name] = await open({ relaxed: name === 'relaxed' });
  for (const [name, model] of Object.entries(models)) {
    said[name] = { fused: model.fused, ...(given.options ? written(model.generate(given.inputs, given.options))
      : { outputs: Object.values(model.run(given.inputs)).map(({ data }) => bits(data)) }) };
    if (given.without_prompt) {
      const { lengths, ...options } = given.options;
      said[name].again = written(model.generate(given.without_prompt, options)).sequences;
    }
  }
  for (const model of Object.values(models)) model.close();
} catch (e) { said = { failed: `${e}` }; }
await fetch('/done', { method: 'POST', body: JSON.stringify(said) });
</script>"""


def generated(data):
    """What cross_run.c wrote, as the page says it: rows without their padding."""
    n, width = np.frombuffer(data, np.int64, 2)
    lengths = np.frombuffer(data, np.int64, n, 16)
    words = np.frombuffer(data, np.uint32, offset=16 + 8 * n)
    tables = [words[:n * width], words[-n * width:]]
    tokens, of_tokens = ([row[:length].tolist() for row, length in zip(table.reshape(n, width), lengths)] for table in tables)
    return {"sequences": tokens, "scores": words[n * width:-n * width].tolist() or None, "token_scores": of_tokens}


def prepared(case, options):
    """The call of a page: inputs with the prompts, lengths as cross_run.c takes them."""
    prompt = case.prompt
    return {"inputs": {name: value.tolist() for name, value in case.inputs.items()},
            "options": {**{key: value for key, value in options.items() if key != "decoder_start_token_id"},
                        "return_token_scores": True, "lengths": [max(prompt.shape[1] - i, 1) for i in range(len(prompt))]}}


def in_engines(site, want, wrong):
    """What is wrong with what the page says in either engine, or None."""
    for fuses, flags in ENGINES:
        said = chromium.said_by(site, "page.html", *flags)
        if "failed" in said:
            return f"{flags}: {said['failed']}"
        if said["plain"]["fused"] or fuses is not None and said["relaxed"]["fused"] != fuses:
            return f"{flags}: fused {said['plain']['fused']}, {said['relaxed']['fused']}"
        for name, got in said.items():
            why = wrong(got, want["relaxed" if got["fused"] else "plain"])
            if why:
                return f"{flags} {name}: {why}"
    return None


def libraries_give(home, case):
    """Results of both forms, by libraries for this machine."""
    want = {}
    for module, march in MARCH.items():
        library = case.compile(march, f"-march={march}")
        about = json.loads(test_web.tfmc("info", library, "--json").stdout)
        case.prepare(about)
        want[module] = case.run(home, library, about, 1)
    return want


def page_of(case, folder, call):
    case.compile("site", f"--target={wasm.TRIPLE}", name_of="m")
    (folder / "site" / "inputs.json").write_text(json.dumps(call))
    (folder / "site" / "page.html").write_text(PAGE)
    return folder / "site"


def writes(home, name, changes, folder):
    spec = spec_of(name)
    spec["generate"] = {**spec["generate"], **changes}
    case = cross.Case(str(GOLDENS / name), spec, str(folder))
    given_by_case = set(case.inputs)
    want = {module: generated(data) for module, data in libraries_give(home, case).items()}
    call = prepared(case, spec["generate"])
    if given_by_case != set(case.inputs):  # an encoder's: each target begins with the model's own start
        call["without_prompt"] = {key: call["inputs"][key] for key in given_by_case}
    if max(map(len, want["plain"]["sequences"])) <= case.prompt.shape[1] + 4:
        return "too little was written"
    if want["plain"] == want["relaxed"]:
        return "one result of both forms, which shows nothing"
    return in_engines(page_of(case, folder, call), want, wrong_writing)


def wrong_writing(got, right):
    if any(got[key] != right[key] for key in right):
        return f"{got}, not {right}"
    if "again" in got and got["again"] != right["sequences"]:
        return f"without prompts: {got['again']}"
    return None


def embeds(home, folder):
    """MiniLM, with the weights that are published."""
    case = cross.Case(str(GOLDENS / "minilm"), spec_of("minilm"), str(folder))
    want = {module: np.frombuffer(data, np.uint32).tolist() for module, data in libraries_give(home, case).items()}
    site = page_of(case, folder, {"inputs": {name: value.tolist() for name, value in case.inputs.items()}})
    if want["plain"] == want["relaxed"]:
        return "one result of both forms, which shows nothing"
    return in_engines(site, want, lambda got, right: None if sum(got["outputs"], []) == right else "other bits")


def embedded_in_chromium(home, folder):
    """The loader of modules with weights asks for no other file."""
    del home
    test_web.build(test_web.CASE, folder / "m", f"--target={wasm.TRIPLE}", "--embed-weights")
    inputs = cross.load_file(str(test_web.CASE / "inputs.safetensors"))
    (folder / "inputs.json").write_text(json.dumps({name: value.tolist() for name, value in inputs.items()}))
    (folder / "page.html").write_text(EMBEDDED)
    said = chromium.said_by(folder, "page.html")
    if "failed" in said:
        return said["failed"]
    if any("tfmw" in name for name in said["fetched"]) or (folder / "m.tfmw").exists():
        return f"{said['fetched']}"
    want = wasm.Module(folder / "m.wasm", wasm.known(folder / "m.mjs"))
    context, (name, out) = want.open(None), next(iter(said["out"].items()))
    sizes = [inputs[want.about["inputs"][0]["name"]].shape[i] for i in range(len(want.about["sizes"]))]
    at = want.put(bytes(4 * len(out)))
    args = test_web.args_of(want, sizes, [want.put(inputs[t["name"]].tobytes()) for t in want.about["inputs"]], [(at, len(out))])
    want.run("forward", context, args)
    if np.frombuffer(want.read(at, 4 * len(out)), np.uint32).tolist() != out:
        return f"{name}: other bits"
    return None if "the module holds its weights" in said["weights"] else said["weights"]


EMBEDDED = """<!doctype html><title>test</title><script type=module>
import { open } from './m.mjs';
let said = {};
try {
  const model = await open(), given = await (await fetch('inputs.json')).json(), out = {};
  for (const [name, { data }] of Object.entries(model.run(given))) out[name] = [...new Uint32Array(data.buffer)];
  model.close();
  said = { out, fetched: performance.getEntriesByType('resource').map(entry => entry.name), weights: 'taken' };
  try { await open({ weights: new Uint8Array(8) }); } catch (e) { said.weights = e.message; }
} catch (e) { said = { failed: `${e}` }; }
await fetch('/done', { method: 'POST', body: JSON.stringify(said) });
</script>"""


# ---- options of generation ----

# Of a block with max_new_tokens = 9, for a prompt of 3 tokens: what a call gives, and the length of its row or what it says.
CALLS = {"{}": 12, "{ max_length: 7 }": 7, "{ max_length: null, temperature: null, do_sample: undefined }": 12,
         "{ do_sample: 1, seed: 18446744073709551615n }": 12, "{ max_new_tokens: 2n, early_stopping: 'never' }": 5,
         "{ max_new_tokens: -1 }": "1: max_new_tokens must be 1 or more", "{ max_length: -1n }": "1: max_length must be 1 or more",
         "{ max_length: 0 }": "1: max_length is 0", "{ num_beams: '' }": '1: "num_beams" is a whole number',
         "{ num_beams: true }": '1: "num_beams" is a whole number', "{ max_length: 18446744073709551623n }": "which is out of range",
         "{ temperature: '0.5' }": '1: "temperature" is a number, not 0.5', "{ do_sample: 'false' }": '1: "do_sample" is true or false',
         "{ early_stopping: 'ever' }": '1: "early_stopping" is true or false', "{ seed: -1 }": "-1, which is out of range",
         "{ beams: 2 }": '2: generation has no option "beams"'}
CALLING = """<!doctype html><title>test</title><script type=module>
import { open } from './m.mjs';
const said = [], model = await open();
for (const options of [CALLS]) {
  try { said.push(model.generate({ input_ids: [[3, 4, 5]] }, options).sequences[0].length); }
  catch (e) { said.push(`${e.status}: ${e.message}`); }
}
await fetch('/done', { method: 'POST', body: JSON.stringify({ said }) });
</script>"""


def options_of_a_call(home, folder):
    """Values that are none are refused by name; a limit replaces the block's."""
    del home
    case = GOLDENS / "gen-gpt2-greedy"
    model = (case / "model.tfm").read_text()
    (folder / "model.tfm").write_text(model.replace("eos = 0  pad = 0  max_length = 40", "pad = 0  max_new_tokens = 9"))
    made = test_web.tfmc("compile", folder / "model.tfm", "--weights", case / "weights.safetensors", "-q", f"--target={wasm.TRIPLE}",
                         "-o", folder / "m")
    (folder / "page.html").write_text(CALLING.replace("CALLS", ", ".join(CALLS)))
    said = {"failed": made.stderr} if made.returncode else chromium.said_by(folder, "page.html")
    if "failed" in said:
        return said["failed"]
    wrong = [f"{options}: {got}" for (options, want), got in zip(CALLS.items(), said["said"], strict=True)
             if (got != want if isinstance(want, int) else want not in str(got))]
    return "; ".join(wrong) or None


# ---- types ----

USES = """import { open, TfmError, takesRelaxed } from '%s';
import type { Generated, Model, Tensor } from '%s';

export async function translate(words: number[][], stop: AbortSignal): Promise<number[][]> {
  const model: Model = await open({ relaxed: takesRelaxed(), signal: stop, progress: (done, total) => void (done / total) });
  try {
    const input = { data: Int32Array.from(words.flat()), dims: [words.length, words[0].length] };
    const mask = words.map(row => row.map(() => 1));
    const { sequences, scores }: Generated = model.generate({ input_ids: input, attention_mask: mask },
                                                            { num_beams: 4, early_stopping: 'never', eos_token_id: [0, 1] });
    const { logits } = model.run({ input_ids: input, attention_mask: mask, decoder_input_ids: [[1]] });
    const first: Tensor<Float32Array> | undefined = logits;
    console.log(first?.dims, scores?.[0], model.fused, model.workspaceBytes({ batch: 1 }));
    return sequences.map(row => [...row]);
  } catch (error) {
    if (error instanceof TfmError && error.status === 4) throw new Error(error.message);
    throw error;
  } finally {
    model.close();
  }
}
"""
# Wrong uses, and what TypeScript must say of each.
MISUSES = {"model.run({ input_ids: [[1]] })": "attention_mask", "model.generate({}, { beams: 4 })": "beams",
           "model.run({ nobody: [1] })": "nobody", "(await open()).logits": "logits", "open({ weights: 4 })": "number"}
RESOLUTIONS = [["--module", "esnext", "--moduleResolution", "node"], ["--module", "node16", "--moduleResolution", "node16"]]


def types(home, folder):
    del home
    test_web.build(GOLDENS / TRANSLATOR[0], folder / "m", f"--target={wasm.TRIPLE}")
    (folder / "package.json").write_text('{"type": "module"}')

    def strict(name, text, options):
        (folder / name).write_text(text)
        ran = cross.call("tsc", "--strict", "--noEmit", "--target", "es2022", "--lib", "es2022,dom", *options, folder / name)
        return ran.stdout + ran.stderr
    for options in RESOLUTIONS:
        said = strict("use.ts", USES % ("./m.mjs", "./m.mjs"), options)
        if said:
            return f"{options}: {said[:400]}"
    said = strict("use.ts", USES % ("./m", "./m"), RESOLUTIONS[0]) or strict("m.d.ts", (folder / "m.d.ts").read_text(), [])
    if said:
        return said[:400]
    for text, names in MISUSES.items():
        begin = "import { open } from './m.mjs';\nconst model = await open();\n"
        said = strict("wrong.ts", f"{begin}export const it = {text};\n", RESOLUTIONS[0])
        if "wrong.ts(3," not in said or names not in said:
            return f"{text}: {said[:300] or 'accepted'}"
    return None


def writing(case):
    return lambda home, folder: writes(home, *case, folder)


TESTS = [("embedded_weights", embedded_weights, "wasmtime"), ("deterministic", deterministic, "wasmtime"),
         ("embedded_in_chromium", embedded_in_chromium, "chromium wasmtime"),
         ("translator_with_beams", writing(TRANSLATOR), "chromium"), ("chat_that_samples", writing(CHAT), "chromium"),
         ("decoder_with_beams", writing(BEAMS), "chromium"), ("minilm", embeds, "chromium weights"),
         ("options_of_a_call", options_of_a_call, "chromium"), ("types", types, "tsc")]


def main(argv):
    tally, lacks = check.Tally("-v" in argv), test_web.lacking()
    if lacks[""]:
        print(f"not run: {lacks['']}")
        return tally.end()
    os.environ.setdefault("GOLDEN_WEIGHTS", str(test_web.ROOT / "build/weights"))
    lacks["tsc"] = "" if shutil.which("tsc") else "no tsc (Debian: node-typescript)"
    with tempfile.TemporaryDirectory() as folder:
        home = cross.Machine(cross.HOME, folder, [])
        for name, test, needs in TESTS:
            missing = next((lacks[need] for need in needs.split() if lacks[need]), home.lacks)
            if missing:
                print(f"not run: {name}: {missing}")
                continue
            tally.add(name, lambda tmp, test=test: test(home, pathlib.Path(tmp)))
    return tally.end()


if __name__ == "__main__":
    cross.TFMC = os.path.abspath(sys.argv[1])
    sys.exit(main(sys.argv[1:]))
