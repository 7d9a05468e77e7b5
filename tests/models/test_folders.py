#!/usr/bin/env python3
"""usage: test_folders.py TFMC CASES

What `tfmc import` makes of the other files of a folder, and of folders that are no checkpoint: each key of the files of sentence
transformers, spellings of rotary settings, tokens of generation, numbers that JSON does not have, GGUF, modules of other kinds,
names of the hub. The last line is 'N passed, N failed' of unittest.
"""
import json
import pathlib
import re
import shutil

import numpy as np
from safetensors.numpy import load_file, save_file

import checkpoint
import import_case
from import_case import CASES, ImportCase
from test_account import rows

FILES = dict(Modules="modules.json", Pooling="1_Pooling/config.json", Dense="2_Dense/config.json", Norm="3_LayerNorm/config.json",
             Normalize="4_Normalize/config.json", Drop="5_Dropout/config.json", Bert="sentence_bert_config.json", Encoder="config_sentence_transformers.json")
BODY = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
# As sentence-transformers 6.2 saves them.
SAVED = {"2_Dense/config.json": dict(in_features=24, out_features=16, bias=True, activation_function="torch.nn.modules.activation.Tanh",
                                     module_input_name="sentence_embedding", module_output_name="sentence_embedding"),
         "3_LayerNorm/config.json": dict(dimension=16), "5_Dropout/config.json": dict(dropout=0.1),
         "4_Normalize/config.json": dict(module_input_name="sentence_embedding", module_output_name="sentence_embedding"),
         "sentence_bert_config.json": dict(transformer_task="feature-extraction", modality_config=BODY,
                                           module_output_name="token_embeddings"),
         "config_sentence_transformers.json": dict(__version__=dict(pytorch="2.15"), default_prompt_name=None, prompts=dict(query=""),
                                                   model_type="SentenceTransformer", similarity_fn_name="cosine")}


WEIGHTS = {"2_Dense/linear.weight": [16, 24], "2_Dense/linear.bias": [16], "3_LayerNorm/norm.weight": [16], "3_LayerNorm/norm.bias": [16]}


class SentenceFiles(ImportCase):
    def setUp(self):
        super().setUp()
        self.take("sentence_mean")
        for name, content in SAVED.items():
            self.put(name, content)
        first, pooling, _ = self.content("modules.json")
        kinds = ["Dense", "LayerNorm", "Normalize", "Dropout"]
        self.put("modules.json", [first, pooling] + [dict(idx=i, name=str(i), path=f"{i}_{kind}", type=f"sentence_transformers.models.{kind}")
                                                     for i, kind in enumerate(kinds, 2)])
        checkpoint.save({n: checkpoint.weight(n, s, 0.25) for n, s in (self.case["weights"] | WEIGHTS).items()}, self.folder)
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
        """Each row of sentence_keys.def does what it says of the key: values of its kinds, of others, null."""
        samples = {"null": None, "bool": True, "int": 1, "float": 0.5, "str": "x", "list[str]": ["a"], "list": [0.5], "dict": dict(a="1")}
        found = rows("sentence_keys.def", "SENTENCE_KEY")
        self.assertGreater(len(found), 33)
        for i, row in enumerate(found):
            file, key, rule, values = re.match(r'(\w+), "(\w+)", (\w+), "(.*)"$', row).groups()
            if file in ("Score", "Splade", "Mask"):
                continue  # of other kinds of folders: test_scores_of_a_model_that_writes, test_sentence_modules.py
            kinds = [re.sub(r"\[0,.*", "", k) for k in values.split("|")]
            is_taken = lambda k: not values or k in kinds or k.startswith("list") and "list" in kinds
            others = [k for k in samples if k != "null" and not is_taken(k)]
            some = ["null", *others[i % 3::3], *[k for k in samples if is_taken(k)][:2]] if rule != "ONLY" else ["str", "int"]
            for kind in some:
                with self.subTest(file=file, key=key, kind=kind):
                    before = self.change(file, key, samples[kind])
                    if rule == "ONLY":
                        self.refused_in(FILES[file], f'"{key}" is')
                    elif not is_taken(kind):
                        self.refused_in(FILES[file], f'"{key}" is', "and must be")
                    elif rule == "NOTHING":
                        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, self.whole)
                    elif values:
                        self.assertNotIn("and must be", self.tfmc(self.folder, code=None).stderr)
                    self.put(FILES[file], before)

    def test_names_of_modules(self):
        first, *behind = self.content("modules.json")
        for name in (None, "", 3, True, ["0"], {}, "a.b", behind[0]["name"], "<gone>"):
            with self.subTest(name=name):
                self.put("modules.json", [{k: v for k, v in (first | dict(name=name)).items() if v != "<gone>"}, *behind])
                self.refused_in("modules.json", '"name"')

    def test_what_goes_from_one_module_to_the_next(self):
        saved = SAVED["sentence_bert_config.json"]
        logits = {"text": {"method": "forward", "method_output_name": "logits"}}
        for change, says in ((dict(module_output_name="scores"), "is scores; what stands behind it takes token_embeddings"),
                             (dict(module_output_name=None), "is no name; what stands behind it takes"),
                             (dict(modality_config=logits), "the output is logits; what stands behind it is of last_hidden_state"),
                             (dict(modality_config=None), '"modality_config" is none'),
                             (dict(query_expansion=dict(max_length=6)), '"query_expansion"'), (dict(query_expansion={}), '"query_expansion"'),
                             (dict(scale_of_dreams=None), 'nothing reads "scale_of_dreams"'),
                             *((dict([(key, None)]), f'"{key}" is') for key in ("model_args", "config_kwargs", "tokenizer_args", "transformer_task"))):
            with self.subTest(change=change):
                self.put("sentence_bert_config.json", saved | change)
                self.refused_in("sentence_bert_config.json", says)
        self.put("sentence_bert_config.json", saved | dict(query_expansion=dict(strategy="min", length=8)))
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, self.whole)
        saved = SAVED["config_sentence_transformers.json"]
        for change, says in ((dict(default_prompt_name="passage"), "none of"), (dict(prompts=dict(query=3)), "no string"), (dict(prompts=None), '"prompts" is'),
                             (dict(model_type=None), '"model_type" is'), (dict(similarity_fn_name="x"), '"similarity_fn_name" is'),
                             *((dict(truncate_dim=n), '"truncate_dim"') for n in (0, -1, 2.0, "7", True, [4]))):
            with self.subTest(change=change):
                self.put("config_sentence_transformers.json", saved | change)
                self.refused_in("config_sentence_transformers.json", says)

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
        """They changed vectors without a word once, and were refused then."""
        self.change("Pooling", "include_prompt", False)
        text = self.tfmc(self.folder, "--strict").stdout
        self.assertIn('[["pool", ["mean"], false], ["dense", ', text)
        for value in (None, 0, 1, "x"):
            self.change("Pooling", "include_prompt", value)
            self.refused_in("1_Pooling/config.json", '"include_prompt" is', "it is true or false")

    def test_poolings(self):
        """Both ways to name them; beside the newer one the older says nothing, and the mean is what nobody named."""
        modes = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
        older = {m: f"pooling_mode_{m}" + ("_token" if m == "cls" else "_tokens" if m in ("mean", "max", "weightedmean") else "")
                 for m in modes}
        cases = [([m], content) for m in modes for content in (dict(pooling_mode=m), dict(pooling_mode=[m]), {older[m]: True})]
        cases += [(["cls", "mean"], {older["mean"]: True, older["cls"]: True}), (["mean", "cls"], dict(pooling_mode=["mean", "cls"])),
                  (["mean"], {older["cls"]: False}), (["mean"], {}), (["max"], dict(pooling_mode="max", pooling_mode_cls_token=True))]
        for wanted, content in cases:
            with self.subTest(content=content):
                self.put("1_Pooling/config.json", content | dict(word_embedding_dimension=24))
                self.put("2_Dense/config.json", SAVED["2_Dense/config.json"] | dict(in_features=24 * len(wanted)))
                checkpoint.save({n: checkpoint.weight(n, s, 0.25) for n, s in (self.case["weights"] | WEIGHTS | {
                    "2_Dense/linear.weight": [16, 24 * len(wanted)]}).items()}, self.folder)
                self.assertIn(f'[["pool", {json.dumps(wanted)}, true], ', self.tfmc(self.folder, "--strict").stdout)
        for content, says in ((dict(pooling_mode="min"), 'there is no pooling "min"'), (dict(pooling_mode=["cls", 3]), "no pooling 3"),
                              (dict(pooling_mode=None), "no pooling none"), (dict(pooling_mode=[]), "is empty"),
                              ({older["cls"]: 1}, '"pooling_mode_cls_token" is 1; it is true or false')):
            with self.subTest(content=content):
                self.put("1_Pooling/config.json", content | dict(word_embedding_dimension=24))
                self.refused_in("1_Pooling/config.json", says)
        self.put("1_Pooling/config.json", dict(pooling_mode="mean"))
        self.refused_in("1_Pooling/config.json", '"word_embedding_dimension" is missing')
        (self.folder / "1_Pooling/config.json").unlink()
        self.refused_in("1_Pooling/config.json", "no such file")

    def test_modules(self):
        first, pooling, dense, norm, normalize, drop = self.content("modules.json")
        kind = lambda module, text: module | dict(type=text)
        for modules, says in (([first, normalize, pooling], "stands in another place"), ([first, pooling, pooling], "another place"),
                              ([pooling], "another place"), ([first, pooling, first], "another place"),
                              ([first], "there is no module Pooling"), ([], "there is no module Pooling"),
                              ([kind(first, "custom_st.Transformer"), pooling], "a module custom_st.Transformer is not known here"),
                              *(([first, pooling, kind(normalize, f"sentence_transformers.models.{name}")], f"a module {name} {why}")
                                for why, names in (("is not computed: ", ("LSTM", "CNN", "WeightedLayerPooling", "SparseStaticEmbedding")),
                                                   ("chooses other modules for each task", ("Router", "Asym"))) for name in names),
                              ([first | dict(path="0_Transformer"), pooling], 'lies in "0_Transformer": copy the files'),
                              ([first, pooling, dense | dict(path="")], 'no "path" of a folder'),
                              ([first, pooling, dense | dict(path="../2_Dense")], 'no "path" of a folder'),
                              ([first | dict(kwargs=["task"]), pooling], '"kwargs" is ["task"]')):
            with self.subTest(modules=modules):
                self.put("modules.json", modules)
                self.refused_in("modules.json", says)
        for modules, says in (([first, pooling], '["mean"], true]]'), ([first, pooling, normalize], 'true], ["normalize"]]'),
                              ([first, pooling, normalize, dense, normalize | dict(name="9")], '["normalize"], ["dense", "2_Dense", 24, 16, true, "tanh", false], ["norm')):
            self.put("modules.json", modules)
            self.assertIn(says, self.tfmc(self.folder, "--strict").stdout)

    def test_what_a_dense_module_computes(self):
        content = SAVED["2_Dense/config.json"]
        for change, says in ((dict(in_features=None), '"in_features": a whole number'), (dict(out_features=0), "from 1 on"),
                             (dict(out_features="16"), "from 1 on"), (dict(bias=None), '"bias" is none'), (dict(use_residual=1), "true or false"),
                             (dict(activation_function="torch.nn.modules.activation.Softsign"), "Softsign; of torch.nn are computed Tanh"),
                             (dict(activation_function="torch.nn.functional.gelu"), "gelu; of torch.nn"), (dict(activation_function="torch.nn.mine.Tanh"), "mine.Tanh; of"),
                             (dict(activation_function="torch.nn.modules.activation.Identity"), "activation.Identity; of torch.nn"),
                             (dict(activation_function="torch.nn.activation.Tanh"), "activation.Tanh; of"),
                             (dict(activation_function="mine.Tanh"), "mine.Tanh; of torch.nn"), (dict(activation_function=None), "no string"),
                             (dict(module_input_name="token_embeddings"), '"module_input_name" is token_embeddings'),
                             (dict(module_output_name="token_embeddings"), "at this place both are sentence_embedding"),
                             (dict(module_input_name=None), '"module_input_name" is no name')):
            with self.subTest(change=change):
                self.put("2_Dense/config.json", content | change)
                self.refused_in("2_Dense/config.json", says)
        for change, says in (({"2_Dense/linear.weight": [15, 24]}, "2_Dense.linear.weight"), ({"2_Dense/more": [2]}, '"2_Dense.more"')):
            self.put("2_Dense/config.json", content)
            checkpoint.save({n: checkpoint.weight(n, s, 0.25) for n, s in (self.case["weights"] | WEIGHTS | change).items()}, self.folder)
            self.refused_in("model", says)
        (self.folder / "2_Dense/model.safetensors").rename(self.folder / "2_Dense/pytorch_model.bin")
        self.refused_in("2_Dense/model.safetensors", "there is no such file: the module's weights are pickled")

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
        self.put("config_sentence_transformers.json", dict(model_type="CrossEncoder", prompts={}, truncate_dim=4))
        self.refused_in("config_sentence_transformers.json", "the folder makes no vector of a text")
        self.put("config_sentence_transformers.json", dict(model_type="SentenceTransformer"))
        self.refused_in("config_sentence_transformers.json", '"model_type" is SentenceTransformer, and the modules are those of a CrossEncoder')

    def test_settings_of_another_class(self):
        """Each class of sentence transformers leaves modules that another one saved, and makes its own."""
        for kind in "CrossEncoder", "SparseEncoder", "MultiVectorEncoder":
            self.put("config_sentence_transformers.json", dict(model_type=kind))
            self.refused_in("config_sentence_transformers.json", f'"model_type" is {kind}, and the modules are those of a SentenceTransformer')
        self.put("config_sentence_transformers.json", dict(model_type="SentenceTransformer"))
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, self.whole)
        self.put("sentence_bert_config.json", dict(max_seq_length=-1))
        self.refused_in("sentence_bert_config.json", '"max_seq_length" is a whole number (-1)')

    def test_names_that_are_null(self):
        """A Normalize that is told to read nothing leaves the vectors as they are."""
        self.change("Normalize", "module_input_name", None)
        self.refused_in("4_Normalize/config.json", '"module_input_name" is no name')
        self.put("4_Normalize/config.json", dict(module_output_name=None))
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, self.whole)

    def test_scores_of_a_model_that_writes(self):
        """A LogitScore, its tokens, and the task of the model that it needs."""
        self.take("rerank_qwen3")
        for name in ("1_Pooling", "2_Dense", "3_LayerNorm", "4_Normalize", "5_Dropout"):
            shutil.rmtree(self.folder / name)
        self.assertIn("scored = [30, 7]", self.tfmc(self.folder, "--strict").stdout)
        score, bert, modules = (self.content(n) for n in ("1_LogitScore/config.json", "sentence_bert_config.json", "modules.json"))
        for change in (dict(false_token_id=None), dict(module_input_name="causal_logits")):
            self.put("1_LogitScore/config.json", score | change)
            self.tfmc(self.folder, "--strict")
        for change in (dict(true_token_id=None), dict(true_token_id="yes"), dict(false_token_id=-1), dict(module_input_name=None), dict(more=1)):
            with self.subTest(change=change):
                self.put("1_LogitScore/config.json", score | change)
                self.refused_in("1_LogitScore/config.json", f'"{next(iter(change))}"')
        self.put("1_LogitScore/config.json", score)
        self.put("sentence_bert_config.json", bert | dict(transformer_task="feature-extraction"))
        self.refused_in("modules.json", "is feature-extraction; what stands behind it is of text-generation")
        self.put("sentence_bert_config.json", bert)
        for wrong in (modules[:1], modules + [modules[1] | dict(type="sentence_transformers.models.Normalize")], modules + modules[1:]):
            self.put("modules.json", wrong)
            self.refused_in("modules.json")

    def test_families_without_vectors(self):
        """A folder that makes vectors becomes no model that writes, nor one that gives hidden states."""
        for name in ("gpt2", "bart", "whisper", "vit"):
            with self.subTest(case=name):
                config = self.take(name)
                self.refused_in("modules.json", "the folder makes vectors of a text, and model")
        self.write(config | dict(architectures=None))


class Vectors(ImportCase):
    def test_a_folder_of_vectors_becomes_no_model_that_writes(self):
        """As sentence-transformers has always written such folders: nothing reads the pooling of a family that writes."""
        modules = [dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}")
                   for i, (path, kind) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")))]
        for name in ("gpt2", "gpt_neox", "falcon"):
            with self.subTest(case=name):
                config = self.take(name)
                (self.folder / "modules.json").write_text(json.dumps(modules))
                (self.folder / "1_Pooling").mkdir(exist_ok=True)
                (self.folder / "1_Pooling/config.json").write_text(json.dumps(dict(
                    word_embedding_dimension=config.get("hidden_size", config.get("n_embd")), pooling_mode_lasttoken=True)))
                self.tfmc(self.folder, "--strict", code=1, says="the folder makes vectors of a text, and model")


class Bodies(ImportCase):
    def test_weights_that_the_body_of_an_encoder_decoder_saved(self):
        """Without the prefix and the bias of logits, which the class with a head begins as zeros."""
        for name in "bart", "marian", "m2m_100":
            with self.subTest(case=name):
                self.take(name)
                saved = {n.removeprefix("model."): np.array(checkpoint.weight(n, s, self.case["gain"])) for n, s in self.case["weights"].items()}
                saved.pop("final_logits_bias", None)
                save_file(saved | {"encoder.embed_tokens.weight": saved["shared.weight"]}, self.folder / "model.safetensors")
                self.tfmc(self.folder, "--strict", "-o", self.folder / "m.tfm")
                self.tfmc(self.folder / "m.tfm", "--weights", self.folder, verb="check")
                save_file(saved | {"encoder.embed_tokens.weight": saved["shared.weight"] * 2}, self.folder / "model.safetensors")
                self.refused("encoder.embed_tokens.weight is another one")


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

    def test_rotary_settings_of_kinds_of_layers(self):
        """What the classes make of rope_scaling: its `type` is none of theirs, and it goes to a part that rope_parameters must have."""
        for name, scaling, says in (("gemma3", dict(type="linear"), "reads the kind of rope_scaling as rope_type"),
                                    ("olmo3", dict(type="yarn", original_max_position_embeddings=16), "said twice")):
            config, scaling = self.take(name), scaling | dict(factor=2.0)
            whole = {k: v for k, v in config.items() if k != "rope_parameters"} | dict(rope_theta=500.0)
            with self.subTest(case=name):
                self.write(whole | dict(rope_scaling=scaling))
                self.refused(says)
                scaling["rope_type"] = scaling["type"]
                self.write(whole | dict(rope_scaling=scaling))
                self.assertIn("base = 500.0", self.tfmc(self.folder).stdout)
                self.write(whole | dict(rope_scaling=scaling, rope_parameters=scaling))
                self.refused("rope_parameters has no part for the layers that rope_scaling is for")
        config = {k: v for k, v in self.take("gpt_oss").items() if k != "rope_parameters"}
        self.write(config | dict(rope_scaling={}))  # as good as none, and the class has one of its own
        self.refused("the positions are not said")

    def test_numbers_that_json_lacks(self):
        config = self.take("mamba2")
        whole = self.tfmc(self.folder, "--strict").stdout
        self.assertIn("high = inf,", whole)
        text = json.dumps(config | dict(time_step_limit=[0.0, float("inf")]))
        self.assertIn("Infinity", text)
        self.write(text)  # as Python writes it
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
        self.write('{"model_type": "mamba2",\n "time_step_limit": [0.0, NaN]}')
        self.refused("config.json:2:", "this is not JSON", '"time_step_limit" is NaN')
        self.write(config)
        (self.folder / "generation_config.json").write_text('{"temperature": Infinity}')
        self.tfmc(self.folder, code=1, says=["generation_config.json:1:", "this is not JSON", '"temperature" is Infinity'])

    def test_infinities_where_a_number_is_meant(self):
        """Python's spelling, that of transformers 5, and in the middle of what JSON has."""
        config = self.take("mamba2")
        for number in (float("inf"), -float("inf"), dict(__float__="Infinity"), dict(__float__="-Infinity")):
            for key in ("layer_norm_epsilon", "initializer_range", "state_size", "unknown", "use_bias"):
                with self.subTest(number=number, key=key):
                    self.write(json.dumps(config | {key: number}))
                    self.refused(f'"{key}')
            with self.subTest(number=number):
                self.write(json.dumps(config | dict(time_step_limit=[number, 1.0])))
                self.refused("time_step_limit", "'low' of the model is a finite number")

    def test_text_parts(self):
        """What stands beside text_config is listed, says the same, or is named."""
        config = self.take("qwen3_5_pictures")
        whole = self.tfmc(self.folder, "--strict").stdout
        self.assertIn("the part for text of a qwen3_5", whole)
        of_pictures = [n for n in self.case["weights"] if n.startswith("model.visual.")]
        self.assertIn(f"({len(of_pictures)} of model.visual.*) fit was not looked at", whole)
        part = config["text_config"]
        for same in (dict(architectures=None), dict(vision_config=None), dict(text_config=part | dict(model_type=None)),
                     dict(text_config=part | dict(use_cache=False, dtype="bfloat16")), dict(eos_token_id=part["eos_token_id"])):
            with self.subTest(keys=same):
                self.write(config | same)
                made = self.tfmc(self.folder, "--strict", "--ignore", "model.visual.*").stdout
                self.assertEqual(made.split("\n", 1)[1], whole.split("\n", 1)[1])
        (self.folder / "generation_config.json").unlink(missing_ok=True)
        for name in "eos", "bos":  # what the whole says of the ends of rows counts, as for transformers
            self.write(config | {f"{name}_token_id": 7} | dict(text_config=part | {f"{name}_token_id": 3}))
            self.assertRegex(self.tfmc(self.folder, "--ignore", "model.visual.*").stdout, rf"\b{name} += 7\b")
        for keys, says in ((dict(text_config=None), '"text_config" must be the settings of a "qwen3_5_text"'),
                           (dict(text_config=part | dict(model_type="qwen3")), '"text_config" must be the settings'),
                           (dict(pad_token_id=7), '"pad_token_id" and "text_config.pad_token_id" contradict each other'),
                           (dict(head_dim=4), '"head_dim" and "text_config.head_dim" contradict each other'),
                           (dict(new_switch=True), 'nothing reads "new_switch"'),
                           (dict(text_config=part | dict(new_switch=True)), 'nothing reads "new_switch"'),
                           (dict(architectures=["Qwen3_5ForSequenceClassification"]), '"architectures": the class'),
                           (dict(model_type="paligemma"), "its part for text (text_config) is not taken out of it")):
            with self.subTest(keys=keys):
                self.write(config | keys)
                self.refused(says)
                (self.folder / "model.tfm").unlink(missing_ok=True)

    def test_parts_of_several_types(self):
        """Of one type the part may be of several; older folders have its settings beside the others."""
        config = self.take("mistral3_pictures")
        self.assertIn("the part for text of a mistral3", self.tfmc(self.folder, "--strict").stdout)
        self.write(config | dict(text_config=config["text_config"] | dict(model_type="qwen2")))
        self.refused('"text_config" must be the settings of a "mistral" or "ministral3"')
        config = self.take("qwen2_5_vl_first")
        self.assertNotIn("text_config", config)
        whole = self.tfmc(self.folder, "--strict").stdout
        self.write({k: v for k, v in config.items() if k not in ("vision_config", "vision_token_id")} | dict(video_token_id=7))
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
        for keys, says in ((dict(text_config=None), '"text_config" must be the settings of a "qwen2_5_vl_text"'),
                           (dict(use_sliding_window=True), "use_sliding_window"), (dict(new_switch=1), 'nothing reads "new_switch"'),
                           (dict(rope_scaling=dict(type="yarn", factor=2.0)), "rope_parameters")):
            with self.subTest(keys=keys):
                self.write(config | keys)
                self.refused(says)

    def test_positions_of_gemma_3_are_scaled_in_layers_that_look_at_all(self):
        config = self.take("gemma3_pictures_first")
        whole = self.tfmc(self.folder, "--strict").stdout
        self.assertIn("factor = 8.0", whole)
        part = config["text_config"]
        new = dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1000000.0),
                   sliding_attention=dict(rope_type="default", rope_theta=10000.0))
        self.write(config | dict(text_config={k: v for k, v in part.items() if k != "rope_scaling"} | dict(rope_parameters=new)))
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
        for rope, says in ((dict(rope_scaling=dict(rope_type="yarn", factor=8.0)), "the scaling of positions is neither default nor linear"),
                           (dict(rope_scaling=dict(rope_type="linear", factor=0.0)), "positions are scaled by 0"),
                           (dict(rope_scaling=dict(rope_type="linear")), "factor"),
                           (dict(rope_parameters=new), "the scaling of positions has two spellings"),
                           (dict(rope_scaling=None, rope_parameters=new | dict(sliding_attention=new["full_attention"])), "sliding_attention")):
            with self.subTest(rope=rope):
                self.write(config | dict(text_config=part | rope))
                self.refused(says)

    def test_settings_of_layers(self):
        """Layers may have sizes of their own, by number: all of those that see all, and no others."""
        config = self.take("gemma4_one")
        whole = self.tfmc(self.folder, "--strict").stdout
        self.assertIn("head_all = 16", whole)
        own = config["per_layer_config"]
        self.assertEqual(list(own), ["5"])
        older = {k: v for k, v in config.items() if k != "per_layer_config"} | dict(global_head_dim=16, num_global_key_value_heads=1)
        self.write(older)
        self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
        for layers, says in (({"6": own["5"]}, '"6" is the number of no layer'), ({"05": own["5"]}, '"05" is the number of no layer'),
                             ({"5": own["5"], "0": own["5"]}, 'layer 0 is of the kind "sliding_attention"'),
                             ({"5": own["5"] | dict(new_switch=1)}, 'nothing reads "new_switch" of layer 5'),
                             ({"5": 16}, "the settings of layer 5 are no object"), ([16], "no object")):
            with self.subTest(layers=layers):
                self.write(config | dict(per_layer_config=layers))
                self.refused("per_layer_config", says)
        config = self.take("gemma4_tables")
        for changes, says in ({"1": {"head_dim": 16}}, 'only some layers are named'), \
                ({"1": {"head_dim": 16}, "3": {"head_dim": 16}, "5": {"head_dim": 8}}, 'layer 5 has another "head_dim"'):
            with self.subTest(layers=changes):
                self.write(config | dict(per_layer_config=changes))
                self.refused("per_layer_config", says)

    def test_ages_of_configs(self):
        """config.json as transformers 4.20, 4.45 and 5 write it: how positions turn, the type of weights, the version."""
        seen = {"gpt_neox"}  # whose older names are its own
        for path in sorted(CASES.glob("*.json")):
            case = json.loads(path.read_text())
            config = case["files"]["config.json"]
            rope, kind = config.get("rope_parameters") or {}, config.get("model_type")
            if kind in seen or rope.get("rope_theta") is None or "dtype" not in config or "modules.json" in case["files"]:
                continue
            seen.add(kind)
            checkpoint.write(case, self.folder)
            whole = self.tfmc(self.folder, "--strict").stdout
            old = {k: v for k, v in config.items() if k not in ("rope_parameters", "dtype")}
            old |= dict(torch_dtype="float32", transformers_version="4.45.0")
            old |= {k: rope[k] for k in ("rope_theta", "partial_rotary_factor") if k in rope}
            scaled = {k: v for k, v in rope.items() if k not in ("rope_theta", "rope_type", "partial_rotary_factor")}
            name = "type" if len(seen) % 2 else "rope_type"
            with self.subTest(case=path.stem, name=name):
                self.write(old | dict(rope_scaling=scaled | {name: rope["rope_type"]} if scaled else None))
                self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
        self.assertGreater(len(seen), 30)

    def test_released_configs(self):
        """What the first folders of these models say (of some fewer layers) is accounted for: only weights are missing."""
        for name, config in json.loads((pathlib.Path(__file__).parent / "released_configs.json").read_text()).items():
            with self.subTest(model=name):
                self.write(config)
                said = self.tfmc(self.folder, "--strict", code=1, says="there is no model.safetensors and no").stderr
                self.assertEqual(said.count("error:"), 1, said)

    def test_keys_of_released_folders(self):
        """That no class of transformers reads, with the values that widely used folders have; another value of those that code
        of the hub's own reads is refused."""
        for name, keys, others in (
                ("phi4_mini", dict(full_attn_mod=1, interpolate_factor=1, lm_head_bias=False, mlp_bias=False),
                 dict(full_attn_mod=2, interpolate_factor=2, lm_head_bias=True, mlp_bias=True)),
                ("llama", dict(rope_interleaved=False), dict(rope_interleaved=True)),
                ("stablelm", dict(rotary_scaling_factor=1.0), dict(rotary_scaling_factor=2.0)),
                ("gemma4_whole", dict(eoa_token_id=258883, vision_soft_tokens_per_image=280), {})):
            config = self.take(name)
            whole = self.tfmc(self.folder, "--ignore", "model.vision*").stdout
            with self.subTest(case=name):
                self.write(config | keys)
                self.assertEqual(self.tfmc(self.folder, "--ignore", "model.vision*").stdout, whole)
            for key, value in others.items():
                with self.subTest(case=name, key=key):
                    self.write(config | {key: value})
                    self.refused(key)

    def test_the_name_of_a_class_before(self):
        config = self.take("flan_t5")
        whole = self.tfmc(self.folder, "--strict").stdout
        self.write(config | dict(architectures=["T5WithLMHeadModel"]))
        made = self.tfmc(self.folder, "--strict").stdout
        self.assertEqual(made.split("\n", 1)[1], whole.split("\n", 1)[1])

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

    def test_padding_of_a_whole_that_has_its_own(self):
        """SmolVLM and Idefics 3: it counts where no file says how to write, before that of the part for text."""
        for name in ("smolvlm", "idefics3"):
            config = self.take(name)
            file = self.folder / "generation_config.json"
            written = json.loads(file.read_text())
            for top, part, said, wanted in ((7, 5, None, 7), (7, None, None, 7), (None, 5, None, 5), (None, None, None, 2), (7, 5, 9, 9), (7, 5, 0, 0)):
                with self.subTest(case=name, top=top, part=part, file=said):
                    file.unlink(missing_ok=True)
                    if said is not None:
                        file.write_text(json.dumps(written | dict(pad_token_id=said)))
                    self.write(config | dict(pad_token_id=top, text_config=config["text_config"] | dict(pad_token_id=part)))
                    self.assertRegex(self.tfmc(self.folder, "--strict").stdout, rf"\bpad = {wanted}\b")
            self.write(config | dict(pad_token_id=[5]))
            file.unlink()
            self.refused('"pad_token_id": it is a list ([5])')

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
