#!/usr/bin/env python3
"""usage: test_values.py TFMC CASES

Values of the right kind with which transformers makes no model, whatever the numbers in the folder: `tfmc import` refuses them
by name, and takes their neighbours. Each is one that mutate.py found. The last line is 'N passed, N failed' of unittest.
"""
import itertools
import json
import pathlib
import re

import import_case
import mutations
from import_case import CASES, ImportCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The case, what changes in its config, and what the message says.
REFUSED = [("nemotron_h", dict(chunk_size=-1), "chunks of no tokens"), ("nemotron_h", dict(mamba_chunk_size=-1), "chunks of no tokens"),
           ("bamba", dict(mamba_chunk_size=-1), "chunks of no tokens"), ("falcon_h1", dict(mamba_chunk_size=-1), "chunks of no tokens"),
           ("granite_hybrid", dict(mamba_chunk_size=-1), "chunks of no tokens"), ("mamba2", dict(chunk_size=-1), "chunks of no tokens"),
           ("nemotron_h", dict(mamba_dt_min=-0.5), "a time step of 0"), ("nemotron_h", dict(mamba_dt_max=0.0), "a time step of 0"),
           ("gpt_neo", dict(attention_types=[[None, 2]]), "attention_types is not one pattern"),
           ("nemotron_h", dict(mtp_hybrid_override_pattern=None), '"mtp_hybrid_override_pattern" is null'),
           ("nemotron_h", dict(mamba_dt_limit=0.5), "a list of numbers with fractions"),
           ("nemotron_h", dict(mamba_expand=None), '"mamba_expand" is null'),
           ("kimi_linear", dict(model_max_length=[64]), "the setting 'max_length' must be a number, not [64]"),
           ("olmo_hybrid", dict(linear_a_log_max=-0.5), "linear_a_log_min is above linear_a_log_max"),
           ("olmo_hybrid", dict(linear_a_log_min=17.0), "linear_a_log_min is above linear_a_log_max"),
           ("opt", dict(_remove_final_layer_norm=None), '"_remove_final_layer_norm" is null'),
           ("gpt_neo", dict(hidden_size=0), "heads of no columns"),
           ("glm4_moe_lite", dict(mlp_layer_types=[]), "of no layer it is said"),
           *(("deepseek_v2", {key: 9}, "is odd") for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")),
           ("glm4_moe_lite", dict(qk_rope_head_dim=3), "qk_rope_head_dim is odd"),
           ("deepseek_v3", dict(qk_rope_head_dim=3, head_dim=3), "qk_rope_head_dim is odd"),
           *((name, dict(hidden_size=0), "a model of no columns") for name in ("beit", "data2vec_vision", "nemotron_h", "deepseek_v2", "deepseek_v3", "glm4_moe_lite",
                                                                             "kimi_linear", "gpt_oss", "qwen3_next", "qwen3_5_moe"))]
# Keys that may be null by the type that the config class says, and with which its model computes.
NULL = [("bart", "num_labels"), ("deberta", "num_labels"), ("bert", "num_labels"), ("cohere", "layer_norm_eps"), ("cohere", "logit_scale"),
        ("deberta_v3", "norm_rel_ebd"), ("deberta_v3", "pooler_hidden_size"),
        ("deberta", "pooler_hidden_size"), ("deberta", "embedding_size"), ("deberta_v3", "attention_head_size"),
        ("deberta_v2", "conv_groups"), *((name, "head_dim") for name in ("vit", "deit", "dinov2", "dinov2_registers", "beit", "swin")),
        ("deepseek_v2", "topk_group"), ("deepseek_v2", "n_group"), ("deepseek_v2", "num_experts_per_tok")]
# A size with a fraction is none, also where it is compared with a size alone.
FRACTIONS = [("cohere2", "head_dim", 8.0, "its share of the columns"), ("phi", "head_dim", 8.0, "its share of the columns"),
             ("deberta", "pooler_hidden_size", 24.0, "another width"), ("deberta_v3", "pooler_hidden_size", 24.0, "another width"),
             ("clip", "logit_scale_init_value", 2, "a number with a fraction")]
# Sections of the pairs of a head that turn by three positions: the case, the sections, what the message says.
# case: its keys and, behind them, the names that transformers' class (attribute_map) has for them too
OTHER_NAMES = """
bart, m2m_100, marian, mbart, pegasus, whisper: encoder_attention_heads num_attention_heads d_model hidden_size encoder_layers num_hidden_layers
bloom: n_layer num_hidden_layers n_head num_attention_heads
deepseek_v2: n_routed_experts num_experts
deepseek_v3, glm4_moe_lite: n_routed_experts num_local_experts
distilbert: dim hidden_size n_heads num_attention_heads n_layers num_hidden_layers
flan_t5, mt5, umt5: d_model hidden_size num_heads num_attention_heads num_layers num_hidden_layers d_kv head_dim
gpt2, gpt_bigcode, gptj: n_embd hidden_size n_positions max_position_embeddings n_head num_attention_heads n_layer num_hidden_layers
gpt_neo: num_heads num_attention_heads num_layers num_hidden_layers
gpt_oss, mixtral, qwen3_moe: num_local_experts num_experts
granite_hybrid: layer_types layers_block_type
kimi_linear: model_max_length max_position_embeddings moe_renormalize norm_topk_prob num_expert_group n_group
kimi_linear: num_experts num_local_experts num_experts_per_token num_experts_per_tok num_shared_experts n_shared_experts
moonshine: decoder_num_key_value_heads num_key_value_heads decoder_num_attention_heads num_attention_heads
moonshine: decoder_num_hidden_layers num_hidden_layers decoder_hidden_act hidden_act
mpt: n_heads num_attention_heads d_model hidden_size n_layers num_hidden_layers
nemotron_h: layers_block_type layer_types n_routed_experts num_local_experts
xglm: attention_heads num_attention_heads d_model hidden_size num_layers num_hidden_layers
"""
SECTIONS = [*(("qwen2_vl", s, "are not the pairs of a head") for s in ([2, 0, 1], [0, 0, 1], [1, 0, 1, 1], [1, 0, 1, 0], [3, -2, 1])),
            ("qwen2_vl", None, '"rope_parameters.mrope_section" is null'), ("qwen2_vl", [1, 1], "is not three numbers"),
            ("qwen2_5_vl", [1, 1, 1], "are not the pairs of a head"), ("qwen2_5_vl", mutations.GONE, "are not the pairs of a head"),
            ("qwen3_vl", None, '"rope_parameters.mrope_section" is null'), ("qwen2_vl", [0, 2, 0], None), ("qwen3_vl", [4, 4, 4], None),
            *((name, [2, 1, wrong], "mrope_section\" is a list") for name in ("qwen3_vl", "qwen3_5_pictures") for wrong in (1.5, "1", [1], {})),
            ("qwen2_vl", [1, 0, 1.0], "mrope_section\" is a list")]
# Layers of which none has attention: the cache of the classes then has no length.
UNATTENDED = [("bamba", dict(attn_layer_indices=None)), ("bamba", dict(attn_layer_indices=[])), ("bamba", dict(attn_layer_indices=[4])),
              ("bamba", dict(attn_layer_indices=[-1])), ("granite_hybrid", dict(layer_types=["mamba"] * 2)),
              ("granite_hybrid", dict(layer_types=None)), ("lfm2", dict(layer_types=["conv"] * 2)),
              ("lfm2_first", dict(layer_types=None, full_attn_idxs=[7])), ("lfm2_first", dict(layer_types=None, full_attn_idxs=[])),
              ("nemotron_h", dict(layers_block_type=["linear_attention", "moe", "mlp"])),
              ("nemotron_h_first", dict(layers_block_type=None, hybrid_override_pattern="ME-")),
              ("kimi_linear", dict(layer_types=["linear_attention"] * 2)), ("kimi_linear", dict(layer_types=None, num_hidden_layers=4)),
              ("qwen3_next", dict(layer_types=None, num_hidden_layers=3)), ("qwen3_5", dict(layer_types=["linear_attention"] * 2))]
TAKEN = [("nemotron_h", dict(mamba_chunk_size=1)), ("nemotron_h", dict(mtp_hybrid_override_pattern="*E")), ("bamba", dict(mamba_chunk_size=1)),
         ("nemotron_h", dict(mamba_dt_limit=[0.0, 1.0])), ("olmo_hybrid", dict(linear_a_log_max=0.0))]


class Values(ImportCase):
    def configs(self):
        for path in sorted(CASES.glob("*.json")):
            config = json.loads(path.read_text())["files"].get("config.json", {})
            if "model_type" in config:
                yield config

    def test_sections_of_positions(self):
        for name, sections, says in SECTIONS:
            with self.subTest(name, sections=sections):
                config = mutations.changed_json(self.take(name), ["text_config", "rope_parameters", "mrope_section"], sections)
                self.write(config)
                (self.folder / "model.tfm").unlink(missing_ok=True)
                if says:
                    self.refused(says)
                else:
                    self.tfmc(self.folder)

    def test_values(self):
        for name, change, says in REFUSED:
            with self.subTest(name, change=change):
                self.write(self.take(name) | change)
                self.refused(says)
        for name, change in TAKEN:
            with self.subTest(name, change=change):
                self.write(self.take(name) | change)
                self.tfmc(self.folder)

    def test_nulls(self):
        for name, key in NULL:
            with self.subTest(name, key=key):
                self.write(self.take(name) | {key: None})
                self.refused(f'"{key}" is null')
        config = self.take("bart_classify")
        self.write(config | dict(classifier_dropout=None))
        self.refused("the class needs a number for the dropout before its head")
        for name in ("llama_yarn", "deepseek_v3", "gpt_oss"):
            config = self.take(name)
            yarn = config["rope_parameters"] | dict(rope_type="yarn", factor=2.0, original_max_position_embeddings=None)
            self.write(config | dict(rope_parameters=yarn))
            self.refused("null", "rope_parameters.original_max_position_embeddings")

    def test_null_that_is_no(self):
        """Of T5 is_gated_act counts before feed_forward_proj, and null is no."""
        for name in ("t5", "mt5", "umt5", "t5_encoder", "umt5_encoder"):
            with self.subTest(name):
                config = self.take(name)
                self.write(config | dict(feed_forward_proj="gated-gelu", is_gated_act=None))
                found = self.tfmc(self.folder, code=None)
                self.write(config | dict(feed_forward_proj="gated-gelu", is_gated_act=False))
                wanted = self.tfmc(self.folder, code=None)
                self.assertEqual((found.returncode, found.stdout), (wanted.returncode, wanted.stdout))

    def test_loudness_of_other_positions(self):
        """Only positions that are stretched by their lengths (yarn, longrope) have an attention_factor that counts."""
        for name, kind in (("qwen3_yarn", "linear"), ("qwen3_yarn", "default"), ("llama_yarn", "linear"), ("deepseek_v3_yarn", "default"),
                           ("gpt_oss", "default"), ("phi3", "default"), ("seed_oss", "default")):
            with self.subTest(name, kind=kind):
                config = self.take(name)
                places = config.get("rope_parameters", {}) | dict(rope_type=kind)
                places.pop("attention_factor", None)
                self.write(config | dict(rope_parameters=places))
                wanted = self.tfmc(self.folder)
                self.write(config | dict(rope_parameters=places | dict(attention_factor=1.6)))
                found = self.tfmc(self.folder, code=None)
                self.assertTrue(found.returncode or found.stdout == wanted.stdout, found.stdout)

    def test_sizes_with_fractions(self):
        for name, key, value, says in FRACTIONS:
            with self.subTest(name, key=key):
                config = self.take(name)
                self.write(config | {key: value})
                self.refused(key, says)
                if isinstance(value, float):
                    self.write(config | {key: int(value)})
                    self.tfmc(self.folder)

    def test_missing_keys(self):
        """A key that is missing is what the class of the type has, whatever other types of the family have."""
        rows = re.findall(r'^KEY_DEFAULT\("(.*)", "(.*)", "(.*)"\)$', (ROOT / "compiler/import/key_defaults.def").read_text(), re.M)
        defaults = {(kind, key): json.loads(value) for value, kinds, keys in rows for kind in kinds.split() for key in keys.split()}
        self.assertGreater(len(defaults), 100)
        self.assertEqual(defaults["electra", "num_attention_heads"], 4)
        seen, computed = set(), 0
        for path in sorted(CASES.glob("*.json")):
            case = json.loads(path.read_text())
            config = case["files"].get("config.json", {})
            for key in [k for k in config if (config.get("model_type"), k) in defaults and "text_config" not in config]:
                place = (config["model_type"], key)
                if place in seen:
                    continue
                seen.add(place)
                with self.subTest(path.stem, key=key):
                    self.take(path.stem)
                    self.write(config | {key: defaults[place]})
                    wanted = self.tfmc(self.folder, code=None)
                    self.write({k: v for k, v in config.items() if k != key})
                    found = self.tfmc(self.folder, code=None)
                    self.assertTrue(found.returncode or found.stdout == wanted.stdout, found.stderr)
                    computed += found.returncode == 0
        self.assertGreater(len(seen), 60)
        self.assertGreater(computed, 0)

    def test_layers_without_attention(self):
        for name, change in UNATTENDED:
            with self.subTest(name, change=change):
                self.write({k: v for k, v in (self.take(name) | change).items() if v is not None})
                self.refused("no layer has attention")

    def test_older_names(self):
        """Under its older name a setting is what it is under the new one, and is the one that counts."""
        config = self.take("nemotron_h")
        self.write(config | dict(time_step_min=0.25))
        wanted = self.tfmc(self.folder).stdout
        self.assertIn("low = 0.25", wanted)
        self.write(config | dict(mamba_dt_min=0.25))
        self.assertEqual(self.tfmc(self.folder).stdout, wanted)

    def test_names_that_a_class_has_too(self):
        """A setting under the other name of transformers' class is the same setting, not the default of a missing one."""
        for line in OTHER_NAMES.strip().splitlines():
            cases, keys = line.split(": ")
            pairs = list(zip(keys.split()[::2], keys.split()[1::2]))
            for name, (key, other) in itertools.product(cases.split(", "), pairs):
                with self.subTest(name, key=key, other=other):
                    config = self.take(name)
                    wanted = self.tfmc(self.folder).stdout
                    self.assertNotIn(other, config)
                    self.write({other if k == key else k: value for k, value in config.items()})
                    self.assertEqual(self.tfmc(self.folder).stdout, wanted)
                    if type(config[key]) is not int:
                        continue
                    seen = []  # of a number that the tensors do not fit, which may differ from a default that they fit
                    for spelled in key, other:
                        self.write({k: value for k, value in config.items() if k != key} | {spelled: config[key] + 1})
                        done = self.tfmc(self.folder, code=None)
                        seen.append((done.returncode, done.stdout))
                    self.assertEqual(*seen)

    def test_padding_without_a_row(self):
        """transformers makes no table of words without a row for the padding, but for types that keep no such row."""
        rowless = set("bloom clip_text_model falcon gpt2 gpt_bigcode gpt_neo gpt_neox gptj mamba2 mpnet mpt mt5 nemotron_h siglip_text_model "
                      "t5 umt5".split())
        seen = set()
        for kind, config in {config["model_type"]: config for config in self.configs()}.items():
            if not isinstance(config.get("vocab_size"), int) or "architectures" not in config or kind == "beit":
                continue
            for token in config["vocab_size"], -config["vocab_size"] - 1:
                with self.subTest(kind, token=token):
                    self.write(config | dict(pad_token_id=token))
                    said = self.tfmc(self.folder, code=1).stderr
                    self.assertEqual('"pad_token_id" is' in said and "no row of a table" in said, kind not in rowless, said)
                    seen.add(kind)
        self.assertGreater(len(seen - rowless), 60)
        self.assertEqual(rowless - seen, set())

    def test_padding_that_is_not_said(self):
        """Then it is the class's own."""
        rows = dict(re.findall(r'^PADDING\("(.*)", (\d+)\)$', (ROOT / "compiler/import/padding.def").read_text(), re.M))
        self.assertGreater(len(rows), 20)
        seen = set()
        for kind, config in {config["model_type"]: config for config in self.configs()}.items():
            if kind in rows:
                token, seen = int(rows[kind]), seen | {kind}
                for words in token, token + 1:
                    with self.subTest(kind, words=words):
                        self.write({k: v for k, v in config.items() if k != "pad_token_id"} | dict(vocab_size=words))
                        said = self.tfmc(self.folder, code=1).stderr
                        self.assertEqual(f'"pad_token_id" is {token} where config.json does not say it' in said, words == token, said)
        self.assertEqual(seen, set(rows))


if __name__ == "__main__":
    import_case.main()
