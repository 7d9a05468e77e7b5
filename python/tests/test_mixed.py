"""Results that mix items: every kind by 1, 2 and 4 ranks, and random objectives in 1, 2 and 5 parts against torch in double, which
computes the whole batch. test_train_mixed.py has the parts of the command. With TFM_LONG all kinds by 4 ranks too, and 200 objectives.
"""
import importlib.util
import pathlib
import random
import sys
import unittest

import numpy as np

import tfmc
from support import LONG, Case
from test_group import Groups as Ranks
from test_group import Ours, digest

E2E = pathlib.Path(__file__).resolve().parents[2] / "tests/e2e"
try:
    import torch
except ImportError:
    torch = None

N, TIME, SIZES = 10, 4, {1: [10], 2: [7, 3], 5: [1, 4, 2, 2, 1]}
HEAD = """model M(v = 20, d = 8, p = 0.0) {
  embed = Embedding(v, d)
  tower = Linear(d, d)
  weight scale: [] = 0.5
  forward(ids: i32[batch, time]) { return vectors = tower(dropout(mean(tanh(embed(ids)), axis = 1), p)) }
  fn objective(ids: i32[batch, time], other: i32[batch, time], labels: i32[batch]) {
    h = forward(ids)
    z = forward(other)
    return loss = LOSS
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
"""


def batch(seed):
    rng = np.random.default_rng(seed)
    return {"ids": rng.integers(1, 20, (N, TIME), dtype=np.int32), "other": rng.integers(1, 20, (N, TIME), dtype=np.int32),
            "labels": rng.integers(0, 8, N, dtype=np.int32)}


def cut(whole, sizes):
    ends = np.cumsum(sizes)
    return [{name: rows[end - n:end] for name, rows in whole.items()} for n, end in zip(sizes, ends)]


# ---- ranks ----

def kinds():
    """MODEL and KINDS of the command's test."""
    sys.path.insert(0, str(E2E))
    spec = importlib.util.spec_from_file_location("test_train_mixed", E2E / "test_train_mixed.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made.MODEL, made.KINDS


def steps(paths, group):
    """For each compiled objective the weights after two steps, and the losses."""
    found = []
    for path in paths:
        trainer = tfmc.Trainer(path, seed=5, shards=4, group=group, threads=1)
        found.append((*(trainer.step({**batch(i), "labels": batch(i)["labels"] % 5}).loss for i in range(2)), digest(trainer)))
    return found


def work(rank, pipes, answers, name, args):
    """A rank of test_group's, in a process of its own."""
    try:
        answers.send(steps(args[0], Ours(rank, pipes)))
    except Exception as error:
        answers.send(f"{type(error).__name__}: {error}")


@unittest.skipUnless(E2E.is_dir(), "not run: the command's tests are not here")
class Kinds(Case):
    def test_every_kind_has_the_bits_of_one_rank(self):
        model, made = kinds()
        folder, paths = pathlib.Path(self.folder()), []
        for number, (name, text) in enumerate(made.items()):
            if LONG or name in ("temperature", "normed"):
                trainer = tfmc.Trainer(model.replace("RESULTS", f"loss = {text}"), config={"p": 0.3})
                paths.append(trainer.save_compiled(folder / f"{number}.tfmm"))
        alone = steps(paths, None)
        self.assertGreater(len({answer[2] for answer in alone}), len(paths) // 2)  # some choose the same item
        for n in (2, 4) if LONG else (2,):
            self.assertEqual(Ranks.ranks(self, n, "mixed", paths, work=work), [alone] * n)


# ---- random objectives ----

class Made:
    """An expression: its text, and a function of torch's values."""

    def __init__(self, text, of):
        self.text, self.of = text, of


def made(text, function, *parts):
    return Made(text.format(*(part.text for part in parts)), lambda v: function(*(part.of(v) for part in parts)))


def rows(rng, depth):
    """[n, d]: of one item each, or mixed."""
    if depth == 0:
        return rng.choice([Made("h", lambda v: v["h"]), Made("z", lambda v: v["z"])])
    a, b = rows(rng, depth - 1), rows(rng, depth - 1)
    return rng.choice([
        lambda: made("tanh({0})", torch.tanh, a), lambda: made("({0} * {1})", lambda x, y: x * y, a, b),
        lambda: made("({0} + {1})", lambda x, y: x + y, a, b), lambda: made("({0} - mean({0}, axis = 0))", lambda x: x - x.mean(0), a),
        lambda: Made(f"({a.text} * scale)", lambda v: a.of(v) * v["scale"]),
        lambda: made("softmax({0})", lambda x: x.softmax(-1), a),
        lambda: made("({0} * rsqrt(mean({0} ** 2.0, axis = 0) + 0.1))", lambda x: x * torch.rsqrt((x ** 2).mean(0) + 0.1), a)])()


def numbers(rng, depth):
    """[n]"""
    a, b = rows(rng, rng.randrange(depth + 1)), rows(rng, rng.randrange(depth + 1))
    plain = [lambda: made("sum({0} * {1})", lambda x, y: (x * y).sum(-1), a, b), lambda: made("mean({0})", lambda x: x.mean(-1), a),
             lambda: Made(f'cross_entropy({a.text}, labels, reduction = "none")',
                          lambda v: torch.nn.functional.cross_entropy(a.of(v), v["labels"], reduction="none"))]
    if depth == 0:
        return rng.choice(plain)()
    s, t = numbers(rng, depth - 1), numbers(rng, depth - 1)
    return rng.choice([
        *plain, lambda: made("({0} * {1})", lambda x, y: x * y, s, t), lambda: made("softmax({0})", lambda x: x.softmax(0), s),
        lambda: made("({0} - mean({0}))", lambda x: x - x.mean(), s), lambda: made("cumsum({0})", lambda x: x.cumsum(0), s)])()


def total(rng, depth):
    """[]: of all items, or of none."""
    s, a, b = numbers(rng, depth), rows(rng, depth), rows(rng, depth)
    plain = [lambda: made("mean({0})", lambda x: x.mean(), s), lambda: made("(0.1 * sum({0}))", lambda x: 0.1 * x.sum(), s),
             lambda: made("log(sum(exp({0})))", lambda x: x.logsumexp(0), s), lambda: made("max({0})", lambda x: x.max(), s),
             lambda: made("mean(log(sum(exp(3.0 * ({0} @ transpose({1}, 0, 1))))))", lambda x, y: (3 * (x @ y.T)).logsumexp(1).mean(), a, b),
             lambda: made("cross_entropy({0} @ transpose({1}, 0, 1), positions({0}, axis = 0))",
                          lambda x, y: torch.nn.functional.cross_entropy(x @ y.T, torch.arange(len(x))), a, b),
             lambda: Made("(0.01 * sum(sum(tower.weight * tower.weight)))", lambda v: 0.01 * (v["tower.weight"] ** 2).sum()),
             lambda: Made("(scale * scale)", lambda v: v["scale"] ** 2)]
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(plain)()
    t, u = total(rng, depth - 1), total(rng, depth - 1)
    return rng.choice([
        lambda: made("({0} + {1})", lambda x, y: x + y, t, u), lambda: made("({0} * {1})", lambda x, y: x * y, t, u),
        lambda: made("({0} / ({1} * {1} + 1.0))", lambda x, y: x / (y * y + 1), t, u),
        lambda: made("sqrt({0} * {0} + 1.0)", lambda x: (x * x + 1).sqrt(), t), lambda: made("exp(0.1 * tanh({0}))", lambda x: (0.1 * x.tanh()).exp(), t)])()


@unittest.skipIf(torch is None, "no torch")
class Objectives(Case):
    def wanted(self, objective, weights, whole):
        """Loss and gradients in double, of the whole batch."""
        w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in weights.items()}
        ids = {name: torch.from_numpy(whole[name]).long() for name in whole}

        def forward(x):
            return torch.tanh(w["embed.weight"][x]).mean(1) @ w["tower.weight"].T + w["tower.bias"]
        loss = objective.of({**w, "h": forward(ids["ids"]), "z": forward(ids["other"]), "labels": ids["labels"]})
        loss.backward()
        return loss.item(), {name: np.zeros(x.shape) if x.grad is None else x.grad.numpy() for name, x in w.items()}

    def check(self, number):
        rng = random.Random(number)
        objective, whole = total(rng, 2), batch(number)
        try:
            trainer = tfmc.Trainer(HEAD.replace("LOSS", objective.text), seed=number, threads=1, on_message=lambda message: None)
        except tfmc.CompileError as error:  # an objective that reaches no weight is none
            self.assertIn("no weight", str(error))
            return 0
        loss, gradients = self.wanted(objective, trainer.weights(), whole)
        most, found = max(1, *(np.abs(g).max() for g in gradients.values())), {}
        for parts, sizes in SIZES.items():
            got = {name: array.copy() for name, array in trainer.gradients(parts=cut(whole, sizes)).items()}
            found[parts] = got, trainer.evaluate(parts=cut(whole, sizes))["loss"]
            self.assertLess(abs(found[parts][1] - loss), 2e-5 * max(1, abs(loss)), f"{parts} parts: {objective.text}")
            for name, wanted in gradients.items():
                if name in got:
                    self.assertLess(np.abs(got[name] - wanted).max(), 2e-5 * most, f"{name}, {parts} parts: {objective.text}")
                else:
                    self.assertEqual(np.abs(wanted).max(), 0, name)
        for parts in (2, 5):  # the cut alone
            self.assertLess(abs(found[parts][1] - found[1][1]), 1e-6 * max(1, abs(loss)) * 4, f"{parts} parts: {objective.text}")
        return 1

    def test_random_objectives_are_those_of_the_whole_batch(self):
        n = 200 if LONG else 6
        tried = sum(self.check(number) for number in range(n))
        self.assertGreater(tried, n * 0.8)


if __name__ == "__main__":
    unittest.main()
