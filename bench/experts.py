#!/usr/bin/env python3
"""A mixture of experts beside PyTorch (eager) and transformers, in one run, interleaved.

usage: experts.py TFMC [--rounds N] [--tokens N] [--d N] [--ffn N] [--experts N] [--best N] [--threads N]

Compares the mixture of docs/language.md, as a compiled library, with

  dense     a loop in PyTorch over all experts, which computes all rows of each          goal: at most 0.5
  mixtral   MixtralSparseMoeBlock of transformers, which computes the chosen rows        goal: at most 0.6
  one row   one token, beside a feed-forward as wide as the experts that it chooses      goal: at most 1.2
            (tokens alternate, and so do feed-forwards: both sides read from as much memory)

Each ratio is the median of those of the rounds; in each round everything has its turn, and a turn is the median of a
few runs. Ends with 0 if every ratio meets its goal and outputs differ by at most 2e-5 of the largest, else with 1;
without torch or transformers prints 'not run' and ends with 77.
"""
import argparse
import pathlib
import statistics
import sys
import tempfile
import time
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from compiled import Library, compile_model  # noqa: E402

REST = 0.25  # seconds between turns: threads of one library no longer spin when the other begins
ONE = """
layer Expert(d, ffn) {
  w1 = Linear(d, ffn, bias = false)
  w2 = Linear(ffn, d, bias = false)
  w3 = Linear(d, ffn, bias = false)
  forward(x) = w2(silu(w1(x)) * w3(x))
}
model Wide(d, ffn) {
  expert = Expert(d, ffn)
  forward(x: f32[batch, time, d]) { return y = expert(x) }
}
"""


def mixture():
    """The first model of the section in docs/language.md."""
    page = (ROOT / "docs/language.md").read_text()
    return page.split("## Mixtures of experts")[1].split("```tfm\n")[1].split("```")[0]


def random_weights(rng, a):
    draw = lambda n, k: rng.uniform(-(3 / k) ** 0.5, (3 / k) ** 0.5, (n, k)).astype(np.float32)
    weights = {"gate.weight": draw(a.experts, a.d)}
    for e in range(a.experts):
        weights |= {f"experts.{e}.w1.weight": draw(a.ffn, a.d), f"experts.{e}.w3.weight": draw(a.ffn, a.d),
                    f"experts.{e}.w2.weight": draw(a.d, a.ffn)}
    return weights


def compiled(args, folder, name, source, weights, *options):
    from safetensors.numpy import save_file
    save_file(weights, f"{folder}/{name}.safetensors")
    path = compile_model(args.tfmc, folder, name, source, "--weights", f"{folder}/{name}.safetensors", "--embed-weights",
                         "-march=native", *options)
    return Library(args.tfmc, path, threads=args.threads)


def torch_block(torch, args, weights):
    """transformers' block with these weights."""
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
    block = MixtralSparseMoeBlock(MixtralConfig(hidden_size=args.d, intermediate_size=args.ffn, num_local_experts=args.experts,
                                                num_experts_per_tok=args.best, experts_implementation="eager")).eval()
    of = lambda n: torch.stack([torch.from_numpy(weights[f"experts.{e}.{n}.weight"]) for e in range(args.experts)])
    block.gate.weight.copy_(torch.from_numpy(weights["gate.weight"]))
    block.experts.gate_up_proj.copy_(torch.cat([of("w1"), of("w3")], 1))
    block.experts.down_proj.copy_(of("w2"))
    return block


def torch_dense(torch, args, weights):
    """All experts on all rows, one after the other."""
    F, w = torch.nn.functional, {k: torch.from_numpy(v) for k, v in weights.items()}

    def forward(x):
        p, chosen = F.softmax(F.linear(x, w["gate.weight"]), -1).topk(args.best, -1)
        gate = torch.zeros(*x.shape[:-1], args.experts).scatter_(-1, chosen, p / p.sum(-1, keepdim=True))
        y = torch.zeros_like(x)
        for e in range(args.experts):
            one = lambda n, z: F.linear(z, w[f"experts.{e}.{n}.weight"])
            y += gate[..., e, None] * one("w2", F.silu(one("w1", x)) * one("w3", x))
        return y
    return forward


def joined(args, weights, first):
    """The weights of a feed-forward that gives what as many experts as a token has give together."""
    one = lambda n, axis: np.concatenate([weights[f"experts.{first + e}.{n}.weight"] for e in range(args.best)], axis)
    return {"expert.w1.weight": one("w1", 0), "expert.w2.weight": one("w2", 1), "expert.w3.weight": one("w3", 0)}


def turn(run, times):
    """The median of some runs, after one that is not counted."""
    time.sleep(REST)
    run(0)
    taken = []
    for i in range(1, times + 1):
        start = time.perf_counter()
        run(i)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def compare(name, goal, rounds, ours, theirs, times):
    """Prints a line; whether the goal is met."""
    mine, other = [], []
    for _ in range(rounds):
        mine.append(turn(ours, times))
        other.append(turn(theirs, times))
    ratio = statistics.median(a / b for a, b in zip(mine, other))
    print(f"{name:8}  {statistics.median(mine) * 1e3:8.2f} ms beside {statistics.median(other) * 1e3:8.2f} ms, best {min(mine) * 1e3:.2f} "
          f"and {min(other) * 1e3:.2f}; ratio {ratio:.2f}, goal {goal}", flush=True)
    return ratio <= goal


def measure(torch, args, folder):
    rng = np.random.default_rng(1)
    weights, sizes = random_weights(rng, args), [f"-Dd={args.d}", f"-Dffn={args.ffn}"]
    mixed = compiled(args, folder, "mixture", mixture(), weights, *sizes, f"-Dn={args.experts}", f"-Dk={args.best}",
                     "--require-fusion=experts")
    x = rng.standard_normal((1, args.tokens, args.d)).astype(np.float32)
    given, ok = torch.from_numpy(x), True
    ours = lambda i: mixed.run({"x": x})["y"]
    for name, goal, module in (("dense", 0.5, torch_dense), ("mixtral", 0.6, torch_block)):
        theirs = module(torch, args, weights)
        want = theirs(given).numpy()
        difference = np.abs(ours(0) - want).max() / np.abs(want).max()
        ok &= bool(difference <= 2e-5)
        ok &= compare(name, goal, args.rounds, ours, lambda i: theirs(given), 3)
        print(f"{'':8}  outputs differ by {difference:.1e} of the largest")
    wide = [compiled(args, folder, f"wide{e}", ONE, joined(args, weights, e), f"-Dd={args.d}", f"-Dffn={args.best * args.ffn}")
            for e in range(0, args.experts - args.best + 1, args.best)]
    tokens = [{"x": np.ascontiguousarray(x[:, i % args.tokens:i % args.tokens + 1])} for i in range(32)]
    dense = lambda i: wide[i % len(wide)].run(tokens[i])
    return ok & compare("one row", 1.2, args.rounds, lambda i: mixed.run(tokens[i]), dense, 31)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tfmc")
    for name, value in (("rounds", 9), ("tokens", 512), ("d", 512), ("ffn", 1792), ("experts", 8), ("best", 2), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    try:
        import torch
        import transformers
    except ImportError as missing:
        print(f"not run: comparison with PyTorch ({missing})")
        return 77
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        return not measure(torch, args, folder)


if __name__ == "__main__":
    sys.exit(main())
