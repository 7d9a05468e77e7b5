#!/usr/bin/env python3
"""Golden cases of training: losses, gradients, optimiser steps, dropout to the bit, and what must be refused.

usage: make_train_goldens.py [--out FOLDER] [--list] [NAME ...]

Writes every case, or those named, into --out (default: train/ beside this file). The same bytes each time. Needs torch, numpy, safetensors; seconds on one core.

A case is a folder in the format of tests/goldens (README.md there), with these additions:

  case.json            `train`: {"mode": "step" | "evaluate" | "initial", "steps": K, "accumulate": A, "seed": S}. Step number k
                       (from 0) takes the batches k*A ... k*A + A - 1, counted round the batches that there are. `gtol`: see below.
  inputs.safetensors   the inputs of the objective, by name; if there are several batches, NAME@0, NAME@1 ...
  expected.safetensors `loss` and the other results of the first step (mode evaluate: of batch 0, nothing is random),
                       `grad.PATH` of every trained weight (first step, before clipping), and if the case has `after.*`:
                       `losses` [K], `norms` [K] (of the whole gradient, before clipping), `rates` [K], `after.PATH` of every
                       weight after K steps. Mode initial: only `after.PATH`, the initial values for the seed.

Tolerance. `grad.*`: |got - want| <= gtol * (max |want| + 0.1 * max over all gradients of the case). All others as in every golden
case: atol + rtol * |want|. Expected values are computed in double precision from weights and inputs that are exact in
f32, then rounded. Each case is also computed in f32 here, and refused if that takes more than half of the tolerance: so
no case asks for more than f32 arithmetic gives (Adam divides noise by noise where a gradient is 0 by mathematics: cases
that step with Adam have no such weights).

A compiler runs a case with
  tfmc train MODEL --weights W --batches INPUTS --steps K --accumulate A --seed S --gradients --output OUT
  tfmc evaluate MODEL --weights W --batches INPUTS --output OUT
  tfmc train MODEL --steps 0 --seed S --output OUT
Bad cases have `expect_error` and `stage` as everywhere; stage `run` means the first of these commands.
"""
import argparse, fnmatch, json, math, pathlib, re, shutil, types, warnings, zlib
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.func import functional_call

HERE = pathlib.Path(__file__).resolve().parent
CASES, inf = {}, math.inf


class Case:
    """`objective(w, b)`: weights by path and one batch -> {"loss": parts, metric: parts}; parts is a list of (factor,
    numerator, divisor): the value is the sum of factor * numerator / divisor, both summed over the batches of a step.
    `joined`: the objective is given all batches of a step as one, and what it computes is the value."""

    def __init__(self, model, weights=None, batches=None, objective=None, *, steps=0, accumulate=1, mode="step", seed=0,
                 defines=None, error=None, stage=None, atol=1e-5, rtol=1e-5, gtol=1e-5, settings=None, random=False, joined=False):
        self.__dict__.update(locals())
        self.batches = [batches] if isinstance(batches, dict) else batches or []
        self.settings = settings or {}


def case(note):
    def register(function):
        CASES["train-" + function.__name__.replace("_", "-")] = (note, function)
        return function
    return register


def bad(name, note, error, model, stage="check", **more):
    CASES[f"bad-train-{name}"] = (note, lambda r: Case(model, error=error, stage=stage, **more))


class Random:
    """Seeded values that are exact in f32, as double tensors."""

    def __init__(self, name):
        self.state = np.random.RandomState(zlib.crc32(name.encode()))

    def normal(self, *shape, scale=1.0, shift=0.0):
        values = self.state.standard_normal(shape).astype(np.float32) * np.float32(scale) + np.float32(shift)
        return torch.from_numpy(np.asarray(values)).double()

    def positive(self, *shape):
        return torch.from_numpy((0.3 + 2 * self.state.random_sample(shape)).astype(np.float32)).double()

    def ids(self, rows, *shape, low=0):
        return torch.from_numpy(self.state.randint(low, rows, shape))

    def padded_ids(self, rows, lengths, width):
        return self.ids(rows, len(lengths), width, low=1) * ~padding(lengths, width)

    def chance(self, p, *shape):
        return torch.from_numpy(self.state.random_sample(shape) < p)

    def filled(self, module, gain=1.2):
        module = module.double().eval()
        with torch.no_grad():
            for name, p in sorted(module.named_parameters()):
                if p.dim() > 1:
                    p.copy_(self.normal(*p.shape, scale=gain / math.sqrt(p.shape[-1])))
                else:
                    p.copy_(self.normal(*p.shape, scale=0.2, shift=1.0 if name.endswith("weight") else 0.0))
        return module


def padding(lengths, width):
    return torch.arange(width)[None] >= torch.tensor(lengths)[:, None]


def causal(rows, columns=None):
    return torch.ones(rows, columns or rows, dtype=torch.bool).triu(1)


def state(**modules):
    """The weights of modules, each under its name; `_` adds nothing."""
    return {key if prefix == "_" else f"{prefix}.{key}": value.detach().clone()
            for prefix, module in modules.items() for key, value in module.state_dict().items()}


def run(module, w, prefix, *args, **more):
    """The module with weights from w, whose paths begin with the prefix."""
    start = prefix + "." if prefix else ""
    dtype = next(iter(w.values())).dtype
    module = module.to(dtype)
    return functional_call(module, {k: w[start + k] for k in module.state_dict()}, args, more)


def positions(length, d, base=10000.0):
    angle = torch.arange(length).double()[:, None] * torch.exp(torch.arange(0, d, 2).double() * (-math.log(base) / d))
    out = torch.empty(length, d, dtype=torch.float64)
    out[:, 0::2], out[:, 1::2] = angle.sin(), angle.cos()[:, :d // 2]
    return out


def plain(value):
    return [(1.0, value, 1)]


def cross_entropy(logits, labels, ignore=None, smoothing=0.0, factor=1.0):
    """As parts: the sum over the labels that count, and how many they are."""
    flat, y = logits.flatten(0, -2), labels.flatten()
    more = {} if ignore is None else {"ignore_index": ignore}
    total = F.cross_entropy(flat, y, reduction="sum", label_smoothing=smoothing, **more)
    count = int((y != ignore).sum()) if ignore is not None else y.numel()
    torch.testing.assert_close(total / count, F.cross_entropy(flat, y, label_smoothing=smoothing, **more))
    return [(factor, total, count)]


def right(logits, labels, ignore=None):
    """The share of labels that have the largest score."""
    top = logits.detach().topk(2, -1).values
    assert (top[..., 0] - top[..., 1]).min() > 1e-4, "an argmax that rounding decides"
    counts = labels != ignore if ignore is not None else torch.ones_like(labels, dtype=torch.bool)
    return [(1.0, ((logits.argmax(-1) == labels) & counts).sum().to(logits.dtype), int(counts.sum()))]


def value(parts_of_batches):
    """The value of a result over some batches: of each part the sums of numerators and of divisors. A divisor of 1 is no
    divisor: such a part is a plain sum."""
    out = 0.0
    for parts in zip(*parts_of_batches):
        divisor = sum(p[2] for p in parts) if any(p[2] != 1 for p in parts) else 1
        out = out + parts[0][0] * sum(p[1] for p in parts) / divisor
    return out


# --- Settings of the train block: as training.md defines them --------------------------------------------------------

def rate(s, t, epoch=0):
    """The learning rate of update number t = 1, 2, ..."""
    lr, kind, warmup = s.get("lr", 1e-3), s.get("schedule", "constant"), s.get("warmup", 0)
    if kind == "noam":
        return lr * s["model_size"] ** -0.5 * min(t ** -0.5, t * warmup ** -1.5)
    if kind == "inverse_sqrt":
        return lr * min(t / warmup, math.sqrt(warmup / t))
    if warmup and t <= warmup:
        return lr * t / warmup
    if kind == "constant":
        return lr
    if kind == "exponential":
        return lr * s["gamma"] ** epoch
    final, part = s.get("final_lr", 0.0), min(1.0, (t - warmup) / (s["steps"] - warmup))
    if kind == "linear":
        return final + (lr - final) * (1 - part)
    assert kind == "cosine"
    return final + (lr - final) * 0.5 * (1 + math.cos(math.pi * part))


def optimizer(s, weights):
    decayed = lambda name: not any(fnmatch.fnmatchcase(name, p) for p in s.get("no_decay", []))
    kind, decay = s.get("optimizer", "adamw"), s.get("weight_decay", 0.01 if s.get("optimizer", "adamw") == "adamw" else 0.0)
    groups = [{"params": [p for n, p in weights.items() if decayed(n) == d], "weight_decay": decay if d else 0.0} for d in (True, False)]
    groups = [g for g in groups if g["params"]]
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=1.0, momentum=s.get("momentum", 0.0), nesterov=s.get("nesterov", False))
    make = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    return make(groups, lr=1.0, betas=tuple(s.get("betas", (0.9, 0.999))), eps=s.get("eps", 1e-8), foreach=False)


def compute(c, dtype):
    """{name: tensor} as in expected.safetensors, computed in `dtype`."""
    if c.mode == "initial":
        return c.objective
    w = {k: v.to(dtype).clone() for k, v in c.weights.items()}
    trained = {k: v.requires_grad_() for k, v in w.items() if not any(fnmatch.fnmatchcase(k, p) for p in c.settings.get("freeze", []))}
    convert = lambda b: {k: v.to(dtype) if v.is_floating_point() else v for k, v in b.items()}
    batches = [convert(b) for b in c.batches]
    out = {}
    join = lambda chosen: [{k: torch.cat([b[k] for b in chosen]) for k in chosen[0]}] if c.joined else chosen
    if c.mode == "evaluate":
        with torch.no_grad():
            return {k: value([p]) for k, p in c.objective(w, join(batches)[0]).items()}
    o, lists = optimizer(c.settings, trained), {"losses": [], "norms": [], "rates": []}
    for step in range(max(1, c.steps)):
        chosen = join([batches[(step * c.accumulate + i) % len(batches)] for i in range(c.accumulate)])
        context = {"step": step + 1, "first": 0}
        results = []
        for b in chosen:
            results.append(c.objective(w, b, **context) if c.random else c.objective(w, b))
            context["first"] += next(iter(b.values())).shape[0]
        loss = value([r["loss"] for r in results])
        o.zero_grad()
        loss.backward()
        for v in trained.values():      # what the loss does not reach has gradient 0
            v.grad = torch.zeros_like(v) if v.grad is None else v.grad
        if step == 0:
            out |= {k: value([r[k] for r in results]).detach() for k in results[0]}
            out |= {f"grad.{k}": v.grad.clone() for k, v in trained.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(trained.values()), c.settings.get("clip_norm", inf), foreach=False)
        lists["losses"].append(loss.detach()), lists["norms"].append(norm)
        lists["rates"].append(torch.tensor(rate(c.settings, step + 1), dtype=torch.float64))
        for g in o.param_groups:
            g["lr"] = rate(c.settings, step + 1)
        if c.steps:
            o.step()
    if c.steps:
        out |= {k: torch.stack([torch.as_tensor(x, dtype=torch.float64) for x in v]) for k, v in lists.items()}
        out |= {f"after.{k}": v.detach().clone() for k, v in w.items()}
    return out


def share_of_tolerance(c, got, want):
    largest, used = max([v.abs().max() for k, v in want.items() if k.startswith("grad.") and v.numel()] or [0.0]), 0.0
    for name, v in want.items():
        a, b = got[name].double(), v.double()
        limit = c.gtol * (b.abs().max() + 0.1 * largest) if name.startswith("grad.") else c.atol + c.rtol * b.abs()
        assert a.isfinite().all() and b.isfinite().all(), name
        used = max(used, float(((a - b).abs() / limit).max()) if b.numel() else 0.0)
    return used


def f32(tensors):
    return {k: v.detach().float().contiguous().clone() if v.is_floating_point() else v.to(torch.int32).contiguous() if v.dtype == torch.int64
            else v.contiguous() for k, v in tensors.items()}


def write(name, note, c, root):
    folder = pathlib.Path(root) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "model.tfm").write_text(c.model.strip("\n") + "\n", encoding="utf-8")
    spec, line = {"note": note, "defines": c.defines or {}}, ""
    files = {"weights": c.weights}
    if c.batches:
        files["inputs"] = c.batches[0] if len(c.batches) == 1 else {f"{k}@{i}": v for i, b in enumerate(c.batches) for k, v in b.items()}
    if c.error:
        spec |= {"expect_error": c.error, "stage": c.stage}
    else:
        want = compute(c, torch.float64)
        used = share_of_tolerance(c, compute(c, torch.float32), want)
        assert used < 0.5, f"{name}: f32 takes {used:.0%} of the tolerance"
        files["expected"] = want
        spec |= {"atol": c.atol, "rtol": c.rtol, "gtol": c.gtol}
        line = "" if c.mode == "initial" else f"loss {float(want['loss']):.6f}, f32 takes {used:.1%} of the tolerance, {sum(k.startswith('grad.') for k in want)} gradients"
    if not c.error or c.stage == "run":
        spec["train"] = {"mode": c.mode, "steps": max(1, c.steps), "accumulate": c.accumulate, "seed": c.seed}
    for file, tensors in files.items():
        if tensors:
            save_file(f32(tensors), folder / f"{file}.safetensors")
            (folder / f"{file}.safetensors").chmod(0o644)
    (folder / "case.json").write_text(json.dumps(spec, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size / 1024:.0f} KiB {line}")
    return size


# --- Primitives -------------------------------------------------------------------------------------------------------

@case("Every function of one number; relu and abs at exactly 0, where their derivative is 0.")
def pointwise(r):
    n, rows = 9, 15
    p = r.normal(rows, n)
    p[1:4] = r.positive(3, n)
    p[4, 0] = p[10, 0] = 0.0
    functions = [torch.exp, torch.log, torch.sqrt, torch.rsqrt, torch.abs, torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.erf,
                 torch.relu, F.silu, F.gelu, lambda v: F.gelu(v, approximate="tanh"), lambda v: v * torch.sigmoid(1.702 * v)]
    return Case("""
# Each row of p goes through another function; the loss weighs what comes out.
model Pointwise(n = 9) {
  weight p: [15, n]

  fn values() = stack(exp(p[0]), log(p[1]), sqrt(p[2]), rsqrt(p[3]), abs(p[4]), sin(p[5]), cos(p[6]), tanh(p[7]), sigmoid(p[8]),
                      erf(p[9]), relu(p[10]), silu(p[11]), gelu(p[12]), gelu_tanh(p[13]), quick_gelu(p[14]))

  forward(c: f32[15, n]) {
    y = values() * c
    return y
  }
  fn objective(c: f32[15, n]) {
    return loss = sum(sum(forward(c)))
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
""", dict(p=p), dict(c=r.normal(rows, n)),
                lambda w, b: {"loss": plain(sum((f(v) * c).sum() for f, v, c in zip(functions, w["p"], b["c"])))})


@case("Functions of two and three tensors that broadcast; equal operands of maximum and minimum, which share the gradient.")
def arithmetic(r):
    a, b, s, c = r.normal(2, 1, 5), r.normal(3, 5), r.normal(1, shift=1.5), r.normal(8, 2, 3, 5)
    b[:, 1] = a[0, 0, 1]
    b = torch.where(b.abs() < 0.2, 0.5, b)

    def objective(w, x):
        a, b, s = w["a"], w["b"], w["s"]
        y = [a + b, a - b * s, a * b, a / b, torch.maximum(a, b), torch.minimum(a, b), torch.where(x["m"], a, b), -a * s + x["m"].to(a.dtype) * b]
        return {"loss": plain((torch.stack([v.expand(2, 3, 5) for v in y]) * x["c"]).sum())}
    return Case("""
model Arithmetic {
  weight a: [2, 1, 5]
  weight b: [3, 5]
  weight s: [1]

  forward(m: bool[3, 5], c: f32[8, 2, 3, 5]) {
    wide = full([2, 3, 5], 0.0)
    y = stack(a + b, a - b * s, a * b, a / b, maximum(a, b), minimum(a, b), where(m, a, b) + wide, -a * s + f32(m) * b) * c
    return y
  }
  fn objective(m: bool[3, 5], c: f32[8, 2, 3, 5]) {
    return loss = sum(sum(sum(sum(forward(m, c)))))
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
""", dict(a=a, b=b, s=s), dict(m=r.chance(0.5, 3, 5), c=c), objective)


@case("Reductions along every axis; of equal maxima the one with the lowest index gets the gradient.")
def reductions(r):
    x = r.normal(3, 4, 5)
    x[1, 2, 1] = x[1, 2, 3] = 9.0
    x[0, 1, 0] = x[0, 3, 0] = -9.0

    def objective(w, b):
        x = w["x"]
        return {"loss": plain((x.sum(1) * b["c1"]).sum() + (x.mean(0) * b["c2"]).sum() + (x.max(-1).values * b["c3"]).sum()
                              + (x.min(1).values * b["c4"]).sum() + (x.mean(-1, keepdim=True) * x).sum())}
    return Case("""
model Reductions {
  weight x: [3, 4, 5]

  forward(c1: f32[3, 5], c2: f32[4, 5], c3: f32[3, 4], c4: f32[3, 5]) {
    y = sum(sum(sum(x, axis = 1) * c1)) + sum(sum(mean(x, axis = 0) * c2)) + sum(sum(max(x) * c3)) + sum(sum(min(x, axis = 1) * c4))
      + sum(sum(sum(mean(x, keepdim = true) * x)))
    return y
  }
  fn objective(c1: f32[3, 5], c2: f32[4, 5], c3: f32[3, 4], c4: f32[3, 5]) {
    return loss = forward(c1, c2, c3, c4)
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
""", dict(x=x), dict(c1=r.normal(3, 5), c2=r.normal(4, 5), c3=r.normal(3, 4), c4=r.normal(3, 5)), objective)


@case("softmax and log_softmax along the last axis and another, with elements of -inf; layer_norm and rms_norm with and without weights.")
def rows(r):
    x, m = r.normal(2, 7, 33), r.chance(0.3, 2, 7, 33)
    m[..., 0] = False
    x[1, 3] += 20.0
    u, v, g = r.normal(33, scale=0.3, shift=1), r.normal(33, scale=0.3), r.normal(33, scale=0.3, shift=1)

    def objective(w, b):
        x, n = w["x"], F.layer_norm
        masked = x.masked_fill(b["m"], -inf)
        rms = lambda e: x / torch.sqrt((x * x).mean(-1, keepdim=True) + e)
        y = [masked.softmax(-1), x.softmax(1), x.log_softmax(-1), x.log_softmax(1), n(x, (33,), w["u"], w["v"], 1e-5), n(x, (33,), w["u"], None, 1e-3),
             n(x, (33,)), rms(1e-6) * w["g"], rms(0.1)]
        return {"loss": plain(sum((v * c).sum() for v, c in zip(y, b["c"])))}
    return Case("""
model Rows {
  weight x: [2, 7, 33]
  weight u: [33]
  weight v: [33]
  weight g: [33]

  forward(m: bool[2, 7, 33], c: f32[9, 2, 7, 33]) {
    y = stack(softmax(where(m, -inf, x)), softmax(x, axis = 1), log_softmax(x), log_softmax(x, axis = 1), layer_norm(x, u, v, 1e-5),
              layer_norm(x, u, none, 1e-3), layer_norm(x, none, none, 1e-5), rms_norm(x, g, 1e-6), rms_norm(x, none, 0.1)) * c
    return y
  }
  fn objective(m: bool[2, 7, 33], c: f32[9, 2, 7, 33]) {
    return loss = sum(sum(sum(sum(forward(m, c)))))
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
""", dict(x=x, u=u, v=v, g=g), dict(m=m, c=r.normal(9, 2, 7, 33)), objective)


@case("Products: batch axes that broadcast in either operand, transposed operands, linear on 2, 3 and 4 axes, a weight [in, out], one weight in two products.")
def products(r):
    w = dict(a=r.normal(3, 1, 6, 8, scale=0.4), b=r.normal(2, 8, 5, scale=0.4), m=r.normal(17, 8, scale=0.4), n=r.normal(17, scale=0.4), k=r.normal(8, 7, scale=0.4))
    b = dict(x=r.normal(4, 9, 8), y=r.normal(2, 3, 6, 8), c1=r.normal(3, 2, 6, 5), c2=r.normal(4, 9, 17), c3=r.normal(2, 3, 6, 17), c4=r.normal(4, 9, 7), c5=r.normal(4, 17, 17))

    def objective(w, b):
        t = F.linear(b["x"], w["m"], w["n"])
        return {"loss": plain(((w["a"] @ w["b"]) * b["c1"]).sum() + (t * b["c2"]).sum() + ((b["y"] @ w["m"].T) * b["c3"]).sum()
                              + ((b["x"] @ w["k"]) * b["c4"]).sum() + ((t.transpose(-1, -2) @ t) * b["c5"]).sum() / 9)}
    return Case("""
model Products {
  weight a: [3, 1, 6, 8]
  weight b: [2, 8, 5]
  weight m: [17, 8]
  weight n: [17]
  weight k: [8, 7]

  forward(x: f32[batch, 9, 8], y: f32[2, 3, 6, 8], c1: f32[3, 2, 6, 5], c2: f32[batch, 9, 17], c3: f32[2, 3, 6, 17], c4: f32[batch, 9, 7],
          c5: f32[batch, 17, 17]) {
    t = linear(x, m, n)
    z = sum(sum(sum(sum((a @ b) * c1)))) + sum(sum(sum(t * c2))) + sum(sum(sum(sum(linear(y, m) * c3)))) + sum(sum(sum((x @ k) * c4)))
      + sum(sum(sum((transpose(t, -1, -2) @ t) * c5))) / 9
    return z
  }
  fn objective(x: f32[batch, 9, 8], y: f32[2, 3, 6, 8], c1: f32[3, 2, 6, 5], c2: f32[batch, 9, 17], c3: f32[2, 3, 6, 17], c4: f32[batch, 9, 7],
               c5: f32[batch, 17, 17]) {
    return loss = forward(x, y, c1, c2, c3, c4, c5)
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", w, b, objective)


@case("Views: slices that overlap, leave gaps or cover all, indices, new axes, concat, stack, reshape, transpose, heads.")
def views(r):
    x, y = r.normal(4, 6, 12), r.normal(2, 6, 12)
    c = dict(c1=r.normal(4, 3, 12), c2=r.normal(6, 6, 12), c3=r.normal(4, 3, 6, 4), c4=r.normal(12, 24), c5=r.normal(2, 4, 6, 5), c6=r.normal(4, 6, 12))

    def objective(w, b):
        x, y = w["x"], w["y"]
        heads = x.reshape(4, 6, 3, 4).transpose(1, 2)
        return {"loss": plain((x[:, 1:4] * b["c1"]).sum() + (torch.cat([x, y], 0) * b["c2"]).sum() + (heads * b["c3"]).sum()
                              + (x.transpose(0, 1).reshape(12, 24) * b["c4"]).sum() + (torch.stack([x[..., 2:7], x[..., 4:9]]) * b["c5"]).sum()
                              + ((heads * heads).transpose(1, 2).flatten(-2) * b["c6"]).sum() + (x[0, 2] * y[-1, :, 3][:, None]).sum()
                              + (x[..., :4] * x[..., 4:8] * x[..., 8:]).sum())}
    return Case("""
model Views {
  weight x: [4, 6, 12]
  weight y: [2, 6, 12]

  forward(c1: f32[4, 3, 12], c2: f32[6, 6, 12], c3: f32[4, 3, 6, 4], c4: f32[12, 24], c5: f32[2, 4, 6, 5], c6: f32[4, 6, 12]) {
    heads = split_heads(x, 3)
    z = sum(sum(sum(x[:, 1:4] * c1))) + sum(sum(sum(concat(x, y, axis = 0) * c2))) + sum(sum(sum(sum(heads * c3))))
      + sum(sum(reshape(transpose(x, 0, 1), [12, 24]) * c4)) + sum(sum(sum(sum(stack(x[..., 2:7], x[..., 4:9]) * c5))))
      + sum(sum(sum(merge_heads(heads * heads) * c6))) + sum(sum(x[0, 2] * y[-1, :, 3][:, none])) + sum(sum(sum(x[..., :4] * x[..., 4:8] * x[..., 8:])))
    return z
  }
  fn objective(c1: f32[4, 3, 12], c2: f32[6, 6, 12], c3: f32[4, 3, 6, 4], c4: f32[12, 24], c5: f32[2, 4, 6, 5], c6: f32[4, 6, 12]) {
    return loss = forward(c1, c2, c3, c4, c5, c6)
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", dict(x=x, y=y), c, objective)


@case("Tables: ids that repeat within and across items, rows that nobody reads (their gradient is exactly 0), computed ids, a table of positions of which the first rows are used.")
def tables(r):
    w = dict(words=r.normal(23, 8), places=r.normal(16, 8), kinds=r.normal(3, 8))
    ids = r.ids(11, 3, 7)
    ids[0, :4] = 5
    b = dict(ids=ids, c=r.normal(3, 7, 8))

    def objective(w, b):
        x = w["words"][b["ids"]] * 3 + w["places"][:7] + w["kinds"][b["ids"] % 3]
        return {"loss": plain((x * torch.tanh(x) * b["c"]).sum())}
    return Case("""
model Tables {
  weight words: [23, 8]
  weight places: [16, 8]
  weight kinds: [3, 8]

  forward(ids: i32[batch, time], c: f32[batch, time, 8]) {
    x = words[ids] * 3 + places[positions(ids, 1)] + kinds[ids % 3]
    y = x * tanh(x) * c
    return y
  }
  fn objective(ids: i32[batch, time], c: f32[batch, time, 8]) {
    return loss = sum(sum(sum(forward(ids, c))))
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", w, b, objective)


@case("rotary in both layouts, with positions that differ from row to row.")
def rotations(r):
    w, b = dict(x=r.normal(2, 3, 5, 8)), dict(pos=r.ids(40, 2, 5), c=r.normal(2, 2, 3, 5, 8))

    def objective(w, b):
        x = w["x"]
        angle = (b["pos"].double()[:, None, :, None] * 10000.0 ** (-torch.arange(0, 8, 2).double() / 8))
        sin, cos = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        a, c = x[..., :4], x[..., 4:]
        half = torch.cat([a * cos - c * sin, c * cos + a * sin], -1)
        a, c = x[..., 0::2], x[..., 1::2]
        pairs = torch.stack([a * cos - c * sin, c * cos + a * sin], -1).flatten(-2)
        return {"loss": plain((half * half * b["c"][0]).sum() + (pairs * b["c"][1]).sum())}
    return Case("""
model Rotations {
  weight x: [2, 3, 5, 8]

  forward(pos: i32[2, 5], c: f32[2, 2, 3, 5, 8]) {
    half = rotary(x, pos[:, none, :])
    y = stack(half * half, rotary(x, pos[:, none, :], layout = "interleaved")) * c
    return y
  }
  fn objective(pos: i32[2, 5], c: f32[2, 2, 3, 5, 8]) {
    return loss = sum(sum(sum(sum(sum(forward(pos, c))))))
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", w, b, objective)


@case("cross_entropy: plain, with an index that does not count, with smoothing, with both, and a score so large that exp would overflow; a loss of several quotients with their own divisors.")
def cross_entropies(r):
    w, labels = dict(head=r.normal(19, 6, scale=0.7)), r.ids(19, 3, 8)
    labels[0, 5:] = 0
    other = r.ids(19, 3, 8)
    other[1, :3] = -100
    x = r.normal(3, 8, 6)
    x[2, 2] *= 60

    def objective(w, b):
        logits = F.linear(b["x"], w["head"])
        return {"loss": cross_entropy(logits, b["labels"]) + cross_entropy(logits, b["labels"], 0, 0.0, 0.5)
                + cross_entropy(logits, b["other"], -100, 0.1, 2.0) + cross_entropy(logits, b["labels"], None, 0.3, 0.25),
                "accuracy": right(logits, b["labels"], 0)}
    return Case("""
model Entropies(classes = 19, d = 6) {
  weight head: [classes, d]

  forward(x: f32[batch, time, d]) {
    logits = linear(x, head)
    return logits
  }
  fn objective(x: f32[batch, time, d], labels: i32[batch, time], other: i32[batch, time]) {
    logits = forward(x)
    counts = labels != 0
    right  = argmax(logits) == labels and counts
    return loss = cross_entropy(logits, labels) + 0.5 * cross_entropy(logits, labels, ignore_index = 0)
                + 2 * cross_entropy(logits, other, ignore_index = -100, label_smoothing = 0.1)
                + 0.25 * cross_entropy(logits, labels, label_smoothing = 0.3),
           accuracy = sum(sum(f32(right))) / sum(sum(f32(counts)))
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
""", w, dict(x=x, labels=labels, other=other), objective, rtol=2e-5)


@case("Losses written out: a mean of squares, a mean over the batch of a sum, a binary cross entropy from log and sigmoid, a hinge.")
def written_losses(r):
    w = dict(a=r.normal(4, 7, scale=0.5), b=r.normal(4, scale=0.2))
    b = dict(x=r.normal(5, 7), t=r.normal(5, 4), y=r.chance(0.5, 5, 4))

    def objective(w, b):
        z = F.linear(b["x"], w["a"], w["b"])
        p, y = torch.sigmoid(z), b["y"].to(z.dtype)
        return {"loss": [(1.0, ((z - b["t"]) ** 2).mean(1).sum(), 5), (0.1, z.abs().sum(), 5),
                         (-1.0, (y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean(1).sum(), 5), (0.5, torch.relu(1 - z * (2 * y - 1)).sum(), 1)]}
    return Case("""
model Losses(d = 7, n = 4) {
  weight a: [n, d]
  weight b: [n]

  forward(x: f32[batch, d]) {
    z = linear(x, a, b)
    return z
  }
  fn objective(x: f32[batch, d], t: f32[batch, n], y: bool[batch, n]) {
    z = forward(x)
    p = sigmoid(z)
    hit = f32(y)
    return loss = mean(mean((z - t) * (z - t))) + 0.1 * mean(sum(abs(z))) - mean(mean(hit * log(p) + (1 - hit) * log(1 - p)))
                + 0.5 * sum(sum(relu(1 - z * (2 * hit - 1))))
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
""", w, b, objective)


@case("A row for padding, which its look-ups never train but the tied head does; norms of rows of which some are zero; log1p and expm1 near 0; windows that overlap.")
def padded_rows(r):
    w = dict([("table.weight", r.normal(9, 6)), ("plain.weight", r.normal(9, 6)), ("kernel", r.normal(6, 4, 3))])
    ids = r.ids(9, 2, 7)
    ids[:, 2:4] = 3
    w["plain.weight"][5] = 0
    ids[0, :2] = 5
    b = dict(ids=ids, c=r.normal(2, 7, 9), s=(r.normal(2, 7, 6) * 1e-3))

    def objective(w, b):
        x = F.embedding(b["ids"], w["table.weight"], padding_idx=3)
        y = F.embedding(b["ids"], w["plain.weight"])
        small = (torch.log1p(x * b["s"]) + torch.expm1(y * b["s"])).sum() * 100
        z = y.transpose(1, 2)
        pooled = F.avg_pool1d(z, 3, 1, 1).sin().sum() + F.conv_transpose1d(z, w["kernel"], stride=2).cos().sum() + (z.unfold(2, 3, 2) ** 2).sum()
        return {"loss": plain(((x + y) @ w["table.weight"].T * b["c"]).sum() + y.norm(dim=-1).sum() + y.norm(3, -1).sum() + small + pooled)}
    return Case("""
model Padded {
  table = Embedding(9, 6, padding_idx = 3)
  plain = Embedding(9, 6)
  weight kernel: [6, 4, 3]

  forward(ids: i32[batch, time], c: f32[batch, time, 9], s: f32[batch, time, 6]) {
    x = table(ids)
    y = plain(ids)
    small = log1p(x * s) + expm1(y * s)
    z = transpose(y, 1, 2)
    return all = (x + y) @ transpose(table.weight, 0, 1) * c, n = norm(y) + norm(y, 3), small, pooled = sin(avg_pool1d(z, 3, 1, 1)), large = cos(conv_transpose1d(z, kernel, stride = 2)), u = unfold(z, 2, 3, 2)
  }
  fn total_of(x) = sum(reshape(x, [shape(x, 0), -1])) -> sum
  fn objective(ids: i32[batch, time], c: f32[batch, time, 9], s: f32[batch, time, 6]) {
    all, n, small, pooled, large, u = forward(ids, c, s)
    return loss = total_of(all) + sum(sum(n)) + total_of(small) * 100 + total_of(pooled) + total_of(large) + total_of(u * u)
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", w, b, objective)


@case("stop_gradient, weights that freeze names, and a weight that the loss does not reach: the first and last get a gradient of 0 or none and stay as they are.", )
def stopped(r):
    w = dict([("table.weight", r.normal(9, 6)), ("first.weight", r.normal(6, 6, scale=0.5)), ("first.bias", r.normal(6, scale=0.2)),
              ("second.weight", r.normal(3, 6, scale=0.5)), ("scale", r.normal(6, shift=1, scale=0.2))])

    def objective(w, b):
        x = torch.tanh(F.linear(w["table.weight"][b["ids"]], w["first.weight"], w["first.bias"]))
        return {"loss": cross_entropy(F.linear(x * w["scale"].detach(), w["second.weight"]) + F.linear(x.detach(), w["second.weight"]), b["labels"])}
    return Case("""
model Stopped {
  table  = Embedding(9, 6)
  first  = Linear(6, 6)
  second = Linear(6, 3, bias = false)
  weight scale: [6]

  forward(ids: i32[batch]) {
    x = ids -> table -> first -> tanh
    logits = second(x * stop_gradient(scale)) + second(stop_gradient(x))
    return logits
  }
  fn objective(ids: i32[batch], labels: i32[batch]) {
    return loss = cross_entropy(forward(ids), labels)
  }
  train objective { optimizer = "sgd"  lr = 0.5  freeze = ["table.*", "scale"] }
}
""", w, dict(ids=r.ids(9, 7), labels=r.ids(3, 7)), objective, steps=2, settings=dict(optimizer="sgd", lr=0.5, freeze=["table.*", "scale"]))


# --- Attention --------------------------------------------------------------------------------------------------------

def attention_case(r, call, forward_arguments, arguments, build, batch=3, time=7, d=16, heads=4, mha=None, more=None, config=""):
    """nn.MultiheadAttention behind a Linear, so that gradients go through queries, keys and values."""
    mha = r.filled(mha or nn.MultiheadAttention(d, heads, batch_first=True), 1.5)
    pre = r.filled(nn.Linear(d, d))
    b = dict(x=r.normal(batch, time, d), c=r.normal(batch, time, d)) | (more or {})

    def objective(w, b):
        x = run(pre, w, "pre", b["x"])
        y, weights = run(mha, w, "attention", x, x, x, need_weights=False, **build(b))
        return {"loss": plain((y * b["c"]).sum())}
    return Case(f"""
model Attention(d = {d}, heads = {heads}) {{
  pre       = Linear(d, d)
  attention = MultiheadAttention(d, heads{config})

  forward(x: f32[batch, time, d]{forward_arguments}) {{
    hidden = pre(x)
    y = attention(hidden{call})
    return y
  }}
  fn objective(x: f32[batch, time, d], c: f32[batch, time, d]{forward_arguments}) {{
    return loss = sum(sum(sum(forward(x{arguments}) * c)))
  }}
  train objective {{ optimizer = "sgd"  lr = 0.01 }}
}}
""", state(pre=pre, attention=mha), b, objective)


@case("nn.MultiheadAttention without masks; the key's bias has gradient 0 by mathematics.")
def mha(r):
    return attention_case(r, "", "", "", lambda b: {})


@case("nn.MultiheadAttention, causal, 40 positions.")
def mha_causal(r):
    return attention_case(r, ", is_causal = true", "", "", lambda b: {"attn_mask": causal(40), "is_causal": True}, time=40, batch=2)


@case("nn.MultiheadAttention with a key padding mask.")
def mha_padding(r):
    return attention_case(r, ", key_padding_mask = pad", ", pad: bool[batch, time]", ", pad", lambda b: {"key_padding_mask": b["pad"]},
                          more=dict(pad=padding([7, 4, 1], 7)))


@case("nn.MultiheadAttention with an additive mask [L, S] that holds -inf, and key padding.")
def mha_additive(r):
    mask = r.normal(7, 7).masked_fill(causal(7), -inf)
    return attention_case(r, ", key_padding_mask = pad, attn_mask = mask", ", pad: bool[batch, time], mask: f32[time, time]", ", pad, mask",
                          lambda b: {"attn_mask": b["mask"], "key_padding_mask": torch.zeros_like(b["x"][..., 0]).masked_fill(b["pad"], -inf)},
                          more=dict(mask=mask, pad=padding([7, 6, 3], 7)))


@case("nn.MultiheadAttention with a bool mask for each head [batch * heads, L, S].")
def mha_mask_3d(r):
    mask = r.chance(0.4, 12, 7, 7)
    mask[..., 0] = False
    return attention_case(r, ", attn_mask = mask", ", mask: bool[batch * heads, time, time]", ", mask", lambda b: {"attn_mask": b["mask"]}, more=dict(mask=mask))


@case("nn.MultiheadAttention with bias_k, bias_v and a zero key appended.")
def mha_appended(r):
    return attention_case(r, "", "", "", lambda b: {}, mha=nn.MultiheadAttention(16, 4, add_bias_kv=True, add_zero_attn=True, batch_first=True),
                          config=", add_bias_kv = true, add_zero_attn = true")


@case("Cross attention with its own widths of keys and values, source longer than target.")
def mha_cross(r):
    m, pre = r.filled(nn.MultiheadAttention(12, 3, kdim=10, vdim=8, batch_first=True), 1.5), r.filled(nn.Linear(10, 10))
    b = dict(q=r.normal(2, 5, 12), k=r.normal(2, 9, 10), v=r.normal(2, 9, 8), c=r.normal(2, 5, 12))

    def objective(w, b):
        y, _ = run(m, w, "attention", b["q"], run(pre, w, "pre", b["k"]), b["v"], need_weights=False)
        return {"loss": plain((y * b["c"]).sum())}
    return Case("""
model Cross {
  attention = MultiheadAttention(12, 3, kdim = 10, vdim = 8)
  pre = Linear(10, 10)

  forward(q: f32[batch, time, 12], k: f32[batch, source, 10], v: f32[batch, source, 8]) {
    y = attention(q, pre(k), v)
    return y
  }
  fn objective(q: f32[batch, time, 12], k: f32[batch, source, 10], v: f32[batch, source, 8], c: f32[batch, time, 12]) {
    return loss = sum(sum(sum(forward(q, k, v) * c)))
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", state(attention=m, pre=pre), b, objective)


@case("Queries whose keys are all masked: their attention is 0 and nothing flows back through it.")
def mha_masked_rows(r):
    m, pre = r.filled(nn.MultiheadAttention(16, 4, batch_first=True), 1.5), r.filled(nn.Linear(16, 16))
    mask = r.chance(0.3, 7, 7)
    mask[2], mask[5], mask[0, 0] = True, True, False
    b = dict(x=r.normal(3, 7, 16), c=r.normal(3, 7, 16), mask=mask)

    def objective(w, b):
        x = run(pre, w, "pre", b["x"])
        q, k, v = (t.reshape(3, 7, 4, 4).transpose(1, 2) for t in F.linear(x, w["attention.in_proj_weight"], w["attention.in_proj_bias"]).chunk(3, -1))
        none = b["mask"].all(-1)
        scores = (q @ k.transpose(-1, -2) / 2).masked_fill(b["mask"] & ~none[:, None], -inf)
        p = scores.softmax(-1) * (~none).to(x.dtype)[:, None]
        y = F.linear((p @ v).transpose(1, 2).flatten(-2), w["attention.out_proj.weight"], w["attention.out_proj.bias"])
        return {"loss": plain((y * b["c"]).sum())}
    return Case("""
model Masked(d = 16, heads = 4) {
  pre       = Linear(d, d)
  attention = MultiheadAttention(d, heads)

  forward(x: f32[batch, time, d], mask: bool[time, time]) {
    y = attention(pre(x), attn_mask = mask)
    return y
  }
  fn objective(x: f32[batch, time, d], c: f32[batch, time, d], mask: bool[time, time]) {
    return loss = sum(sum(sum(forward(x, mask) * c)))
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", state(attention=m, pre=pre), b, objective)


@case("A loss that looks at the attention weights too, as guided alignment does: the probabilities have a gradient of their own.")
def mha_weights(r):
    m, pre = r.filled(nn.MultiheadAttention(16, 4, batch_first=True), 1.5), r.filled(nn.Linear(16, 16))
    b = dict(x=r.normal(2, 6, 16), c=r.normal(2, 6, 16), a=r.normal(2, 4, 6, 6))

    def objective(w, b):
        x = run(pre, w, "pre", b["x"])
        y, weights = run(m, w, "attention", x, x, x, average_attn_weights=False)
        return {"loss": plain((y * b["c"]).sum() + (torch.log(weights) * b["a"]).sum())}
    return Case("""
model Aligned(d = 16, heads = 4) {
  pre       = Linear(d, d)
  attention = MultiheadAttention(d, heads)

  forward(x: f32[batch, time, d]) {
    y, weights = attention(pre(x))
    return y, weights
  }
  fn objective(x: f32[batch, time, d], c: f32[batch, time, d], a: f32[batch, heads, time, time]) {
    y, weights = forward(x)
    return loss = sum(sum(sum(y * c))) + sum(sum(sum(sum(log(weights) * a))))
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", state(attention=m, pre=pre), b, objective)


@case("A tutorial's attention with a fill of -1e10: a query that sees nothing is uniform over all keys, and gradients go there too.")
def tutorial_attention(r):
    parts = {n: r.filled(nn.Linear(12, 12), 1.5) for n in ("fc_q", "fc_k", "fc_v", "fc_o")}
    keep = r.chance(0.6, 2, 5, 6)
    keep[0, 1] = False
    b = dict(q=r.normal(2, 5, 12), k=r.normal(2, 6, 12), keep=keep, c=r.normal(2, 5, 12))

    def objective(w, b):
        q, k, v = (run(parts[n], w, n, t).unflatten(-1, (3, 4)).transpose(1, 2) for n, t in (("fc_q", b["q"]), ("fc_k", b["k"]), ("fc_v", b["k"])))
        energy = (q @ k.transpose(-1, -2) / 2).masked_fill(~b["keep"][:, None], -1e10)
        return {"loss": plain((run(parts["fc_o"], w, "fc_o", (energy.softmax(-1) @ v).transpose(1, 2).flatten(-2)) * b["c"]).sum())}
    return Case("""
model Tutorial(d = 12, heads = 3) {
  fc_q = Linear(d, d)
  fc_k = Linear(d, d)
  fc_v = Linear(d, d)
  fc_o = Linear(d, d)

  forward(query: f32[batch, time, d], key: f32[batch, source, d], keep: bool[batch, time, source]) {
    q = split_heads(fc_q(query), heads)
    k = split_heads(fc_k(key), heads)
    v = split_heads(fc_v(key), heads)
    energy = q @ transpose(k, -1, -2) / sqrt(d // heads)
    energy = where(keep[:, none], energy, -1e10)
    y = fc_o(merge_heads(softmax(energy) @ v))
    return y
  }
  fn objective(q: f32[batch, time, d], k: f32[batch, source, d], keep: bool[batch, time, source], c: f32[batch, time, d]) {
    return loss = sum(sum(sum(forward(q, k, keep) * c)))
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", state(**parts), b, objective)


@case("Scores with trained parts: a temperature for each head, a table of relative positions, a soft cap, all within one attention of grouped heads.")
def score_functions(r):
    d, heads, groups, h, t = 16, 4, 2, 4, 6
    q, k, v = r.filled(nn.Linear(d, heads * h, bias=False), 1.5), r.filled(nn.Linear(d, groups * h, bias=False), 1.5), r.filled(nn.Linear(d, groups * h, bias=False))
    w = state(q=q, k=k, v=v) | dict(temperature=r.normal(heads, 1, 1, scale=0.2, shift=1), near=r.normal(11, heads))
    relative = (torch.arange(t)[None] - torch.arange(t)[:, None]).clamp(-5, 5) + 5
    b = dict(x=r.normal(2, t, d), c=r.normal(2, t, heads * h))

    def objective(w, b):
        split = lambda n, m: run(m, w, n, b["x"]).unflatten(-1, (-1, h)).transpose(1, 2)
        a, k_, v_ = split("q", q), split("k", k).repeat_interleave(2, 1), split("v", v).repeat_interleave(2, 1)
        s = a @ k_.transpose(-1, -2) * w["temperature"] + w["near"][relative].permute(2, 0, 1)
        p = (5 * torch.tanh(s / 5)).masked_fill(causal(t), -inf).softmax(-1)
        return {"loss": plain(((p @ v_).transpose(1, 2).flatten(-2) * b["c"]).sum())}
    return Case("""
# Heads 0 and 1 share the first key and value head, 2 and 3 the second.
model Scores(d = 16, heads = 4, groups = 2, h = 4) {
  q = Linear(d, heads * h, bias = false)
  k = Linear(d, groups * h, bias = false)
  v = Linear(d, groups * h, bias = false)
  weight temperature: [heads, 1, 1]
  weight near: [11, heads]

  fn grouped(x) = reshape(split_heads(x, heads), [shape(x, 0), groups, heads // groups, shape(x, 1), h])

  forward(x: f32[batch, time, d]) {
    place = positions(x, 1)
    bias  = transpose(transpose(near[minimum(maximum(place[none, :] - place[:, none], -5), 5) + 5], 0, 2), 1, 2)
    keys = split_heads(k(x), groups)[:, :, none]
    s = grouped(q(x)) @ transpose(keys, -1, -2)
    s = s * reshape(temperature, [groups, heads // groups, 1, 1]) + reshape(bias, [groups, heads // groups, time, time])
    p = softmax(where(causal_mask(x, x), -inf, 5 * tanh(s / 5)))
    y = merge_heads(reshape(p @ split_heads(v(x), groups)[:, :, none], [batch, heads, time, h]))
    return y
  }
  fn objective(x: f32[batch, time, d], c: f32[batch, time, d]) {
    return loss = sum(sum(sum(forward(x) * c)))
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", w, b, objective)


# --- Layers and models ------------------------------------------------------------------------------------------------

@case("Two encoder layers with relu, post-norm, then one with gelu, pre-norm; padded source.")
def encoder_layers(r):
    a = r.filled(nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 24, 0.0, batch_first=True), 2, enable_nested_tensor=False))
    b_ = r.filled(nn.TransformerEncoderLayer(16, 2, 20, 0.0, "gelu", norm_first=True, batch_first=True))
    b = dict(x=r.normal(3, 8, 16), c=r.normal(3, 8, 16), pad=padding([8, 5, 2], 8))

    def objective(w, b):
        x = run(a, w, "a", b["x"], src_key_padding_mask=b["pad"])
        return {"loss": plain((run(b_, w, "b", x, src_key_padding_mask=b["pad"]) * b["c"]).sum())}
    return Case("""
model Layers(d = 16) {
  a = Encoder(d, 4, 2, 24, dropout = 0)
  b = EncoderLayer(d, 2, 20, gelu, norm_first = true, dropout = 0)

  forward(x: f32[batch, time, d], pad: bool[batch, time]) {
    y = a(x, src_key_padding_mask = pad) -> b(src_key_padding_mask = pad)
    return y
  }
  fn objective(x: f32[batch, time, d], c: f32[batch, time, d], pad: bool[batch, time]) {
    return loss = sum(sum(sum(forward(x, pad) * c)))
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", state(a=a, b=b_), b, objective)


@case("A decoder layer with memory, causal; gradients go into the encoder that made the memory.")
def decoder_layer(r):
    e, d = r.filled(nn.Linear(10, 16)), r.filled(nn.TransformerDecoderLayer(16, 4, 24, 0.0, batch_first=True))
    b = dict(x=r.normal(2, 9, 10), y=r.normal(2, 6, 16), c=r.normal(2, 6, 16), pad=padding([9, 5], 9))

    def objective(w, b):
        memory = run(e, w, "encode", b["x"])
        y = run(d, w, "decode", b["y"], memory, tgt_mask=causal(6), tgt_is_causal=True, memory_key_padding_mask=b["pad"])
        return {"loss": plain((y * b["c"]).sum())}
    return Case("""
model Decodes {
  encode = Linear(10, 16)
  decode = DecoderLayer(16, 4, 24, dropout = 0)

  forward(x: f32[batch, source, 10], y: f32[batch, time, 16], pad: bool[batch, source]) {
    z = decode(y, encode(x), tgt_is_causal = true, memory_key_padding_mask = pad)
    return z
  }
  fn objective(x: f32[batch, source, 10], y: f32[batch, time, 16], c: f32[batch, time, 16], pad: bool[batch, source]) {
    return loss = sum(sum(sum(forward(x, y, pad) * c)))
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", state(encode=e, decode=d), b, objective)


class Translator(nn.Module):
    def __init__(self, src_vocab=17, tgt_vocab=19, d=16, dropout=0.0, **more):
        super().__init__()
        self.src_embed, self.tgt_embed = nn.Embedding(src_vocab, d), nn.Embedding(tgt_vocab, d)
        self.transformer = nn.Transformer(d, 4, 1, 1, 24, dropout, batch_first=True, **more)
        self.transformer.encoder.use_nested_tensor = False
        self.generator = nn.Linear(d, tgt_vocab)

    def forward(self, src, tgt):
        d, dtype = self.generator.in_features, self.generator.weight.dtype
        x = self.src_embed(src) * math.sqrt(d) + positions(src.shape[1], d).to(dtype)
        y = self.tgt_embed(tgt) * math.sqrt(d) + positions(tgt.shape[1], d).to(dtype)
        pad = src == 0
        return self.generator(self.transformer(x, y, tgt_mask=causal(tgt.shape[1]), tgt_is_causal=True, src_key_padding_mask=pad,
                                               tgt_key_padding_mask=tgt == 0, memory_key_padding_mask=pad))


TRANSLATOR = """
# Teacher forcing: the decoder reads the sentence without its end, and is asked for it without its beginning.
model Translator(src_vocab = 17, tgt_vocab = 19, d_model = 16, dropout = 0.0%s) {
  src_embed   = Embedding(src_vocab, d_model)
  tgt_embed   = Embedding(tgt_vocab, d_model)
  position    = PositionalEncoding(d_model, dropout = dropout)
  transformer = Transformer(d_model, 4, 1, 1, 24, dropout = dropout%s)
  generator   = Linear(d_model, tgt_vocab)

  forward(src: i32[batch, source], tgt: i32[batch, time]) {
    src_pad = src == 0
    x = src_embed(src) * sqrt(d_model) -> position
    y = tgt_embed(tgt) * sqrt(d_model) -> position
    logits = transformer(x, y, tgt_is_causal = true, src_key_padding_mask = src_pad, tgt_key_padding_mask = tgt == 0,
                         memory_key_padding_mask = src_pad) -> generator
    return logits
  }
  fn objective(src: i32[batch, source], sentence: i32[batch, n]) {
    labels = sentence[:, 1:]
    logits = forward(src, sentence[:, :-1])
    counts = labels != 0
    return loss = cross_entropy(logits, labels, ignore_index = 0, label_smoothing = 0.1),
           nll = cross_entropy(logits, labels, ignore_index = 0),
           accuracy = sum(sum(f32(argmax(logits) == labels and counts))) / sum(sum(f32(counts)))
  }
  train objective { %s }
  generate tgt from logits { bos = 1  eos = 2  pad = 0  max_length = 32 }
}
"""


def translation(r, lengths=((7, 4, 2), (8, 5, 3))):
    sources, targets = lengths
    src, sentence = r.padded_ids(17, sources, max(sources)), r.padded_ids(19, targets, max(targets))
    sentence[:, 0] = 1
    return dict(src=src, sentence=sentence)


def translate(module):
    def objective(w, b):
        labels = b["sentence"][:, 1:]
        logits = run(module, w, "", b["src"], b["sentence"][:, :-1])
        return {"loss": cross_entropy(logits, labels, 0, 0.1), "nll": cross_entropy(logits, labels, 0), "accuracy": right(logits, labels, 0)}
    return objective


@case("nn.Transformer with embeddings: teacher forcing, padding on both sides, label smoothing, accuracy, the unsmoothed loss.")
def translator(r):
    m = r.filled(Translator())
    return Case(TRANSLATOR % ("", "", 'optimizer = "sgd"  lr = 0.1'), state(_=m), translation(r), translate(m))


@case("A translator in mode evaluate: dropout of 0.5 everywhere does nothing.")
def evaluate(r):
    m = r.filled(Translator())
    return Case((TRANSLATOR % ("", "", "")).replace("dropout = 0.0", "dropout = 0.5"), state(_=m), translation(r), translate(m), mode="evaluate")


LANGUAGE = """
model Language(vocab = 21, d = 16, depth = 2) {
  embed  = Embedding(vocab, d)
  layers = depth * EncoderLayer(d, 4, 24, gelu, norm_first = true, dropout = 0, bias = %s)
  norm   = LayerNorm(d)

  forward(ids: i32[batch, time]) {
    hidden = embed(ids) * sqrt(d) + sinusoid(positions(ids, 1), d)
    logits = linear(layers(hidden, is_causal = true) -> norm, embed.weight)
    return logits
  }
  fn objective(ids: i32[batch, n]) {
    return loss = cross_entropy(forward(ids[:, :-1]), ids[:, 1:], ignore_index = 0)
  }
  train objective { %s }
}
"""


def language(r, bias="true", text='optimizer = "sgd"  lr = 0.1', lengths=((9, 6, 3),), **more):
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 24, 0.0, "gelu", norm_first=True, batch_first=True, bias=bias == "true"), 2,
                                  enable_nested_tensor=False)
    parts = nn.ModuleDict(dict(embed=nn.Embedding(21, 16), layers=stack.layers, norm=nn.LayerNorm(16)))
    parts = r.filled(parts, 0.7)

    def objective(w, b):
        ids, labels, dtype = b["ids"][:, :-1], b["ids"][:, 1:], w["embed.weight"].dtype
        x = w["embed.weight"][ids] * 4 + positions(ids.shape[1], 16).to(dtype)
        for i, layer in enumerate(stack.layers):
            x = run(layer, w, f"layers.{i}", x, src_mask=causal(ids.shape[1]), is_causal=True)
        return {"loss": cross_entropy(F.linear(run(parts["norm"], w, "norm", x), w["embed.weight"]), labels, 0)}
    batches = [dict(ids=r.padded_ids(21, l, max(l))) for l in lengths]
    return Case(LANGUAGE % (bias, text), state(_=parts), batches, objective, **more)


@case("A language model whose output projection is its table of words: one weight with two gradients.")
def tied(r):
    return language(r)


@case("One encoder layer applied three times: its weights get the sum of three gradients.")
def shared_layer(r):
    layer = r.filled(nn.TransformerEncoderLayer(12, 3, 20, 0.0, batch_first=True))
    b = dict(x=r.normal(2, 5, 12), c=r.normal(2, 5, 12))

    def objective(w, b):
        x = b["x"]
        for _ in range(3):
            x = run(layer, w, "layer", x)
        return {"loss": plain((x * b["c"]).sum())}
    return Case("""
model Shared(d = 12) {
  one   = EncoderLayer(d, 3, 20, dropout = 0) as "layer"
  three = 3 * one

  forward(x: f32[batch, time, d]) {
    y = three(x)
    return y
  }
  fn objective(x: f32[batch, time, d], c: f32[batch, time, d]) {
    return loss = sum(sum(sum(forward(x) * c)))
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
""", state(layer=layer), b, objective)


GPT2 = """
layer Conv1D(inputs, outputs) {
  weight w: [inputs, outputs] = normal(0, 0.02) as "weight"
  weight b: [outputs] = 0 as "bias"

  forward(x) = x @ w + b
}

layer Block(d, heads) {
  norm1   = LayerNorm(d)     as "ln_1"
  qkv     = Conv1D(d, 3 * d) as "attn.c_attn"
  project = Conv1D(d, d)     as "attn.c_proj"
  norm2   = LayerNorm(d)     as "ln_2"
  up      = Conv1D(d, 4 * d) as "mlp.c_fc"
  down    = Conv1D(4 * d, d) as "mlp.c_proj"

  forward(x) {
    packed = x -> norm1 -> qkv
    q = packed[..., :d]      -> split_heads(heads)
    k = packed[..., d:2 * d] -> split_heads(heads)
    v = packed[..., 2 * d:]  -> split_heads(heads)
    scores = q @ transpose(k, -1, -2) / sqrt(d // heads)
    x = x + project(merge_heads(softmax(where(causal_mask(x, x), -inf, scores)) @ v))
    return x + down(gelu_tanh(up(norm2(x))))
  }
}

model GPT2(vocab = 29, d = 12, heads = 3, depth = 2, max_positions = 16) {
  word     = Embedding(vocab, d)         as "wte"
  position = Embedding(max_positions, d) as "wpe"
  blocks   = depth * Block(d, heads)     as "h"
  norm     = LayerNorm(d)                as "ln_f"

  forward(ids: i32[batch, time]) {
    logits = linear(word(ids) + position(positions(ids, 1)) -> blocks -> norm, word.weight)
    return logits
  }
  fn objective(ids: i32[batch, n]) {
    return loss = cross_entropy(forward(ids[:, :-1]), ids[:, 1:])
  }
  train objective { optimizer = "adamw"  lr = 1e-4  weight_decay = 0.01 }
}
"""


def gpt2_weights(r, d=12, depth=2):
    w = {"wte.weight": r.normal(29, d, scale=0.4), "wpe.weight": r.normal(16, d, scale=0.2)}
    for i in range(depth):
        for name, a, b in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, 4 * d), ("mlp.c_proj", 4 * d, d)):
            w[f"h.{i}.{name}.weight"], w[f"h.{i}.{name}.bias"] = r.normal(a, b, scale=1 / math.sqrt(a)), r.normal(b, scale=0.1)
    for name in [f"h.{i}.ln_{j}" for i in range(depth) for j in (1, 2)] + ["ln_f"]:
        w[f"{name}.weight"], w[f"{name}.bias"] = r.normal(d, scale=0.2, shift=1), r.normal(d, scale=0.2)
    return w


def gpt2_objective(w, b):
    ids, labels, d = b["ids"][:, :-1], b["ids"][:, 1:], 12
    t = ids.shape[1]
    x = w["wte.weight"][ids] + w["wpe.weight"][:t]
    for i in range(2):
        p = {k[len(f"h.{i}."):]: v for k, v in w.items() if k.startswith(f"h.{i}.")}
        norm = lambda v, n: F.layer_norm(v, (d,), p[n + ".weight"], p[n + ".bias"])
        conv = lambda v, n: v @ p[n + ".weight"] + p[n + ".bias"]
        q, k, v = (a.unflatten(-1, (3, 4)).transpose(1, 2) for a in conv(norm(x, "ln_1"), "attn.c_attn").chunk(3, -1))
        s = (q @ k.transpose(-1, -2) / 2).masked_fill(causal(t), -inf)
        x = x + conv((s.softmax(-1) @ v).transpose(1, 2).flatten(-2), "attn.c_proj")
        x = x + conv(F.gelu(conv(norm(x, "ln_2"), "mlp.c_fc"), approximate="tanh"), "mlp.c_proj")
    x = F.layer_norm(x, (d,), w["ln_f.weight"], w["ln_f.bias"])
    return {"loss": cross_entropy(x @ w["wte.weight"].T, labels)}


@case("GPT-2's blocks with its own names: weights [in, out], one packed projection that is sliced, tanh gelu, learned positions, tied output.")
def gpt2(r):
    return Case(GPT2, gpt2_weights(r), dict(ids=r.ids(29, 3, 11)), gpt2_objective)


@case("A Llama block: RMSNorm, rotary, grouped heads, gated silu; two of them, no biases.")
def llama(r):
    d, heads, groups, h, ff, t = 16, 4, 2, 4, 24, 7
    w = {"embed.weight": r.normal(23, d, scale=0.7), "norm.weight": r.normal(d, scale=0.2, shift=1), "head.weight": r.normal(23, d, scale=0.3)}
    for i in range(2):
        for n, a, b in (("q", d, heads * h), ("k", d, groups * h), ("v", d, groups * h), ("o", heads * h, d), ("gate", d, ff), ("up", d, ff), ("down", ff, d)):
            w[f"layers.{i}.{n}.weight"] = r.normal(b, a, scale=1 / math.sqrt(a))
        w |= {f"layers.{i}.{n}.weight": r.normal(d, scale=0.2, shift=1) for n in ("norm1", "norm2")}

    def objective(w, b):
        ids, labels = b["ids"][:, :-1], b["ids"][:, 1:]
        x = w["embed.weight"][ids]
        rms = lambda v, g: v / torch.sqrt((v * v).mean(-1, keepdim=True) + 1e-6) * g
        angle = torch.arange(t).double()[:, None] * 10000.0 ** (-torch.arange(0, h, 2).double() / h)
        sin, cos = angle.sin().to(x.dtype), angle.cos().to(x.dtype)

        def turned(v):
            a, c = v.chunk(2, -1)
            return torch.cat([a * cos - c * sin, c * cos + a * sin], -1)
        for i in range(2):
            p = lambda n: w[f"layers.{i}.{n}.weight"]
            y = rms(x, p("norm1"))
            q, k, v = (F.linear(y, p(n)).unflatten(-1, (-1, h)).transpose(1, 2) for n in "qkv")
            k, v = turned(k).repeat_interleave(2, 1), v.repeat_interleave(2, 1)
            s = (turned(q) @ k.transpose(-1, -2) / 2).masked_fill(causal(t), -inf)
            x = x + F.linear((s.softmax(-1) @ v).transpose(1, 2).flatten(-2), p("o"))
            y = rms(x, p("norm2"))
            x = x + F.linear(F.silu(F.linear(y, p("gate"))) * F.linear(y, p("up")), p("down"))
        return {"loss": cross_entropy(F.linear(rms(x, w["norm.weight"]), w["head.weight"]), labels)}
    return Case("""
layer Block(d, heads, groups, h, ff) {
  norm1 = RMSNorm(d)
  q     = Linear(d, heads * h, bias = false)
  k     = Linear(d, groups * h, bias = false)
  v     = Linear(d, groups * h, bias = false)
  o     = Linear(heads * h, d, bias = false)
  norm2 = RMSNorm(d)
  gate  = Linear(d, ff, bias = false)
  up    = Linear(d, ff, bias = false)
  down  = Linear(ff, d, bias = false)

  forward(x) {
    y = norm1(x)
    where_ = positions(x, 1)
    queries = rotary(split_heads(q(y), heads), where_)
    queries = reshape(queries, [shape(x, 0), groups, heads // groups, shape(x, 1), h])
    keys    = rotary(split_heads(k(y), groups), where_)[:, :, none]
    scores  = queries @ transpose(keys, -1, -2) / sqrt(h)
    seen    = softmax(where(causal_mask(x, x), -inf, scores)) @ split_heads(v(y), groups)[:, :, none]
    x = x + o(merge_heads(reshape(seen, [shape(x, 0), heads, shape(x, 1), h])))
    y = norm2(x)
    return x + down(silu(gate(y)) * up(y))
  }
}

model Llama(vocab = 23, d = 16) {
  embed  = Embedding(vocab, d)
  layers = 2 * Block(d, 4, 2, 4, 24)
  norm   = RMSNorm(d)
  head   = Linear(d, vocab, bias = false)

  forward(ids: i32[batch, time]) {
    logits = ids -> embed -> layers -> norm -> head
    return logits
  }
  fn objective(ids: i32[batch, n]) {
    return loss = cross_entropy(forward(ids[:, :-1]), ids[:, 1:])
  }
  train objective { optimizer = "adamw"  lr = 1e-3 }
}
""", w, dict(ids=r.ids(23, 2, t + 1)), objective)


@case("A classifier that looks at the first position only, with learned positions and a padded batch.")
def classifier(r):
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 24, 0.0, "gelu", batch_first=True), 2, enable_nested_tensor=False)
    m = r.filled(nn.ModuleDict(dict(embed=nn.Embedding(15, 16), place=nn.Embedding(12, 16), encoder=layers, head=nn.Linear(16, 5))))

    def objective(w, b):
        x = w["embed.weight"][b["ids"]] + w["place.weight"][:b["ids"].shape[1]]
        x = run(layers, w, "encoder", x, src_key_padding_mask=b["ids"] == 0)
        logits = run(m["head"], w, "head", x[:, 0])
        return {"loss": cross_entropy(logits, b["label"]), "accuracy": right(logits, b["label"])}
    return Case("""
model Classifier(vocab = 15, d = 16, classes = 5) {
  embed   = Embedding(vocab, d)
  place   = Embedding(12, d)
  encoder = Encoder(d, 4, 2, 24, gelu, dropout = 0)
  head    = Linear(d, classes)

  forward(ids: i32[batch, time]) {
    hidden = encoder(embed(ids) + place(positions(ids, 1)), src_key_padding_mask = ids == 0)
    logits = head(hidden[:, 0])
    return logits
  }
  fn objective(ids: i32[batch, time], label: i32[batch]) {
    logits = forward(ids)
    return loss = cross_entropy(logits, label), accuracy = mean(f32(argmax(logits) == label))
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
""", state(_=m), dict(ids=r.padded_ids(15, (9, 6, 4, 1), 9), label=r.ids(5, 4)), objective)


@case("The attention of seed 003: heads times width is not the model's width, no biases, a norm without weights after the residual; words as inputs.")
def seed_003(r):
    d, heads, h, ff = 12, 3, 5, 20
    w = {"src_emb.weight": r.normal(14, d), "projection.weight": r.normal(9, d, scale=0.5)}
    for i in range(2):
        for n, a, b in (("enc_self_attn.W_Q", d, heads * h), ("enc_self_attn.W_K", d, heads * h), ("enc_self_attn.W_V", d, heads * h),
                        ("enc_self_attn.fc", heads * h, d), ("pos_ffn.fc.0", d, ff), ("pos_ffn.fc.2", ff, d)):
            w[f"layers.{i}.{n}.weight"] = r.normal(b, a, scale=1.2 / math.sqrt(a))

    def objective(w, b):
        ids = b["enc_inputs"]
        x = w["src_emb.weight"][ids]
        for i in range(2):
            p = lambda n: w[f"layers.{i}.{n}.weight"]
            q, k, v = (F.linear(x, p(f"enc_self_attn.W_{n}")).unflatten(-1, (heads, h)).transpose(1, 2) for n in "QKV")
            s = (q @ k.transpose(-1, -2) / math.sqrt(h)).masked_fill((ids == 0)[:, None, None], -1e9)
            x = F.layer_norm(F.linear((s.softmax(-1) @ v).transpose(1, 2).flatten(-2), p("enc_self_attn.fc")) + x, (d,))
            x = F.layer_norm(F.linear(torch.relu(F.linear(x, p("pos_ffn.fc.0"))), p("pos_ffn.fc.2")) + x, (d,))
        return {"loss": cross_entropy(F.linear(x, w["projection.weight"]), b["labels"], 0)}
    return Case("""
layer Attention(d, heads, h) {
  q = Linear(d, heads * h, bias = false) as "W_Q"
  k = Linear(d, heads * h, bias = false) as "W_K"
  v = Linear(d, heads * h, bias = false) as "W_V"
  o = Linear(heads * h, d, bias = false) as "fc"

  forward(x, blocked) {
    scores = split_heads(q(x), heads) @ transpose(split_heads(k(x), heads), -1, -2) / sqrt(h)
    seen = softmax(where(blocked, -1e9, scores)) @ split_heads(v(x), heads)
    return layer_norm(o(merge_heads(seen)) + x, none, none, 1e-5)
  }
}

layer EncoderLayer3(d, heads, h, ff) {
  attention = Attention(d, heads, h) as "enc_self_attn"
  up        = Linear(d, ff, bias = false) as "pos_ffn.fc.0"
  down      = Linear(ff, d, bias = false) as "pos_ffn.fc.2"

  forward(x, blocked) {
    x = attention(x, blocked)
    return layer_norm(down(relu(up(x))) + x, none, none, 1e-5)
  }
}

model Encoder3(vocab = 14, words = 9, d = 12) {
  embed   = Embedding(vocab, d) as "src_emb"
  layers  = 2 * EncoderLayer3(d, 3, 5, 20)
  project = Linear(d, words, bias = false) as "projection"

  forward(enc_inputs: i32[batch, time]) {
    logits = layers(embed(enc_inputs), (enc_inputs == 0)[:, none, none, :]) -> project
    return logits
  }
  fn objective(enc_inputs: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(enc_inputs), labels, ignore_index = 0)
  }
  train objective { optimizer = "sgd"  lr = 1e-3  momentum = 0.99 }
}
""", w, dict(enc_inputs=r.padded_ids(14, (7, 5, 2), 7), labels=r.padded_ids(9, (7, 5, 2), 7)), objective)


# --- Steps ------------------------------------------------------------------------------------------------------------

REGRESSION = """
# Two layers and a mean of squares: small enough to follow every step by hand.
model Regression(d = 6, hidden = 9, outputs = 3) {
  first  = Linear(d, hidden)
  norm   = LayerNorm(hidden)
  second = Linear(hidden, outputs)

  forward(x: f32[batch, d]) {
    y = x -> first -> tanh -> norm -> second
    return y
  }
  fn objective(x: f32[batch, d], t: f32[batch, outputs]) {
    error = forward(x) - t
    return loss = mean(sum(error * error))
  }
  train objective { %s }
}
"""


def regression(r, text, steps=6, batches=3, accumulate=1, sizes=None, **settings):
    m = r.filled(nn.ModuleDict(dict(first=nn.Linear(6, 9), norm=nn.LayerNorm(9), second=nn.Linear(9, 3))))

    def objective(w, b):
        y = run(m["second"], w, "second", run(m["norm"], w, "norm", torch.tanh(run(m["first"], w, "first", b["x"]))))
        return {"loss": [(1.0, ((y - b["t"]) ** 2).sum(), b["x"].shape[0])]}
    sizes = sizes or [5] * batches
    return Case(REGRESSION % text, state(_=m), [dict(x=r.normal(n, 6), t=r.normal(n, 3)) for n in sizes], objective, steps=steps, accumulate=accumulate,
                settings=settings)


@case("SGD, six steps over three batches.")
def sgd(r):
    return regression(r, 'optimizer = "sgd"  lr = 0.05', optimizer="sgd", lr=0.05)


@case("SGD with momentum and decay of the weights, but not of biases and norms.")
def sgd_momentum(r):
    return regression(r, 'optimizer = "sgd"  lr = 0.05  momentum = 0.9  weight_decay = 0.1  no_decay = ["*.bias", "norm.*"]', optimizer="sgd", lr=0.05,
                      momentum=0.9, weight_decay=0.1, no_decay=["*.bias", "norm.*"])


@case("SGD with Nesterov's momentum.")
def sgd_nesterov(r):
    return regression(r, 'optimizer = "sgd"  lr = 0.02  momentum = 0.8  nesterov = true', optimizer="sgd", lr=0.02, momentum=0.8, nesterov=True)


@case("Adam with its defaults.")
def adam(r):
    return regression(r, 'optimizer = "adam"  lr = 0.01', optimizer="adam", lr=0.01)


@case("Adam with decay that is added to the gradient, other betas, a large eps.")
def adam_decay(r):
    return regression(r, 'optimizer = "adam"  lr = 0.01  betas = [0.8, 0.95]  eps = 1e-3  weight_decay = 0.1', optimizer="adam", lr=0.01, betas=(0.8, 0.95),
                      eps=1e-3, weight_decay=0.1)


@case("AdamW: decay apart from the gradient, its default 0.01 but for what no_decay names.")
def adamw(r):
    return regression(r, 'lr = 0.01  no_decay = ["*.bias"]', lr=0.01, no_decay=["*.bias"])


@case("The gradient is clipped in some steps and not in others.")
def clipped(r):
    return regression(r, 'optimizer = "sgd"  lr = 0.05  clip_norm = 3', steps=8, optimizer="sgd", lr=0.05, clip_norm=3.0)


@case("Adam as in the paper: betas 0.9 and 0.98, eps 1e-9, the rate of noam with a warm-up of 4 steps.")
def noam(r):
    return regression(r, 'optimizer = "adam"  lr = 0.2  betas = [0.9, 0.98]  eps = 1e-9  schedule = "noam"  warmup = 4  model_size = d', steps=9, optimizer="adam",
                      lr=0.2, betas=(0.9, 0.98), eps=1e-9, schedule="noam", warmup=4, model_size=6)


@case("Warm-up, then a linear way down that ends before the steps do.")
def linear_schedule(r):
    return regression(r, 'optimizer = "sgd"  lr = 0.05  schedule = "linear"  warmup = 3  steps = 8  final_lr = 0.002', steps=10, optimizer="sgd", lr=0.05,
                      schedule="linear", warmup=3, final_lr=0.002, **{"steps_": 8})


@case("Three batches of different sizes make one step: the mean is that of all their rows, not the mean of three means.")
def accumulated(r):
    return regression(r, 'optimizer = "sgd"  lr = 0.05', steps=3, accumulate=3, sizes=[5, 1, 3], optimizer="sgd", lr=0.05)


@case("Batches with different numbers of labels that count make one step of a language model, with AdamW and clipping.")
def accumulated_tokens(r):
    return language(r, "false", 'lr = 0.002  clip_norm = 1  betas = [0.9, 0.98]  eps = 1e-6', lengths=((9, 6, 3), (4, 2, 2), (12, 12, 5)), steps=3, accumulate=3,
                    settings=dict(lr=0.002, clip_norm=1.0, betas=(0.9, 0.98), eps=1e-6), atol=2e-5)


@case("Ten steps of a language model with AdamW: the losses are PyTorch's.")
def losses(r):
    return language(r, "false", 'lr = 0.003  eps = 1e-6', lengths=((9, 6, 3), (7, 7, 2)), steps=10, settings=dict(lr=0.003, eps=1e-6), atol=5e-5)


# --- Extremes: bounds, ties, zeros, overflows of what is not selected --------------------------------------------------------

EDGES = [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 20.0, -20.0, 88.0, 89.0, -89.0, 100.0, -100.0, 1e4, -1e4]
EDGE_FUNCTIONS = {  # name: (in the language, in torch)
    "elu": ("elu(x)", F.elu), "elu2": ("elu(x, 2)", lambda x: F.elu(x, 2.0)), "selu": ("selu(x)", F.selu), "softplus": ("softplus(x)", F.softplus),
    "softplus3": ("softplus(x, 3)", lambda x: F.softplus(x, 3.0)), "logsigmoid": ("logsigmoid(x)", F.logsigmoid), "leaky": ("leaky_relu(x)", F.leaky_relu),
    "gelu": ("gelu(x)", F.gelu), "gelu_tanh": ("gelu_tanh(x)", lambda x: F.gelu(x, approximate="tanh")), "silu": ("silu(x)", F.silu), "mish": ("mish(x)", F.mish),
    "quick": ("quick_gelu(x)", lambda x: x * torch.sigmoid(1.702 * x)), "relu": ("relu(x)", F.relu), "relu6": ("relu6(x)", F.relu6),
    "hardsigmoid": ("hardsigmoid(x)", F.hardsigmoid), "hardswish": ("hardswish(x)", F.hardswish), "hardtanh": ("clamp(x, -1, 1)", F.hardtanh),
    "low": ("clamp(x, low = 0)", lambda x: x.clamp(min=0)), "high": ("clamp(x, high = 6)", lambda x: x.clamp(max=6)), "maximum": ("maximum(x, 0)", lambda x: torch.maximum(x, torch.zeros_like(x))),
    "minimum": ("minimum(x, 3)", lambda x: torch.minimum(x, torch.full_like(x, 3.0))), "abs": ("abs(x)", torch.abs), "sigmoid": ("sigmoid(x)", torch.sigmoid), "tanh": ("tanh(x)", torch.tanh),
    "erf": ("erf(x)", torch.erf), "square": ("x ** 2 / 1e4", lambda x: x ** 2 / 1e4), "none": ("x ** 0 + x", lambda x: x ** 0 + x), "cube": ("(x / 1e4) ** 3", lambda x: (x / 1e4) ** 3),
    "glu": ("glu(x)", lambda x: F.glu(x, -1)), "sign": ("x * sign(x)", lambda x: x * torch.sign(x)), "masked": ("masked_fill(exp(where(x > 0, 0, x)), x > 0, 0)", lambda x: torch.exp(torch.where(x > 0, 0.0, x)).masked_fill(x > 0, 0.0)),
    "roots": ("where(x > 0, sqrt(where(x > 0, x, 1)), x)", lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), x)),
    "shares": ("softmax(x)", lambda x: x.softmax(-1)), "logs": ("log_softmax(x)", lambda x: x.log_softmax(-1)), "total": ("logsumexp(x)", lambda x: x.logsumexp(-1)),
    "greatest": ("max(x)", lambda x: x.max(-1)[0]), "least": ("min(x)", lambda x: x.min(-1)[0]),
}
ROWS = [[0.0, 0.0, 0.0, 0.0], [3.0, -4.0, 0.0, 1.0], [2.0, 2.0, 2.0, 2.0], [1e-4, 0.0, 0.0, 0.0], [1e4, -1e4, 5e3, 0.0], [0.0, 0.0, 0.0, 1.0]]
ROW_FUNCTIONS = {
    "normalize": ("normalize(x)", lambda x: F.normalize(x, dim=-1)), "normalized": ("where(live[:, none], normalize(x), 0)", lambda x: torch.where(live(x)[:, None], F.normalize(x, dim=-1), 0.0)),
    "cosine": ("cosine_similarity(x, flip(x, 0) * 0.5 + 1)", lambda x: F.cosine_similarity(x, x.flip(0) * 0.5 + 1, dim=-1)),
    "cosines": ("cosine_similarity(x, x[:1])", lambda x: F.cosine_similarity(x, x[:1], dim=-1)),
    "norm": ("where(live, sqrt(sum(x * x)), 0)", lambda x: torch.where(live(x), torch.where(live(x), (x * x).sum(-1), 1.0).sqrt(), 0.0)),
    "layer_norm": ("layer_norm(x, none, none, 1e-5)", lambda x: F.layer_norm(x, (4,))), "rms_norm": ("rms_norm(x, none, 1e-6)", lambda x: F.rms_norm(x, (4,), eps=1e-6)),
    "group_norm": ("group_norm(x, 2)", lambda x: F.group_norm(x, 2)), "instance_norm": ("instance_norm(x[none])", lambda x: F.instance_norm(x[None])),
    "batch_norm": ("batch_norm(x, x[2] * 0, x[2] * 0 + 1)", lambda x: (x - x[2] * 0) / (x[2] * 0 + 1 + 1e-5).sqrt()),
    "hidden": ("where(x > 0, log_softmax(where(x > 0, x, -inf)), 0)", lambda x: torch.where(x > 0, x.masked_fill(~((x > 0) | (live(x) == False)[:, None]), -inf).log_softmax(-1), 0.0)),
    "some": ("logsumexp(where(live[:, none] and x <= 0, -inf, x))", lambda x: x.masked_fill(live(x)[:, None] & (x <= 0), -inf).logsumexp(-1)),
    "softmax": ("softmax(where(live[:, none] and x <= 0, -inf, x))", lambda x: x.masked_fill(live(x)[:, None] & (x <= 0), -inf).softmax(-1)), "pooled": ("mean_pooling(x[:, none, :], not live[:, none])", lambda x: x * live(x)[:, None]),
    "powers": ("abs(x) ** 1.5 / 1e3", lambda x: x.abs() ** 1.5 / 1e3),
}


def live(x):
    return x.detach().abs().sum(-1) > 0


def edges(values, table):
    """One weight for each function: the gradient of sum(f(x) * (1, 2, 3 ...)) / 10."""
    start = torch.tensor(values, dtype=torch.float64).float().double()
    weights = {name: start.clone() for name in table}
    shape = ", ".join(map(str, start.shape))
    lines = "\n".join(f"  weight {name}_: [{shape}] = 0 as \"{name}\"" for name in table)
    terms = "\n".join(f"    total = total + tilted({call(text, name)})" for name, (text, _) in table.items())
    model = EDGE_MODEL % (lines, terms)

    def objective(w, b):
        total = 0.0
        for name, (_, function) in table.items():
            y = function(w[name]).flatten()
            total = total + (y * torch.arange(1, y.numel() + 1).to(y.dtype)).sum() / 10
        return {"loss": plain(total * b["x"].mean())}
    return Case(model, weights, dict(x=torch.ones(2, dtype=torch.float64)), objective, settings=dict(optimizer="sgd", lr=0.1))


def call(text, name):
    """The text with the weight in the place of x, and `live` as the rows that are not all zero."""
    return re.sub(r"\blive\b", f"(sum(abs({name}_)) > 0)", re.sub(r"\bx\b", name + "_", text))


EDGE_MODEL = """
model Edges() {
%s
  forward(x: f32[batch]) {
    return y = x
  }
  fn tilted(y) {
    flat = reshape(y, [-1])
    return sum(flat * f32(positions(flat, axis = 0) + 1)) / 10
  }
  fn objective(x: f32[batch]) {
    total = 0
%s
    return loss = mean(x) * total
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
"""

CASES["train-edges"] = ("Gradients at bounds, ties and extremes: finite wherever PyTorch's are, and its numbers.", lambda r: edges(EDGES, EDGE_FUNCTIONS))
CASES["train-edge-rows"] = ("Gradients of rows of zeros, of equal numbers, and of very unlike ones.", lambda r: edges(ROWS, ROW_FUNCTIONS))


# --- Results that are no sum or mean over items: what PyTorch computes of all items at once, from parts --------------------

MIXTURES = """
model Mixed(d = 6, tags = 5) {
  body  = Linear(d, d)
  head  = Linear(d, tags)
  weight scale: [] = 1
  forward(x: f32[batch, d]) {
    return logits = head(tanh(body(x)))
  }
  fn objective(x: f32[batch, d], y: i32[batch], z: f32[batch, d]) {
    h      = body(x)
    logits = head(tanh(h))
    rows   = cross_entropy(logits, y, reduction = "none")
    nll    = cross_entropy(logits, y, ignore_index = 0)
    counts = f32(y != 0)
    errors = mean(mean((h - z) * (h - z)))
    hits   = f32(argmax(logits) == y)
    share  = sum(hits * counts) / sum(counts)
    found  = sum(hits * counts) / maximum(sum(hits), 1.0)
    return %s
  }
  train objective { optimizer = "sgd"  lr = 0.05  freeze = [%s] }
}
"""
METRICS = """perplexity = exp(nll), rmse = sqrt(errors), both = share * found, one = 2 * share * found / (share + found),
           penalty = 0.1 * sum(sum(body.weight * body.weight)), products = mean(rows) * mean(mean(h)), logs = log(nll) / log(2.0),
           picked = where(share > 0.1, nll, -nll), powers = sum(rows) ** 1.5 / sum(counts), count = f32(sum(y)) / 3.0, ratio = mean(rows) / mean(mean(z * z))"""
MIXED_LOSSES = {
    "exp-of-mean": ("exp(nll)", lambda v: v["nll"].exp()),
    "constant": ("nll + 0.5", lambda v: v["nll"] + 0.5),
    "penalty": ("nll + 0.1 * sum(sum(body.weight * body.weight)) + abs(scale)", lambda v: v["nll"] + 0.1 * v["w"].square().sum() + v["scale"].abs()),
    "scaled": ("nll * scale / (1.0 + sum(sum(body.weight * body.weight)))", lambda v: v["nll"] * v["scale"] / (1 + v["w"].square().sum())),
    "root-of-mean": ("sqrt(errors)", lambda v: v["errors"].sqrt()),
    "log": ("log(nll) + log(errors)", lambda v: v["nll"].log() + v["errors"].log()),
    "square": ("nll * nll", lambda v: v["nll"] ** 2),
    "flooding": ("abs(nll - 3.5) + 3.5 + relu(errors - 0.1)", lambda v: (v["nll"] - 3.5).abs() + 3.5 + (v["errors"] - 0.1).relu()),
    "greater": ("maximum(nll, errors) + minimum(nll, 0.5 * errors)", lambda v: torch.maximum(v["nll"], v["errors"]) + torch.minimum(v["nll"], 0.5 * v["errors"])),
    "products": ("mean(rows) * mean(mean(h)) + errors * nll", lambda v: v["rows"].mean() * v["h"].mean() + v["errors"] * v["nll"]),
    "bounded-divisor": ("sum(rows * counts) / maximum(sum(counts), 1.0) + sum(rows) / (sum(counts) * sum(counts))",
                        lambda v: (v["rows"] * v["counts"]).sum() / v["counts"].sum().clamp(min=1) + v["rows"].sum() / v["counts"].sum() ** 2),
    "ratio": ("mean(rows) / mean(mean(z * z)) + mean(rows) / sum(counts)", lambda v: v["rows"].mean() / v["z"].square().mean() + v["rows"].mean() / v["counts"].sum()),
    "selected": ("where(share > 0.1, nll, errors) + sigmoid(nll) + tanh(errors) - nll ** 1.5", lambda v: (v["nll"] if v["share"] > 0.1 else v["errors"]) + v["nll"].sigmoid() + v["errors"].tanh() - v["nll"] ** 1.5),
    "stopped": ("nll * stop_gradient(errors) / (1.0 + stop_gradient(nll)) + stop_gradient(nll)", lambda v: v["nll"] * v["errors"].detach() / (1 + v["nll"].detach()) + v["nll"].detach()),
    "products-of-items": ("sum(sum(transpose(h, 0, 1) @ z)) / sum(counts) + nll", lambda v: (v["h"].T @ v["z"]).sum() / v["counts"].sum() + v["nll"]),
}


def mixed(r, text, loss, also={}, **more):
    m = r.filled(nn.ModuleDict(dict(body=nn.Linear(6, 6), head=nn.Linear(6, 5))))
    weights = state(_=m) | {"scale": torch.tensor(0.75, dtype=torch.float64)}
    batches = [dict(x=r.normal(n, 6), y=r.ids(5, n), z=r.normal(n, 6)) for n in (3, 1, 2, 2)]

    def objective(w, b):
        h = F.linear(b["x"], w["body.weight"], w["body.bias"])
        logits = F.linear(h.tanh(), w["head.weight"], w["head.bias"])
        rows, counts = F.cross_entropy(logits, b["y"], reduction="none"), (b["y"] != 0).to(h.dtype)
        hits = (logits.argmax(-1) == b["y"]).to(h.dtype)
        v = dict(h=h, rows=rows, counts=counts, nll=(rows * counts).sum() / counts.sum(), errors=(h - b["z"]).square().mean(), z=b["z"],
                 w=w["body.weight"], scale=w["scale"], share=(hits * counts).sum() / counts.sum(), found=(hits * counts).sum() / hits.sum().clamp(min=1))
        share, found, nll = v["share"], v["found"], v["nll"]
        out = dict(perplexity=nll.exp(), rmse=v["errors"].sqrt(), both=share * found, one=2 * share * found / (share + found),
                   penalty=0.1 * v["w"].square().sum(), products=rows.mean() * h.mean(), logs=nll.log() / math.log(2),
                   picked=nll if share > 0.1 else -nll, powers=rows.sum() ** 1.5 / counts.sum(), count=b["y"].sum().to(h.dtype) / 3, ratio=rows.mean() / b["z"].square().mean())
        return {"loss": plain(loss(v))} | ({k: plain(x) for k, x in out.items()} if "metrics" in more else {}) | {k: plain(f(v)) for k, (_, f) in also.items()}
    given = {k: v for k, v in more.items() if k != "metrics"}
    unreached = (["scale"] if "scale" not in text else []) + (["head.*"] if not any(word in text for word in ("nll", "rows")) else [])
    frozen = ", ".join(f'"{name}"' for name in unreached)
    return Case(MIXTURES % ("loss = " + text + (", " + METRICS if "metrics" in more else "") + "".join(f", {k} = {t}" for k, (t, _) in also.items()), frozen), weights, batches, objective, accumulate=4, joined=True,
                settings=dict(optimizer="sgd", lr=0.05, freeze=unreached), **given)


for _name, (_text, _loss) in MIXED_LOSSES.items():
    CASES["train-mixed-" + _name] = ("A loss that is no mean over items, of four unequal batches in one step: that of all items at once.",
                                     lambda r, text=_text, loss=_loss: mixed(r, text, loss))
CASES["train-mixed-results"] = ("Results that are no means over items, of four unequal batches in each of three steps.",
                                lambda r: mixed(r, "nll + 0.25", lambda v: v["nll"] + 0.25, metrics=True, steps=3))
CASES["train-mixed-evaluate"] = ("The same in an evaluation.",
                                 lambda r: mixed(r, "exp(nll) + errors * errors", lambda v: v["nll"].exp() + v["errors"] ** 2, metrics=True, mode="evaluate"))


@case("A loss that is no mean, with dropout, of two batches: the sums that come first have the masks of those that are differentiated.")
def mixed_dropout(r):
    c = drops(r, 11, 0.25, [sentences(r, 6, 4, 3), sentences(r, 6, 2)], accumulate=2, steps=2, joined=True)
    c.model = c.model.replace("return loss = cross_entropy(forward(ids), labels, ignore_index = 0)", "nll = cross_entropy(forward(ids), labels, ignore_index = 0)\n    return loss = exp(nll) + sqrt(nll)")
    inner = c.objective

    def objective(w, b, step, first):
        nll = value([inner(w, b, step, first)["loss"]])
        return {"loss": plain(nll.exp() + nll.sqrt())}
    c.objective = objective
    return c


# --- Losses of torch.nn.functional and of sentence-transformers ------------------------------------------------------------

READY = """
model Ready(d = 6, tags = 5) {
  body  = Linear(d, d)
  other = Linear(d, d)
  head  = Linear(d, tags)
  forward(x: f32[batch, d]) {
    return logits = head(tanh(body(x)))
  }
  fn objective(x: f32[batch, d], y: i32[batch], z: f32[batch, d], pair: i32[batch], share: f32[batch, d]) {
    h      = body(x)
    g      = other(z)
    logits = head(tanh(h))
    w      = vector([0.5, 1, 2, 0.25, 3])
%s
    return %s
  }
  train objective { optimizer = "sgd"  lr = 0.01 }
}
"""
READY_LOSSES = {  # name: (in the language, in torch); v.pair is 1 or -1
    "mse": ("mse_loss(h, z)", lambda v: F.mse_loss(v.h, v.z)), "mse_sum": ('mse_loss(h, g, "sum") / 50', lambda v: F.mse_loss(v.h, v.g, reduction="sum") / 50),
    "l1": ("l1_loss(h, g)", lambda v: F.l1_loss(v.h, v.g)), "rows": ('mean(mean(l1_loss(h, g, "none") * z))', lambda v: (F.l1_loss(v.h, v.g, reduction="none") * v.z).mean()),
    "smooth": ("smooth_l1_loss(h, g)", lambda v: F.smooth_l1_loss(v.h, v.g)), "smooth3": ("smooth_l1_loss(h, g, beta = 0.3)", lambda v: F.smooth_l1_loss(v.h, v.g, beta=0.3)),
    "smooth0": ("smooth_l1_loss(h, g, beta = 0)", lambda v: F.smooth_l1_loss(v.h, v.g, beta=0.0)), "huber": ("huber_loss(h, g, delta = 0.4)", lambda v: F.huber_loss(v.h, v.g, delta=0.4)),
    "gauss": ("gaussian_nll_loss(h, z, g * g + 0.1)", lambda v: F.gaussian_nll_loss(v.h, v.z, v.g * v.g + 0.1)), "gauss_full": ("gaussian_nll_loss(h, z, g * g + 0.05, true, 0.2)", lambda v: F.gaussian_nll_loss(v.h, v.z, v.g * v.g + 0.05, full=True, eps=0.2)),
    "poisson": ("poisson_nll_loss(h, share)", lambda v: F.poisson_nll_loss(v.h, v.share)), "poisson2": ("poisson_nll_loss(h * h, share, log_input = false)", lambda v: F.poisson_nll_loss(v.h * v.h, v.share, log_input=False)),
    "bce": ("binary_cross_entropy_with_logits(h, share)", lambda v: F.binary_cross_entropy_with_logits(v.h, v.share)),
    "bce_positive": ("binary_cross_entropy_with_logits(h, share, pos_weight = vector([2.5]))", lambda v: F.binary_cross_entropy_with_logits(v.h, v.share, pos_weight=torch.full((6,), 2.5, dtype=v.h.dtype))),
    "bce_weight": ("binary_cross_entropy_with_logits(h, share, abs(z))", lambda v: F.binary_cross_entropy_with_logits(v.h, v.share, weight=v.z.abs())),
    "soft_margin": ("soft_margin_loss(h, f32(pair)[:, none])", lambda v: F.soft_margin_loss(v.h, v.pair[:, None].expand_as(v.h))),
    "kl": ("kl_div(log_softmax(h), softmax(g))", lambda v: F.kl_div(v.h.log_softmax(-1), v.g.softmax(-1), reduction="mean")), "kl_batch": ('kl_div(log_softmax(h), relu(softmax(g) - 0.1), "batchmean")', lambda v: F.kl_div(v.h.log_softmax(-1), (v.g.softmax(-1) - 0.1).relu(), reduction="batchmean")),
    "kl_logs": ('kl_div(log_softmax(h), log_softmax(g), "sum", true) / 9', lambda v: F.kl_div(v.h.log_softmax(-1), v.g.log_softmax(-1), reduction="sum", log_target=True) / 9),
    "hinge": ("hinge_embedding_loss(h[:, 0], pair)", lambda v: F.hinge_embedding_loss(v.h[:, 0], v.pair)), "ranking": ("margin_ranking_loss(h[:, 0], g[:, 0], pair, 0.3)", lambda v: F.margin_ranking_loss(v.h[:, 0], v.g[:, 0], v.pair, margin=0.3)),
    "cosine": ("cosine_embedding_loss(h, g, pair, 0.1)", lambda v: F.cosine_embedding_loss(v.h, v.g, v.pair, margin=0.1)),
    "triplet": ("triplet_margin_loss(h, g, z)", lambda v: F.triplet_margin_loss(v.h, v.g, v.z)), "triplet_swapped": ("triplet_margin_loss(h, g, z, 2, 1, swap = true)", lambda v: F.triplet_margin_loss(v.h, v.g, v.z, margin=2.0, p=1.0, swap=True)),
    "contrastive": ("contrastive_loss(h, g, pair > 0)", lambda v: contrastive(v)),
    "weighted": ("cross_entropy(logits, y, weights = w)", lambda v: F.cross_entropy(v.logits, v.y, v.w)), "weighted_sum": ('cross_entropy(logits, y, reduction = "sum", weights = w) / 7', lambda v: F.cross_entropy(v.logits, v.y, v.w, reduction="sum") / 7),
    "weighted_smooth": ("cross_entropy(logits, y, ignore_index = 2, label_smoothing = 0.2, weights = w)", lambda v: F.cross_entropy(v.logits, v.y, v.w, ignore_index=2, label_smoothing=0.2)),
}


def contrastive(v):
    far, label = 1 - F.cosine_similarity(v.h, v.g), (v.pair > 0).to(v.h.dtype)
    return 0.5 * (label * far ** 2 + (1 - label) * F.relu(0.5 - far) ** 2).mean()


def ready(r, table, sizes, **more):
    m = r.filled(nn.ModuleDict(dict(body=nn.Linear(6, 6), other=nn.Linear(6, 6), head=nn.Linear(6, 5))))
    batches = [dict(x=r.normal(n, 6), y=r.ids(5, n), z=r.normal(n, 6), pair=2 * r.ids(2, n) - 1, share=r.normal(n, 6).sigmoid()) for n in sizes]
    lines = "\n".join(f"    {name} = {of}" for name, (of, _) in table.items())
    text = READY % (lines, f"loss = {' + '.join(table)}, {', '.join(f'{name} = {name}' for name in table)}")

    def objective(w, b):
        h, g = F.linear(b["x"], w["body.weight"], w["body.bias"]), F.linear(b["z"], w["other.weight"], w["other.bias"])
        v = types.SimpleNamespace(h=h, g=g, logits=F.linear(h.tanh(), w["head.weight"], w["head.bias"]), y=b["y"].long(), z=b["z"], share=b["share"],
                                  pair=b["pair"].to(h.dtype), w=torch.tensor([0.5, 1, 2, 0.25, 3], dtype=h.dtype))
        values = {name: of(v) for name, (_, of) in table.items()}
        return {"loss": plain(sum(values.values()))} | {name: plain(x) for name, x in values.items()}
    return Case(text, state(_=m), batches, objective, settings=dict(optimizer="sgd", lr=0.01), **more)


for _part, _names in (("first", list(READY_LOSSES)[::2]), ("second", list(READY_LOSSES)[1::2])):
    CASES["train-ready-" + _part] = ("Losses of the standard library, of four unequal batches in each of three steps.",
                                     lambda r, names=_names: ready(r, {name: READY_LOSSES[name] for name in names}, (3, 1, 2, 2), accumulate=4, joined=True, steps=3))
PROBABLE_LOSSES = {
    "bce": ("binary_cross_entropy(sigmoid(h + g), share)", lambda v: F.binary_cross_entropy((v.h + v.g).sigmoid(), v.share)),
    "bce_bounds": ("binary_cross_entropy(clamp(h * 40, 0, 1), f32(z > 0), abs(z)) / 50", lambda v: F.binary_cross_entropy((v.h * 40).clamp(0, 1), (v.z > 0).to(v.h.dtype), v.z.abs()) / 50),
    "nll": ("nll_loss(log_softmax(logits), y)", lambda v: F.nll_loss(v.logits.log_softmax(-1), v.y)),
    "nll_weights": ("nll_loss(log_softmax(logits), y, 2, weights = w)", lambda v: F.nll_loss(v.logits.log_softmax(-1), v.y, v.w, ignore_index=2)),
    "nll_sum": ('nll_loss(logits, y, 1, "sum") / 9', lambda v: F.nll_loss(v.logits, v.y, ignore_index=1, reduction="sum") / 9),
    "nll_rows": ('mean(nll_loss(logits, y, reduction = "none") * z[:, 0])', lambda v: (F.nll_loss(v.logits, v.y, reduction="none") * v.z[:, 0]).mean()),
}
CASES["train-ready-third"] = ("Losses of probabilities, of four unequal batches in each of three steps.",
                              lambda r: ready(r, PROBABLE_LOSSES, (3, 1, 2, 2), accumulate=4, joined=True, steps=3))


def cosent(v):
    scores = F.cosine_similarity(v.h, v.g) * 20
    scores, before = scores[:, None] - scores[None, :], v.share[:, 0][:, None] < v.share[:, 0][None, :]
    return torch.cat([scores.new_zeros(1), (scores - (~before).to(scores.dtype) * 1e12).flatten()]).logsumexp(0)


CASES["train-cosent"] = ("Pairs of rows by how alike they are, of one batch.", lambda r: ready(r, {
    "cosent": ("cosent_loss(h, g, share[:, 0])", cosent), "heads": ("cross_entropy(logits, y)", lambda v: F.cross_entropy(v.logits, v.y))}, (5,)))
CASES["train-negatives"] = ("In-batch negatives, of one batch.", lambda r: ready(r, {
    "ranked": ("multiple_negatives_ranking_loss(h, g)", lambda v: F.cross_entropy(F.normalize(v.h, dim=-1) @ F.normalize(v.g, dim=-1).T * 20, torch.arange(len(v.h)))),
    "heads": ("cross_entropy(logits, y)", lambda v: F.cross_entropy(v.logits, v.y))}, (5,)))


# --- Dropout, to the bit ----------------------------------------------------------------------------------------------

def philox(counter, key):
    """Philox4x32-10 of Salmon et al. 2011, on arrays of 32-bit words held in uint64."""
    c, k, mask, half = [np.asarray(v, np.uint64) for v in counter], [np.uint64(v) for v in key], np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(q >> half) ^ c[1] ^ k[0], q & mask, (p >> half) ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + np.uint64(0x9E3779B9)) & mask, (k[1] + np.uint64(0xBB67AE85)) & mask]
    return c


def kept(shape, static, p, ordinal, seed, step, first):
    """Which elements stay: the batch is axis 0, the last axis the column, the others fold to the row."""
    assert [int(v) for v in philox([0] * 4, [0, 0])] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    index, row = np.indices(shape, dtype=np.uint64), np.zeros(shape, np.uint64)
    for axis in range(1, len(shape) - 1):
        row = (row * np.uint64(shape[axis] if static[axis] else 1 << 20) + index[axis]) & np.uint64(0xFFFFFFFF)
    words = philox([index[-1] >> np.uint64(2), row, index[0] + np.uint64(first), np.full(shape, step, np.uint64)], [seed & 0xFFFFFFFF, (seed >> 32) ^ ordinal])
    return torch.from_numpy(np.choose((index[-1] & np.uint64(3)).astype(np.int64), words) >= np.uint64(int(p * 2**32)))


def dropped(x, static, p, ordinal, seed, step, first):
    return torch.where(kept(tuple(x.shape), static, p, ordinal, seed, step, first), x * (1 / (1 - p)), 0.0)


DROPOUT = """
model Drops(vocab = 13, d = 16, heads = 4, p = %s) {
  embed     = Embedding(vocab, d)
  early     = Dropout(p)
  attention = MultiheadAttention(d, heads, dropout = p)
  late      = Dropout(0.5)
  head      = Linear(d, vocab)

  forward(ids: i32[batch, time]) {
    x = ids -> embed -> early
    x = x + late(attention(x, key_padding_mask = ids == 0))
    logits = head(x)
    return logits
  }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), labels, ignore_index = 0)
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
"""


def drops(r, seed, p, batches, **more):
    m = r.filled(nn.ModuleDict(dict(embed=nn.Embedding(13, 16), attention=nn.MultiheadAttention(16, 4, batch_first=True), head=nn.Linear(16, 13))))

    def objective(w, b, step, first):
        drop = lambda x, ordinal, static, p=p: dropped(x, static, p, ordinal, seed, step, first) if p else x
        ids, three = b["ids"], [False, False, True]
        n, t = ids.shape
        x = drop(w["embed.weight"][ids], 0, three)
        q, k, v = (a.reshape(n, t, 4, 4).transpose(1, 2) for a in F.linear(x, w["attention.in_proj_weight"], w["attention.in_proj_bias"]).chunk(3, -1))
        weights = drop((q @ k.transpose(-1, -2) / 2).masked_fill((ids == 0)[:, None, None], -inf).softmax(-1), 1, [False, True, False, False])
        y = F.linear((weights @ v).transpose(1, 2).flatten(-2), w["attention.out_proj.weight"], w["attention.out_proj.bias"])
        return {"loss": cross_entropy(run(m["head"], w, "head", x + drop(y, 2, three, 0.5)), b["labels"], 0)}
    return Case(DROPOUT % p, state(_=m), batches, objective, seed=seed, random=True, settings=dict(optimizer="sgd", lr=0.1), **more)


def sentences(r, *lengths):
    return dict(ids=r.padded_ids(13, lengths, max(lengths)), labels=r.padded_ids(13, lengths, max(lengths)))


@case("Dropout of embeddings, attention weights and a sublayer, three steps with seed 7: the random numbers are those of the specification.")
def dropout(r):
    return drops(r, 7, 0.25, [sentences(r, 6, 4, 3)], steps=3)


@case("The same step as two batches of other lengths: an element's random number depends on its item and place, not on the batch.")
def dropout_parts(r):
    return drops(r, (5 << 32) + 1234567, 0.25, [sentences(r, 6, 4), sentences(r, 9, 2, 5)], accumulate=2, steps=2)


@case("Dropout of probability 0 in training: nothing is random.")
def dropout_off(r):
    c = drops(r, 3, 0.0, [sentences(r, 6, 4, 3)])
    c.model = c.model.replace("late      = Dropout(0.5)", "late      = Dropout(0)")
    inner = c.objective
    m = {"late": 0}

    def objective(w, b, step, first):
        ids = b["ids"]
        n, t = ids.shape
        x = w["embed.weight"][ids]
        q, k, v = (a.reshape(n, t, 4, 4).transpose(1, 2) for a in F.linear(x, w["attention.in_proj_weight"], w["attention.in_proj_bias"]).chunk(3, -1))
        y = (q @ k.transpose(-1, -2) / 2).masked_fill((ids == 0)[:, None, None], -inf).softmax(-1) @ v
        x = x + F.linear(y.transpose(1, 2).flatten(-2), w["attention.out_proj.weight"], w["attention.out_proj.bias"])
        return {"loss": cross_entropy(F.linear(x, w["head.weight"], w["head.bias"]), b["labels"], 0)}
    c.objective = objective
    return c


# --- Initial values, to the bit ---------------------------------------------------------------------------------------

def initial(seed, path, dims, kind, **given):
    """One weight. Distributions are torch.nn.init's; which number goes where is the specification's."""
    if kind == "constant":
        return torch.full(dims, given["x"], dtype=torch.float64)
    h = 0xCBF29CE484222325
    for byte in path.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    e = np.arange(math.prod(dims), dtype=np.uint64)
    words = philox([e // np.uint64(2) & np.uint64(0xFFFFFFFF), e >> np.uint64(33), np.full(e.shape, h & 0xFFFFFFFF, np.uint64), np.full(e.shape, h >> 32, np.uint64)],
                   [seed & 0xFFFFFFFF, (seed >> 32) ^ 0xFFFFFFFE])
    odd = e % np.uint64(2) == 1
    a, b = (np.where(odd, words[2 + i], words[i]).astype(np.float64) + 0.5 for i in (0, 1))
    if kind.startswith(("xavier", "kaiming")):
        fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(torch.empty(dims))
        std = given.get("gain", 1.0) * math.sqrt(2 / (fan_in + fan_out)) if kind.startswith("xavier") else math.sqrt(2 / (1 + given.get("a", 0.0) ** 2) / fan_in)
        given = dict(low=-math.sqrt(3) * std, high=math.sqrt(3) * std) if kind.endswith("uniform") else dict(mean=0.0, std=std)
        kind = kind.split("_")[1]
    if kind == "uniform":
        x = given["low"] + (given["high"] - given["low"]) * (a / 2**32)
    else:
        x = given.get("mean", 0.0) + given.get("std", 1.0) * np.sqrt(-2 * np.log(a / 2**32)) * np.cos(2 * math.pi * (b / 2**32))
    return torch.from_numpy(x).reshape(dims)


@case("Initial values of every kind, of standard layers, and of a layer that sets all its matrices alike; 40-bit seed.")
def initials(r):
    seed, out, d = (300 << 32) + 77, {}, 12
    add = lambda path, dims, kind, **given: out.__setitem__(f"after.{path}", initial(seed, path, dims, kind, **given))
    add("embed.weight", [9, d], "normal")
    add("lower", [5, 4], "uniform", low=-0.25, high=0.75)
    add("small", [7], "normal", mean=1.0, std=0.02)
    add("wide", [6, 3, 2], "xavier_normal", gain=2.0)
    add("he", [6, 10], "kaiming_normal")
    add("he2", [6, 10], "kaiming_uniform", a=1.0)
    add("half", [3], "constant", x=0.5)
    add("attention.in_proj_weight", [3 * d, d], "xavier_uniform")
    add("attention.in_proj_bias", [3 * d], "constant", x=0)
    add("attention.bias_k", [1, 1, d], "xavier_normal")
    add("attention.bias_v", [1, 1, d], "xavier_normal")
    add("attention.out_proj.weight", [d, d], "kaiming_uniform", a=math.sqrt(5))
    add("attention.out_proj.bias", [d], "uniform", low=-1 / math.sqrt(d), high=1 / math.sqrt(d))
    for part in ("both.up", "both.down"):
        add(part + ".weight", [d, d], "xavier_uniform", gain=0.5)
        add(part + ".bias", [d], "uniform", low=-1 / math.sqrt(d), high=1 / math.sqrt(d))
    add("both.norm.weight", [d], "constant", x=1)
    add("both.norm.bias", [d], "constant", x=0)
    return Case("""
layer Both(d) {
  weight * = xavier_uniform(0.5)
  up   = Linear(d, d)
  down = Linear(d, d)
  norm = LayerNorm(d)

  forward(x) = x -> up -> down -> norm
}

model Initials(d = 12) {
  embed     = Embedding(9, d)
  attention = MultiheadAttention(d, 3, add_bias_kv = true)
  both      = Both(d)
  weight lower: [5, 4] = uniform(-0.25, 0.75)
  weight small: [7] = normal(1, 0.02)
  weight wide: [6, 3, 2] = xavier_normal(gain = 2)
  weight he: [6, 10] = kaiming_normal()
  weight he2: [6, 10] = kaiming_uniform(1)
  weight half: [3] = 0.5

  forward(ids: i32[batch, time]) {
    hidden = ids -> embed -> attention -> both
    rest = sum(sum(lower)) + sum(small) + sum(sum(sum(wide))) + sum(sum(he * he2)) + sum(half)
    return hidden, rest
  }
  fn objective(ids: i32[batch, time]) {
    hidden, rest = forward(ids)
    return loss = sum(sum(sum(hidden))) + rest
  }
  train objective { lr = 1 }
}
""", {}, None, out, mode="initial", seed=seed, atol=1e-7, rtol=1e-6)


# --- What must be refused ---------------------------------------------------------------------------------------------

TINY = """
model Tiny(vocab = 7, d = 4) {
  embed = Embedding(vocab, d)
  head  = Linear(d, vocab)

  forward(ids: i32[batch, time]) {
    logits = ids -> embed -> head
    return logits
  }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    %s
  }
  train %s { %s }
}
"""
GOOD = "return loss = cross_entropy(forward(ids), labels, ignore_index = 0)"


def tiny(body=GOOD, name="objective", settings='optimizer = "sgd"  lr = 0.1'):
    return TINY % (body, name, settings)


def tiny_files(labels):
    r = Random("tiny")
    w = {"embed.weight": r.normal(7, 4), "head.weight": r.normal(7, 4), "head.bias": r.normal(7)}
    return dict(weights=w, batches=dict(ids=torch.tensor([[1, 2, 3]]), labels=torch.tensor([labels])))


bad("label-high", "A label beyond the classes.", ["labels", "7", "[0, 7)"], tiny(), "run", **tiny_files([1, 7, 0]))
bad("label-negative", "A negative label that is not the one to ignore.", ["labels", "-1", "[0, 7)"], tiny(), "run", **tiny_files([1, -1, 0]))
bad("labels-none", "No label of the step counts: the loss has no value.", ["no label", "counts"], tiny(), "run", **tiny_files([0, 0, 0]))
bad("no-block", "tfmc train on a model that does not say what to train.", ["train", "Tiny"], tiny().replace("train objective {", "# {"), "run", **tiny_files([1, 2, 3]))
bad("unknown-function", "train names a function that is not there.", ["objectiv", "objective"], tiny(name="objectiv"))
bad("unknown-setting", "A setting that nobody knows; the nearest is named.", ["learning_rate", "lr"], tiny(settings='learning_rate = 0.1'))
bad("unknown-optimizer", "An optimizer that nobody knows.", ["adagrad", "adamw"], tiny(settings='optimizer = "adagrad"'))
bad("rate", "A rate that is not positive.", ["lr", "0"], tiny(settings='lr = 0'))
bad("betas", "A beta of 1.", ["betas", "1"], tiny(settings='betas = [0.9, 1]'))
bad("warmup-missing", "noam without a warm-up.", ["noam", "warmup"], tiny(settings='schedule = "noam"  model_size = d'))
bad("loss-shape", "A loss that is no scalar.", ["loss", "scalar", "[batch, time]"], tiny("return loss = sum(forward(ids))"))
bad("loss-type", "A loss that is an i32.", ["loss", "f32"], tiny("return loss = labels[0, 0]"))
bad("loss-constant", "A loss that no weight reaches.", ["loss", "weight"], tiny("return loss = sum(sum(f32(labels)))"))
bad("dropout", "A probability that is none.", ["p", "[0, 1]", "1.5"], tiny("return loss = cross_entropy(dropout(forward(ids), 1.5), labels)"))
bad("classes", "Labels of another shape than the scores.", ["cross_entropy", "[batch, time, 7]", "[batch]"], tiny("return loss = cross_entropy(forward(ids), labels[:, 0])"))
bad("class-weights", "Weights of another number of classes.", ["cross_entropy", "weights", "[6]", "[batch, time, 7]"], tiny("return loss = cross_entropy(forward(ids), labels, weights = full([6], 1))"))
bad("reduction", "A reduction that there is not.", ["reduction", "none"], tiny('return loss = mse_loss(forward(ids), 0, "average")'))
bad("freeze", "freeze names no weight.", ["freeze", "embedding.*"], tiny(settings='lr = 0.1  freeze = ["embedding.*"]'))
bad("two-blocks", "Two train blocks.", ["train", "one"], tiny().replace("  train objective {", "  train objective { lr = 1 }\n  train objective {"))
bad("in-layer", "train in a layer.", ["train", "model"], "layer L {\n  forward(x) = x\n  fn f(x: f32[n]) = sum(x)\n  train f { lr = 1 }\n}\nmodel M {\n  l = L()\n  forward(x: f32[n]) {\n    return y = l(x)\n  }\n}\n")


MIXING = {  # what needs all items at once: in the language, and of all batches as one
    "greatest": ("max(rows)", lambda v: v["rows"].max()),
    "centred": ("mean(sum((h - mean(h, axis = 0)) ** 2.0))", lambda v: (v["h"] - v["h"].mean(0)).square().sum(-1).mean()),
    "negatives": ("cross_entropy(h @ transpose(z, 0, 1), positions(z, axis = 0))", lambda v: F.cross_entropy(v["h"] @ v["z"].T, torch.arange(len(v["z"])))),
    "ranked": ("multiple_negatives_ranking_loss(h, z, 3) + 0.1 * sum(sum(body.weight * body.weight))",
               lambda v: F.cross_entropy(F.normalize(v["h"], dim=-1) @ F.normalize(v["z"], dim=-1).T * 3, torch.arange(len(v["z"]))) + 0.1 * v["w"].square().sum()),
    "temperature": ("cross_entropy(exp(scale) * h @ transpose(z, 0, 1), positions(z, axis = 0)) / exp(nll)",
                    lambda v: F.cross_entropy(v["scale"].exp() * v["h"] @ v["z"].T, torch.arange(len(v["z"]))) / v["nll"].exp()),
    "sorted": ("topk(rows, 1, axis = 0)[0]", lambda v: v["rows"].max()),
    "softmax": ("sum(softmax(rows) * rows)", lambda v: (v["rows"].softmax(0) * v["rows"]).sum()),
    "neighbours": ("mean((h[1:] - h[:-1])[:, 0])", lambda v: (v["h"][1:] - v["h"][:-1])[:, 0].mean()),
    "running": ("sum(cumsum(rows) * rows)", lambda v: (v["rows"].cumsum(0) * v["rows"]).sum()),
    "first": ("rows[0]", lambda v: v["rows"][0]),
    "flattened": ("sum(sum(tanh(reshape(transpose(h, 0, 1), [2 * batch, d // 2]) @ transpose(z[:, :d // 2], 0, 1))))",
                  lambda v: (v["h"].T.reshape(-1, 3) @ v["z"][:, :3].T).tanh().sum()),
    "weighted": ("sum(rows * counts / sum(counts))", lambda v: (v["rows"] * v["counts"] / v["counts"].sum()).sum()),
    "covariance": ("sum(sum(((transpose(h, 0, 1) @ h) / f32(shape(h, 0)) - mean(h, axis = 0)[:, none] * mean(h, axis = 0)) ** 2.0))",
                   lambda v: (v["h"].T @ v["h"] / len(v["h"]) - v["h"].mean(0)[:, None] * v["h"].mean(0)).square().sum()),
    "divisor": ("sum(sum(h * h)) / sum(sum(abs(h)))", lambda v: v["h"].square().sum() / v["h"].abs().sum()),
}


for _name, (_text, _loss) in MIXING.items():
    CASES["train-mixing-" + _name] = ("A loss that mixes the items of a batch, of four unequal batches in each of two steps: that of all items at once.",
                                      lambda r, text=_text, loss=_loss: mixed(r, text, loss, steps=2))
CASES["train-mixing-results"] = ("Results that mix items beside a loss that does not.",
                                 lambda r: mixed(r, "nll", lambda v: v["nll"], also={n: MIXING[n] for n in ("greatest", "centred", "negatives", "first", "divisor")}))
CASES["train-mixing-evaluate"] = ("The same in an evaluation.",
                                  lambda r: mixed(r, "nll", lambda v: v["nll"], also={n: MIXING[n] for n in MIXING}, mode="evaluate"))

for _name, _shape, _text in (("shared", "[d]", "max(sum((h - mean(h, axis = 0)) * shift))"), ("pairs", "[batch, batch]", "max(max(h @ transpose(z, 0, 1) + shift))")):
    bad("mixing-" + _name, "A loss that mixes items with an input that a part may have another of: refused by name and place.", ["mixes the items", "'loss'", "'shift'", "--accumulate", "model.tfm:"],
        (MIXTURES % ("loss = " + _text, "")).replace("z: f32[batch, d])", f"z: f32[batch, d], shift: f32{_shape})"), "run", accumulate=2,
        weights=mixed(Random("mixing"), "nll", None).weights,
        batches=[b | {"shift": torch.zeros(6 if _name == "shared" else (len(b["y"]), len(b["y"])), dtype=torch.float64)} for b in mixed(Random("mixing"), "nll", None).batches])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE / "train")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)
    total, counts = 0, {}
    for name in [n for n in CASES if not args.names or any(fnmatch.fnmatchcase(n, pattern) for pattern in args.names)]:
        note, function = CASES[name]
        kind = ("bad" if name.startswith("bad-") else "numeric")
        counts[kind] = counts.get(kind, 0) + 1
        if args.list:
            print(f"{name}: {note}")
            continue
        c = function(Random(name))
        if "steps_" in c.settings:      # the schedule's end is not how many steps the case takes
            c.settings["steps"] = c.settings.pop("steps_")
        total += write(name, note, c, args.out)
    print(", ".join(f"{n} {k}" for k, n in counts.items()) + f"; {total / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
