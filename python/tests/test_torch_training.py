"""from_torch(training=True): objectives of torch as texts, what of a module is trained, dropouts, and steps beside a loop of
torch. Gradients are compared with torch in double by from_torch itself, for each module here. Not run without torch.
"""
import itertools
import unittest

import numpy as np

import tfmc
from support import Case
from torch_cases import nn, torch

if torch is not None:
    F = nn.functional
    IDS, LABELS = torch.tensor([[1, 5, 7, 2], [3, 0, 9, 0]]), torch.tensor([[2, 1, -100, 0], [1, 3, 3, 2]])
    SIZES = {"ids": {0: "batch", 1: "time"}, "labels": {0: "batch", 1: "time"}}
    X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    ROWS = {"x": {0: "batch"}, "y": {0: "batch"}}
    ONLY = {"x": {0: "batch"}}

    class Tied(nn.Module):
        """A table that is the last layer too, its padding, a temperature, a buffer, a frozen weight, a part of no use."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.embed, self.drop = nn.Embedding(10, 6, padding_idx=0), nn.Dropout(0.2)
            self.norm, self.unused = nn.LayerNorm(6), nn.Linear(2, 2)
            self.scale = nn.Parameter(torch.tensor(1.5))
            self.register_buffer("places", torch.randn(1, 20, 6))
            self.frozen = nn.Parameter(torch.randn(6), requires_grad=False)
            self.head = nn.Linear(6, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            x = self.embed(ids) + self.places[:, :ids.shape[1]] + self.frozen
            return self.head(self.drop(self.norm(x))) * self.scale

    class Inside(nn.Module):
        """Whose forward computes the loss from labels."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.embed, self.head = nn.Embedding(10, 6), nn.Linear(6, 5)

        def forward(self, ids, labels):
            logits = self.head(self.embed(ids))
            return {"loss": nn.CrossEntropyLoss()(logits.transpose(1, 2), labels), "logits": logits}

    class Line(nn.Module):
        def __init__(self, out=2, layers=()):
            super().__init__()
            torch.manual_seed(3)
            self.first, self.layers, self.last = nn.Linear(4, 6), nn.Sequential(*layers), nn.Linear(6, out)

        def forward(self, x):
            return self.last(self.layers(torch.tanh(self.first(x))))

    def tokens(logits, labels):
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    Y2 = torch.randn(3, 2, generator=torch.Generator().manual_seed(2))
    YES, NUMBERS = torch.tensor([[1.0, 0], [0, 1], [1, 1]]), torch.tensor([1, 0, 1])
    LOSSES = {
        "mse": (Y2, lambda out, y: F.mse_loss(out, y)),
        "sum": (Y2, lambda out, y: nn.MSELoss(reduction="sum")(out, y)),
        "l1": (Y2, lambda out, y: F.l1_loss(out, y)),
        "smooth l1": (Y2, lambda out, y: F.smooth_l1_loss(out, y, beta=0.5)),
        "huber": (Y2, lambda out, y: F.huber_loss(out, y)),
        "bce with logits": (YES, lambda out, y: F.binary_cross_entropy_with_logits(out, y)),
        "bce with weights": (YES, lambda out, y: F.binary_cross_entropy_with_logits(out, y, pos_weight=torch.tensor([2.0, 0.5]))),
        "cross entropy": (NUMBERS, lambda out, y: F.cross_entropy(out, y)),
        "class weights": (NUMBERS, lambda out, y: F.cross_entropy(out, y, torch.tensor([1.0, 2.5]))),
        "label smoothing": (NUMBERS, lambda out, y: nn.CrossEntropyLoss(label_smoothing=0.1)(out, y)),
        "probabilities": (YES, lambda out, y: F.cross_entropy(out, y / y.sum(1, keepdim=True))),
        "nll": (NUMBERS, lambda out, y: F.nll_loss(F.log_softmax(out, 1), y)),
        "kl": (YES, lambda out, y: F.kl_div(F.log_softmax(out, 1), F.softmax(y, 1), reduction="batchmean")),
        "cosine": (Y2, lambda out, y: (1 - F.cosine_similarity(out, y)).mean()),
        "inputs by name": (Y2, lambda out, y, x: ((out - y) ** 2).mean() + x.abs().mean() * out.abs().mean()),
        "in-batch negatives": (Y2, lambda out, y: F.cross_entropy(F.normalize(out) @ F.normalize(y).T * 20, torch.arange(out.shape[0]))),
    }


def loss_in_double(loss, *given):
    """Weights that a loss makes are double too."""
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return loss(*given).item()
    finally:
        torch.set_default_dtype(old)


def numbers(batch):
    return {name: value.numpy() for name, value in batch.items()}


@unittest.skipIf(torch is None, "no torch")
class Objectives(Case):
    def tied(self, **named):
        self.module = Tied().eval()
        return tfmc.from_torch(self.module, {"ids": IDS}, sizes=SIZES, targets={"labels": LABELS}, training=True,
                               outputs=["logits"], loss=tokens, **named)

    def test_what_is_trained(self):
        source = self.tied(metrics={"accuracy": lambda out, labels: (out.argmax(-1) == labels).float().mean()})
        self.assertIn("cross_entropy(logits, labels, ignore_index = -100)", source.text)
        self.assertIn("dropout(", source.text)
        self.assertFalse(any(part.training for part in self.module.modules()))
        trainer = tfmc.Trainer(source, lr=0.01, threads=1)
        self.assertEqual(set(trainer.trained), {"embed.weight", "norm.weight", "norm.bias", "scale"})
        self.assertEqual((list(trainer.inputs), trainer.results), (["ids", "labels"], ("loss", "accuracy")))
        before = {name: value.clone() for name, value in self.module.state_dict().items()}
        for _ in range(5):
            trainer.step(ids=IDS, labels=LABELS)
        state = trainer.state_dict()
        self.assertEqual(set(state), set(before))
        for name in before:
            changed = not np.array_equal(np.asarray(state[name]), before[name].numpy())
            self.assertEqual(changed, name in ("embed.weight", "head.weight", "norm.weight", "norm.bias", "scale"), name)
        trainer.to_torch(self.module)
        self.assertIs(self.module.head.weight, self.module.embed.weight)
        loss = tokens(self.module(IDS), LABELS).item()
        self.assertAlmostEqual(trainer.evaluate(ids=IDS, labels=LABELS)["loss"], loss, 5)
        np.testing.assert_allclose(trainer.model()(IDS), self.module(IDS).detach().numpy(), atol=1e-5)
        trainer.load_state_dict(before)
        for name, value in trainer.state_dict().items():
            np.testing.assert_array_equal(np.asarray(value), before[name].numpy(), name)
        self.refused(tfmc.InputError, "'scale' is missing", trainer.load_state_dict, {k: v for k, v in before.items() if k != "scale"})
        self.refused(tfmc.InputError, "embed.weight and head.weight are one weight", trainer.load_state_dict,
                     {**before, "head.weight": before["head.weight"] + 1})
        other = Tied()
        other.norm = nn.LayerNorm(3)
        self.refused(tfmc.InputError, "norm.weight is [6] here and [3]", trainer.to_torch, other)

    def test_a_wrong_generate_is_that_of_the_call(self):
        """No other operations help, nor does check=False."""
        for words in ("ids from logit { bos = 1 }", "id from logits { bos = 1 }"):
            error = self.refused(tfmc.CompileError, "The line is that of generate=", self.tied, generate=words)
            self.assertNotIn("other operations", str(error))

    def test_steps_beside_a_loop_of_torch(self):
        """Without dropout: the losses of 20 steps, and the weights after them."""
        self.module = Tied().eval()
        self.module.drop.p = 0.0
        source = tfmc.from_torch(self.module, {"ids": IDS}, sizes=SIZES, targets={"labels": LABELS}, training=True, loss=tokens)
        trainer = tfmc.Trainer(source, optimizer="adamw", lr=0.01, weight_decay=0.1, clip_norm=1)
        exact = Tied().double()
        exact.drop.p = 0.0
        trained = [p for p in exact.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            loss = tokens(exact(IDS), LABELS)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1)
            optimizer.step()
            self.assertAlmostEqual(trainer.step(ids=IDS, labels=LABELS).loss, loss.item(), 4)
        for name, value in trainer.state_dict().items():
            if not name.startswith("unused"):
                np.testing.assert_allclose(np.asarray(value), exact.state_dict()[name].numpy(), atol=1e-4, err_msg=name)

    def test_items_of_different_length(self):
        """fit pads labels with the ignore_index of torch: a batch of two is the mean over what counts."""
        trainer = tfmc.Trainer(self.tied(), lr=1e-3)
        rows = [{"ids": IDS[0], "labels": LABELS[0]}, {"ids": IDS[1, :2], "labels": LABELS[1, :2]}]
        with torch.no_grad():
            wanted = sum(F.cross_entropy(self.module(row["ids"][None])[0], row["labels"], reduction="sum") for row in rows) / 5
        fit = trainer.fit(rows, rows, steps=1, batch_items=2, valid_every=1)
        trainer.load_state_dict(self.module.state_dict())
        padded = {"ids": IDS * torch.tensor([[1], [1]]), "labels": torch.stack([LABELS[0], torch.tensor([1, 3, -100, -100])])}
        self.assertAlmostEqual(trainer.evaluate(padded)["loss"], wanted.item(), 5)
        self.assertEqual(fit.history[0]["items"], 2)

    def test_labels_that_do_not_count(self):
        """Whatever number torch leaves out is what fit pads labels with: a step of two lengths has the loss of what counts."""
        for ignored in (-1, -100, 0):
            module = Tied().eval()
            module.drop.p = 0.0
            labels = torch.where(LABELS == -100, ignored, LABELS)

            def loss(logits, labels, ignored=ignored):
                return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=ignored)
            source = tfmc.from_torch(module, {"ids": IDS}, sizes=SIZES, targets={"labels": labels}, training=True,
                                     outputs=["logits"], loss=loss)
            self.assertIn(f"ignore_index = {ignored}", source.text)
            rows = [{"ids": IDS[0], "labels": labels[0]}, {"ids": IDS[1, :2], "labels": labels[1, :2]}]
            with torch.no_grad():
                wanted = loss(torch.cat([module(row["ids"][None]) for row in rows], 1), torch.cat([row["labels"] for row in rows]))
            fit = tfmc.Trainer(source).fit(rows, steps=1, batch_items=2, log_every=1)
            self.assertAlmostEqual([r["loss"] for r in fit.history if r["kind"] == "step"][0], wanted.item(), 5)

    def test_a_loss_in_forward(self):
        module, inputs = Inside().eval(), {"ids": IDS, "labels": LABELS}
        for loss, outputs in (("loss", None), (None, ["loss"])):
            source = tfmc.from_torch(module, inputs, sizes=SIZES, training=True, loss=loss, outputs=outputs)
            trainer = tfmc.Trainer(source)
            self.assertAlmostEqual(trainer.step(inputs).loss, module(**inputs)["loss"].item(), 5)
        self.refused(tfmc.UsageError, "say which is the loss", tfmc.from_torch, module, inputs, sizes=SIZES, training=True)
        self.refused(tfmc.UsageError, "no loss", tfmc.from_torch, module, inputs, sizes=SIZES, training=True, loss="logits")
        self.refused(tfmc.UsageError, "names 'x'", tfmc.from_torch, module, inputs, sizes=SIZES, training=True, loss="x")

    def test_scores_of_all_items_in_one_axis(self):
        """`logits.view(-1, classes)` in forward, as tutorials have it: an axis of batch * time, which goes on in parts."""
        class Flat(Tied):
            def forward(self, ids):
                logits = super().forward(ids)
                return logits.view(-1, logits.shape[-1])
        torch.manual_seed(0)
        module, exact = Flat().eval(), Flat().double()
        module.drop.p = exact.drop.p = 0.0
        exact.load_state_dict(module.state_dict())
        source = tfmc.from_torch(module, {"ids": IDS}, sizes=SIZES, targets={"labels": LABELS}, training=True,
                                 loss=lambda out, labels: F.cross_entropy(out, labels.reshape(-1)),
                                 metrics={"size": lambda out: out.abs().mean()})
        self.assertRegex(source.text, r"reshape\(\w+, \[batch, time, 10\]\)")
        trainer, optimizer = tfmc.Trainer(source, optimizer="adam", lr=0.01), torch.optim.Adam(exact.parameters(), lr=0.01)
        for part in (IDS, IDS[:1], IDS[:, :2]):
            labels = LABELS[:part.shape[0], :part.shape[1]]
            loss = F.cross_entropy(exact(part), labels.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.assertAlmostEqual(trainer.step(ids=part, labels=labels).loss, loss.item(), 5)

    def test_losses(self):
        """The text of each: its loss and gradients are those of torch, which from_torch compares."""
        for name, (y, loss) in LOSSES.items():
            with self.subTest(name):
                module = Line().eval()
                source = tfmc.from_torch(module, {"x": X}, sizes=ROWS, targets={"y": y}, training=True, loss=loss)
                self.assertFalse(source.text.startswith("# not compared"))
                trainer = tfmc.Trainer(source, threads=1)
                exact, wide = module.double()(X.double()), y.double() if y.is_floating_point() else y
                wanted = loss_in_double(loss, exact, wide, X.double()) if name == "inputs by name" else loss_in_double(loss, exact, wide)
                np.testing.assert_allclose(trainer.evaluate(x=X, y=y)["loss"], wanted, rtol=1e-6, atol=1e-6)

    def test_layers_that_training_changes(self):
        for layers, words in (((nn.Dropout(0.5),), "dropout("), ((nn.Dropout1d(0.25),), "dropout("), ((nn.BatchNorm1d(6),), "batch"),
                              ((nn.RReLU(),), None)):
            module = Line(layers=layers).eval()
            call = (module, {"x": X}), {"sizes": ROWS, "targets": {"y": Y2}, "training": True, "loss": lambda out, y: F.mse_loss(out, y)}
            if words is None:
                self.refused(tfmc.CompileError, "", tfmc.from_torch, *call[0], **call[1])
                continue
            source = tfmc.from_torch(*call[0], **call[1])
            self.assertIn(words, source.text)
            first, second = (tfmc.Trainer(source, seed=seed, threads=1).step(x=X, y=Y2).loss for seed in (1, 2))
            self.assertEqual(first != second, words == "dropout(", source.text)
        module.layers[0] = nn.BatchNorm1d(6)
        module.train()
        self.refused(tfmc.UsageError, "layers.0 (BatchNorm1d) is in training mode", tfmc.from_torch, *call[0], **call[1])
        module.layers[0] = nn.AlphaDropout(0.5)
        self.refused(tfmc.Error, "alpha_dropout", tfmc.from_torch, *call[0], **call[1])

    def test_whole_items_dropped(self):
        """DropPath as timm, torchvision and transformers write it."""
        def timm(x, keep):
            return x * x.new_empty((x.shape[0], 1)).bernoulli_(keep).div_(keep)

        def torchvision(x, keep):
            noise = torch.empty([x.shape[0]] + [1] * (x.ndim - 1)).bernoulli_(keep)
            return x * noise.div_(keep)

        def transformers(x, keep):
            drawn = keep + torch.rand((x.shape[0], 1), dtype=x.dtype)
            return x.div(keep) * drawn.floor_()

        class Dropped(nn.Module):
            def __init__(self, how):
                super().__init__()
                self.how = how

            def forward(self, x):
                return self.how(x, 0.5) if self.training else x
        rows = torch.ones(64, 4)
        for how in (timm, torchvision, transformers):
            module = Line(layers=(Dropped(how),)).eval()
            source = tfmc.from_torch(module, {"x": X}, sizes=ONLY, training=True, loss=lambda out: (out ** 2).mean())
            self.assertIn("dropout(full([", source.text)
            exact = float((module(rows) ** 2).mean())
            trainer = tfmc.Trainer(source, seed=3, threads=1, lr=1e-9)
            self.assertAlmostEqual(trainer.evaluate(x=rows)["loss"], exact, places=4)
            self.assertNotAlmostEqual(trainer.step(x=rows).loss, exact, places=4)
        self.refused(tfmc.CompileError, ("decides anew in each call", "test_torch_training.py:"), tfmc.from_torch, Line(layers=(Dropped(lambda x, keep: x * torch.empty(x.shape[0], 1).bernoulli_(keep)),)).eval(),
                     {"x": X}, sizes=ONLY, training=True, loss=lambda out: (out ** 2).mean())

    def test_results_of_computed_sizes(self):
        """They are in the way of a loss that reads them, and of no other."""
        class Halves(nn.Module):
            def __init__(self):
                super().__init__()
                self.line = nn.Linear(4, 3)

            def forward(self, x):
                y = self.line(x)
                return {"y": y, "half": y[::2]}
        call = (Halves().eval(), {"x": X}), {"sizes": ONLY, "training": True}
        source = tfmc.from_torch(*call[0], **call[1], loss=lambda out: (out["y"] ** 2).mean())
        tfmc.Trainer(source, threads=1).step(x=X)
        for loss in (lambda out: (out["half"] ** 2).mean(), lambda out: (out["y"] ** 2).mean() * out["half"].shape[0]):
            self.refused(tfmc.CompileError, "the result half has a size that is computed", tfmc.from_torch, *call[0], **call[1], loss=loss)

    def test_what_torch_cannot_differentiate_as_it_is_exported(self):
        """Strided writes that become copies, views of attention that double gives other strides; and what has no derivative."""
        class Part(nn.Module):
            def __init__(self, how):
                super().__init__()
                self.how, self.w, self.bias = how, nn.Parameter(torch.rand(4)), nn.Parameter(torch.rand(2, 1, 1))

            def forward(self, x):
                return self.how(self, x * self.w)

        def strided(self, x):
            y = torch.empty_like(x)
            y[..., ::2], y[..., 1::2] = x[..., 1::2], -x[..., ::2]
            return y

        def biased(self, x):
            b, t, _ = x.shape
            q = x.view(b, t, 2, 2).transpose(1, 2)
            away = self.bias * torch.arange(t, dtype=torch.float32)
            return F.scaled_dot_product_attention(q, q, q, attn_mask=away[None]).transpose(1, 2).reshape(b, t, 4)
        call = ({"x": torch.randn(2, 5, 4)},), {"sizes": {"x": {0: "batch", 1: "time"}}, "training": True, "loss": lambda y: (y ** 2).mean()}
        for how in (strided, biased):
            tfmc.from_torch(Part(how).eval(), *call[0], **call[1])
        self.refused(tfmc.CompileError, ["no derivative of aten.floor_divide", "test_torch_training.py:"], tfmc.from_torch,
                     Part(lambda self, x: x // 0.3).eval(), *call[0], **call[1])

    def test_attention_with_dropout(self):
        """Heads of torch, with masks: items stay apart, so that a batch may be computed in parts."""
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(4)
                self.attend, self.last = nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True), nn.Linear(8, 1)

            def forward(self, x):
                future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
                made, weights = self.attend(x, x, x, attn_mask=future)
                plain = self.attend(x, x, x, key_padding_mask=x[..., 0] > 1e3, need_weights=False)[0]
                return self.last(made + plain) + weights.mean(-1, keepdim=True)
        x, y = torch.randn(2, 3, 8), torch.randn(2, 3, 1)
        sizes = {name: {0: "batch", 1: "time"} for name in ("x", "y")}
        source = tfmc.from_torch(Attention().eval(), {"x": x}, sizes=sizes, targets={"y": y}, training=True,
                                 loss=lambda out, y: F.mse_loss(out, y))
        self.assertRegex(source.text, r"dropout\(softmax\(.*, 0\.3\)")
        trainer = tfmc.Trainer(source, threads=1)
        whole = trainer.evaluate(x=x, y=y)["loss"]
        parts = [{"x": x[i:i + 1], "y": y[i:i + 1]} for i in range(2)]
        self.assertAlmostEqual(trainer.evaluate(parts=parts)["loss"], whole, 5)
        trainer.step(parts=parts)

    def test_nested_inputs(self):
        """What the module takes, its model, steps, evaluations and fit take."""
        class Nested(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(6)
                self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 3)

            def forward(self, batch, pairs):
                return self.head(self.embed(batch["ids"]).mean(1) * pairs[0] + pairs[1]["scale"])
        module = Nested().eval()
        given = {"batch": {"ids": IDS}, "pairs": (torch.randn(2, 4), {"scale": torch.randn(2, 4)})}
        rows = {name: {0: "batch"} for name in ("pairs_0", "pairs_1_scale", "y")}
        source = tfmc.from_torch(module, given, sizes={"batch_ids": {0: "batch", 1: "time"}, **rows}, targets={"y": torch.tensor([1, 2])},
                                 training=True, loss=lambda out, y: F.cross_entropy(out, y), outputs=["out"])
        flat = {"batch_ids": IDS, "pairs_0": given["pairs"][0], "pairs_1_scale": given["pairs"][1]["scale"]}
        model, wanted = tfmc.compile(source), module(**given).detach().numpy()
        for made in (model(**given), model(**flat), model.run(given)["out"], model.run(flat)["out"], model(batch=given["batch"], pairs=list(given["pairs"]))):
            np.testing.assert_allclose(made, wanted, atol=1e-6)
        labels, trainers = torch.tensor([1, 2]), [tfmc.Trainer(source, seed=1) for _ in range(4)]
        step = trainers[0].step(**flat, y=labels)
        self.assertEqual(trainers[1].step({**given, "y": labels}), step)
        self.assertEqual(trainers[2].fit(iter([{**given, "y": labels}]), steps=1, log_every=1).history[0]["loss"], step.loss)
        items = [{"batch": {"ids": IDS[i]}, "pairs": [given["pairs"][0][i], {"scale": given["pairs"][1]["scale"][i]}], "y": labels[i]} for i in range(2)]
        self.assertAlmostEqual(trainers[3].fit(items, steps=1, batch_items=2, log_every=1).history[0]["loss"], step.loss, 5)
        self.refused(tfmc.UsageError, 'no input "batch"', model, batch={"id": IDS}, **{k: v for k, v in flat.items() if k != "batch_ids"})
        self.refused(tfmc.UsageError, "given twice", model, **given, pairs_0=flat["pairs_0"])
        self.refused(tfmc.UsageError, 'no input "batch"', trainers[0].step, batch=IDS)

    def test_ranges_of_integers(self):
        """An input's and a target's: in the text, in each run and step; arithmetic that fits with them is taken as it is."""
        class Hashed(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(7)
                self.table, self.head = nn.Embedding(97, 4), nn.Linear(4, 5)

            def forward(self, ids):
                return self.head(self.table((ids * 40000) % 97))
        module, labels = Hashed().eval(), torch.tensor([[1, 2, 3, 4], [0, 1, 2, 3]])
        call = dict(sizes=SIZES, targets={"labels": labels}, training=True, loss=lambda out, labels: F.cross_entropy(out.flatten(0, 1), labels.flatten()))
        source = tfmc.from_torch(module, {"ids": IDS}, ranges={"ids": (0, 49999), "labels": (0, 4)}, **call)
        self.assertIn('require ids >= 0 and ids <= 49999, "ids holds integers of 0 to 49999"', source.text)
        self.assertIn("require labels >= 0 and labels <= 4", source.text)
        many = torch.tensor([[49999, 0, 7, 30000]])
        model, trainer = tfmc.compile(source), tfmc.Trainer(source, threads=1)
        np.testing.assert_allclose(model(many), module(many).detach().numpy(), atol=1e-6)
        trainer.step(ids=many, labels=labels[:1])
        self.refused(tfmc.InputError, "49999", model, torch.tensor([[50000]]))
        self.refused(tfmc.InputError, "ids", trainer.step, ids=many + 1, labels=labels[:1])
        self.refused(tfmc.InputError, "labels", trainer.step, ids=many, labels=labels[:1] + 3)
        for ranges, words in (({"x": (0, 1)}, "names 'x'"), ({"ids": 3}, "least and the greatest"), ({"ids": (0, 1 << 31)}, "32 bits"),
                              ({"ids": (5, 2)}, "least and the greatest"), ({"ids": (0, 8)}, "holds 0 to 9"), ({"ids": (0, 9.5)}, "least and the greatest")):
            self.refused(tfmc.UsageError, words, tfmc.from_torch, module, {"ids": IDS}, ranges=ranges, **call)

    def test_weights_of_a_module_with_buffers_of_integers(self):
        """They are weights of the text, and stay what they are in the module."""
        class Offsets(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(20, 4)
                self.register_buffer("first", torch.tensor([0, 5, 10, 15]))
                self.register_buffer("shown", torch.tensor([True, False, True, True]))

            def forward(self, at):
                return (self.table(at + self.first) * self.shown[:, None]).sum((1, 2))
        module, at = Offsets().eval(), torch.tensor([[1, 2, 3, 4], [0, 4, 2, 1]])
        source = tfmc.from_torch(module, {"at": at}, sizes={"at": {0: "batch"}}, training=True, loss=lambda out: out.sin().mean())
        trainer = tfmc.Trainer(source, lr=0.1)
        trainer.step(at=at)
        state, weights = trainer.state_dict(), trainer.weights()
        self.assertTrue({"first", "shown"} <= set(weights))
        trainer.load_state_dict(state)
        trainer.to_torch(module)
        for name, value in {**module.state_dict(), **source.state_dict(weights)}.items():
            np.testing.assert_array_equal(np.asarray(value), np.asarray(state[name]))
        np.testing.assert_allclose(np.asarray(trainer.model()(at)), module(at).detach().numpy(), rtol=1e-5)
        self.refused(tfmc.InputError, "first is a buffer of integers with other numbers", trainer.load_state_dict,
                     {**state, "first": state["first"] + 1})

    def test_targets_without_sizes(self):
        """They have the example's for ever: the loss would be taken by no other batch."""
        words = "name axis 0 of y 'batch' too if it is this size"
        for y, loss in ((Y2, lambda out, y: F.mse_loss(out, y)), (torch.tensor([1, 0, 1]), lambda out, y: F.cross_entropy(out, y)), (Y2[:, :1], lambda out, y: (out - y).square().mean())):
            self.refused(tfmc.CompileError, words, tfmc.from_torch, Line().eval(), {"x": X}, sizes={"x": {0: "batch"}}, targets={"y": y},
                         training=True, loss=loss)
        self.refused(tfmc.CompileError, "where (time*batch) == 8: name the axes of targets", tfmc.from_torch, Tied().eval(), {"ids": IDS},
                     sizes={"ids": SIZES["ids"]}, targets={"labels": LABELS}, training=True, loss=tokens)

    def test_losses_that_branch_on_sizes(self):
        """At other sizes the loss is that of torch, or refused: remainders, fractions, equalities of products, orders."""
        branches = {"n % 2 == 0": 8, "n / 2 > 3.4": 8, "n / b > 1.5": 8, "n * b != 16": 7, "n > b": 8}
        for branch, n in branches.items():
            def loss(out, y, branch=branch):
                far = (out - y).square()
                return far.mean() if eval(branch, {"b": y.shape[0], "n": y.shape[1]}) else far.sum()
            with self.subTest(branch):
                module, sizes = Line().eval(), {0: "batch", 1: "n"}
                source = tfmc.from_torch(module, {"x": torch.randn(2, n, 4)}, sizes={"x": sizes, "y": sizes}, targets={"y": torch.randn(2, n, 2)},
                                         training=True, loss=loss)
                trainer, n_taken = tfmc.Trainer(source), 0
                for b, n in itertools.product((1, 2, 3), range(2, 12)):
                    x, y = torch.randn(b, n, 4), torch.randn(b, n, 2)
                    try:
                        got = trainer.evaluate({"x": x.numpy(), "y": y.numpy()})["loss"]
                    except tfmc.Error as error:
                        self.assertIn("another way", str(error))
                        continue
                    n_taken += 1
                    self.assertLess(abs(got / loss(module(x), y).item() - 1), 1e-4, f"{b} x {n}")
                self.assertGreater(n_taken, 5)

    def test_what_is_refused(self):
        module = Line().eval()

        def call(loss=lambda out, y: F.mse_loss(out, y), **named):
            return tfmc.from_torch(module, {"x": X}, **{"sizes": ROWS, "targets": {"y": Y2}, "training": True, "loss": loss, **named})
        far, many = nn.Linear(2, 1), torch.randn(2, 17)
        cases = [({"training": False}, "training=True"), ({"loss": lambda out: out.sum()}, "'y' is taken by no loss"),
                 ({"loss": lambda out, z: out.sum()}, "takes 'z'"), ({"loss": lambda out, y: out - y}, "f32 without axes"),
                 ({"loss": lambda out, y: 3.0}, "float: it must be f32"), ({"loss": 3}, "loss= is of type int"),
                 ({"metrics": {"loss": lambda out: out.sum()}}, "metrics= has names"), ({"targets": {"x": Y2}}, "an input and a target"),
                 ({"targets": {"sum": Y2}}, "has a meaning"), ({"loss": lambda out, y: far(out - y).mean()}, "none of its arguments"),
                 ({"loss": lambda out, y: (out @ many).mean() + y.mean()}, "more than 16 numbers"),
                 ({"loss": None}, "targets= and metrics= are for loss=")]
        for named, words in cases:
            with self.subTest(words):
                self.refused(tfmc.Error, words, call, **named)
        self.assertTrue(call(check=False).text.startswith("# not compared"))


if __name__ == "__main__":
    unittest.main()
