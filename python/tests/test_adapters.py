"""Adapters of peft: folders that peft writes, merged by tfmc, beside the model that peft merges itself, in double."""
import importlib.util
import pathlib
import unittest

import numpy as np

import tfmc
from support import Case


@unittest.skipUnless(importlib.util.find_spec("peft") and importlib.util.find_spec("transformers"),
                     "not run: the packages peft and transformers are missing")
class BesidePeft(Case):
    def check(self, model, settings, **more):
        """A random adapter of a random model."""
        import peft
        import torch
        torch.manual_seed(3)
        folder = pathlib.Path(self.folder())
        model.save_pretrained(folder / "base")
        adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings))
        for name, weight in adapted.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                torch.nn.init.normal_(weight, std=0.3)
        adapted.save_pretrained(folder / "adapter")
        ids = np.random.default_rng(4).integers(5, 90, (2, 7))
        with torch.no_grad():
            wanted = adapted.eval().double()(torch.tensor(ids)).logits.numpy()
        made = tfmc.from_pretrained(folder / "base", adapter=folder / "adapter", on_message=lambda message: None)
        self.assertEqual(made.folder, folder / "base")
        self.assertLess(np.abs(made(ids.astype(np.int32)) - wanted).max() / np.abs(wanted).max(), 1e-5)

    def llama(self):
        import transformers as hf
        return hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                                  num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64))

    def test_llama(self):
        for settings in (dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
                         dict(r=3, lora_alpha=5, target_modules="all-linear", use_rslora=True),
                         dict(r=2, target_modules=r".*\.\d+\.(?:self_attn|mlp)\.\w+_proj", rank_pattern={"down_proj": 5},
                              alpha_pattern={r"layers\.1\.mlp\.up_proj": 20}),
                         dict(r=2, target_modules=["o_proj"], modules_to_save=["lm_head"]),
                         dict(r=2, target_modules=["q_proj", "o_proj"], exclude_modules=["model.layers.0.self_attn.o_proj"])):
            self.check(self.llama(), settings)

    def test_gpt2(self):
        """Its modules have their weights the other way round."""
        import transformers as hf
        for bias, targets in (("none", ["c_attn"]), ("all", ["c_attn", "c_proj", "c_fc"])):
            self.check(hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64,
                                                        bos_token_id=1, eos_token_id=2)),
                       dict(r=2, target_modules=targets, fan_in_fan_out=True, bias=bias))

    def test_what_is_refused(self):
        for settings in (dict(use_dora=True), dict(init_lora_weights="pissa"), dict(layers_to_transform=[0])):
            self.refused(tfmc.CompileError, next(iter(settings)), self.check, self.llama(),
                         dict(r=2, target_modules=["q_proj"], **settings))


if __name__ == "__main__":
    unittest.main()
