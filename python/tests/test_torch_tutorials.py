"""Models in the manner of tutorials, as people write them by hand: positions by assignments to every other column,
masks of bytes, norms made in forward, scales that are plain tensors. Through from_torch as they are, in evaluation and
in 50 steps of training beside torch in double. Not run without torch.
"""
import json
import os
import subprocess
import unittest

import numpy as np

import tfmc
from support import Case, save_file
from torch_cases import compared, floats, ids, nn, torch, wide

D, HEADS, VOCAB = 16, 2, 20
KINDS = {"f": "F32", "b": "BOOL", "i": "I32"}


def positions(n, d):
    table, at = torch.zeros(n, d), torch.arange(0, n).unsqueeze(1).float()
    rates = torch.exp(torch.arange(0, d, 2).float() * -(np.log(10000.0) / d))
    table[:, 0::2] = torch.sin(at * rates)
    table[:, 1::2] = torch.cos(at * rates)
    return table


def made():
    """Classes, which need torch."""
    class Heads(nn.Module):
        """Scores are divided by a tensor that is no buffer, and masked by a large number where the mask is 0."""
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))
            self.scale = torch.sqrt(torch.FloatTensor([D // HEADS]))

        def forward(self, query, key, value, mask=None):
            n = query.shape[0]
            q, k, v = (part(x).view(n, -1, HEADS, D // HEADS).permute(0, 2, 1, 3) for part, x in (
                (self.q, query), (self.k, key), (self.v, value)))
            energy = torch.matmul(q, k.permute(0, 1, 3, 2)) / self.scale
            if mask is not None:
                energy = energy.masked_fill(mask == 0, -1e10)
            x = torch.matmul(torch.softmax(energy, dim=-1), v)
            return self.out(x.permute(0, 2, 1, 3).contiguous().view(n, -1, D))

    class Classifier(nn.Module):
        """Positions are computed in forward, in place, for the length of the text."""
        def __init__(self):
            super().__init__()
            self.embed, self.drop = nn.Embedding(VOCAB, D), nn.Dropout(0.1)
            self.heads, self.norm = Heads(), nn.LayerNorm(D)
            self.feed, self.last = nn.Sequential(nn.Linear(D, 32), nn.ReLU(), nn.Linear(32, D)), nn.Linear(D, 3)

        def forward(self, ids):
            mask = (ids != 0).unsqueeze(1).unsqueeze(2)
            place = torch.zeros(1, ids.shape[1], D)
            at = torch.arange(ids.shape[1], dtype=torch.float32).reshape(-1, 1) / torch.pow(
                10000, torch.arange(0, D, 2, dtype=torch.float32) / D)
            place[:, :, 0::2] = torch.sin(at)
            place[:, :, 1::2] = torch.cos(at)
            x = self.drop(self.embed(ids) * D ** 0.5 + place)
            x = self.norm(x + self.heads(x, x, x, mask))
            return self.last(torch.relu(self.feed(x)).mean(1))

    class Translator(nn.Module):
        """Masks from `.data.eq(0)` and from numpy's triangle as bytes; each norm is made where it is used; a list of
        attentions is returned beside the scores."""
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(VOCAB, D), nn.Embedding(VOCAB, D)
            self.places = nn.Embedding.from_pretrained(positions(24, D), freeze=True)
            self.q, self.k, self.v = (nn.Linear(D, D, bias=False) for _ in range(3))
            self.last = nn.Linear(D, VOCAB, bias=False)

        def attend(self, query, key, mask):
            n = query.size(0)
            q = self.q(query).view(n, -1, HEADS, D // HEADS).transpose(1, 2)
            k, v = (part(key).view(n, -1, HEADS, D // HEADS).transpose(1, 2) for part in (self.k, self.v))
            scores = torch.matmul(q, k.transpose(-1, -2)) / np.sqrt(D // HEADS)
            scores.masked_fill_(mask.unsqueeze(1).repeat(1, HEADS, 1, 1), -1e9)
            weights = nn.Softmax(dim=-1)(scores)
            x = torch.matmul(weights, v).transpose(1, 2).reshape(n, -1, D)
            return nn.LayerNorm(D).to(query.device)(x + query), weights

        def forward(self, ids, given):
            x = self.source(ids) + self.places(torch.arange(ids.size(1))).unsqueeze(0)
            padding = ids.data.eq(0).unsqueeze(1).expand(ids.size(0), ids.size(1), ids.size(1))
            x, first = self.attend(x, x, padding)
            y = self.target(given) + self.places(torch.arange(given.size(1))).unsqueeze(0)
            later = torch.from_numpy(np.triu(np.ones([given.size(0), given.size(1), given.size(1)]), k=1)).byte()
            hidden = given.data.eq(0).unsqueeze(1).expand(given.size(0), given.size(1), given.size(1))
            y, second = self.attend(y, y, torch.gt(hidden + later, 0))
            y, third = self.attend(y, x, ids.data.eq(0).unsqueeze(1).expand(ids.size(0), given.size(1), ids.size(1)))
            return self.last(y), [first, second, third]
    return Classifier, Translator


@unittest.skipIf(torch is None, "no torch")
class Tutorials(Case):
    def trained(self, module, source, inputs, labels, types, steps=50, but=(".k.bias",)):
        """The losses of `tfmc train` on one batch, and those of Adam in double. `but`: ends of names of weights that are
        not compared: the gradient of a key's bias is 0, and Adam makes steps of what rounding leaves of it."""
        folder = self.folder()
        names = ", ".join(f"{name}: {kind}" for name, kind in types.items())
        arguments = ", ".join(name for name in types if name != "labels")
        text = source.text.rstrip().removesuffix("}") + f"""
  fn objective({names}) {{
    return loss = cross_entropy(forward({arguments}), labels)
  }}
  train objective {{ optimizer = "adam"  lr = 2e-3 }}
}}
"""
        with open(os.path.join(folder, "model.tfm"), "w", encoding="utf-8") as file:
            file.write(text)
        save_file({name: value.numpy() for name, value in source.weights.items()}, os.path.join(folder, "w.safetensors"))
        batch = {**inputs, "labels": labels}
        head, data = {}, b""
        for name, value in batch.items():
            raw = np.ascontiguousarray(value.numpy() if value.dtype in (torch.float32, torch.bool) else value.numpy().astype(np.int32))
            head[name] = {"dtype": KINDS[raw.dtype.kind], "shape": raw.shape, "data_offsets": [len(data), len(data) + raw.nbytes]}
            data += raw.tobytes()
        head = json.dumps(head).encode()
        head += b" " * (-len(head) % 8)
        with open(os.path.join(folder, "b.safetensors"), "wb") as file:
            file.write(len(head).to_bytes(8, "little") + head + data)
        command = [os.environ.get("TFM_COMPILER", "tfmc"), "train", "model.tfm", "--weights=w.safetensors", "-q",
                   "--batches=b.safetensors", f"--steps={steps}", "--gradients", "--output=o.safetensors"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr + text)
        from tfmc._tensors import read_tensors as _read
        got = _read(os.path.join(folder, "o.safetensors"))
        module = module.double()
        optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=2e-3)
        losses, old = [], torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            for _ in range(steps):
                made = module(**{name: wide(value) for name, value in inputs.items()})
                logits = made[0] if isinstance(made, tuple) else made
                loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
        finally:
            torch.set_default_dtype(old)
        np.testing.assert_allclose(got["losses"].reshape(-1), losses, rtol=2e-5)
        self.assertLess(losses[-1], losses[0])
        for name, weight in module.named_parameters():
            if weight.requires_grad and f"after.{name}" in got and not name.endswith(but or ("\0",)):
                np.testing.assert_allclose(got[f"after.{name}"], weight.detach().numpy(), atol=2e-4)

    def test_classifier_with_positions_in_place(self):
        torch.manual_seed(1)
        module = made()[0]().eval()
        rows = ids(4, 7, high=VOCAB)
        rows[1, 5:] = 0
        source = compared(module, ({"ids": rows}, {"ids": ids(3, 5, high=VOCAB)}), {"ids": {0: "batch", 1: "time"}}, outputs=["scores"])
        self.assertNotIn("scale", source.weights)
        module.load_state_dict(source.state_dict(source.weights), strict=True)
        self.trained(module, source, {"ids": rows}, ids(4, high=3), {"ids": "i32[batch, time]", "labels": "i32[batch]"})

    def test_translator_with_masks_of_bytes(self):
        torch.manual_seed(2)
        module = made()[1]().eval()
        rows, given = ids(4, 7, high=VOCAB), ids(4, 6, seed=8, high=VOCAB)
        rows[2, 5:] = 0
        given[1, 4:] = 0
        sizes = {"ids": {0: "batch", 1: "source"}, "given": {0: "batch", 1: "time"}}
        calls = {"ids": rows, "given": given}
        source = compared(only_scores(module), (calls, {"ids": ids(3, 5, high=VOCAB), "given": ids(3, 4, high=VOCAB)}), sizes)
        self.assertIn("stop_gradient", source.text)  # of the places
        self.trained(only_scores(module), source, calls, ids(4, 6, seed=9, high=VOCAB),
                     {"ids": "i32[batch, source]", "given": "i32[batch, time]", "labels": "i32[batch, time]"})

    def test_dropout_that_eval_does_not_reach(self):
        """A function makes an nn.Dropout in each call: refused, or left out where the caller says so, in training too."""
        def placed(x, p=0.1):
            drop, table = nn.Dropout(p), torch.zeros((1, 24, D))
            at = torch.arange(24, dtype=torch.float32).reshape(-1, 1) / torch.pow(10000, torch.arange(0, D, 2, dtype=torch.float32) / D)
            table[:, :, 0::2], table[:, :, 1::2] = torch.sin(at), torch.cos(at)
            return drop(x + table[:, :x.shape[1], :].to(x.device, x.dtype))

        class Encoder(nn.Module):
            def __init__(self, p):
                super().__init__()
                self.p, self.embed, self.last = p, nn.Embedding(VOCAB, D), nn.Linear(D, 3)
                self.attend, self.norm = nn.MultiheadAttention(D, HEADS, dropout=0.1, bias=False, batch_first=True), nn.LayerNorm(D)

            def forward(self, ids):
                x = placed(self.embed(ids), self.p)
                x = self.norm(x + self.attend(x, x, x, key_padding_mask=ids == 0)[0])
                return self.last(nn.functional.dropout(x, self.p).mean(1))
        torch.manual_seed(4)
        module, exact, sizes = Encoder(0.1).eval(), Encoder(0.0).eval(), {"ids": {0: "batch", 1: "time"}}
        exact.load_state_dict(module.state_dict())
        rows = ids(4, 7, high=VOCAB)
        rows[1, 5:] = 0
        self.refused(tfmc.CompileError, ("a dropout that is on", "test_torch_tutorials.py:", "dropout=False"), tfmc.from_torch,
                     module, {"ids": rows}, sizes=sizes)
        source = tfmc.from_torch(module, {"ids": rows}, sizes=sizes, outputs=["scores"], dropout=False)
        compared(exact, ({"ids": rows}, {"ids": ids(3, 5, high=VOCAB)}), sizes)
        with torch.no_grad():
            np.testing.assert_allclose(tfmc.compile(source)(ids=rows.numpy().astype(np.int32)), exact(rows).numpy(), atol=1e-5)
        self.trained(exact, source, {"ids": rows}, ids(4, high=3), {"ids": "i32[batch, time]", "labels": "i32[batch]"})

    def test_queries_that_see_no_key_are_refused(self):
        """torch gives NaN for an item all of whose keys are padding."""
        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.attend = nn.MultiheadAttention(D, HEADS)

            def forward(self, src, mask):
                return self.attend(src, src, src, key_padding_mask=mask)[0]
        mask = torch.tensor([[True, True, True], [False, False, True]])
        self.refused(tfmc.CompileError, "Queries whose keys are all masked", tfmc.from_torch, Encoder().eval(),
                     {"src": floats(3, 2, D), "mask": mask}, sizes={"src": {0: "time", 1: "batch"}, "mask": {0: "batch", 1: "time"}})

    def test_masks_of_bytes_as_inputs(self):
        class Masked(nn.Module):
            """A mask of bytes becomes booleans, as the old documents of attention have it; bytes are also added."""
            def forward(self, x, mask):
                assert mask.dtype == torch.uint8
                return x.masked_fill(mask.to(torch.bool), -1e9).softmax(-1), mask + mask, x * mask
        x, mask = floats(3, 4), torch.tensor([[0, 1, 0, 200], [0, 0, 255, 0], [0, 0, 0, 0]], dtype=torch.uint8)
        sizes = {"x": {0: "n"}, "mask": {0: "n"}}
        module = Masked().eval()
        source = tfmc.from_torch(module, {"x": x, "mask": mask}, sizes=sizes)
        model = tfmc.compile(source)
        got = model.run({"x": x.numpy(), "mask": mask.numpy().astype(np.int32)})
        for name, wanted in zip(("output0", "output1", "output2"), module(x, mask)):
            np.testing.assert_allclose(got[name], wanted.numpy(), rtol=1e-6, atol=1e-6)
        for value in (256, -1):  # which torch would have as another byte
            self.refused(tfmc.InputError, (f'input "mask"[0,0] = {value}', "[0, 256)"), model.run, {"x": x.numpy(), "mask": np.full((3, 4), value, np.int32)})


def only_scores(module):
    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, ids, given):
            return self.module(ids, given)[0]
    return Scores().eval()


if __name__ == "__main__":
    unittest.main()
