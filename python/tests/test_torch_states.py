"""Gradients of layers that keep a state, beside autograd in double, and steps of training of a small Qwen3.5 of transformers
beside a loop of torch in double. Not run without torch; the model, without transformers.
"""
import os
import pathlib
import random
import re
import subprocess
import unittest

import numpy as np

import tfmc
from support import Case
from torch_cases import torch

try:
    import transformers
except ImportError:
    transformers = None

OBJECTIVE = """
  fn objective(input_ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(input_ids), labels, ignore_index = 0)
  }
  train objective { optimizer = "sgd"  lr = 0.05  clip_norm = 1 }
}
"""


def sequential(q, k, v, decay=None, beta=None):
    """The definition, one step after the other."""
    state, out = 0, []
    for t in range(v.shape[-2]):
        at = lambda x: x[..., min(t, x.shape[-2] - 1), :]
        if decay is not None:
            state = state * at(decay)[..., None] if t else torch.zeros((), dtype=q.dtype)
        u = at(v)
        if beta is not None:
            u = at(beta) * (u - (at(k)[..., None] * state).sum(-2) if t else u)
        state = state + at(k)[..., None] * u[..., None, :]
        out.append((at(q)[..., None] * state).sum(-2))
    return torch.stack(out, -2)


def shapes(r):
    """Operands of a random linear_attention, which may broadcast: {name: shape}."""
    n, d, t, heads = r.choice([1, 3, 8, 17, 40]), r.choice([1, 5, 16, 33, 70, 150]), r.choice([1, 2, 9, 33, 70]), r.choice([1, 3])
    lead = lambda: [r.choice([1, 2]), r.choice([1, heads])]
    made = {"q": lead() + [t, n], "k": lead() + [t, n], "v": [2, heads, t, d]}
    if r.random() < 0.7:
        made["decay"] = lead() + [r.choice([1, t]), r.choice([1, n])]
    if r.random() < 0.7:
        made["beta"] = lead() + [r.choice([1, t]), r.choice([1, d])]
    return made


@unittest.skipIf(torch is None, "no torch")
class States(Case):
    def gradients(self, text, values, c):
        trainer = tfmc.Trainer(text, weights=values)
        loss = trainer.evaluate(c=c)["loss"]
        trainer.gradients(c=c)
        return loss, {name: np.asarray(trainer.gradient(name)) for name in values}

    def test_gradients_beside_autograd_in_double(self):
        r = random.Random(5)
        for number in range(40):
            made = shapes(r)
            generator = np.random.default_rng(number)
            values = {name: generator.normal(size=shape).astype(np.float32) for name, shape in made.items()}
            length = np.sqrt((values["k"].astype(np.float64) ** 2).sum(-1, keepdims=True)) + 0.1
            values["k"] = (values["k"] / length).astype(np.float32)
            for name in {"decay", "beta"} & set(values):
                values[name] = (1 / (1 + np.exp(-values[name].astype(np.float64)))).astype(np.float32)
            c = generator.normal(size=made["v"]).astype(np.float32)
            operands = "".join(f"  weight {name}: {shape}\n" for name, shape in made.items())
            named = "".join(f", {name} = {name}" for name in ("decay", "beta") if name in made)
            text = f"""model One {{
{operands}  forward(c: f32{made['v']}) = c
  fn objective(c: f32{made['v']}) {{
    y = linear_attention(q, k, v{named})
    return loss = sum(sum(sum(sum(c * y + 0.5 * c * sin(y)))))
  }}
  train objective {{ optimizer = "sgd" }}
}}
"""
            with self.subTest(**made):
                exact = {name: torch.tensor(x, dtype=torch.float64, requires_grad=True) for name, x in values.items()}
                y, factors = sequential(**exact), torch.tensor(c, dtype=torch.float64)
                wanted = (factors * y + 0.5 * factors * torch.sin(y)).sum()
                wanted.backward()
                loss, got = self.gradients(text, values, c)
                self.assertAlmostEqual(loss, wanted.item(), delta=1e-5 * (1 + np.abs(c).sum()))
                for name, x in exact.items():
                    want = np.zeros(x.shape) if x.grad is None else x.grad.numpy()
                    np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-5 * max(np.abs(want).max(), 1e-3), err_msg=name)


@unittest.skipIf(torch is None or transformers is None, "no torch, or no transformers")
class Models(Case):
    def model(self):
        torch.manual_seed(0)
        config = transformers.Qwen3_5TextConfig(
            vocab_size=24, hidden_size=16, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            intermediate_size=24, max_position_embeddings=64, linear_key_head_dim=4, linear_value_head_dim=6,
            linear_num_key_heads=2, linear_num_value_heads=4, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            layer_types=["linear_attention", "full_attention", "linear_attention"])
        model = transformers.Qwen3_5ForCausalLM(config).eval()
        with torch.no_grad():
            for name, p in model.named_parameters():
                if p.dim() > 1:
                    p.mul_(4)
        return model

    def test_twenty_steps_of_a_hybrid_model(self):
        model, folder = self.model(), pathlib.Path(self.folder())
        model.save_pretrained(folder / "m")
        compiler = os.path.abspath(os.environ["TFM_COMPILER"]) if "TFM_COMPILER" in os.environ else "tfmc"
        subprocess.run([compiler, "import", "m", "-o", "m.tfm"], cwd=folder, check=True, capture_output=True)
        text = (folder / "m.tfm").read_text().removesuffix("}\n").replace("ragged time", "time") + OBJECTIVE
        r = np.random.default_rng(3)
        batches = []
        for _ in range(20):
            ids, lengths = r.integers(3, 24, (3, 21)).astype(np.int32), r.integers(5, 22, 3)
            labels = np.where(np.arange(21) < lengths[:, None] - 1, np.roll(ids, -1, 1), 0).astype(np.int32)
            batches.append((np.where(np.arange(21) < lengths[:, None], ids, 0).astype(np.int32), labels))
        exact = model.double()
        optimizer = torch.optim.SGD(exact.parameters(), lr=0.05)
        trainer = tfmc.Trainer(text, weights=str(folder / "m" / "model.safetensors"))
        for step, (ids, labels) in enumerate(batches):
            optimizer.zero_grad()
            logits = exact(torch.tensor(ids, dtype=torch.long)).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels, dtype=torch.long).flatten(), ignore_index=0)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(exact.parameters(), 1)
            optimizer.step()
            self.assertAlmostEqual(trainer.step(input_ids=ids, labels=labels).loss, loss.item(), delta=1e-4, msg=f"step {step}")
        before, moved = self.model().state_dict(), 0
        for name, value in exact.state_dict().items():
            got, want = np.asarray(trainer.weight(name)), value.numpy()
            np.testing.assert_allclose(got, want, atol=1e-4, err_msg=name)
            moved += bool(re.search(r"A_log|dt_bias|conv1d|in_proj_", name)) and np.abs(want - before[name].numpy()).max() > 1e-3
        self.assertGreaterEqual(moved, 7)


if __name__ == "__main__":
    unittest.main()
