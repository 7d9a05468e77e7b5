#!/usr/bin/env python3
"""usage: test_account.py TFMC CASES

`tfmc import` passes nothing over: every tensor of a folder is read, is a buffer of compiler/import/buffers.def, a copy, a head
that the class or --task leaves out, or an error; every key is read, known or an error; a class that a family does not compute
is refused by name, before there are weights; a parameter of a family that nothing reads is an error of the family. The last
line is 'N passed, N failed' of unittest.
"""
import json
import pathlib
import re

import numpy as np
from safetensors.numpy import load_file, save_file

import import_case
from import_case import CASES, ImportCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Tables of words that one tensor more may be a copy of: the case, the copy, the table.
COPIES = [("gpt2", "lm_head.weight", "transformer.wte.weight"), ("bloom", "lm_head.weight", "transformer.word_embeddings.weight"),
          ("falcon", "lm_head.weight", "transformer.word_embeddings.weight"), ("gemma", "lm_head.weight", "model.embed_tokens.weight"),
          ("gemma3", "lm_head.weight", "model.embed_tokens.weight"), ("opt", "lm_head.weight", "model.decoder.embed_tokens.weight"),
          ("starcoder2", "lm_head.weight", "model.embed_tokens.weight"), ("mpt", "lm_head.weight", "transformer.wte.weight"),
          ("xglm", "lm_head.weight", "model.embed_tokens.weight"), ("t5", "encoder.embed_tokens.weight", "shared.weight"),
          ("t5", "decoder.embed_tokens.weight", "shared.weight"), ("bart", "lm_head.weight", "model.shared.weight"),
          ("bart", "model.encoder.embed_tokens.weight", "model.shared.weight"),
          ("bart", "model.decoder.embed_tokens.weight", "model.shared.weight"),
          ("whisper", "proj_out.weight", "model.decoder.embed_tokens.weight"),
          ("distilbert_mask", "vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),
          ("albert_mask", "predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"),
          ("mpnet_mask", "lm_head.decoder.weight", "mpnet.embeddings.word_embeddings.weight"),
          ("deberta_v2_mask", "cls.predictions.decoder.weight", "deberta.embeddings.word_embeddings.weight")]
# Families that compute a head of its own as well: the case, the head, the table.
HEADS = [("llama_tied", "lm_head.weight", "model.embed_tokens.weight"), ("gpt_oss_plain", "lm_head.weight", "model.embed_tokens.weight"),
         ("phi4_mini", "lm_head.weight", "model.embed_tokens.weight"),
         ("bert_mask", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
         ("roberta_mask", "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
         ("modernbert_mask", "decoder.weight", "model.embeddings.tok_embeddings.weight"),
         ("ernie_mask", "cls.predictions.decoder.weight", "ernie.embeddings.word_embeddings.weight"),
         ("nomic_mask", "cls.predictions.decoder.weight", "nomic_bert.embeddings.word_embeddings.weight"),
         ("moonshine", "proj_out.weight", "model.decoder.embed_tokens.weight"),
         ("gte_mask", "lm_head.decoder.weight", "gte.embeddings.word_embeddings.weight"),
         ("jina_v3_mask", "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
         ("xlm_roberta_xl_mask", "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight")]


# Case, key, what the class has for it: training changes something by it, which the text leaves out.
OF_TRAINING = (("wav2vec2", "layerdrop", 0.1), ("wav2vec2", "mask_time_prob", 0.05), ("whisper", "mask_time_prob", 0.05),
               ("m2m_100", "encoder_layerdrop", 0.05), ("m2m_100", "decoder_layerdrop", 0.05), ("beit", "drop_path_rate", 0.1),
               ("swin", "drop_path_rate", 0.1), ("dinov3", "pos_embed_rescale", 2.0), ("seed_oss", "residual_dropout", 0.1))


def rows(name, macro):
    text = (ROOT / "compiler/import" / name).read_text()
    return re.findall(rf'^{macro}\((.*)\)$', text, re.M)


def kinds_of_keys(ranges=False):
    """Of key_types.def: type, key, the kinds; without ranges "float" for "float[0,1]"."""
    found = {}
    for row in re.findall(r"^KEY_TYPE\((.*?)\)$", (ROOT / "compiler/import/key_types.def").read_text(), re.M | re.S):
        kinds, types, keys = ("".join(re.findall(r'"([^"]*)"', part)) for part in re.split(r",(?=\s)", row))
        for kind in types.split():
            for key in keys.split():
                found.setdefault(kind, {})[key] = [k if ranges else re.sub(r"\[0,.*", "", k) for k in kinds.split("|")]
    return found


TABLES = {"static_embedding", "model2vec", "nomic_bert_experts"}  # which transformers has no class for
# Types of models that read more than text: the type of the part that is taken of each (compiler/import/text_parts.def).
WHOLES = dict(reversed(re.findall(r'^TEXT_PART\("(\w+)", "(\w+)"', (ROOT / "compiler/import/text_parts.def").read_text(), re.M)))


class Account(ImportCase):
    def test_every_type_of_a_family_has_kinds(self):
        """A family that is new needs make_key_types.py once more: else values of any kind pass at its keys."""
        types = re.findall(r'^checkpoint (.*) \{$', "\n".join(p.read_text() for p in (ROOT / "models").glob("*.tfm")), re.M)
        known = kinds_of_keys()
        for name in set(re.findall(r'"([\w-]+)"', " ".join(types))) - TABLES:
            self.assertIn(name, known)

    def tensors(self):
        return load_file(self.folder / "model.safetensors")

    def save(self, tensors):
        save_file({k: np.array(v, order="C") for k, v in tensors.items()}, self.folder / "model.safetensors")

    def test_layers_beyond_the_config(self):
        for name, key in (("llama", "num_hidden_layers"), ("gpt2", "n_layer"), ("bert", "num_hidden_layers"), ("vit", "num_hidden_layers")):
            with self.subTest(case=name):
                self.write(self.take(name) | {key: 1})
                self.refused_for_weights("nothing reads the tensors", "1.", "and ")

    def refused_for_weights(self, *says, options=()):
        target = self.folder / "model.tfm"
        self.tfmc(self.folder, "-o", target, *options, code=1, says=["model.safetensors", "no output written", *says])
        self.assertFalse(target.exists())

    def test_tensors_that_nobody_knows(self):
        """One more, anywhere, is an error that names it, with the user's word for it left out."""
        for name in ("bert", "llama", "t5", "clip"):
            self.take(name)
            whole, tensors = self.tfmc(self.folder, "--strict").stdout, self.tensors()
            first = next(iter(tensors))
            for added in ("ghost.weight", first + "_other", first.rsplit(".", 1)[0] + ".gate", "0"):
                with self.subTest(case=name, added=added):
                    self.save(tensors | {added: np.ones(4, np.float32)})
                    self.refused_for_weights(f'nothing reads the tensor "{added}"')
                    made = self.tfmc(self.folder, "--strict", "--ignore", added).stdout
                    self.assertEqual(made, whole)
            self.save(tensors | {"a.ghost": np.ones(1, np.int64), "b.ghost": np.ones(1, np.float32)})
            self.refused_for_weights('"a.ghost", "b.ghost"')
            self.assertEqual(self.tfmc(self.folder, "--ignore", "*.ghost").stdout, whole)

    def test_each_buffer(self):
        """Each row of buffers.def, with other numbers, gives the same model; of another number of axes it is no buffer."""
        self.take("llama")
        whole, tensors = self.tfmc(self.folder, "--strict").stdout, self.tensors()
        found = rows("buffers.def", "BUFFER")
        self.assertGreater(len(found), 10)
        for row in found:
            pattern, least, most = re.fullmatch(r'"(.*)", (\d), (\d)', row).groups()
            name = re.sub(r"^\*", "model.layers.0.", pattern).replace("*", "some").replace("..", ".")
            for rank in range(int(least), int(most) + 1):
                with self.subTest(name=name, rank=rank):
                    for seed in (1, 2):
                        numbers = np.random.RandomState(seed).standard_normal((3,) * rank).astype(np.float32)
                        self.save(tensors | {name: np.asarray(numbers, np.float32)})
                        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
            self.save(tensors | {name: np.ones((2,) * (int(most) + 1), np.float32)})
            self.refused_for_weights(f'nothing reads the tensor "{name}"')

    def test_copies_of_tables(self):
        for name, copy, table in COPIES:
            with self.subTest(case=name, copy=copy):
                self.take(name)
                whole, tensors = self.tfmc(self.folder, "--strict").stdout, self.tensors()
                self.assertNotIn(copy, tensors)
                self.save(tensors | {copy: tensors[table]})
                self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
                other = tensors[table].copy()
                other[-1, -1] += 1
                self.save(tensors | {copy: other})
                self.refused(copy)
                self.save(tensors | {copy: tensors[table][:-1]})
                self.refused(copy)

    def test_heads_that_differ_from_the_table(self):
        """transformers ties a head only if it equals the table, whatever the config says."""
        for name, head, table in HEADS:
            with self.subTest(case=name):
                config = self.take(name)
                self.assertTrue(config.get("tie_word_embeddings", True))
                whole, tensors = self.tfmc(self.folder, "--strict").stdout, self.tensors()
                self.save(tensors | {head: tensors[table]})
                self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
                other = tensors[table].copy()
                other[0, 0] += 1
                self.save(tensors | {head: other})
                self.assertIn(f'"{head.removesuffix(".weight")}', self.tfmc(self.folder, "--strict").stdout)
                self.save(tensors)
                self.write(config | dict(tie_word_embeddings=False))  # a head that nobody has trained
                self.tfmc(self.folder, code=1, says=f'there is no tensor "{head.rsplit(".", 2)[0]}')

    def test_heads_that_are_left_out(self):
        """The class says which head there is, or --task; where neither does, a head is not dropped."""
        config = self.take("bert_classify")
        self.assertIn("classifier", self.tfmc(self.folder, "--strict").stdout)
        self.assertNotIn("classifier", self.tfmc(self.folder, "--strict", "--task", "hidden").stdout)
        self.write({k: v for k, v in config.items() if k != "architectures"})
        self.refused_for_weights('"classifier.bias"', "--task says what of it is wanted")
        self.tfmc(self.folder, "--task", "hidden")
        self.take("bert_mask")
        tensors = self.tensors()
        pooler = {"bert.pooler.dense.weight": np.ones((24, 24), np.float32), "bert.pooler.dense.bias": np.ones(24, np.float32)}
        whole = self.tfmc(self.folder, "--strict").stdout
        self.save(tensors | pooler)  # as bert-base-uncased
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)

    def test_tasks(self):
        self.take("bert")
        self.tfmc(self.folder, "--task", "nonsense", code=2, says='no task "nonsense"; there are hidden, pooled, ')
        for task, name in (("classify", "classifier.dense.weight"), ("tokens", "classifier.weight"), ("answer", "qa_outputs.weight")):
            said = self.tfmc(self.folder, "--task", task, code=1).stderr
            self.assertIn("the checkpoint has no such head: there is no tensor", said)
            self.assertEqual(said.count("error:"), 1, said)

    def types(self):
        return [t for line in self.tfmc("--list").stdout.splitlines() for t in line.split()[1:]]

    def test_every_type_of_a_family_has_a_case(self):
        """What no case computes, neither test_models.py nor mutate.py has ever seen."""
        types = set(self.types())
        kinds = {(c if c["model_type"] in types else c.get("text_config", c))["model_type"] for c in self.configs()} | TABLES
        kinds = {f"{kind}_text" if kind in WHOLES else kind for kind in kinds}  # an older folder has no text_config
        self.assertEqual(sorted(types ^ kinds), [])

    def configs(self):
        files = [json.loads(path.read_text())["files"] for path in sorted(CASES.glob("*.json"))]
        return [found["config.json"] for found in files if "model_type" in found.get("config.json", ())]

    def test_bodies_of_types_that_only_write(self):
        """The class without a head gives hidden states: the logits of the family are none of its outputs."""
        for name in ("bloom", "falcon", "gemma", "gpt2", "gpt_neox", "opt", "phi3", "starcoder2", "granite", "glm4", "phi", "cohere2",
                     "arcee", "olmo3", "gptj", "gpt_neo", "gpt_bigcode", "mpt", "xglm", "gpt_oss", "deepseek_v2", "deepseek_v3"):
            with self.subTest(name):
                config = self.take(name)
                writes, = config["architectures"]
                body = re.sub("(LMHead|ForCausalLM|LMHeadModel)$", "", writes.removesuffix("Model")) + "Model"
                self.write(config | dict(architectures=[body]))
                self.refused(f"the class {body} is not computed; computed: ", writes)

    def test_classes_of_every_type(self):
        """Without weights: each type refuses a class of its own that it does not compute, and one of other code."""
        self.assertGreater(len(self.types()), 40)
        for kind in self.types():
            own = re.sub("(text|model)$", "", re.sub(r"\W|_", "", kind)).title()
            for name in (own + "ForEverything", own + "OtherModel", "Strange" + own + "Model"):
                with self.subTest(type=kind, name=name):
                    self.write(dict(model_type=kind, architectures=[name]))
                    said = self.tfmc(self.folder, code=1, says=["config.json", f"the class {name} is not computed"]).stderr
                    self.assertNotIn("safetensors", said)

    def test_halves(self):
        """One type may have two files: the class says which half of the model there is."""
        for name, half in (("t5", "model T5("), ("t5_encoder", "model T5Encoder("), ("mt5_encoder", "model T5Encoder(")):
            config = self.take(name)
            self.assertIn(half, self.tfmc(self.folder, "--strict").stdout)
            self.write(config | dict(architectures=["T5Model"] if config["model_type"] == "t5" else ["MT5Model"]))
            self.refused("is not computed")
        for name in ("clip_text", "clip_vision_embeds", "siglip_text", "siglip_vision"):  # with and without the tower's name
            self.take(name)
            tower = "text_model." if "text" in name else "vision_model."
            plain = {n.removeprefix(tower): t for n, t in self.tensors().items()}
            self.save(plain)
            without = self.tfmc(self.folder, "--strict").stdout
            self.save({tower + n if "projection" not in n else n: t for n, t in plain.items()})
            self.assertEqual(self.tfmc(self.folder, "--strict").stdout, without.replace('prefix = ""', f'prefix = "{tower}"'))

    def test_types_without_an_auto_class(self):
        """Folders that name no class: transformers has one for each type of the families but one."""
        for kind in self.types():
            for named in ({}, dict(architectures=[])):
                with self.subTest(kind):
                    self.write(dict(model_type=kind) | named)
                    said = self.tfmc(self.folder, code=1).stderr
                    self.assertEqual("transformers has none for this type" in said, kind == "siglip_text_model", said)

    def test_keys_of_older_versions(self):
        """What folders of the hub have from older versions and from other programs; mutate.py shows that nothing reads it."""
        common = dict(output_past=True, _num_labels=3, pruned_heads={}, use_bfloat16=False, unsloth_version="2024.9", prefix=" ",
                      sentence_transformers=dict(activation_fn="torch.nn.modules.activation.Sigmoid", version="4.1.0"))
        for name, more in (("bert_classify", dict(directionality="bidi", pooler_type="first_token_transform", pooler_num_fc_layers=3)),
                           ("distilbert", dict(tie_weights_=True)), ("albert", dict(layers_to_keep=[])), ("gpt2", dict(n_special=0)),
                           ("bart", dict(save_step=88, extra_pos_embeddings=2, add_final_layer_norm=False)), ("t5", {}), ("xlm_roberta", {}),
                           ("llama", dict(max_sequence_length=2048)), ("qwen2", dict(use_mrope=False))):
            with self.subTest(name):
                config = self.take(name)
                text = self.tfmc(self.folder, "--strict").stdout
                self.write(config | common | more)
                self.assertEqual(self.tfmc(self.folder, "--strict").stdout, text)
        self.take("bart")
        config = json.loads((self.folder / "config.json").read_text())
        self.write(config | dict(force_bos_token_to_be_generated=True))
        self.refused("force_bos_token_to_be_generated")

    def test_rows_that_are_read(self):
        config = self.take("mpnet")
        self.write(config | dict(relative_attention_num_buckets=16))
        self.refused("32 rows of the table of relative positions are read")

    def test_a_class_of_other_code(self):
        config = self.take("bert")
        self.write(config | dict(architectures=["JinaBertModel"]))
        self.refused("the class JinaBertModel is not computed", options=["--task", "hidden"])
        self.tfmc(self.folder, "--ignore", "architectures")

    def test_before_the_weights(self):
        """What the files of JSON decide is said without the weights: unknown types, keys, and values."""
        config = self.take("bert")
        (self.folder / "model.safetensors").unlink()
        for changed, says in ((dict(model_type="no_such"), 'no family is for "no_such"'), (dict(colour=1), '"colour"'),
                              (dict(position_embedding_type="relative_key"), '"position_embedding_type"'),
                              (dict(hidden_act="mish"), "the activation is none of")):
            self.write(config | changed)
            said = self.tfmc(self.folder, code=1, says=["config.json", says]).stderr
            self.assertNotIn("safetensors", said)

    def test_keys_that_must_not_be_null(self):
        """Each `needed` key of each family: a null is refused without the weights."""
        seen = 0
        for path in sorted((ROOT / "models").glob("*.tfm")):
            block = re.search(r"^checkpoint (.*?) \{\n(.*?)^\}", path.read_text(), re.S | re.M)
            for key in re.findall(r'"([\w.]+)"', " ".join(re.findall(r"^  needed (.*)$", block[2], re.M))):
                with self.subTest(family=path.stem, key=key):
                    within, _, last = key.rpartition(".")
                    said = {within: {last: None}} if within else {last: None}
                    self.write(dict(model_type=re.findall(r'"([^"]+)"', block[1])[0]) | said)
                    self.tfmc(self.folder, code=1, says=f'"{key}" is null, and a value is needed')
                    seen += 1
        self.assertGreater(seen, 30)

    def test_nulls_that_any_class_reads(self):
        """Of every type: with is_causal = null transformers lets tokens see those behind them, in a text tower too."""
        for kind, config in {config["model_type"]: config for config in self.configs()}.items():
            for key in "is_causal", "chunk_size_feed_forward", "return_dict":
                with self.subTest(kind, key=key):
                    self.write(config | {key: None})
                    self.assertIn(f'"{key}" is null, and a value is needed', self.tfmc(self.folder, code=1).stderr)
                self.write(config | dict(return_dict=False))  # tuples, in which classes look for names
                self.assertIn('nothing reads "return_dict" (false)', self.tfmc(self.folder, code=1).stderr)
        for name in "clip", "siglip":
            config = self.take(name)
            self.write(config | dict(text_config=config["text_config"] | dict(is_causal=None)))
            self.refused('"text_config.is_causal" is null')

    def test_scaled_positions_without_a_factor(self):
        for name in "hunyuan", "arcee", "llama":
            config = self.take(name)
            for kind in ("linear", "yarn", "dynamic") if name == "hunyuan" else ("linear", "yarn"):
                with self.subTest(name, kind=kind):
                    self.write(config | dict(rope_parameters=dict(rope_type=kind, rope_theta=10000.0)))
                    self.refused("the factor of the scaled positions is missing")

    def test_negative_shares_of_columns_that_turn(self):
        """transformers makes no table of angles for less than no columns, whatever the type."""
        for kind, config in {config["model_type"]: config for config in self.configs()}.items():
            if "partial_rotary_factor" in (config.get("rope_parameters") or {}):
                with self.subTest(kind):
                    self.write(config | dict(rope_parameters=config["rope_parameters"] | dict(partial_rotary_factor=-0.5)))
                    said = self.tfmc(self.folder, code=1).stderr
                    self.assertIn('"rope_parameters.partial_rotary_factor" is below 0', said)

    def test_padding_of_counted_places(self):
        """Where places are counted from the token for padding, there is no text without it: null is refused, no key is the default."""
        for name, says in (("m2m_100", "its positions begin"), ("roberta", "pad_token_id"), ("xlm_roberta", "pad_token_id"),
                           ("camembert", "pad_token_id")):
            config = self.take(name)
            with self.subTest(name):
                self.write(config | dict(pad_token_id=None))
                self.refused(says)
                self.write({k: v for k, v in config.items() if k != "pad_token_id"})
                self.tfmc(self.folder)

    def test_nulls_in_another_spelling(self):
        """A null there is the value of the setting for transformers, whatever the first spelling says."""
        for name, spellings in (("bart", ("hidden_size", "num_attention_heads", "num_hidden_layers")), ("gpt2", ("hidden_size", "n_head")),
                                ("t5", ("hidden_size", "head_dim")), ("distilbert", ("hidden_size",)), ("whisper", ("num_key_value_heads",))):
            config = self.take(name)
            for key in spellings:
                with self.subTest(name, key=key):
                    self.write(config | {key: None})
                    self.refused(f'"{key}" is null')

    def test_keys_that_one_class_of_a_family_reads(self):
        """What the class of another type of the family reads changes nothing of this one."""
        for name, keys in (("mistral", dict(use_sliding_window=True)), ("mistral", dict(use_sliding_window=True, max_window_layers=1)),
                           ("mixtral", dict(use_sliding_window=True)), ("mixtral", dict(layer_types=["full_attention"] * 2)),
                           ("qwen2", dict(no_rope_layers=[0, 0])), ("qwen3", dict(no_rope_layers=[0, 1])), ("mistral", dict(no_rope_layers=[0, 0])),
                           ("llama", dict(no_rope_layers=[0, 1])), ("llama", dict(max_window_layers=1, no_rope_layer_interval=1))):
            with self.subTest(case=name, keys=keys):
                config = self.take(name)
                whole = self.tfmc(self.folder, "--strict").stdout
                self.write(config | keys)
                self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)

    def test_a_missing_key_means_what_the_class_has(self):
        """missing_keys.py compares all of them with transformers."""
        for name, key, value in (("modernbert_classify", "classifier_pooling", "cls"), ("modernbert_classify_cls", "classifier_pooling", "cls"),
                                 ("deberta_v2_mask", "legacy", True), ("hunyuan", "rms_norm_eps", 1e-5), ("arcee", "rms_norm_eps", 1e-5),
                                 ("helium", "rms_norm_eps", 1e-8), ("granite", "rms_norm_eps", 1e-6), ("seed_oss", "rms_norm_eps", 1e-6),
                                 *((name, *rest) for name, *rest in OF_TRAINING)):
            with self.subTest(case=name, key=key):
                config = self.take(name)
                self.write(config | {key: value})
                written = self.tfmc(self.folder, "--strict")
                self.write({k: v for k, v in config.items() if k != key})
                without = self.tfmc(self.folder)
                self.assertEqual((written.returncode, written.stdout), (0, without.stdout))

    def test_what_training_does_where_no_key_says_it(self):
        """The class drops layers, or hides sounds, and the head names it, unless the config says that it does not."""
        for name, key, value in OF_TRAINING:
            with self.subTest(case=name, key=key):
                augments = {"apply_spec_augment": True} if name == "whisper" else {}
                config = {k: v for k, v in self.take(name).items() if k not in (key, "apply_spec_augment")} | augments
                self.write(config)
                self.assertIn(f"{key} = {value:g}", self.lacking())
                self.write(config | {key: None if key.startswith("pos_") else 0.0})
                self.assertNotIn(key, self.lacking())
                if name in ("wav2vec2", "whisper") and key == "mask_time_prob":
                    self.write(config | dict(apply_spec_augment=False))
                    self.assertNotIn(key, self.lacking())
        self.write({k: v for k, v in self.take("whisper").items() if k not in ("mask_time_prob", "apply_spec_augment")})
        self.assertNotIn("mask_time_prob", self.lacking())
        for name in ("gpt_neo", "gpt_neox"):  # no class that is computed has one
            self.write(self.take(name) | dict(classifier_dropout=0.1))
            self.assertNotIn("classifier_dropout", self.lacking())

    def lacking(self):
        return "".join(re.findall("^# Training is without.*$", self.tfmc(self.folder).stdout, re.M))

    def test_a_missing_key_whose_default_is_another_model(self):
        """The class has a number for it that does not fit the folder's: null says that there is none, no key does not."""
        for name, null in (("deepseek_v3", True), ("glm4_moe_lite", False)):
            config = self.take(name)
            with self.subTest(case=name):
                self.tfmc(self.folder, "--strict")
                self.write({k: v for k, v in config.items() if k != "num_key_value_heads"})
                self.refused("heads share keys")
                self.write(config | dict(num_key_value_heads=None))
                self.tfmc(self.folder, code=0 if null else 1)
        config = self.take("deepseek_v2")
        self.write({k: v for k, v in config.items() if k != "num_key_value_heads"})
        self.tfmc(self.folder)

    def test_names_of_the_code_of_the_hub(self):
        """The hub's own code of Nomic has other names of keys, which transformers passes over: they may say its defaults alone."""
        config = self.take("nomic_bert")
        for key, other, default in (("hidden_size", "n_embd", 768), ("num_attention_heads", "n_head", 12), ("intermediate_size", "n_inner", 3072),
                                    ("num_hidden_layers", "n_layer", 12), ("layer_norm_eps", "layer_norm_epsilon", 1e-12),
                                    ("rope_parameters", "rotary_emb_base", 1000)):
            with self.subTest(other):
                others = {k: v for k, v in config.items() if k != key}
                self.write(others | {other: 5 if isinstance(default, int) else 5e-5})
                self.refused("transformers passes over this name", f'"{other}"')
                self.write(others | {other: default})
                self.assertNotIn("passes over", self.tfmc(self.folder, code=None).stderr)

    def test_heads_that_a_key_chooses(self):
        """The head for masked words of a DeBERTa is what "legacy" says, whatever the file has."""
        for name, other in (("deberta_v2_mask", False), ("deberta_v3_mask", True)):
            config = self.take(name)
            self.tfmc(self.folder, "--strict")
            self.write(config | dict(legacy=other))
            self.assertIn("lm_predictions", self.tfmc(self.folder, code=1).stderr)
        config = self.take("deberta_v3_mask")
        self.write({k: v for k, v in config.items() if k not in ("legacy", "architectures")})  # as on the hub
        self.assertIn("lm_predictions", self.tfmc(self.folder, "--strict", "--task", "mask").stdout)

    def test_heads_whose_size_is_null(self):
        """Where the key is none of the config class's own, its class computes with the null."""
        for name in ("qwen2", "smollm3", "qwen2_moe", "apertus", "exaone4", "olmo3", "granite", "olmo2", "cohere", "cohere2", "phi"):
            config = self.take(name)
            self.tfmc(self.folder, "--strict")
            self.write(config | dict(head_dim=None))
            self.refused("how many columns a head has is null")
        for name, values, says in (("phi3", (None, 4, 16), "other columns"), ("falcon", (None, 8), "takes no other")):
            config = self.take(name)
            self.tfmc(self.folder, "--strict")
            for value in values:
                self.write(config | dict(head_dim=value))
                self.refused(says)
        config = self.take("ministral")
        for other in {k: v for k, v in config.items() if k != "head_dim"}, config | dict(head_dim=None):
            self.write(other)
            self.refused("how many columns a head has is missing")

    def test_windows_of_no_tokens(self):
        """Each case with a window, which is no longer one."""
        for path in sorted(CASES.glob("*.json")):
            config = json.loads(path.read_text())["files"].get("config.json", {})
            if config.get("sliding_window") and config.get("use_sliding_window", True):
                with self.subTest(path.stem):
                    self.write(config | dict(sliding_window=0))
                    self.refused("a window of no tokens")

    def test_kinds_of_values(self):
        """Each key of each row of key_types.def, without weights: null and values of other kinds are refused, and no others."""
        samples = {"null": None, "bool": True, "int": 1, "float": 0.5, "str": "cls", "list[int]": [1], "list[str]": ["a"], "list": [dict(a=1)],
                   "dict": dict(a=1)}
        of_types, seen = kinds_of_keys(), 0
        self.assertLessEqual({t for t in of_types if "." not in t}, set(self.types()) | set(WHOLES))
        for t, (kind, keys) in enumerate(sorted(of_types.items())):
            model_type, _, part = kind.partition(".")
            for is_null in (True, False):  # all keys null, then each of one of the other kinds
                words = {k: "null" if is_null else list(samples)[1 + (i + t) % 8] for i, k in enumerate(sorted(keys))}
                if model_type in WHOLES:  # these two become the part's (test_folders.py)
                    words = {k: word for k, word in words.items() if k not in ("text_config", "tie_word_embeddings")}
                for first in range(0, len(words), 18):  # of more errors no more than 20 are shown
                    some = dict(list(words.items())[first:first + 18])
                    config = {k: samples[word] for k, word in some.items()}
                    config = dict(model_type=model_type) | ({part: config} if part else config)
                    if model_type in WHOLES:
                        config["text_config"] = dict(model_type=WHOLES[model_type])
                    self.write(config)
                    said = self.tfmc(self.folder, code=None).stderr
                    for key, word in some.items():
                        name = f"{part}.{key}" if part else key
                        taken = word in keys[key] or word.startswith("list") and "list" in keys[key] or f"'{samples[word]}'" in keys[key]
                        mark = f'"{name}" is null, and a value is needed: ' if word == "null" else f"--ignore {name} passes over it"
                        with self.subTest(type=kind, key=key, word=word):
                            self.assertEqual(mark in said, not taken, said)
                        seen += 1
        self.assertGreater(seen, 2000)

    def test_ranges_of_numbers(self):
        """Shares that are dropped and spreads of random numbers, outside of what torch takes: each key of each type."""
        seen = 0
        for kind, keys in sorted(kinds_of_keys(ranges=True).items()):
            model_type, _, part = kind.partition(".")
            ranged = [(key, word) for key, words in sorted(keys.items()) for word in words if word.startswith("float[")]
            wrong = {key: -0.5 if i % 2 or word.endswith(")") else 1.5 for i, (key, word) in enumerate(ranged) if i % 4}
            values = wrong | {key: 1.5 if word.endswith(")") else 1.0 for key, word in ranged if key not in wrong}
            self.write(dict(model_type=model_type) | ({part: values} if part else values))
            said = self.tfmc(self.folder, code=None).stderr if wrong else ""
            for key in values if wrong else ():
                name = f"{part}.{key}" if part else key
                self.assertEqual(f"--ignore {name} passes over it" in said, key in wrong, (kind, key, said))
                seen += 1
        self.assertGreater(seen, 100)

    def test_kinds_of_settings_of_generation(self):
        """What transformers refuses, or takes for something else, at keys that change nothing and at the numbers of tokens."""
        config = self.take("llama")
        file = self.folder / "generation_config.json"
        settings = json.loads(file.read_text())
        whole = self.tfmc(self.folder, "--strict").stdout
        found = re.findall(r'^(?:TOKEN|HARMLESS)\("(\w+)", "(\S+)"\)$', (ROOT / "runtime/include/tfm/abi/generation_keys.def").read_text(), re.M)
        self.assertGreater(len(found), 20)
        samples = {"bool": True, "int": 2, "float": 0.5, "str": "a", "list[int]": [2], "list": [0.5], "dict": dict(a=1)}
        for kind, sample in samples.items():
            for some in found[:16], found[16:]:  # of more errors no more than 20 are shown
                file.write_text(json.dumps(settings | {key: sample for key, _ in some}))
                said = self.tfmc(self.folder, code=None).stderr
                for key, kinds in some:
                    with self.subTest(key=key, kind=kind):
                        taken = kind in kinds.split("|") or kind.startswith("list") and "list" in kinds.split("|")
                        self.assertEqual(f'"{key}": it is' in said, not taken, said)
        file.write_text(json.dumps(settings | dict(output_hidden_states="false", use_cache=0)))
        self.refused('"use_cache": it is a whole number (0), and must be true or false')
        for options in ("output_hidden_states",), ("output_hidden_states", "use_cache"):
            said = self.tfmc(self.folder, *(o for name in options for o in ("--ignore", name)), code=None)
            self.assertEqual((said.returncode == 0, said.stdout == whole), (len(options) == 2,) * 2)
        file.write_text(json.dumps(settings | {key: None for key, kinds in found if "token" not in key}))
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
        file.write_text(json.dumps(settings | dict(compile_config={}, is_assistant=True, prefill_chunk_size=2)))
        self.refused('"compile_config"', '"is_assistant"', '"prefill_chunk_size"')

    def test_kinds_that_are_passed_over(self):
        """--ignore, and a family of one's own, whose types may be another's."""
        config = self.take("bert")
        whole = self.tfmc(self.folder, "--strict").stdout
        for key, value in (("initializer_range", None), ("initializer_range", 1), ("use_cache", "yes"), ("use_cache", [0.1])):
            self.write(config | {key: value})
            self.refused(f'"{key}" is ')
            self.assertEqual(self.tfmc(self.folder, "--strict", "--ignore", key).stdout, whole)
        family = 'checkpoint "bert" { d = d\n  ignore "use_cache" }\nmodel Mine(d = 4) { l = Linear(d, d)  forward(x: f32[n, d]) { return y = l(x) } }\n'
        self.mine(dict(model_type="bert", d=4, use_cache=None), family)

    def test_no_type_is_taken_for_another(self):
        """Types are written by programs: what is near a type that is known is another architecture."""
        for kind in ("qwen3_6", "gemma5", "siglip2", "umt6", "t5gemma2", "clap", "phi4", "deberta_v3"):
            self.write(dict(model_type=kind))
            said = self.tfmc(self.folder, code=1, says=[f'no family is for "{kind}"', "from_torch", "--list"]).stderr
            self.assertNotIn("did you mean", said)
            self.assertLess(max(map(len, said.splitlines())), 400)

    def test_ignored_keys_and_paths(self):
        family = 'checkpoint "mine" { d = d\n  ignore %s }\nmodel Mine(d = 4) { l = Linear(d, d)  forward(x: f32[n, d]) { return y = l(x) } }\n'
        config = dict(d=4, rope=dict(factor=2.0, kind=dict(a=1)))
        for names in ('"rope"', '"rope.factor", "rope.kind"', '"rope.factor", "rope.kind.a"'):
            self.mine(config, family % names)
        self.mine(config, family % '"rope.factor"', code=1, says='nothing reads "rope.kind.a" (1)')
        self.mine(config, family % '"rope.kind"', code=1, says='nothing reads "rope.factor" (2.0)')
        self.mine(config | dict(rope=2), family % '"rope.factor"', code=1, says='nothing reads "rope" (2)')
        self.mine(config, family % '"x"', options=["--ignore", "rope.factor", "--ignore", "rope.kind.a"])
        self.mine(config, family.replace("ignore %s", 'leave "x"'), code=1, says='no list "leave"')

    def test_parameters_that_nothing_reads(self):
        """A value of the checkpoint must reach the computation, through all layers and members between."""
        head = 'checkpoint "mine" { d = d  share = share }\n'
        part = "layer Part(d, %s) { l = Linear(d, d) as \"l\"  %s forward(x) = l(x)%s }\n"
        model = "model Mine(d = 4, share = 1%s) { %s part = Part(d, %s) as \"\"  forward(x: f32[n, d]) { return y = part(x) } }\n"
        read = [(part % ("s", "", " * s"), model % ("", "", "share")), (part % ("s", "t = s * 2", " * t"), model % ("", "", "s = share")),
                (part % ("s", "", " * s"), model % (", other = share", "", "other")),
                (part % ("s", "if s > 0 { k = 1 }", ""), model % ("", "twice = share * 2", "twice"))]
        lost = [(part % ("s", "", ""), model % ("", "", "share")), (part % ("s", "t = s * 2", ""), model % ("", "", "share")),
                (part % ("s", "", " * s"), model % ("", "twice = share * 2", "1")),
                (part % ("s", "", " * s"), model % (", other = share", "", "1"))]
        for layer, text in read:
            self.mine(dict(d=4, share=2), head + layer + text)
        for layer, text in lost:
            self.mine(dict(d=4, share=2), head + layer + text, code=1, says=["nothing reads 'share' of Mine", "sets it here"])

    def test_every_family_passes(self):
        """A family with a parameter that nothing reads would not be in the list."""
        listed = {line.split()[0] for line in self.tfmc("--list").stdout.splitlines()}
        self.assertEqual(listed, {f"models/{p.name}" for p in (ROOT / "models").glob("*.tfm")})


if __name__ == "__main__":
    import_case.main()
