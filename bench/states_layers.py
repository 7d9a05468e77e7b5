"""Cases of states.py that are layers alone: linear attention, the states of many layers behind one token, gradients.

A case has its name, `ours` and `theirs` (functions that run once and tell seconds; theirs may be None), the floor by the
probe's rates, and the goals.
"""
import os
import pathlib
import sys
import time

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADS, N = 16, 128
LAYERS = 18
LINEAR = """model Steps {
  forward(q: f32[batch, time, %(q)d], k: f32[batch, time, %(q)d], v: f32[batch, time, %(v)d], a: f32[batch, time, %(heads)d]%(input)s) {
    y = linear_attention(split_heads(q, %(k_heads)d), split_heads(k, %(k_heads)d), split_heads(v, %(heads)d),
                         decay = split_heads(a, %(heads)d)%(beta)s)
    return y = merge_heads(y)
  }
}
"""
TOKEN = """model Token {
  word = Embedding(64, 2048)
  forward(ids: i32[batch, ragged time]) {
    x = word(ids)
    for i in %d {
      y = split_heads(rms_norm(x, none, 1e-6), 16) / sqrt(128)
      r = split_heads(sigmoid(x[..., :16]), 16)
      x = merge_heads(linear_attention(y, y, y * sqrt(128), decay = r, beta = r))
    }
    return logits = x[..., :64]
  }
  generate ids from logits { bos = 0  eos = 1 }
}
"""
GRADIENTS = """model Gradients {
  weight q: [%(batch)d, %(time)d, 2048]
  weight k: [%(batch)d, %(time)d, 2048]
  weight v: [%(batch)d, %(time)d, 2048]
  weight a: [%(batch)d, %(time)d, 16]
  weight b: [%(batch)d, %(time)d, 16]
  forward(x: f32[batch, time, 2048]) { return y = x }
  fn objective(g: f32[batch, time, 2048]) {
    y = linear_attention(split_heads(q, 16), split_heads(k, 16), split_heads(v, 16),
                         decay = split_heads(a, 16), beta = split_heads(b, 16))
    return loss = sum(sum(sum(merge_heads(y) * g)))
  }
  train objective { optimizer = "sgd" }
}
"""
BLOCK = """model Block {
  mixer = GatedDelta(1024, 16, 16, 128, 128, 4, silu, false, 1e-6)
  forward(x: f32[batch, time, 1024]) { return y = mixer(x) }
  fn objective(x: f32[batch, time, 1024], g: f32[batch, time, 1024]) {
    return loss = sum(sum(sum(mixer(x) * g)))
  }
  train objective { optimizer = "sgd" }
}
"""


class Case:
    def __init__(self, name, ours, theirs, floor, most, most_ratio=None):
        self.name, self.ours, self.theirs, self.floor, self.most, self.most_ratio = name, ours, theirs, floor, most, most_ratio


def seconds(call, least=0.05):
    """A function that tells the mean time of a call, of as many as take `least` seconds."""
    def timed(times):
        began = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - began) / times
    call()
    times = max(1, int(least / timed(1)))
    return lambda: timed(times)


def package(args):
    sys.path.insert(0, str(args.build / "python"))
    os.environ["TFM_COMPILER"] = str(args.tfmc)
    import tfmc
    return tfmc


def operands(batch, time, heads, k_heads, d, n=N):
    """q and k of length 1, values, factors and gains as layers have them."""
    rng = np.random.default_rng(1)
    normal = lambda width: rng.standard_normal((batch, time, width), np.float32)
    unit = lambda x: (x / np.sqrt((x.reshape(batch, time, -1, n) ** 2).sum(-1, keepdims=True)).repeat(n, -1).reshape(x.shape)).astype("f4")
    return {"q": unit(normal(k_heads * n)) / np.float32(n ** 0.5), "k": unit(normal(k_heads * n)), "v": normal(heads * d),
            "a": rng.uniform(0.9, 0.999, (batch, time, heads)).astype("f4"), "b": rng.uniform(0.2, 0.9, (batch, time, heads)).astype("f4")}


def chunked(values, grad=False):
    """Operands of the function of transformers: [batch, time, heads, n], and the factor's logarithm."""
    made = [torch.from_numpy(values[x]) for x in "qkvab"]
    made = [x.reshape(*x.shape[:2], HEADS, -1) if x.shape[-1] > HEADS else x for x in made]
    made[3] = made[3].log()
    return [x.requires_grad_(grad) for x in made]


def chunk_function():
    from transformers.models.qwen3_5 import modeling_qwen3_5
    return lambda q, k, v, a, b: modeling_qwen3_5.torch_chunk_gated_delta_rule(q, k, v, a, b, use_qk_l2norm_in_kernel=False)[0]


def state_floor(elements, operations):
    return lambda probe: elements * operations / (probe.f32 / 2)


def steps(args, scratch):
    tfmc = package(args)
    for title, heads, k_heads, d, beta in (("gated delta, 16 heads of 128 x 128", 16, 16, 128, True),
                                           ("a factor alone, 32 heads of 128 x 64", 32, 1, 64, False)):
        text = LINEAR % {"q": k_heads * N, "v": heads * d, "heads": heads, "k_heads": k_heads,
                         "input": f", b: f32[batch, time, {heads}]" if beta else "",
                         "beta": f", beta = split_heads(b, {heads})" if beta else ""}
        model = tfmc.compile(text, threads=args.threads)
        for length in (64, 512):
            values, theirs = operands(1, length, heads, k_heads, d), None
            if beta:
                given, function = chunked(values), chunk_function()
                theirs = seconds(torch.no_grad()(lambda given=given, function=function: function(*given)))
            ours = {name: values[name] for name in model.inputs}
            yield Case(f"{title}, {length} tokens", seconds(lambda ours=ours: model(**ours)), theirs,
                       state_floor(heads * d * N * length, 4 if beta else 3), 1.2 if beta else 1.4, 0.2)


def token(args, scratch):
    tfmc = package(args)
    model = tfmc.compile(TOKEN % LAYERS, weights={"word.weight": np.random.default_rng(1).standard_normal((64, 2048), np.float32)},
                         threads=args.threads)
    decoder = model.decoder(max_rows=1, max_length=100000)
    row, one = decoder.join(), np.array([5], np.int32)
    yield Case(f"one token, states of {LAYERS} layers, {LAYERS * 2} MB", seconds(lambda: decoder.step([(row, one)])), None,
               lambda probe: 2 * 4 * LAYERS * HEADS * N * N / probe.bytes, 1.3)


def training(args, scratch):
    tfmc = package(args)
    batch, length = args.batch, 512
    values = operands(batch, length, HEADS, HEADS, N)
    x = np.random.default_rng(2).standard_normal((batch, length, 2048), np.float32)
    trainer = tfmc.Trainer(GRADIENTS % {"batch": batch, "time": length}, weights=values, threads=args.threads)
    given, function, g = chunked(values, True), chunk_function(), torch.from_numpy(x).reshape(batch, length, HEADS, N)

    def theirs():
        for one in given:
            one.grad = None
        (function(*given) * g).sum().backward()
    elements = batch * length * HEADS * N * N
    yield Case(f"gradients of linear attention, {batch} x {length}", seconds(lambda: trainer.gradients(g=x)), seconds(theirs),
               state_floor(elements, 5 * 4), 1.5, 0.25)
    del trainer, given
    yield block(args, tfmc, scratch, batch, length, elements)


def block(args, tfmc, scratch, batch, length, elements):
    from transformers.models.qwen3_5 import configuration_qwen3_5, modeling_qwen3_5
    torch.manual_seed(1)
    config = configuration_qwen3_5.Qwen3_5TextConfig(hidden_size=1024, linear_num_key_heads=16, linear_num_value_heads=16,
                                                     linear_key_head_dim=128, linear_value_head_dim=128)
    layer = modeling_qwen3_5.Qwen3_5GatedDeltaNet(config, 0).train()
    weights = {f"mixer.{name}": p.detach().numpy() for name, p in layer.named_parameters()}
    (scratch / "block.tfm").write_text((ROOT / "models/parts/delta.tfm").read_text() + BLOCK)
    trainer = tfmc.Trainer(scratch / "block.tfm", weights=weights, threads=args.threads)
    rng = np.random.default_rng(3)
    x, g = (rng.standard_normal((batch, length, 1024), np.float32) for _ in "xg")
    tx, tg = torch.from_numpy(x), torch.from_numpy(g)

    def theirs():
        layer.zero_grad()
        (layer(tx) * tg).sum().backward()
    sizes = {name: p.numel() for name, p in layer.named_parameters() if "proj" in name}
    products = 4 * sum(sizes.values()) + 2 * sizes["out_proj.weight"]  # forward, weights, what the heads get; x gets nothing
    floor = lambda probe: products * batch * length / probe.f32 + state_floor(elements, 5 * 4)(probe)
    return Case(f"gradients of a layer of Qwen3.5, {batch} x {length}", seconds(lambda: trainer.gradients(x=x, g=g)), seconds(theirs), floor, 1.5, 0.25)


def cases_of(args, part, scratch):
    return {"steps": steps, "token": token, "training": training}[part](args, scratch)
