#!/usr/bin/env python3
"""usage: test_import.py TFMC CASES

What `tfmc import` refuses and warns of: config.json with each key removed, of another type, absurd or unknown, and folders
that are no checkpoint. Every message names the file and the key; nothing is written after an error. Numbers (M01 ...) are
those of docs/testing.md's kinds. The last line is 'N passed, N failed' of unittest.
"""
import collections
import json
import subprocess

import numpy as np
from safetensors.numpy import load_file, save_file

import import_case
from import_case import TFMC, ImportCase
FAMILY = """checkpoint "mine" {
  d    = sizes.width
  deep = first(depth, 2)
  expect kind = "plain"
  require one_of(act, none, "relu"), "the activation is not relu"
  ignore "colour"
}

model Mine(d = 4, deep = 1) {
  l = Linear(d, d)

  forward(x: f32[n, d]) { return y = l(x) * deep }
}
"""

DECIDED = """checkpoint "mine" {
  d    = sizes.width
  kind = kind
  twice = twice
}

model Mine(kind = "a", d = 4, twice = false, free = false, other = 2) {
  l = Linear(d, d)
  if kind == "a" {
    # The first one.
    m = Linear(d, d)
  } else if free { n = Linear(d, d) } else {
    o = Linear(d, d)
  }
  if twice and free { p = Linear(d, d) }
  if not twice or free { q = Linear(d, d) as "l" } # both

  forward(x: f32[n, d]) {
    y = (if kind == "a" then x -> l else l(x)) * 2
    if kind == "b" { return y = y * other }
    if not twice {
      y = y + 1
      if d > 3 { return y = y + q(x) }
    }
    return y
  }
}
"""
# What is left of it for kind a, and not twice.
LEFT = """model Mine(d = 4) {
  l = Linear(d, d)
  # The first one.
  m = Linear(d, d)
  q = Linear(d, d) as "l" # both

  forward(x: f32[n, d]) {
    y = (x -> l) * 2
    y = y + 1
    return y = y + q(x)
  }
}
"""


BASE = """checkpoint "base" {
  d     = width
  deep  = depth + 7
  lost  = other
  expect kind = "a"
  require one_of(kind, "a", "b"), "the kind is neither a nor b"
}

# Of no use here.
layer Unread(d) {
  l = Linear(d, d)
  forward(x) = l(x)
}

# A layer.
layer Step(d) {
  l = Linear(d, d) as ""
  forward(x) = relu(l(x))
}

model Base(d = 4, deep = 1, lost = 1) {
  l = deep * Step(d)
  forward(x: f32[batch, d]) { return y = l(x) * lost }
}
"""

DERIVED = """include "base.tfm"

checkpoint "mine" {
  deep = depth
  kind = kind
}

model Mine(d = 2, deep = 1, kind = "a") {
  l = Step(d)
  forward(x: f32[batch, d]) {
    for i in deep { x = l(x) }
    return y = if kind == "b" then -x else x
  }
}
"""

JOINED = """# A layer.
layer Step(d) {
  l = Linear(d, d) as ""
  forward(x) = relu(l(x))
}

model Mine(d = 4, deep = 2) {
  l = Step(d)
  forward(x: f32[batch, d]) {
    for i in deep { x = l(x) }
    return y = -x
  }
}
"""


class Import(ImportCase):
    def test_M01_no_checkpoint(self):
        self.tfmc(self.folder, code=3, says=["config.json", "No such file"])
        self.tfmc(code=2, says="needs the folder of a checkpoint")
        self.tfmc(self.folder / "nowhere", code=3, says="config.json")

    def test_M01_other_paths(self):
        self.take("bert")
        config = self.folder / "config.json"
        self.tfmc(config, code=2, says="name the folder that holds config.json")
        before = config.read_text()
        self.tfmc(self.folder, "-o", config, code=2, says="would overwrite")
        self.assertEqual(config.read_text(), before)

    def test_names_of_norms_of_2018(self):
        """The same model and the same bits as with PyTorch's names; a file that has both is refused."""
        self.take("bert")
        model, file, inputs = (self.folder / n for n in ("model.tfm", "model.safetensors", "in.safetensors"))
        save_file({k: np.array(v, np.int32) for k, v in self.case["inputs"].items()}, inputs)
        tensors = load_file(file)
        old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
               for n, t in tensors.items()}
        self.assertNotEqual(set(old), set(tensors))
        texts, outputs = set(), set()
        for these in (tensors, old):
            save_file(these, file)
            done = self.tfmc(self.folder, "--strict")
            texts.add(done.stdout)
            model.write_text(done.stdout)
            self.assertEqual(self.tfmc(model, "--weights", self.folder, verb="check").stderr, "")
            out = self.folder / "out.safetensors"
            self.tfmc(model, "--weights", self.folder, "--inputs", inputs, "-o", out, verb="run")
            outputs.add(out.read_bytes())
        self.assertEqual((len(texts), len(outputs)), (1, 1))
        save_file(old | tensors, file)
        self.tfmc(self.folder, code=1, says='nothing reads the tensors "embeddings.LayerNorm.beta"')

    def test_numbers_of_64_bits(self):
        """Arithmetic on the least and the greatest number ends with a message or a number, and rounds down."""
        family = self.folder / "mine.tfm"
        save_file({"l.weight": np.zeros((4, 4), np.float32), "l.bias": np.zeros(4, np.float32)},
                  self.folder / "model.safetensors")
        for text, least, wanted in (("-x", -2**63, None), ("x - 1", -2**63, None), ("x // 3 + 3074457345618258607", -2**63, 4),
                                    ("x % 3 + 3", -2**63, 4), ("x // 2 + 8", -7, 4), ("x * 2", 2**62, None)):
            with self.subTest(text=text):
                family.write_text('checkpoint "mine" { d = %s }\n' % text +
                                  "model Mine(d = 4) { l = Linear(d, d)  forward(x: f32[n, d]) { return y = l(x) } }\n")
                self.write(dict(model_type="mine", x=least))
                options = (self.folder, "--family", family)
                if wanted is None:
                    self.tfmc(*options, code=1, says="does not fit in 64 bits")
                else:
                    self.assertIn(f"model Mine(d = {wanted})", self.tfmc(*options).stdout)

    def test_a_key_within_another_is_named(self):
        family = self.folder / "mine.tfm"
        save_file({"l.weight": np.zeros((4, 4), np.float32)}, self.folder / "model.safetensors")
        family.write_text('checkpoint "mine" { d = wide_d + d }\nmodel Mine(d = 4) { forward(x: f32[n, d]) { return y = x } }\n')
        self.write(dict(model_type="mine", wide_d=3.5, d=1))
        self.tfmc(self.folder, "--family", family, code=1, says='"wide_d", "d": the value is a number')

    def test_M01_no_json(self):
        self.take("bert")
        for text, says in (('{"a": 1,', "config.json:1:8: error: this is not JSON"), ("[]", "an object is expected"),
                           ('{"hidden_size": NaN}', "not JSON"), ('{"hidden_size": 1e400}', "not JSON"),
                           ('{"a": 1, "a": 1}', "not JSON"), ("", "not JSON")):
            self.write(text)
            self.refused(says)

    def test_M01_too_large(self):
        self.take("bert")
        with open(self.folder / "config.json", "a") as file:
            file.truncate((16 << 20) + 1)
        self.refused("the file has 16777217 bytes; at most 16777216 are read")
        self.write({})
        with open(self.folder / "generation_config.json", "w") as file:
            file.truncate(1 << 40)
        self.tfmc(self.folder, code=1, says=["generation_config.json", "at most 16777216 are read"])

    def test_M02_no_family(self):
        config = self.take("bert")
        self.write(config | dict(model_type="robrta"))
        self.refused('"model_type": no family is for "robrta"; `tfmc import --list`', "from_torch", "--family")
        for wrong in (None, 3):
            self.write(config | dict(model_type=wrong))
            self.refused('"model_type" is missing or no string')

    def test_M03_each_key_missing(self):
        """Every key of some configs: it is named in a message, or the same model comes out."""
        for name in ("bert", "gpt2", "llama3"):
            config = self.take(name)
            whole = self.tfmc(self.folder).stdout
            for key in config:
                with self.subTest(case=name, key=key):
                    self.write({k: v for k, v in config.items() if k != key})
                    done = subprocess.run([TFMC, "import", self.folder], capture_output=True, text=True)
                    if key == "architectures":  # the class stands in the head
                        continue
                    if f'"{key}' not in done.stderr:
                        self.assertEqual((done.returncode, done.stdout), (0, whole), done.stderr)
            self.write(config)

    def test_M03_required_keys(self):
        config = self.take("bert")
        for key in ("vocab_size", "hidden_size", "num_attention_heads", "num_hidden_layers", "layer_norm_eps", "hidden_act"):
            self.write({k: v for k, v in config.items() if k != key})
            self.refused(f'"{key}" is missing', options=["--strict"])

    def test_M03_other_types(self):
        for name, keys in (("bert", "vocab_size hidden_size num_hidden_layers layer_norm_eps hidden_act".split()),
                           ("llama", "intermediate_size rms_norm_eps max_position_embeddings tie_word_embeddings".split())):
            config = self.take(name)
            for key in keys:
                wrong = 7 if isinstance(config[key], str) else "7"
                with self.subTest(case=name, key=key):
                    self.write(config | {key: wrong})
                    self.refused(f'"{key}"')

    def test_M03_absurd_numbers(self):
        config = self.take("bert")
        self.write(config | dict(hidden_size=-24))
        self.refused('"hidden_size"', "from 0 on")
        self.write(config | dict(hidden_size=24.5))
        self.refused('"hidden_size"', "a whole number")
        self.write(config | dict(num_attention_heads=0))
        self.tfmc(self.folder, code=1)

    def test_M04_unknown_key(self):
        config = self.take("bert")
        self.write(config | dict(scale_of_dreams=3))
        self.refused('error: nothing reads "scale_of_dreams" (3)', "--ignore scale_of_dreams")
        made = self.tfmc(self.folder, "--ignore", "scale_of_dreams", "--strict").stdout
        self.write(config)
        self.assertEqual(self.tfmc(self.folder).stdout, made)
        llama = self.take("llama3")
        llama["rope_parameters"]["magnitude"] = 2
        self.write(llama)
        self.refused('nothing reads "rope_parameters.magnitude" (2)')

    def test_M09_code_of_its_own(self):
        """It is never run: a known family does without it, an unknown one is refused, with the way that there is."""
        config = self.take("bert") | dict(auto_map=dict(AutoModel="modeling_own.OwnModel"))
        self.write(config)
        (self.folder / "modeling_own.py").write_text("raise SystemExit(3)\n")
        self.assertNotIn("auto_map", self.tfmc(self.folder).stderr)
        self.write(config | dict(model_type="own"))
        self.refused('"auto_map": the model is Python code', "not run", "tfmc.from_torch")

    def test_M10_layers_of_an_unknown_kind(self):
        for name in ("qwen2_windows", "gemma3", "modernbert", "qwen2_moe_windows"):
            config = self.take(name)
            self.write(config | dict(layer_types=["chunked_attention"] * len(config["layer_types"])))
            self.refused('neither full_attention nor sliding_attention ("layer_types")')
            self.write(config | dict(layer_types=[7] * len(config["layer_types"])))
            self.refused('"layer_types" is a list ([7, ', "and must be a list of strings or null")
            self.write(config | dict(layer_types=config["layer_types"][1:]))
            self.tfmc(self.folder, code=1, says=f'"layer_types" has {len(config["layer_types"]) - 1} layers, and "num_hidden_layers" is')

    def test_M10_windows_said_by_numbers(self):
        """Older configs count: Qwen2 has whole layers first, Gemma 3 one in each `sliding_window_pattern`."""
        config = self.take("qwen2_windows")
        del config["layer_types"]
        self.write(config | dict(max_window_layers=1))
        self.assertIn("whole = 1", self.tfmc(self.folder, "--strict").stdout)
        config = self.take("gemma3")
        del config["layer_types"]
        self.write(config | dict(sliding_window_pattern=3))
        self.assertIn("pattern = 3", self.tfmc(self.folder, "--strict").stdout)

    def test_M04_values_that_the_family_lacks(self):
        self.write(self.take("bert") | dict(position_embedding_type="relative_key"))
        self.refused('"position_embedding_type" is "relative_key"; this family computes "absolute" only', "models/bert.tfm:")
        llama = self.take("llama3")
        llama["rope_parameters"]["rope_type"] = "dynamic"
        self.write(llama)
        self.refused("the scaling of positions is none of default, linear, llama3, yarn", '"rope_parameters.rope_type"')
        self.write(self.take("gpt2") | dict(architectures=["GPT2ForSequenceClassification"]))
        self.refused("the class GPT2ForSequenceClassification is not computed; computed: GPT2LMHeadModel.")

    def test_M05_sizes_that_contradict_the_weights(self):
        self.write(self.take("bert") | dict(intermediate_size=48))
        self.tfmc(self.folder, code=1, says=["model.safetensors", "intermediate.dense.weight", "[40, 24]"])

    def test_M06_other_weights(self):
        config = self.take("bert")
        self.write(config | dict(quantization_config=dict(quant_method="gptq")))
        self.refused("quantized (gptq)", "--quantize")
        self.write(config)
        (self.folder / "model.safetensors").rename(self.folder / "pytorch_model.bin")
        self.tfmc(self.folder, code=1, says=["pickled", "transformers.BertModel.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"])
        self.write({k: v for k, v in config.items() if k != "architectures"})
        self.tfmc(self.folder, code=1, says=["pickled", "transformers.AutoModel.from_pretrained(FOLDER)"])
        (self.folder / "pytorch_model.bin").unlink()
        self.tfmc(self.folder, code=1, says="no model.safetensors")
        (self.folder / "config.json").rename(self.folder / "adapter_config.json")
        self.tfmc(self.folder, code=1, says="BASE --adapter")

    def test_M06_weights_in_8_bits(self):
        config = self.take("bert")
        tensors = load_file(self.folder / "model.safetensors")
        for name in [n for n in tensors if n.endswith("dense.weight")]:
            scale = np.abs(tensors[name]).max(axis=1, keepdims=True) / np.float32(127)
            tensors[name] = np.rint(tensors[name] / scale).astype(np.int8)
            tensors[f"{name}_scale"] = scale
        save_file(tensors, self.folder / "model.safetensors")
        whole = dict(quant_method="compressed-tensors", format="int-quantized")
        for settings in whole, dict(quant_method="fp8", weight_block_size=[128, 128]):
            self.write(config | dict(quantization_config=settings))
            said = self.tfmc(self.folder).stderr
            self.assertNotIn("quantization_config", said)
            self.assertNotIn("_scale", said)
        for settings in whole | dict(format="pack-quantized"), dict(quant_method="fp8", weight_block_size=[64, 64]):
            self.write(config | dict(quantization_config=settings))
            self.refused(f"quantized ({settings['quant_method']}) in a way that is not read", "--quantize")

    def test_M07_shards(self):
        self.take("bert")
        tensors = load_file(self.folder / "model.safetensors")
        (self.folder / "model.safetensors").unlink()
        shards = {f"model-{i}-of-2.safetensors": dict(list(tensors.items())[i::2]) for i in range(2)}
        for name, part in shards.items():
            save_file(part, self.folder / name)
        index = dict(weight_map={t: name for name, part in shards.items() for t in part})
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        text = self.folder / "model.tfm"
        self.tfmc(self.folder, "-o", text, "--strict")
        self.tfmc(text, "--weights", self.folder, verb="check")
        whole = text.read_text()
        for name in list(index["weight_map"])[::3]:  # transformers reads all of a shard that is named
            (self.folder / "model.safetensors.index.json").write_text(json.dumps(dict(weight_map={k: v for k, v in index["weight_map"].items() if k != name})))
            self.tfmc(self.folder, "-o", text, "--strict")
            self.assertEqual(text.read_text(), whole)
            self.tfmc(text, "--weights", self.folder, verb="check")
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        twice = next(iter(shards["model-0-of-2.safetensors"].items()))
        save_file(shards["model-1-of-2.safetensors"] | {twice[0]: twice[1] * 2}, self.folder / "model-1-of-2.safetensors")
        self.tfmc(self.folder, code=1, says=[f'tensor "{twice[0]}" is in two files', "model-0-of-2.safetensors", "model-1-of-2.safetensors"])
        (self.folder / "model-1-of-2.safetensors").unlink()
        self.tfmc(self.folder, code=3, says="model-1-of-2.safetensors")

    def test_M08_a_tensor_gone_or_renamed(self):
        self.take("bert")
        tensors = load_file(self.folder / "model.safetensors")
        name = "encoder.layer.1.output.dense.weight"
        save_file({k: v for k, v in tensors.items() if k != name}, self.folder / "model.safetensors")
        self.tfmc(self.folder, code=1, says=["model.safetensors", name])

    def test_M06_pickled_weights_of_more_than_a_body(self):
        """What is advised keeps the head of the class, and the modules behind a body."""
        for name, says in (("bert_mask", "transformers.BertForMaskedLM.from_pretrained"), ("t5", "transformers.T5ForConditionalGeneration."),
                           ("sentence_dense", "sentence_transformers.SentenceTransformer(FOLDER).save(NEW_FOLDER)")):
            with self.subTest(name=name):
                self.take(name)
                (self.folder / "model.safetensors").rename(self.folder / "pytorch_model.bin")
                self.tfmc(self.folder, code=1, says=["pickled", says])

    def test_M08_names_of_a_module_around_the_model(self):
        """transformers takes no such file either. The message says what was saved, and what to save."""
        for name in ("bert", "bert_mask", "llama"):
            self.take(name)
            tensors = load_file(self.folder / "model.safetensors")
            for prefix, inside in (("_orig_mod.", "save model._orig_mod instead"), ("module.", "save model.module instead"),
                                   ("base_model.model.", "save model.merge_and_unload() instead"), ("other.", "other.")):
                with self.subTest(name=name, prefix=prefix):
                    save_file({prefix + k: v for k, v in tensors.items()}, self.folder / "model.safetensors")
                    self.tfmc(self.folder, code=1, says=[f'begin with "{prefix}', inside])
            save_file({("_orig_mod." if i % 2 else "") + k: v for i, (k, v) in enumerate(tensors.items())}, self.folder / "model.safetensors")
            self.assertNotIn("torch.compile", self.tfmc(self.folder, code=1).stderr)

    def test_older_rotary_settings(self):
        """`rope_theta` beside `rope_scaling`, as before transformers 5: the same model."""
        config = self.take("llama3")
        newer = self.tfmc(self.folder, "--strict").stdout
        self.assertIn("base = 500000.0,", newer)
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        rope["type"] = rope.pop("rope_type")
        config["rope_scaling"] = rope
        self.write(config)
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, newer)

    def test_bases_that_the_class_does_not_read(self):
        """Where a class takes its base from another place, one that stands elsewhere is refused; the one that it takes is taken."""
        for name, without, taken, base in (("gemma3", dict(rope_parameters=dict(rope_theta=500.0)), dict(rope_theta=500.0), "base = 500.0"),
                                           ("gpt_neox", dict(rope_theta=500.0), dict(rotary_emb_base=500), "base = 500")):
            config = self.take(name)
            del config["rope_parameters"]
            self.write(config | without)
            self.refused()
            self.write(config | taken)
            self.assertIn(f"{base},", self.tfmc(self.folder).stdout)
        config = self.take("falcon")
        del config["rope_parameters"]
        self.write(config | dict(apply_residual_connection_post_layernorm=False))
        self.assertIn("base = 10000.0,", self.tfmc(self.folder).stdout)

    def test_a_base_that_is_null(self):
        for name in ("llama", "gemma", "gemma3", "falcon", "mixtral", "phi3"):
            config = self.take(name)
            del config["rope_parameters"]
            self.write(config | dict(rope_theta=None))
            self.refused('"rope_theta" is null, and a value is needed')
        config = self.take("llama")
        self.write(config | dict(rope_theta=None))  # rope_parameters has one
        self.tfmc(self.folder, "--strict")

    def test_heads_of_no_columns(self):
        for name, key in (("llama", "head_dim"), ("gemma", "head_dim"), ("gemma2", "head_dim"), ("mixtral", "head_dim"), ("t5", "d_kv")):
            self.write(self.take(name) | {key: 0})
            self.refused("heads of no columns")

    def test_rows_that_begin_with_padding(self):
        """M2M100 gives the token for padding no place of its own, so rows that begin with it count otherwise."""
        self.write(self.take("m2m_100"))
        (self.folder / "generation_config.json").write_text(json.dumps(dict(decoder_start_token_id=1, eos_token_id=2, pad_token_id=1)))
        self.refused("rows begin with the token for padding")

    def test_outputs_of_a_backbone(self):
        """They say nothing of the model itself, as long as the config is one of a backbone."""
        config = self.take("dinov2")
        whole = self.tfmc(self.folder, "--strict").stdout
        self.write(config | dict(out_indices=[1], out_features=["stage1"]))
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
        for change in (dict(out_indices=[3]), dict(out_indices=[1]), dict(out_indices=[1, 2]), dict(out_indices=[]), dict(out_features=["stage9"])):
            self.write(config | change)
            self.refused("out_")

    def test_generation_config(self):
        """What generation_config.json says of tokens wins; several ends are a list."""
        config = self.take("llama")
        self.assertIn("eos = 2", self.tfmc(self.folder).stdout)
        (self.folder / "generation_config.json").write_text(json.dumps(dict(eos_token_id=[5, 7])))
        text = self.tfmc(self.folder, "-o", self.folder / "m.tfm").stdout
        self.assertIn("eos = [5, 7]", (self.folder / "m.tfm").read_text())
        self.tfmc(self.folder / "m.tfm", verb="check")

    def test_task(self):
        self.take("bert")
        text = self.tfmc(self.folder, "--task", "embed").stdout
        self.assertIn("return sentence_embedding = ", text)
        self.take("gpt2")
        self.tfmc(self.folder, "--task", "embed", code=2, says="--task: model GPT2 has one task only")

    def test_sentence_modules(self):
        """What is included stands in the text if something names it, before the family's own layers."""
        self.take("sentence_mean")
        text = self.tfmc(self.folder, "--strict").stdout
        self.assertIn('sentence = [["pool", ["mean"], true], ["normalize"]]', text)
        self.assertIn("\n  vector = Sentence(sentence) as \"\"\n", text)
        self.assertLess(text.index("layer Sentence("), text.index("layer Embeddings("))
        self.assertNotIn("include", text)
        self.take("bert")
        (self.folder / "modules.json").unlink()
        text = self.tfmc(self.folder, "--strict").stdout
        self.assertNotIn("Sentence", text)
        self.assertNotIn("include", text)

    def test_a_family_that_includes_another(self):
        """Layers of the other file are taken where they are named, its model is not; its entries hold unless the family has its own."""
        (self.folder / "base.tfm").write_text(BASE)
        text = self.mine(dict(width=4, depth=2, kind="b", other=1), DERIVED, options=["--strict"])
        self.assertEqual(text.split("#\n", 1)[1], JOINED)
        self.mine(dict(width=4, depth=2, kind="c", other=1), DERIVED, code=1, says=["the kind is neither a nor b", "base.tfm:"])
        self.mine(dict(width=4, depth=2, kind="a", other=1, more=1), DERIVED, code=1, says='nothing reads "more"')
        self.mine(dict(width=4, depth=2, kind="a"), DERIVED.replace("base.tfm", "no.tfm"), code=1, says="cannot include 'no.tfm'")

    def test_family_of_ones_own(self):
        text = self.mine(dict(sizes=dict(width=4), kind="plain", colour="red"), FAMILY)
        self.assertTrue(text.startswith("# Imported from"))
        self.assertTrue(text.endswith(FAMILY.split("}\n\n", 1)[1].replace("deep = 1", "deep = 2")))
        self.mine(dict(sizes=4), FAMILY, code=1, says=["config.json", '"sizes" is a whole number, where an object is expected'])
        self.mine(dict(sizes=dict(width=4), act="gelu"), FAMILY, code=1, says='the activation is not relu ("act")')
        self.mine(dict(sizes=dict(width=4)), FAMILY.replace("first(depth, 2)", "depth + 1"), code=1,
                  says='"depth" is missing; a number is needed here')
        self.mine({}, FAMILY.replace("deep = first", "dep = first"), code=1, says="model Mine has no config value 'dep'")
        self.mine({}, FAMILY.replace("first(depth", "last(depth"), code=1, says="has, dims, same, fits, first, absent, one_of, all_of, letters and of_layers")
        circle = FAMILY.replace("d = 4, deep = 1", "d = deep, deep = d")
        self.mine(dict(sizes=dict(width=4), depth=2), circle)
        self.mine(dict(sizes=dict(width=4)), circle.replace("first(depth, 2)", "depth"))
        self.mine({}, FAMILY.split("}\n\n", 1)[1], code=1, says="1 models and 0 blocks")

    def test_what_is_decided_is_left_out(self):
        decided = dict(sizes=dict(width=4), kind="a", twice=False)
        text = self.mine(decided, DECIDED.replace("m = Lin", "m = 0 # Lin"))
        self.assertEqual(text.split("#\n", 1)[1], LEFT.replace("m = Lin", "m = 0 # Lin"))
        text = self.mine(decided | dict(kind="c"), DECIDED)
        self.assertIn("\n  if free { n = Linear(d, d) } else {\n    o = Linear(d, d)\n  }\n  q = ", text)
        self.assertNotIn("other", text)
        hidden = DECIDED.replace("    y = (if", "    kind = d\n    y = (if").replace('kind == "a" then', "kind == 4 then")
        self.assertIn("if kind == 4 then x -> l else l(x)", self.mine(decided, hidden.replace('kind == "b"', "kind == 5")))

    def test_list_as_data(self):
        """The classes of each family, its tasks, and what it makes: the same families as the lines."""
        families = json.loads(self.tfmc("--list", "--json").stdout)
        lines = [line.split() for line in self.tfmc("--list").stdout.splitlines()]
        self.assertEqual([[f["file"], *f["model_types"]] for f in families], lines)
        by_file = {f["file"]: f for f in families}
        self.assertIn("ForSequenceClassification", by_file["models/bart_heads.tfm"]["classes"])
        self.assertIn("tokens", by_file["models/llama_body.tfm"]["tasks"])
        self.assertEqual({f: (by_file[f"models/{f}.tfm"]["writes"], by_file[f"models/{f}.tfm"]["sentence_vectors"]) for f in
                          ("llama", "llama_body", "vit")}, {"llama": (True, False), "llama_body": (False, True), "vit": (False, False)})
        self.assertTrue(all(f["classes"] for f in families))
        self.tfmc("--json", "nowhere", code=2, says="--json is for --list")

    def test_list(self):
        lines = self.tfmc("--list").stdout.splitlines()
        self.assertIn("models/bert.tfm        bert roberta xlm-roberta camembert electra ernie", lines)
        types = [t for line in lines for t in line.split()[1:]]
        counts = collections.Counter(types)  # bodies and heads of models that write are families of their own
        self.assertEqual({t for t, n in counts.items() if n > 1}, {"t5", "mt5", "umt5", "bart", "mbart", "llama", "mistral", "ministral", "qwen2", "qwen3",
                                                                   "smollm3", "gemma2", "gemma3_text", "t5gemma", "clip", "siglip"})


class EndsOfTexts(ImportCase):
    def test_batches_whose_texts_have_different_ends(self):
        """transformers refuses them for heads that read the label at the last end token; a text alone has its label."""
        for name in "bart_classify", "t5_classify", "mbart_classify":
            config, model = self.take(name), self.folder / "model.tfm"
            self.tfmc(self.folder, "-o", model, "--strict")
            ids, end = np.array(self.case["inputs"]["input_ids"], np.int32), config["eos_token_id"]
            mask = np.array(self.case["inputs"]["attention_mask"], np.int32)
            more, none = ids.copy(), ids.copy()
            more[0, 2], none[0][none[0] == end] = end, 5
            both = more.copy()
            both[1, 2] = end
            refused = f"error: the label is read at the last end token, {end}: each text of a batch needs one, all of them as many [E0506]"
            for engine in "reference", "native":
                for rows, count, says in ((ids, 2, None), (both, 2, None), (more, 1, None), (more, 2, refused), (none, 2, refused), (none, 1, refused)):
                    with self.subTest(case=name, engine=engine, rows=rows[:count].tolist()):
                        save_file(dict(input_ids=rows[:count].copy(), attention_mask=mask[:count].copy()), self.folder / "in.safetensors")
                        self.tfmc(model, "--weights", self.folder, "-q", "--engine", engine, "--inputs", self.folder / "in.safetensors",
                                  "-o", self.folder / "out.safetensors", verb="run", code=1 if says else 0, says=says or ())


if __name__ == "__main__":
    import_case.main()
