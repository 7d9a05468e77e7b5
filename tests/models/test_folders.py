#!/usr/bin/env python3
"""usage: test_folders.py TFMC CASES

What `tfmc import` makes of the other files of a folder, and of folders that are no checkpoint: each key of the files of sentence
transformers, spellings of rotary settings, tokens of generation, numbers that JSON does not have, GGUF, modules of other kinds,
names of the hub. The last line is 'N passed, N failed' of unittest.
"""
import json
import re
import shutil

import numpy as np
from safetensors.numpy import load_file, save_file

import import_case
from import_case import ImportCase
from test_account import rows

FILES = dict(Modules="modules.json", Pooling="1_Pooling/config.json", Normalize="2_Normalize/config.json",
             Bert="sentence_bert_config.json", Encoder="config_sentence_transformers.json")
BODY = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
# As sentence-transformers 6.2 saves them.
SAVED = {"2_Normalize/config.json": dict(module_input_name="sentence_embedding", module_output_name="sentence_embedding"),
         "sentence_bert_config.json": dict(transformer_task="feature-extraction", modality_config=BODY,
                                           module_output_name="token_embeddings"),
         "config_sentence_transformers.json": dict(__version__=dict(pytorch="2.15"), default_prompt_name=None, prompts=dict(query=""),
                                                   model_type="SentenceTransformer", similarity_fn_name="cosine")}


class SentenceFiles(ImportCase):
    def setUp(self):
        super().setUp()
        self.take("sentence_mean")
        for name, content in SAVED.items():
            self.put(name, content)
        self.whole = self.tfmc(self.folder, "--strict").stdout

    def put(self, name, content):
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(json.dumps(content))

    def content(self, name):
        return json.loads((self.folder / name).read_text())

    def change(self, file, key, value):
        """One key of a file, or of the first object of its list, has this value until the next change."""
        content = self.content(FILES[file])
        self.put(FILES[file], [content[0] | {key: value}, *content[1:]] if file == "Modules" else content | {key: value})
        return content

    def test_each_key(self):
        """Each row of sentence_keys.def does what it says of the key."""
        found = rows("sentence_keys.def", "SENTENCE_KEY")
        self.assertGreater(len(found), 25)
        for row in found:
            file, key, rule = re.match(r'(\w+), "(\w+)", (\w+)', row).groups()
            with self.subTest(file=file, key=key):
                for value in ([3, "x", dict(a=1)] if rule == "NOTHING" else ["x", False if key == "include_prompt" else 7]):
                    before = self.change(file, key, value)
                    if rule == "NOTHING":
                        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, self.whole)
                    if rule == "ONLY":
                        self.refused_in(FILES[file], f'"{key}" is')
                    self.put(FILES[file], before)

    def refused_in(self, file, *says):
        target = self.folder / "model.tfm"
        self.tfmc(self.folder, "-o", target, code=1, says=[file, "no output written", *says])
        self.assertFalse(target.exists())

    def test_unknown_keys(self):
        for file in FILES:
            before = self.change(file, "scale_of_dreams", 3)
            self.refused_in(FILES[file], 'nothing reads "scale_of_dreams" (3)')
            self.assertEqual(self.tfmc(self.folder, "--ignore", "scale_of_dreams").stdout, self.whole)
            self.put(FILES[file], before)

    def test_prompts_that_are_not_pooled(self):
        """They changed vectors without a word once."""
        self.change("Pooling", "include_prompt", False)
        self.refused_in("1_Pooling/config.json", '"include_prompt" is false; only true is computed here')
        self.assertEqual(self.tfmc(self.folder, "--ignore", "include_prompt").stdout, self.whole)

    def test_poolings(self):
        modes = ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
        for mode in modes:
            for content in (dict(pooling_mode=mode), dict(pooling_mode=[mode]),
                            {f"pooling_mode_{mode}" + ("_token" if mode == "cls" else "_tokens" if mode in ("mean", "max", "weightedmean")
                                                       else ""): True}):
                with self.subTest(content=content):
                    self.put("1_Pooling/config.json", content | dict(word_embedding_dimension=24))
                    if mode in ("cls", "mean"):
                        self.tfmc(self.folder, "--strict")
                    else:
                        self.refused('sentences are pooled by "mean" or "cls" only')
        self.put("1_Pooling/config.json", dict(pooling_mode=["cls", "mean"], embedding_dimension=24))
        self.refused("sentences are pooled by")
        self.put("1_Pooling/config.json", dict(pooling_mode="mean", pooling_mode_cls_token=True, embedding_dimension=24))
        self.refused("sentences are pooled by")
        self.put("1_Pooling/config.json", dict(pooling_mode="mean"))
        self.refused_in("1_Pooling/config.json", '"word_embedding_dimension" is missing')
        (self.folder / "1_Pooling/config.json").unlink()
        self.refused_in("1_Pooling/config.json", "no such file")

    def test_modules(self):
        first, pooling, normalize = self.content("modules.json")
        kind = lambda module, text: module | dict(type=text)
        for modules, says in (([first, normalize, pooling], "stands in another place"), ([first, pooling, pooling], "another place"),
                              ([first, pooling, normalize, normalize], "another place"), ([pooling], "another place"),
                              ([first], "there is no module Pooling"), ([], "there is no module Pooling"),
                              ([kind(first, "custom_st.Transformer"), pooling], "a module custom_st.Transformer is not known here"),
                              ([first, pooling, kind(normalize, "sentence_transformers.models.Dense")], "a module Dense is not known"),
                              ([first | dict(path="0_Transformer"), pooling], 'lies in "0_Transformer": copy the files'),
                              ([first | dict(kwargs=["task"]), pooling], '"kwargs" is ["task"]')):
            with self.subTest(modules=modules):
                self.put("modules.json", modules)
                self.refused_in("modules.json", says)
        self.put("modules.json", [first, pooling])
        self.assertNotIn("1e-12)", self.tfmc(self.folder, "--strict").stdout.split("return")[-2])

    def test_a_cross_encoder(self):
        """A Transformer alone, whose task is that of its class."""
        self.take("bert_classify")
        shutil.rmtree(self.folder / "1_Pooling")
        self.put("modules.json", [dict(idx=0, name="0", path="", type="sentence_transformers.base.modules.transformer.Transformer")])
        scores = {"text": {"method": "forward", "method_output_name": "logits"}}
        self.put("sentence_bert_config.json", dict(transformer_task="sequence-classification", modality_config=scores,
                                                   module_output_name="scores"))
        self.put("config_sentence_transformers.json", dict(model_type="CrossEncoder", activation_fn="torch.nn.Sigmoid", prompts={}))
        self.assertIn("return logits = ", self.tfmc(self.folder, "--strict").stdout)

    def test_families_without_vectors(self):
        """A folder that makes vectors becomes no model that writes, nor one that gives hidden states."""
        for name in ("qwen2", "llama", "albert", "t5", "vit"):
            with self.subTest(case=name):
                config = self.take(name)
                self.refused_in("modules.json", 'the folder makes one vector of a text (pooling "mean")')
        self.write(config | dict(architectures=None))


class Spellings(ImportCase):
    def test_rotary_settings(self):
        """`rope_theta` and `rope_scaling` at the top, beside `rope_parameters` or in their place: they agree, or are refused."""
        config = self.take("llama3")
        rope = config.pop("rope_parameters")
        theta = rope.pop("rope_theta")
        new, old = rope | dict(rope_theta=theta), {("type" if k == "rope_type" else k): v for k, v in rope.items()}
        self.write(config | dict(rope_parameters=new))
        whole = self.tfmc(self.folder, "--strict").stdout
        self.assertIn("base = 500000.0,", whole)
        same = (dict(rope_parameters=rope, rope_theta=theta), dict(rope_parameters=new, rope_theta=theta),
                dict(rope_parameters=new, rope_theta=theta, rope_scaling=old), dict(rope_scaling=old, rope_theta=theta),
                dict(rope_parameters=new, rope_scaling=old | dict(rope_theta=theta)), dict(rope_parameters=new, rope_scaling=None),
                dict(rope_parameters=old | dict(rope_theta=theta)), dict(rope_scaling=rope, rope_theta=theta),
                dict(rope_parameters=rope | dict(type="llama3"), rope_theta=theta))
        for keys in same:
            with self.subTest(keys=keys):
                self.write(config | keys)
                self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
        contrary = (dict(rope_parameters=new, rope_theta=theta + 1), dict(rope_parameters=new | dict(type="linear")),
                    dict(rope_parameters=new, rope_theta=theta, rope_scaling=old | dict(factor=3.0)),
                    dict(rope_parameters=new, rope_scaling=old), dict(rope_scaling=rope | dict(type="yarn"), rope_theta=theta),
                    dict(rope_parameters=new, rope_theta=theta, rope_scaling=dict(type="linear", factor=8.0)))
        for keys in contrary:
            with self.subTest(keys=keys):
                self.write(config | keys)
                self.refused("are two spellings of one setting, and they contradict each other")

    def test_numbers_that_json_lacks(self):
        self.take("bert")
        for number in ("Infinity", "-Infinity", "NaN"):
            self.write('{"model_type": "bert",\n "time_step_limit": [0.0, %s]}' % number)
            self.refused("config.json:2:", "this is not JSON", f'"time_step_limit" is {number}')

    def test_roberta_without_padding(self):
        config = self.take("roberta")
        whole = self.tfmc(self.folder, "--strict").stdout
        self.write({k: v for k, v in config.items() if k != "pad_token_id"})
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)


class Generation(ImportCase):
    def test_several_ends_without_padding(self):
        """The first of them pads, and what is written can be checked, compiled and run."""
        for name in ("llama", "qwen2", "gpt2", "gemma", "phi3", "mixtral", "t5", "bart"):
            with self.subTest(case=name):
                config = {k: v for k, v in self.take(name).items() if k != "pad_token_id"}
                if name == "phi3":
                    config["pad_token_id"] = None  # its class has a token of its own where the key is missing
                for place in ("config.json", "generation_config.json"):
                    self.write(config | (dict(eos_token_id=[5, 7, 9]) if place == "config.json" else {}))
                    content = dict(eos_token_id=[5, 7, 9], decoder_start_token_id=2)
                    (self.folder / "generation_config.json").write_text(json.dumps(content))
                    if place == "config.json":
                        (self.folder / "generation_config.json").unlink()
                    model = self.folder / "m.tfm"
                    self.tfmc(self.folder, "-o", model)
                    self.tfmc(model, "--weights", self.folder, verb="check")
                    start = {k: np.array(v, np.int32) for k, v in self.case["inputs"].items()}
                    save_file(start, self.folder / "in.safetensors")
                    self.tfmc(model, "--weights", self.folder, "--inputs", self.folder / "in.safetensors", "--max-new-tokens", 2,
                              "-o", self.folder / "out.safetensors", "--engine=reference", verb="generate")

    def test_a_config_as_transformers_saves_it(self):
        """Nothing is said of keys that say what a Python program gets back."""
        self.take("llama")
        model = self.folder / "m.tfm"
        self.tfmc(self.folder, "-o", model)
        save_file({"input_ids": np.array([[5, 6]], np.int32)}, self.folder / "in.safetensors")
        done = self.tfmc(model, "--weights", self.folder, "--inputs", self.folder / "in.safetensors", "--generation-config",
                         self.folder / "generation_config.json", "--engine=reference", verb="generate")
        self.assertNotIn("warning", done.stderr)


class NoCheckpoint(ImportCase):
    def said(self, folder, code, *says):
        return self.tfmc(folder, code=code, says=["config.json", *says]).stderr

    def test_names_of_the_hub(self):
        self.said("Qwen/Qwen3-0.6B", 3, "no such folder", "hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B")
        for path in (self.folder / "none", self.folder / "none/deeper", "./a/b", "a/b/c"):
            self.assertNotIn("hf download", self.said(path, 3, "no such folder"))

    def test_other_folders(self):
        (self.folder / "model-q8.gguf").write_bytes(b"GGUF")
        self.said(self.folder, 1, '"model-q8.gguf" is a GGUF file', "tfmc import")
        (self.folder / "model-q8.gguf").unlink()
        (self.folder / "0_Transformer").mkdir()
        (self.folder / "0_Transformer/config.json").write_text("{}")
        self.said(self.folder, 1, "keeps its model in 0_Transformer")
        shutil.rmtree(self.folder / "0_Transformer")
        kind = "sentence_transformers.models.StaticEmbedding"
        (self.folder / "modules.json").write_text(json.dumps([dict(type=kind, path="0_StaticEmbedding")]))
        self.said(self.folder, 1, "modules.json says StaticEmbedding")
        (self.folder / "modules.json").unlink()
        self.said(self.folder, 3, "No such file")

    def test_options_that_are_named_exist(self):
        """A file whose names have a prefix that the family does not know."""
        self.take("bert")
        tensors = load_file(self.folder / "model.safetensors")
        for prefix in ("net.", "model.bert."):
            save_file({prefix + k: v for k, v in tensors.items()}, self.folder / "model.safetensors")
            said = self.tfmc(self.folder, code=1, says=["model.safetensors", f'begin with "{prefix}"']).stderr
            self.assertNotIn("--weights-prefix", said)
        for name, prefix in (("albert", "albert."), ("mpnet", "mpnet.")):
            self.take(name)
            tensors = load_file(self.folder / "model.safetensors")
            save_file({prefix + k: v for k, v in tensors.items()}, self.folder / "model.safetensors")
            self.tfmc(self.folder, "--strict")


if __name__ == "__main__":
    import_case.main()
