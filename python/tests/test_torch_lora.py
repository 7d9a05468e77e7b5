"""LoRA by peft: a model that peft has wrapped is trained as any other module, beside torch in double; its files are written
by peft and read by tfmc. Not run without torch, transformers and peft."""
import copy
import importlib.util
import json
import pathlib
import unittest

import numpy as np

import tfmc
from support import Case
from torch_cases import nn, torch

if importlib.util.find_spec("safetensors"):
    from safetensors.numpy import load_file

VOCAB, STEPS = 60, 8


def ids(seed):
    return torch.from_numpy(np.random.default_rng(seed).integers(5, VOCAB, (3, 7)))


def loss_of(logits, labels):
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def llama():
    import transformers as hf
    return hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64))


def gpt2():
    import transformers as hf
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1,
                                            eos_token_id=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


class Logits(nn.Module if nn else object):
    """What is exported: ids to logits. The adapted model is its member `model`."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


@unittest.skipUnless(torch and importlib.util.find_spec("peft") and importlib.util.find_spec("transformers"),
                     "not run: torch, peft or transformers are missing")
class Adapters(Case):
    def source(self, module, **named):
        return tfmc.from_torch(module.eval(), {"ids": ids(1)}, targets={"labels": ids(2)}, training=True, outputs=["logits"],
                               sizes={n: {0: "batch", 1: "time"} for n in ("ids", "labels")}, loss=loss_of, **named)

    def beside(self, module):
        """The losses of torch in double."""
        module = copy.deepcopy(module).double().eval()
        optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=5e-3)
        losses = []
        for step in range(STEPS):
            loss = loss_of(module(ids(step % 2)), ids(step % 2 + 100))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses, module

    def check(self, made, whole=(), **settings):
        import peft
        torch.manual_seed(4)
        folder = pathlib.Path(self.folder())
        made().save_pretrained(folder / "base")
        base = made()
        base.load_state_dict(type(base).from_pretrained(folder / "base").state_dict())
        module = Logits(peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **settings)))
        losses, exact = self.beside(module)
        source = self.source(module)
        trainer = tfmc.Trainer(source, optimizer="adam", lr=5e-3, seed=1)
        trains = {name for name, weight in module.named_parameters() if weight.requires_grad}
        self.assertEqual({n for n in trains if not source.state or source.state[n] in trainer.trained}, trains)
        self.assertEqual(len(trainer.trained), len(trains))
        fit = trainer.fit((({"ids": ids(s % 2), "labels": ids(s % 2 + 100)}) for s in range(STEPS)), steps=STEPS, log_every=1, out=folder / "run")
        np.testing.assert_allclose([r["loss"] for r in fit.history if r["kind"] == "step"], losses, rtol=2e-5)
        self.assertLess(losses[-1], losses[0])
        frozen = {n: w.detach().clone() for n, w in module.named_parameters() if not w.requires_grad}
        trainer.to_torch(module)
        for name, weight in module.named_parameters():
            if name in frozen:
                self.assertTrue(torch.equal(weight, frozen[name]), name)
            else:
                np.testing.assert_allclose(weight.detach().numpy(), exact.get_parameter(name).detach().numpy(), atol=2e-4, err_msg=name)
        numbers = [sum(w.numel() for w in module.parameters() if w.requires_grad is grad) for grad in (False, True)]
        state = (folder / "run" / (folder / "run/latest").read_text().strip() / "state.tfmt").stat().st_size
        self.assertLess(state, 4 * 3 * numbers[1] + 64 * len(frozen) + 20000)  # what is trained and its moments, no base
        self.assertEqual(set(load_file(folder / "run/weights.safetensors")), set(trainer.trained))
        again = tfmc.Trainer(source, optimizer="adam", lr=5e-3, seed=1)
        batches = [{"ids": ids(s % 2), "labels": ids(s % 2 + 100)} for s in range(STEPS)]
        self.assertEqual(again.fit(iter(batches), steps=STEPS, out=folder / "run", resume=True).stopped, "end")
        self.assertTrue(all(np.array_equal(again.weight(path), trainer.weight(path)) for path in again.weights()))
        resumed = tfmc.Trainer.resume(folder / "run", source, optimizer="adam", lr=5e-3)
        self.assertTrue(all(np.array_equal(resumed.weight(path), trainer.weight(path)) for path in resumed.weights()))
        other = {name: value + 1 if name == next(iter(frozen)) else value for name, value in source.weights.items()}
        if len(other) and next(iter(frozen)) in other:
            self.refused(tfmc.EnvError, "another base", tfmc.Trainer.resume, folder / "run", source, weights=other, optimizer="adam", lr=5e-3)
        module.model.save_pretrained(folder / "adapter")
        self.assertEqual(json.loads((folder / "adapter/adapter_config.json").read_text())["r"], settings["r"])
        merged = tfmc.from_pretrained(folder / "base", adapter=folder / "adapter", on_message=lambda message: None)
        with torch.no_grad():
            wanted = copy.deepcopy(module).double()(ids(9)).numpy()
        for got in (merged(ids(9).numpy().astype(np.int32)), trainer.model()(ids(9).numpy().astype(np.int32))):
            np.testing.assert_allclose(got, wanted, atol=1e-5 * np.abs(wanted).max())

    def test_llama(self):
        self.check(llama, r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])

    def test_all_products_and_a_head_that_is_trained_whole(self):
        self.check(llama, r=3, lora_alpha=5, target_modules="all-linear", use_rslora=True, modules_to_save=["lm_head"])

    def test_gpt2(self):
        """Its modules have their weights the other way round."""
        self.check(gpt2, r=2, target_modules=["c_attn"], fan_in_fan_out=True)

    def test_going_on_with_an_adapter_of_a_folder(self):
        """What peft has read is what training begins with."""
        import peft
        torch.manual_seed(5)
        folder, base = pathlib.Path(self.folder()), llama()
        adapted = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["o_proj"]))
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                nn.init.normal_(weight, std=0.3)
        adapted.save_pretrained(folder / "adapter")
        again = peft.PeftModel.from_pretrained(base, folder / "adapter", is_trainable=True)
        trainer = tfmc.Trainer(self.source(Logits(again)), optimizer="adam", lr=5e-3)
        with torch.no_grad():
            wanted = float(loss_of(adapted.eval()(input_ids=ids(1)).logits, ids(2)))
        self.assertAlmostEqual(trainer.step(ids=ids(1), labels=ids(2)).loss, wanted, 5)

    def test_dropout_of_adapters(self):
        """It is in the text where peft has it, and none is in runs."""
        import peft
        module = Logits(peft.get_peft_model(llama(), peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"], lora_dropout=0.25)))
        source = self.source(module)
        self.assertRegex(source.text, r"lora_A\w*\(dropout\(\w+, 0\.25\)\)")
        trainer = tfmc.Trainer(source)
        first, second = (trainer.evaluate(ids=ids(1), labels=ids(2))["loss"] for _ in range(2))
        self.assertEqual(first, second)
        with torch.no_grad():
            self.assertAlmostEqual(first, float(loss_of(module(ids(1)), ids(2))), 5)


if __name__ == "__main__":
    unittest.main()
