"""text.finetune: every task, beside a loop of torch over the same checkpoint; folders that others open; what is refused. Not run
without torch, transformers and tokenizers."""
import importlib.util
import json
import os
import pathlib
import unittest
import warnings

import numpy as np

import tfmc
from support import Case

HAS = all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers", "tokenizers"))
if HAS:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    import transformers
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(59))]
PAIRS = [(f"w{n} w{n + 1}", f"w{n + 2} w{n + 3} w{n}") for n in range(24)]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
RUN = {"steps": 6, "batch_items": 6, "order": "given", "log_every": 1, "lr": 1e-3, "seed": 1}


def loop(module, batches, loss_of, n, groups=None):
    """Losses of n steps of AdamW as finetune has it, in double."""
    module = module.double().eval()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.0)
    losses = []
    for step in range(n):
        optimizer.zero_grad()
        loss = loss_of(module, batches[step % len(batches)])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1)
        optimizer.step()
        losses.append(loss.item())
    return losses


@unittest.skipUnless(HAS, "not run: torch, transformers or tokenizers are missing")
class Tasks(Case):
    def setUp(self):
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        self.base = pathlib.Path(self.folder())
        self.out = pathlib.Path(self.folder()) / "out"

    def encoder(self, kind=None, **more):
        """A checkpoint of BERT with a tokenizer of its own."""
        config = transformers.BertConfig(vocab_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **SIZES, **more)
        module = (kind or transformers.BertModel)(config)
        module.save_pretrained(self.base)
        self.tokenizer()
        return module

    def tokenizer(self):
        import tokenizers
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
            model_max_length=40, model_input_names=["input_ids", "token_type_ids", "attention_mask"]).save_pretrained(self.base)

    def ids(self, texts, others=None):
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.base)
        return tokenizer(list(texts), None if others is None else list(others), padding=True, return_tensors="pt")

    def vectors(self, module, texts):
        given = self.ids(texts)
        hidden = module(**given).last_hidden_state
        mask = given["attention_mask"][..., None].double()
        return (hidden * mask).sum(1) / mask.sum(1)

    def losses(self, fit):
        return [line["loss"] for line in fit.history if line["kind"] == "step"]

    def compared(self, rows, task, loss_of, module, tolerance=2e-5, **more):
        fit = tfmc.text.finetune(self.base, rows, task=task, out=self.out, **{**RUN, **more})
        batches = [rows[at:at + 6] for at in range(0, len(rows), 6)]
        wanted = loop(module, batches, loss_of, 6)
        np.testing.assert_allclose(self.losses(fit), wanted, rtol=tolerance, atol=tolerance)
        self.assertEqual(fit.folder, self.out)
        return fit

    def test_pairs_and_negatives(self):
        F = torch.nn.functional
        rows = [*PAIRS[:5], PAIRS[0], *[(q, a) for q, a in PAIRS[6:]]]  # an equal pair in the first batch

        def loss_of(module, batch):
            columns = [F.normalize(self.vectors(module, texts)) for texts in zip(*batch)]
            own = torch.eye(len(batch), dtype=torch.bool)
            same = torch.tensor([[a[0] == b[0] or a[1] == b[1] for b in batch] for a in batch])
            scores = [(columns[0] @ columns[1].T * 20).masked_fill(same & ~own, -1e9)]
            for k in range(2, len(columns)):
                equal = torch.tensor([[a[1] == b[k] for b in batch] for a in batch])
                scores.append((columns[0] @ columns[k].T * 20).masked_fill(equal, -1e9))
            return F.cross_entropy(torch.cat(scores, 1), torch.arange(len(batch)))
        fit = self.compared(rows, "pairs", loss_of, self.encoder())
        self.assertIn("accuracy", fit.history[0])
        negatives = [(a, p, PAIRS[(i + 7) % 24][1]) for i, (a, p) in enumerate(rows)]
        self.out = self.out.with_name("more")
        self.compared(negatives, "pairs", loss_of, self.encoder())

    def test_scores(self):
        F = torch.nn.functional
        rows = [(a, b, round(np.cos(i), 3)) for i, (a, b) in enumerate(PAIRS)]

        def loss_of(module, batch):
            a, b = (self.vectors(module, [row[k] for row in batch]) for k in (0, 1))
            return F.mse_loss(F.cosine_similarity(a, b), torch.tensor([row[2] for row in batch]).double())
        self.compared(rows, "scores", loss_of, self.encoder())
        fit = tfmc.text.finetune(self.base, [{"a": a, "b": b, "score": s} for a, b, s in rows], task="scores", loss="cosent",
                                 out=self.out.with_name("cosent"), **RUN)
        self.assertEqual(len(self.losses(fit)), 6)

    def test_triplets(self):
        rows = [(a, b, PAIRS[(i + 5) % 24][0]) for i, (a, b) in enumerate(PAIRS)]

        def loss_of(module, batch):
            F = torch.nn.functional  # vectors of a folder without modules are normalized
            return F.triplet_margin_loss(*(F.normalize(self.vectors(module, texts)) for texts in zip(*batch)), margin=5)
        self.compared(rows, "triplets", loss_of, self.encoder())

    def test_labels_of_a_checkpoint_that_classifies(self):
        names = {0: "low", 1: "middle", 2: "high"}
        module = self.encoder(transformers.BertForSequenceClassification, id2label=names, label2id={n: i for i, n in names.items()})
        rows = [(a, b, names[i % 3]) for i, (a, b) in enumerate(PAIRS)]

        def loss_of(module, batch):
            given = self.ids([row[0] for row in batch], [row[1] for row in batch])
            labels = torch.tensor([["low", "middle", "high"].index(row[2]) for row in batch])
            return torch.nn.functional.cross_entropy(module(**given).logits, labels)
        self.compared(rows, "labels", loss_of, module)
        again = transformers.AutoModelForSequenceClassification.from_pretrained(self.out).eval()
        logits = again(**self.ids([rows[0][0]], [rows[0][1]])).logits[0].detach().numpy()
        mine = tfmc.text.Reranker(self.out, activation_fn=lambda x: x).predict([rows[0][:2]])[0]
        np.testing.assert_allclose(mine, logits, atol=1e-4)

    def test_a_new_head(self):
        self.encoder()
        rows = [(a, ["low", "high"][i >= 12]) for i, (a, _) in enumerate(PAIRS)]
        fit = tfmc.text.finetune(self.base, rows, valid=rows[::3], task="labels", labels=["low", "high"], out=self.out, epochs=20,
                                 batch_items=8, lr=3e-3, best="accuracy")
        self.assertGreaterEqual(fit.best["accuracy"], 0.8)
        made = transformers.AutoModelForSequenceClassification.from_pretrained(self.out)
        self.assertEqual(made.config.id2label, {0: "low", 1: "high"})
        several = [(a, [["a", "b", "c"][k] for k in range(3) if (i >> k) & 1]) for i, (a, _) in enumerate(PAIRS)]
        fit = tfmc.text.finetune(self.base, several, task="labels", labels=["a", "b", "c"], out=self.out.with_name("several"), **RUN)
        made = transformers.AutoModelForSequenceClassification.from_pretrained(self.out.with_name("several"))
        self.assertEqual((made.config.problem_type, made.config.num_labels), ("multi_label_classification", 3))

    def test_dropouts_of_the_checkpoint(self):
        """Those of its config, as a Trainer of transformers has them; dropout=False: none."""
        self.encoder()
        config = json.loads((self.base / "config.json").read_text())
        (self.base / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.2}))
        run = {**RUN, "steps": 2}
        losses = [self.losses(tfmc.text.finetune(self.base, PAIRS, task="pairs", out=self.out.with_name(name), **run, **more))
                  for name, more in (("a", {}), ("b", {}), ("c", {"dropout": False}))]
        (self.base / "config.json").write_text(json.dumps(config))
        losses.append(self.losses(tfmc.text.finetune(self.base, PAIRS, task="pairs", out=self.out.with_name("d"), **run)))
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])
        self.assertEqual(losses[2], losses[3])

    def test_dropouts_that_the_text_of_a_family_lacks(self):
        """Each that it lacks is named, beside others that it has; dropout=False leaves out those, too."""
        sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "vocab_size": 64, "bos_token_id": 2, "eos_token_id": 3,
                 "pad_token_id": 0, "max_position_embeddings": 64}
        some = transformers.OPTConfig(ffn_dim=24, word_embed_proj_dim=16, dropout=0.1, attention_dropout=0.2, layerdrop=0.3, **sizes)
        other = transformers.SeedOssConfig(intermediate_size=24, num_key_value_heads=2, head_dim=8, residual_dropout=0.2, **sizes)
        texts, run = [a for a, _ in PAIRS], {**RUN, "steps": 1, "task": "text", "out": self.out}
        for kind, config, lacking in ((transformers.OPTForCausalLM, some, "layerdrop = 0.3"),
                                      (transformers.SeedOssForCausalLM, other, "residual_dropout = 0.2")):
            with self.subTest(lacking):
                kind(config).save_pretrained(self.base)
                self.tokenizer()
                self.refused(tfmc.UsageError, f"does not have ({lacking});", tfmc.text.finetune, self.base, texts, **run)
                self.assertFalse(self.out.exists())
        self.assertEqual(len(self.losses(tfmc.text.finetune(self.base, texts, dropout=False, **run))), 1)

    def test_dropouts_that_the_class_has_where_the_config_says_nothing(self):
        config = transformers.SeedOssConfig(num_key_value_heads=2, head_dim=8, vocab_size=64, pad_token_id=0, **SIZES)
        transformers.SeedOssForCausalLM(config).save_pretrained(self.base)
        self.tokenizer()
        said = json.loads((self.base / "config.json").read_text())
        self.assertEqual(said.pop("residual_dropout"), 0.1)
        (self.base / "config.json").write_text(json.dumps(said))
        self.refused(tfmc.UsageError, "residual_dropout = 0.1", tfmc.text.finetune, self.base, [a for a, _ in PAIRS],
                     **{**RUN, "steps": 1, "task": "text", "out": self.out})

    def test_dropouts_of_a_llama(self):
        config = transformers.LlamaConfig(vocab_size=64, num_key_value_heads=2, attention_dropout=0.3, bos_token_id=2, eos_token_id=3,
                                          pad_token_id=0, **SIZES)
        transformers.LlamaForCausalLM(config).save_pretrained(self.base)
        self.tokenizer()
        texts, run = [a for a, _ in PAIRS], {**RUN, "steps": 2, "task": "text"}
        with_it, without = (self.losses(tfmc.text.finetune(self.base, texts, out=self.out.with_name(str(drop)), dropout=drop, **run))
                            for drop in (True, False))
        self.assertNotEqual(with_it, without)

    def writer(self):
        config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=64, bos_token_id=2, eos_token_id=3,
                                         resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        module = transformers.GPT2LMHeadModel(config)
        module.save_pretrained(self.base)
        self.tokenizer()
        return module

    def test_texts(self):
        module, texts = self.writer(), [a for a, _ in PAIRS]
        encode = transformers.AutoTokenizer.from_pretrained(self.base)

        def loss_of(module, batch):
            rows = []
            for row in batch:
                ids = encode(row[0]).input_ids + (encode(row[1], add_special_tokens=False).input_ids if len(row) > 1 else []) + [3]
                asked = len(encode(row[0]).input_ids) if len(row) > 1 else 0
                rows.append((ids, [-100 if k < asked else t for k, t in enumerate(ids)]))
            longest = max(len(ids) for ids, _ in rows)
            ids = torch.tensor([row + [0] * (longest - len(row)) for row, _ in rows])
            labels = torch.tensor([row + [-100] * (longest - len(row)) for _, row in rows])
            return torch.nn.functional.cross_entropy(module(ids).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        self.compared([(text,) for text in texts], "text", loss_of, module)
        written = self.out.with_name("answers")
        self.out, module = written, self.writer()
        self.compared(PAIRS, "text", loss_of, module)
        again = transformers.AutoModelForCausalLM.from_pretrained(written).eval()
        ids = torch.tensor([[2, 9, 10, 3]])
        np.testing.assert_allclose(tfmc.from_pretrained(written)(ids.numpy().astype(np.int32)), again(ids).logits.detach(), atol=1e-4)
        fit = tfmc.text.finetune(self.base, texts, task="text", pack=True, max_tokens=16, out=self.out.with_name("packed"), **RUN)
        self.assertEqual(len(self.losses(fit)), 6)

    def test_adapters(self):
        self.encoder()
        fit = tfmc.text.finetune(self.base, PAIRS, task="pairs", out=self.out, lora={"targets": ["*.query", "*.value"], "rank": 4},
                                 **{**RUN, "lr": 1e-2})
        config = json.loads((self.out / "adapter_config.json").read_text())
        self.assertEqual((config["r"], config["base_model_name_or_path"]), (4, os.path.abspath(self.base)))
        self.assertFalse((self.out / "model.safetensors").exists())
        vectors = tfmc.text.Embedder(tfmc.from_pretrained(self.base, task="embed", adapter=self.out), folder=self.base).encode(["w3 w4"])
        before = tfmc.text.Embedder(self.base, task="embed").encode(["w3 w4"])
        self.assertFalse(np.allclose(vectors, before))
        self.assertLess(self.losses(fit)[4], self.losses(fit)[0])  # the same batch

    def test_the_folder_is_the_checkpoint(self):
        """Names, files and what was not trained are those of the folder that training began with."""
        from safetensors.numpy import load_file
        module = self.encoder()
        before = load_file(self.base / "model.safetensors")
        fit = tfmc.text.finetune(self.base, PAIRS, valid=PAIRS[:6], task="pairs", out=self.out, epochs=2, batch_items=6, lr=1e-3)
        after = load_file(self.out / "model.safetensors")
        self.assertEqual(set(after), set(before))
        same = sorted(name for name in before if np.array_equal(before[name], after[name]))
        self.assertEqual(same, ["pooler.dense.bias", "pooler.dense.weight"])
        again = transformers.BertModel.from_pretrained(self.out).eval()
        mine = tfmc.text.Embedder(self.out, task="embed").encode(["w3 w4 w5"])[0]
        theirs = self.vectors(again.double(), ["w3 w4 w5"])[0].detach().numpy()
        cosine = mine @ theirs / np.linalg.norm(mine) / np.linalg.norm(theirs)
        self.assertGreater(cosine, 1 - 1e-5)
        self.assertTrue((self.out / "run/log.jsonl").is_file() and fit.best)
        more = tfmc.text.finetune(self.base, PAIRS, valid=PAIRS[:6], task="pairs", out=self.out, epochs=3, batch_items=6, lr=1e-3, resume=True)
        self.assertGreater(more.history[-1]["step"], fit.history[-1]["step"])
        del module

    def test_what_is_refused(self):
        self.encoder()
        for rows, task, words in (
                ([], "pairs", "no rows"), ([("a",)], "pairs", "not one text"), ([("a", "b"), ("c",)], "pairs", "row 1"),
                ([("a", "b", 3)], "scores", "score of row 0 is 3.0"), ([("a", "b", "c")], "scores", "not a number"),
                ([3.5], "pairs", "row 0 is 3.5, not a text or a tuple"), (np.array([1, 2]), "pairs", "not a text or a tuple"),
                ([("a", "b")], "triplets", "not 2 values"), ([("a", 5), ("b", 6)], "labels", None)):
            if words:
                self.refused(tfmc.Error, words, tfmc.text.finetune, self.base, rows, task=task, out=self.out)
        wrong = [({"task": "words"}, "task is 'words'"), ({"task": []}, "task is []"), ({"task": np.array([1, 2])}, "task is array"),
                 *(({"task": "pairs", name: wrong}, name[:5]) for name in ("epochs", "batch_items") for wrong in ("", [], 1.5)),
                 ({"task": "pairs", "loss": np.array([1, 2])}, "loss is array"), ({"task": "pairs", "valid": [None]}, "row 0 is None"), ({"task": "pairs", "loss": "cosent"}, "for 'pairs' there is"),
                 ({"task": "pairs", "labels": ["a"]}, "classes"), ({"task": "pairs", "pack": True}, "pack=True"),
                 ({"task": "pairs", "out": self.base}, "begins with"), ({"task": "pairs", "lora": {"rank": 3}}, "targets"),
                 ({"task": "pairs", "learning": 3}, "learning"), ({"task": "labels", "labels": ["a"]}, "one class")]
        for options, words in wrong:
            self.refused(tfmc.Error, words, tfmc.text.finetune, self.base, PAIRS, **{"out": self.out, **options})
        self.refused(tfmc.EnvError, "no such folder", tfmc.text.finetune, self.base / "x", PAIRS, task="pairs", out=self.out)
        self.refused(tfmc.Error, "none of a, b", tfmc.text.finetune, self.base, PAIRS, task="labels", labels=["a", "b"], out=self.out)


if __name__ == "__main__":
    unittest.main()
