"""Gradients of linear_attention and shift of random shapes beside autograd in double: with and without decay and beta, factors
for each step or for each column, any axis and distance, steps in parts. Not run without torch."""
import importlib.util
import os
import random
import unittest

import numpy as np

import tfmc
from support import Case

SHAPES = int(os.environ.get("TFM_TEST_SHAPES", "6"))  # of each kind; more are for a search


def attention(torch, q, k, v, decay, beta):
    """The definition, a step after the other."""
    shape = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    state, rows = torch.zeros(*shape, k.shape[-1], v.shape[-1], dtype=torch.float64), []
    for t in range(q.shape[-2]):
        if decay is not None:
            state = decay[..., t, :, None] * state
        u, key = v[..., t, :], k[..., t, :]
        if beta is not None:
            u = beta[..., t, :] * (u - (key[..., None] * state).sum(-2))
        state = state + key[..., None] * u[..., None, :]
        rows.append((q[..., t, :, None] * state).sum(-2))
    return torch.stack(rows, -2)


@unittest.skipUnless(importlib.util.find_spec("torch"), "not run: torch is missing")
class Gradients(Case):
    def compared(self, text, weights, wanted_of):
        """wanted_of: weights in double -> loss."""
        import torch
        trainer = tfmc.Trainer(text, weights=weights, threads=2)
        got = trainer.gradients(z=np.zeros(1, np.float32))
        exact = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in weights.items()}
        loss = wanted_of(exact)
        loss.backward()
        self.assertLess(abs(trainer.evaluate(z=np.zeros(1, np.float32))["loss"] - loss.item()), 1e-5 * max(1, abs(loss.item())))
        for name, value in exact.items():
            grad = np.zeros(value.shape) if value.grad is None else value.grad.numpy()
            far = np.abs(got[name] - grad).max(initial=0)
            self.assertLess(far, 1e-5 * max(np.abs(grad).max(initial=0), 1e-3), f"{name} in\n{text}")

    def model(self, weights, result):
        lines = "\n".join(f"  weight {name}: {list(value.shape)}" for name, value in weights.items() if name != "g")
        return (f"model M {{\n{lines}\n  weight g: {list(weights['g'].shape)}\n  forward(z: f32[one]) {{ return y = {result} }}\n"
                f"  fn objective(z: f32[one]) {{ return loss = {'sum(' * weights['g'].ndim}forward(z) * g{')' * weights['g'].ndim} + sum(z) }}\n"
                "  train objective { lr = 0.1 }\n}\n")

    def test_linear_attention(self):
        import torch
        for number in range(SHAPES):
            r, numbers = random.Random(number), np.random.default_rng(number)
            lead = [r.randint(1, 3) for _ in range(r.randint(0, 2))]
            t, n, d = r.choice((1, 2, 5, 63, 64, 65, 130)), r.randint(1, 40), r.randint(1, 40)
            normal = lambda *dims: (numbers.normal(size=(*lead, *dims)) / np.sqrt(dims[-1])).astype(np.float32)  # noqa: B023, E731
            weights = {"q": normal(t, n), "k": normal(t, n), "v": normal(t, d)}
            if r.random() < 0.7:
                weights["decay"] = numbers.uniform(0.6, 1, (*lead, t, r.choice((1, n)))).astype(np.float32)
            if r.random() < 0.7:
                weights["beta"] = numbers.uniform(0, 1, (*lead, t, r.choice((1, d)))).astype(np.float32)
            more = "".join(f", {name} = {name}" for name in ("decay", "beta") if name in weights)
            weights["g"] = numbers.normal(size=(*lead, t, d)).astype(np.float32)
            with self.subTest(number=number, lead=lead, t=t, n=n, d=d, more=more):
                self.compared(self.model(weights, f"linear_attention(q, k, v{more})"), weights, lambda w: (
                    attention(torch, w["q"], w["k"], w["v"], w.get("decay"), w.get("beta")) * w["g"]).sum())

    def test_shift(self):
        import torch
        for number in range(SHAPES):
            r, numbers = random.Random(number + 1000), np.random.default_rng(number)
            dims = [r.randint(1, 7) for _ in range(r.randint(1, 3))]
            axis, n = r.randrange(-len(dims), len(dims)), r.randint(-8, 8)
            weights = {"x": numbers.normal(size=dims).astype(np.float32), "g": numbers.normal(size=dims).astype(np.float32)}

            def moved(w):
                size = dims[axis]  # noqa: B023
                at = torch.arange(size) - n  # noqa: B023
                x = w["x"].index_select(axis, at.clamp(0, size - 1))  # noqa: B023
                keep = ((at >= 0) & (at < size)).double().reshape([-1 if i == axis % len(dims) else 1 for i in range(len(dims))])  # noqa: B023
                return (x * keep * w["g"]).sum()
            with self.subTest(number=number, dims=dims, axis=axis, n=n):
                self.compared(self.model(weights, f"shift(x, {n}, axis = {axis})"), weights, moved)


if __name__ == "__main__":
    unittest.main()
