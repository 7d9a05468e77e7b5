#!/usr/bin/env python3
"""usage: test_settings.py TFMC CASES

Settings of a checkpoint that decide which numbers or tokens come out, and that a folder can have without a word of warning:
each changes what is computed as its definition says, or is refused. What is right follows from a definition: no
transformers is needed. test_mutations.py has what transformers computed of other changes.
"""
import itertools
import json

import numpy as np
from safetensors.numpy import load_file, save_file

import import_case
from import_case import ImportCase


class Settings(ImportCase):
    def computed(self, config=None, inputs=None, verb="run", options=("--engine=reference",)):
        """The outputs of the folder, whose config.json may be another one."""
        if config is not None:
            self.write(config)
        model = self.folder / "model.tfm"
        model.unlink(missing_ok=True)
        self.tfmc(self.folder, "-o", model)
        given = {k: np.array(v) for k, v in (inputs or self.case["inputs"]).items()}
        save_file({k: np.ascontiguousarray(v, np.float32 if v.dtype.kind == "f" else np.int32) for k, v in given.items()},
                  self.folder / "in.safetensors")
        out = self.folder / "out.safetensors"
        self.tfmc(model, "--weights", self.folder, "--inputs", self.folder / "in.safetensors", "-o", out, *options, verb=verb)
        return load_file(out)

    def test_the_end_of_a_text_for_clip(self):
        """2 is what folders of before 2023 say of any table: the position of the greatest id is meant."""
        config = self.take("clip")
        text = config["text_config"]
        greatest = text["vocab_size"] - 1
        ids = np.full_like(np.array(self.case["inputs"]["input_ids"]), 7)
        for row, end in enumerate(np.arange(len(ids)) % (ids.shape[1] - 2) + 1):
            ids[row, end], ids[row, end + 1:] = greatest, 3
        inputs = {**self.case["inputs"], "input_ids": ids}
        said = self.computed(config | dict(text_config=text | dict(eos_token_id=greatest)), inputs)
        for end in 2, greatest:
            found = self.computed(config | dict(text_config=text | dict(eos_token_id=end)), inputs)
            np.testing.assert_allclose(found["text_embeds"], said["text_embeds"], atol=1e-6, err_msg=str(end))

    def test_towers_of_clip_that_are_said_twice(self):
        """The second time counts, and what it lacks is what the class has: 49407 ends a text, whatever the first one says."""
        config = self.take("clip")
        text = config["text_config"] | dict(eos_token_id=2)
        said = self.tfmc(self.folder).stdout
        for end in (49407, None), (3, 3):
            self.write(config | dict(text_config=text, text_config_dict={k: v for k, v in (text | dict(eos_token_id=end[1])).items()
                                                                         if v is not None}))
            made = self.tfmc(self.folder).stdout
            self.assertRegex(made, rf"\beos = {end[0]}\b")
            self.assertNotEqual(made, said)

    def test_sines_that_are_stored(self):
        """Folders of Pegasus have the table, those of Marian had it once; what stands in it counts."""
        for name in "pegasus", "marian":
            config = self.take(name)
            said = self.computed(config)["logits"]
            n, d = config["max_position_embeddings"], config["d_model"]
            angles = np.arange(n)[:, None] / 10000 ** (2 * np.arange(d // 2) / d)
            sines = np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)
            whole = load_file(self.folder / "model.safetensors")
            for factor in 1, 2:
                tables = {f"model.{part}.embed_positions.weight": sines * np.float32(factor) for part in ("encoder", "decoder")}
                save_file(whole | tables, self.folder / "model.safetensors")
                found = self.computed(config)["logits"]
                self.assertEqual(np.abs(found - said).max() < 1e-5, factor == 1)

    def test_flags_that_are_missing_are_on(self):
        """Falcon's class has parallel_attn and multi_query where config.json says nothing; a null is off."""
        config = self.take("falcon")
        said = self.computed(config)["logits"]
        for keys in (("parallel_attn",), ("multi_query",), ("parallel_attn", "multi_query")):
            np.testing.assert_array_equal(self.computed({k: v for k, v in config.items() if k not in keys})["logits"], said)
        config = self.take("falcon_rw")
        said = self.computed(config | dict(parallel_attn=None, multi_query=None))["logits"]
        np.testing.assert_array_equal(self.computed(config)["logits"], said)
        (self.folder / "model.tfm").unlink()
        for key, says in (("parallel_attn", "post_attention_layernorm"), ("multi_query", "query_key_value")):
            self.write({k: v for k, v in config.items() if k != key})
            self.refused(says)
        self.write(config | dict(num_kv_heads=8))
        self.refused("num_kv_heads is not num_attention_heads")
        self.write(config | dict(output_attentions=True))
        self.refused("ALiBi")
        self.write(config)
        written = json.loads((self.folder / "generation_config.json").read_text())
        for key, value in (("output_attentions", True), ("cache_implementation", "static")):
            (self.folder / "generation_config.json").write_text(json.dumps(written | {key: value}))
            self.refused("ALiBi")

    def test_activations_of_a_dense_module(self):
        """Each with the numbers that torch's class has by itself, by its definition; Softmax over a text's vector alone."""
        softplus = lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
        sixth = lambda x: np.clip(x + 3, 0, 6) / 6
        elu = lambda x, a=1.0: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0)))
        wanted = dict(LeakyReLU=lambda x: np.where(x > 0, x, 0.01 * x), ELU=elu, SELU=lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772),
                      Mish=lambda x: x * np.tanh(softplus(x)), Softplus=softplus, LogSigmoid=lambda x: -softplus(-x),
                      ReLU6=lambda x: np.clip(x, 0, 6), Hardsigmoid=sixth, Hardswish=lambda x: x * sixth(x),
                      Softmax=lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True))
        self.take("sentence_dense")
        modules = json.loads((self.folder / "modules.json").read_text())[:3]
        (self.folder / "modules.json").write_text(json.dumps(modules))
        dense, said = self.case["files"]["2_Dense/config.json"], None
        weights = load_file(self.folder / "2_Dense/model.safetensors")
        save_file({n: w * np.float32(4) for n, w in weights.items()}, self.folder / "2_Dense/model.safetensors")
        for place, name in (("torch.nn", "Identity"), *itertools.product(("torch.nn.modules.activation", "torch.nn.modules", "torch.nn"), wanted)):
            with self.subTest(place=place, activation=name):
                (self.folder / "2_Dense/config.json").write_text(json.dumps(dense | dict(activation_function=f"{place}.{name}")))
                for options in ((), ("--engine=reference",)) if place == "torch.nn" else ((),):
                    found = self.computed(options=options)["sentence_embedding"]
                    said = found.astype(np.float64) if said is None else said
                    np.testing.assert_allclose(found, wanted.get(name, lambda x: x)(said), rtol=1e-5, atol=2e-6)
        self.assertTrue((said < -3).any() and (said > 3).any() and (np.abs(said) < 1).any())

    def test_vectors_that_are_cut(self):
        """Of a sentence encoder, an encoder of T5's and one that writes: the first numbers, all if there are no more."""
        for name in "sentence_dense", "sentence_gtr", "sentence_qwen3":
            self.take(name)
            path = self.folder / "config_sentence_transformers.json"
            written = json.loads(path.read_text()) if path.exists() else {}
            whole = None
            for most in (None, 5, 1, 10000):
                with self.subTest(name=name, most=most):
                    path.write_text(json.dumps(written | dict(truncate_dim=most)))
                    found = self.computed(options=())["sentence_embedding"]
                    whole = found if whole is None else whole
                    np.testing.assert_array_equal(found, whole[:, :most])

    def changed(self, name, says, tensors=None, file="config.json", **keys):
        """The case is taken, and refused with these keys, or with tensors of other shapes."""
        self.take(name)
        self.tfmc(self.folder, "--strict")
        path = self.folder / file
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))
        if tensors:
            weights = load_file(self.folder / "model.safetensors")
            save_file({k: np.resize(v, tensors[k]) if k in tensors else v for k, v in weights.items()}, self.folder / "model.safetensors")
        self.assertIn(says, self.tfmc(self.folder, code=1).stderr)

    def test_kinds_of_keys_that_change_nothing(self):
        """transformers reads none of these, or ends with an error."""
        for name in ("llama", "bert"):
            for value in (True, 1, 0.5):
                self.changed(name, '"auto_map" is', auto_map=value)
                self.changed(name, '"_attn_implementation" is', _attn_implementation=value)
            self.changed(name, '"_attn_implementation" is', _attn_implementation="something")
            self.write(self.take(name) | dict(auto_map={"AutoModel": "mine.Mine"}, _attn_implementation="flash_attention_2"))
            self.tfmc(self.folder)

    def test_settings_of_the_whole_and_of_its_part(self):
        """Where the settings of text stand beside the others, the text's class reads them all; else each has its own."""
        for value in (True, 1, "something"):
            self.changed("qwen2_5_vl_first", '"initializer_range" is', initializer_range=value)
        config = self.take("qwen2_5_vl")
        self.write(config | dict(initializer_range=1))
        self.tfmc(self.folder, "--strict")
        config = self.take("gemma3_pictures_first")
        for value in (True, 2, "something", ["linear"]):
            self.changed("gemma3_pictures_first", "rope_scaling", text_config=config["text_config"] | dict(rope_scaling=value))

    def test_the_length_of_texts_in_training(self):
        """LongRoPE's, which the class of Phi-3 takes from the top of the config, or 4096, whatever rope_parameters say."""
        for name in "phi3_longrope", "phi4_mini":
            (self.folder / "model.tfm").unlink(missing_ok=True)
            config = self.take(name)
            rope = config["rope_parameters"]
            self.write({k: v for k, v in config.items() if k != "original_max_position_embeddings"})
            self.refused("said in two ways")
            self.write(config | dict(rope_parameters=rope | dict(original_max_position_embeddings=8)))
            self.refused("said in two ways")
            said = self.computed({k: v for k, v in config.items() if k != "original_max_position_embeddings"} |
                                 dict(rope_parameters=rope | dict(original_max_position_embeddings=4096)))["logits"]
            found = self.computed(config | dict(original_max_position_embeddings=4096,
                                                rope_parameters=rope | dict(original_max_position_embeddings=4096)))["logits"]
            np.testing.assert_array_equal(found, said)

    def test_factors_of_both_sets(self):
        """Those of long texts are checked where short ones are computed, too."""
        for factors, says in (([1.0], "factors are needed"), ([], "factors are needed"), ([1.0, 1.5, "3.0", 7.0], "str")):
            rope = self.take("phi3_longrope")["rope_parameters"]
            self.changed("phi3_longrope", says, rope_parameters=rope | dict(long_factor=factors))

    def test_what_a_class_has_no_use_for(self):
        self.changed("moonshine_streaming_alike", "without a cache", file="generation_config.json", use_cache=False)
        self.changed("granite_hybrid_dense", "output_router_logits", output_router_logits=True)
        self.changed("wav2vec2_speaker", '"id2label" has 2 labels', id2label={"0": "a", "1": "b"})
        self.changed("bert_tokens", '"num_labels" is 8', num_labels=8, id2label=None)
        self.changed("wav2vec2_speaker", "not positive", tdnn_dilation=[1, 2, 0])
        self.changed("wav2vec2_speaker", "objective.weight", tensors={"objective.weight": (8, 3)})
        self.changed("nomic_mask_untied", "cls.predictions.bias", tensors={"cls.predictions.bias": (41,)})

    def test_texts_without_the_end_have_no_label(self):
        """The label is read at the last end token; a text without one is refused, as by the classes of transformers."""
        for name in "bart_classify", "mbart_classify", "t5_classify":
            config = self.take(name)
            self.computed(config)
            ids = np.array(self.case["inputs"]["input_ids"])
            ids[1][ids[1] == config["eos_token_id"]] += 1
            save_file({"input_ids": np.ascontiguousarray(ids, np.int32)}, self.folder / "without.safetensors")
            for engine in "native", "reference":
                self.tfmc(self.folder / "model.tfm", "--weights", self.folder, "--inputs", self.folder / "without.safetensors",
                          f"--engine={engine}", verb="run", code=1, says=["model.tfm:", f"error: the label is read at the last end token, {config['eos_token_id']}: "])

    def test_fewer_positions_than_none(self):
        """Words that turn need no table of positions, but the classes count up to the number that the config has."""
        for name in "nomic_bert", "jina_v3", "gte":
            config = self.take(name)
            self.write(config | dict(max_position_embeddings=-1))
            (self.folder / "model.tfm").unlink(missing_ok=True)  # of the case before
            self.refused("fewer positions than none (\"max_position_embeddings\")")
            for positions in 0, 1, 4096:
                self.computed(config | dict(max_position_embeddings=positions))

    def test_layers_with_and_without_a_window(self):
        """Mistral with a list of kinds: the window is that of the layers that the list names."""
        config = self.take("mistral")
        layers = config["num_hidden_layers"]
        self.assertGreater(layers, 1)

        def logits(window, kinds):
            kinds = dict(layer_types=kinds) if kinds else {}
            plain = {k: v for k, v in config.items() if k != "layer_types"}
            return self.computed(plain | dict(sliding_window=window) | kinds)["logits"]
        none, all_of = logits(None, None), logits(3, None)
        self.assertGreater(np.abs(none - all_of).max(), 1e-3)
        np.testing.assert_array_equal(logits(3, ["full_attention"] * layers), none)
        np.testing.assert_array_equal(logits(3, ["sliding_attention"] * layers), all_of)
        mixed = logits(3, ["sliding_attention"] + ["full_attention"] * (layers - 1))
        self.assertGreater(min(np.abs(mixed - other).max() for other in (none, all_of)), 1e-3)

    def test_the_share_of_a_head_that_turns(self):
        """GPT-NeoX: a quarter and all of a head, in each spelling of the key."""
        config = self.take("gpt_neox")
        found = []
        for share in 0.25, 1.0:
            rope = config["rope_parameters"] | dict(partial_rotary_factor=share)
            old = {k: v for k, v in config.items() if k != "rope_parameters"} | dict(rotary_pct=share, rotary_emb_base=10000)
            one, other = self.computed(config | dict(rope_parameters=rope)), self.computed(old)
            np.testing.assert_array_equal(one["logits"], other["logits"])
            found.append(one["logits"])
        self.assertGreater(np.abs(found[0] - found[1]).max(), 1e-3)

    def test_a_cache_of_a_fixed_size(self):
        """GPT-Neo's class takes other rows of its mask with it, so its tokens are others."""
        config = self.take("gpt_neo")
        ends = {k: config[k] for k in ("bos_token_id", "eos_token_id") if k in config}
        for kind in "static", "offloaded_static", "hybrid":
            with self.subTest(kind=kind):
                (self.folder / "generation_config.json").write_text(json.dumps(ends | {"cache_implementation": kind}))
                self.write(config)
                self.refused("only a cache that grows")
        (self.folder / "generation_config.json").write_text(json.dumps(ends | {"cache_implementation": "dynamic"}))
        self.computed(config)

    def test_scores_that_are_probabilities_again(self):
        """Then beams are judged as if the forbidden words had never had a score (renormalize_logits of opus-mt)."""
        config = self.take("marian")
        settings = self.case["files"]["generation_config.json"] | dict(num_beams=3, num_return_sequences=3, early_stopping=False)
        words = [w for w in range(4, config["vocab_size"], 2) if w not in (config["eos_token_id"], config["pad_token_id"])]
        inputs = {k: v for k, v in self.case["inputs"].items() if k != "decoder_input_ids"}
        whole, found = load_file(self.folder / "model.safetensors"), {}
        bias = whole.get("final_logits_bias", np.zeros((1, config["vocab_size"]), np.float32)).copy()
        bias[:, words] = -1e30
        for name, more, tensors in (("without", {}, {"final_logits_bias": bias}),
                                    ("forbidden", dict(bad_words_ids=[[w] for w in words]), {}),
                                    ("again", dict(bad_words_ids=[[w] for w in words], renormalize_logits=True), {})):
            save_file(whole | tensors, self.folder / "model.safetensors")
            (self.folder / "generation_config.json").write_text(json.dumps(settings | more))
            found[name] = self.computed(config, inputs, "generate", ("--max-new-tokens", "8"))
        np.testing.assert_array_equal(found["again"]["sequences"], found["without"]["sequences"])
        np.testing.assert_allclose(found["again"]["scores"], found["without"]["scores"], rtol=1e-5)
        self.assertGreater(np.abs(found["forbidden"]["scores"] - found["without"]["scores"]).max(), 0.1)

    def test_words_that_are_forbidden(self):
        """An empty list forbids nothing and is an error of the class: it says that something was to stand there."""
        config = self.take("gpt2")
        for words in [], [[]], [[7, 9]], [[True]]:
            with self.subTest(words=words):
                (self.folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, "bad_words_ids": words}))
                self.tfmc(self.folder, "-o", self.folder / "model.tfm", code=1, says=["bad_words_ids", "at least one"])

    def test_caches_that_change_nothing(self):
        """Where keys and values lie changes no number; a cache that rounds them does, and names of none are refused."""
        config = self.take("gpt2")
        found = []
        for kind in None, "dynamic", "offloaded", "static", "offloaded_static", "hybrid", "sliding_window":
            (self.folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, "cache_implementation": kind}))
            found.append(self.computed(config)["logits"])
            np.testing.assert_array_equal(found[0], found[-1])
        for kind in "quantized", "mamba", 1, []:
            with self.subTest(kind=kind):
                (self.folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, "cache_implementation": kind}))
                self.tfmc(self.folder, "-o", self.folder / "model.tfm", code=1, says=["cache_implementation", "no output written"])

    def test_the_last_token_of_a_row_of_greatest_length(self):
        """Translators and summarizers of BART's kind, from either file."""
        for name in "bart", "mbart", "pegasus", "marian":
            config = self.take(name)
            start = {k: v for k, v in self.case["inputs"].items() if k != self.case["grows"]}
            for place in "config.json", "generation_config.json":
                with self.subTest(case=name, place=place):
                    said = dict(forced_eos_token_id=9)
                    content = config.pop("generation", {}) | {k: config[k] for k in ("decoder_start_token_id", "eos_token_id", "pad_token_id")}
                    (self.folder / "generation_config.json").write_text(json.dumps(content | (said if place != "config.json" else {})))
                    if place == "config.json":
                        (self.folder / "generation_config.json").unlink()
                    tokens = self.computed(config | (said if place == "config.json" else {}), start, "generate",
                                           ("--max-new-tokens=5", "--min-new-tokens=5"))["sequences"]
                    self.assertEqual(tokens.shape[1], 6)
                    self.assertEqual(tokens[:, -1].tolist(), [9] * len(tokens))


if __name__ == "__main__":
    import_case.main()
