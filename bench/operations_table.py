"""The operations that operations.py measures beside PyTorch.

A row: name; inputs and weights as `name: type[dims]` text, where `i32<n` are ids below n; the expression of the
language; the same by torch, of the arrays in the order in which they are declared; the values of the sizes.
Weights come after `;`. Functions of torch that are called more than once are at the end.
"""
import math

import torch
import torch.nn.functional as F

X3 = "x: f32[b, n, 256]"
HEADS = "q: f32[b, {h}, t, {d}], k: f32[b, {h}, s, {d}], v: f32[b, {h}, s, {d}]"
SCORES = "q @ transpose(k, -1, -2) / sqrt({d})"


def turned(x, angle):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def angles(positions, d):
    return positions[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)


def waves(positions, d):
    angle = angles(positions, d)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


def by_hand(q, k, weights):
    return weights(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]))


def attention(name, sizes, h, d, expression="softmax({scores}) @ v", function=F.scaled_dot_product_attention, more=""):
    scores = SCORES.format(d=d)
    return name, HEADS.format(h=h, d=d) + more, expression.format(scores=scores), function, sizes


POINTWISE = [(f"{name} 1e6", "x: f32[n]", f"{name}({argument})", function, {"n": 10**6})
             for name, argument, function in (
                 ("exp", "x", torch.exp), ("sin", "x", torch.sin), ("erf", "x", torch.erf), ("tanh", "x", torch.tanh),
                 ("log", "x * x", lambda x: torch.log(x * x)), ("gelu", "x", F.gelu), ("sigmoid", "x", torch.sigmoid),
                 ("rsqrt", "x * x", lambda x: torch.rsqrt(x * x)), ("abs", "x", torch.abs))]

REDUCTIONS = [
    ("sum axis 0 [4096,512]", "x: f32[n, 512]", "sum(x, axis = 0)", lambda x: x.sum(0), {"n": 4096}),
    ("max axis 1 [64,128,256]", X3, "max(x, axis = 1)", lambda x: x.amax(1), {"b": 64, "n": 128}),
    ("mean axis 1 [32,512,256]", X3, "mean(x, axis = 1)", lambda x: x.mean(1), {"b": 32, "n": 512}),
    ("softmax axis 1 [64,128,256]", X3, "softmax(x, axis = 1)", lambda x: x.softmax(1), {"b": 64, "n": 128}),
    ("softmax axis 0 [512,4096]", "x: f32[n, m]", "softmax(x, axis = 0)", lambda x: x.softmax(0), {"n": 512, "m": 4096}),
    ("softmax axis 0 [500,1000]", "x: f32[n, m]", "softmax(x, axis = 0)", lambda x: x.softmax(0), {"n": 500, "m": 1000}),
    ("argmax [64,30000]", "x: f32[n, m]", "argmax(x)", lambda x: x.argmax(-1), {"n": 64, "m": 30000}),
    ("argmax axis 0 [3000,640]", "x: f32[n, m]", "argmax(x, axis = 0)", lambda x: x.argmax(0), {"n": 3000, "m": 640}),
    ("log_softmax [256,30000]", "x: f32[n, m]", "log_softmax(x)", lambda x: x.log_softmax(-1), {"n": 256, "m": 30000}),
    ("layer_norm [4096,768]", "x: f32[n, 768]", "layer_norm(x, none, none, 1e-5)", lambda x: F.layer_norm(x, (768,)), {"n": 4096}),
    ("layer_norm [100000,8]", "x: f32[n, 8]", "layer_norm(x, none, none, 1e-5)", lambda x: F.layer_norm(x, (8,)), {"n": 10**5}),
    ("mean and variance by hand [4096,768]", "x: f32[n, 768]",
     "(x - mean(x, keepdim = true)) / sqrt(mean((x - mean(x, keepdim = true)) * (x - mean(x, keepdim = true)), keepdim = true) + 1e-5)",
     lambda x: F.layer_norm(x, (768,)), {"n": 4096}),
    ("masked mean of rows [32,128,384]", "x: f32[a, t, 384], m: i32<2[a, t]",
     "sum(where((m == 0)[..., none], 0, x), axis = 1) / f32(sum(m, axis = 1))[:, none]",
     lambda x, m: (x * m[..., None]).sum(1) / m.sum(1)[:, None], {"a": 32, "t": 128}),
    ("sum |x - y| of pairs [256,256,64]", "x: f32[n, 64], y: f32[m, 64]", "sum(abs(x[:, none] - y[none, :]))",
     lambda x, y: torch.cdist(x, y, p=1), {"n": 256, "m": 256}),
]

LAYOUTS = [
    ("transpose [1024,2048]", "x: f32[n, m]", "transpose(x, 0, 1)", lambda x: x.t().contiguous(), {"n": 1024, "m": 2048}),
    ("transpose [1000,2000]", "x: f32[n, m]", "transpose(x, 0, 1)", lambda x: x.t().contiguous(), {"n": 1000, "m": 2000}),
    ("transpose + 1 [1024,2048]", "x: f32[n, m]", "transpose(x, 0, 1) + 1", lambda x: (x.t() + 1).contiguous(), {"n": 1024, "m": 2048}),
    ("transpose 0, 2 [64,64,256]", "x: f32[a, b, c]", "transpose(x, 0, 2)", lambda x: x.transpose(0, 2).contiguous(),
     {"a": 64, "b": 64, "c": 256}),
    ("merge_heads [8,12,128,64]", "x: f32[b, 12, t, 64]", "merge_heads(x)", lambda x: x.transpose(1, 2).reshape(8, 128, 768),
     {"b": 8, "t": 128}),
    ("concat of three [4096,64]", "x: f32[n, 64]", "concat(x, x * 2, x + 1)", lambda x: torch.cat([x, x * 2, x + 1], -1), {"n": 4096}),
    ("stack of two 1e6", "x: f32[n]", "stack(x, x * 2, axis = -1)", lambda x: torch.stack([x, x * 2], -1), {"n": 10**6}),
    ("gather 20000 rows of 64", "i: i32<10000[n]; w: f32[10000, 64]", "w[i]", lambda i, w: w[i], {"n": 20000}),
    ("gather 1e6 scalars", "i: i32<10000[n]; w: f32[10000]", "w[i]", lambda i, w: w[i], {"n": 10**6}),
    ("// and % by numbers 1e6", "i: i32<1000000[n]", "(i // 7) * 3 + i % 11",
     lambda i: torch.div(i, 7, rounding_mode="floor") * 3 + i % 11, {"n": 10**6}),
    ("// by a tensor 1e6", "i: i32<1000000[n]", "i // (i % 5 + 1)", lambda i: torch.div(i, i % 5 + 1, rounding_mode="floor"), {"n": 10**6}),
    ("rotary [1,8,1024,64]", "x: f32[b, 8, t, 64]", "rotary(x, positions(x, -2))", lambda x: turned(x, angles(torch.arange(1024), 64)),
     {"b": 1, "t": 1024}),
    ("sinusoid 4096 x 512", "i: i32<4096[n]", "sinusoid(i, 512)", lambda i: waves(i, 512), {"n": 4096}),
]

PRODUCTS = [
    ("64 x 64, batch 512", "x: f32[b, 64, 64], y: f32[b, 64, 64]", "x @ y", torch.matmul, {"b": 512}),
    ("8 x 8, batch 20000", "x: f32[b, 8, 8], y: f32[b, 8, 8]", "x @ y", torch.matmul, {"b": 20000}),
    ("3 x 3, batch 50000", "x: f32[b, 3, 3], y: f32[b, 3, 3]", "x @ y", torch.matmul, {"b": 50000}),
    ("two inputs 1024", "x: f32[a, b], y: f32[b, c]", "x @ y", torch.matmul, {"a": 1024, "b": 1024, "c": 1024}),
    ("two inputs 1000", "x: f32[a, b], y: f32[b, c]", "x @ y", torch.matmul, {"a": 1000, "b": 1000, "c": 1000}),
    ("second transposed 1024", "x: f32[a, b], y: f32[c, b]", "x @ transpose(y, 0, 1)", lambda x, y: x @ y.t(),
     {"a": 1024, "b": 1024, "c": 1024}),
    ("first transposed [4096,128]", "x: f32[t, 128], y: f32[t, 128]", "transpose(x, 0, 1) @ y", lambda x, y: x.t() @ y, {"t": 4096}),
    ("[4,100000] by [100000,4]", "x: f32[a, b], y: f32[b, c]", "x @ y", torch.matmul, {"a": 4, "b": 10**5, "c": 4}),
    ("[4096,4096] by a vector", "x: f32[a, b], y: f32[b, 1]", "x @ y", torch.matmul, {"a": 4096, "b": 4096}),
    ("a vector by [4096,4096]", "y: f32[1, b], x: f32[b, c]", "y @ x", torch.matmul, {"b": 4096, "c": 4096}),
    ("linear [1,4096] to 4096", "x: f32[a, 4096]; w: f32[4096, 4096]", "linear(x, w)", F.linear, {"a": 1}),
    ("linear [8192,512] to 1", "x: f32[a, 512]; w: f32[1, 512]", "linear(x, w)", F.linear, {"a": 8192}),
    ("linear [800,256] to 1", "x: f32[a, 256]; w: f32[1, 256]", "linear(x, w)", F.linear, {"a": 800}),
    ("linear [8192,512] to 2", "x: f32[a, 512]; w: f32[2, 512]", "linear(x, w)", F.linear, {"a": 8192}),
    ("linear [8192,512] to 17", "x: f32[a, 512]; w: f32[17, 512]", "linear(x, w)", F.linear, {"a": 8192}),
    ("linear [8192,1] to 512", "x: f32[a, 1]; w: f32[512, 1]", "linear(x, w)", F.linear, {"a": 8192}),
    ("linear [8192,3] to 512", "x: f32[a, 3]; w: f32[512, 3]", "linear(x, w)", F.linear, {"a": 8192}),
    ("depthwise of 31 [1,2000,256]", "x: f32[b, t, 256]; w: f32[31, 256]",
     " + ".join(f"x[:, {i}:t - {30 - i}] * w[{i}]" if i < 30 else "x[:, 30:] * w[30]" for i in range(31)),
     lambda x, w: F.conv1d(x.transpose(1, 2), w.t()[:, None], groups=256).transpose(1, 2).contiguous(), {"b": 1, "t": 2000}),
    ("one-hot by [512,128]", "i: i32<512[n]; w: f32[512, 128]", "f32(i[:, none] == positions(w, 0)) @ w",
     lambda i, w: F.one_hot(i, 512).float() @ w, {"n": 4096}),
    ("running sum by a mask [512,256]", "x: f32[t, 256]", "f32(positions(x, 0)[none, :] <= positions(x, 0)[:, none]) @ x",
     lambda x: x.cumsum(0), {"t": 512}),
]

LONG = {"b": 1, "t": 512, "s": 512}
ATTENTION = [
    attention("8 heads of 64, 512", LONG, 8, 64),
    attention("2 heads of 256, 512", LONG, 2, 256),
    attention("4 heads of 80, 512", LONG, 4, 80),
    attention("128 heads of 1, 64", {"b": 1, "t": 64, "s": 64}, 128, 1),
    attention("1 of 8192, 8 heads of 64", {"b": 1, "t": 1, "s": 8192}, 8, 64),
    attention("4 tokens, batch 512", {"b": 512, "t": 4, "s": 4}, 8, 64),
    attention("causal 1024", {"b": 1, "t": 1024, "s": 1024}, 8, 64, "softmax(where(causal_mask(q, k), -inf, {scores})) @ v",
              lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    attention("with a bias 512", LONG, 8, 64, "softmax({scores} + bias) @ v",
              lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, attn_mask=bias), ", bias: f32[b, 8, t, s]"),
    attention("softmax over queries 512", LONG, 8, 64, "softmax({scores}, axis = -2) @ v",
              lambda q, k, v: by_hand(q, k, lambda s: s.softmax(-2)) @ v),
    attention("relu 512", LONG, 8, 64, "relu({scores}) @ v", lambda q, k, v: by_hand(q, k, F.relu) @ v),
    attention("sigmoid 512", LONG, 8, 64, "sigmoid({scores}) @ v", lambda q, k, v: by_hand(q, k, torch.sigmoid) @ v),
]

OPERATIONS = POINTWISE + REDUCTIONS + LAYOUTS + PRODUCTS + ATTENTION
