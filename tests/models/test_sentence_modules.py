#!/usr/bin/env python3
"""usage: test_sentence_modules.py TFMC CASES

Folders of sentence transformers that give no single vector of a body's states: SpladePooling, vectors of tokens (ColBERT), and
StaticEmbedding, which has no config.json. Each of their keys does what sentence_keys.def says; modules at other places, tasks that
do not fit, tables in parts are refused. The last line is 'N passed, N failed' of unittest.
"""
import json

from safetensors.numpy import save_file

import checkpoint
import import_case
from import_case import CASES, ImportCase

KIND = "sentence_transformers.base.modules."
TOKENS = dict(module_input_name="token_embeddings", module_output_name="token_embeddings")


class ModuleFiles(ImportCase):
    def put(self, name, content):
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(json.dumps(content))

    def content(self, name):
        return json.loads((self.folder / name).read_text())

    def refused_in(self, file, *says):
        target = self.folder / "model.tfm"
        self.tfmc(self.folder, "-o", target, code=1, says=[file, "no output written", *says])
        self.assertFalse(target.exists())

    def changes(self, name, taken, refused):
        """Each change of an object: a part of the model that is made, or of the message."""
        content = self.content(name)
        for change, says in taken:
            with self.subTest(taken=change):
                self.put(name, {k: v for k, v in (content | change).items() if v != "<gone>"})
                self.assertIn(says, self.tfmc(self.folder, "--strict").stdout)
        for change, says in refused:
            with self.subTest(refused=change):
                self.put(name, content | change)
                self.refused_in(name, says)
        self.put(name, content)


class OtherModules(ModuleFiles):
    def test_what_to_do_instead(self):
        """Of modules that are not computed: why, and a way that there is, in one line. Those of other code have a way, too."""
        self.take("sentence_mean")
        first, pooling = self.content("modules.json")[:2]
        for name, way in (("CNN", "tfmc.from_torch"), ("LSTM", "--task hidden"), ("WeightedLayerPooling", "tfmc.from_torch"), ("WordWeights", "--task hidden"),
                          ("BoW", "sentence_transformers computes it"), ("WordEmbeddings", "StaticEmbedding"), ("CLIPModel", "import that folder"),
                          ("Router", "those of one"), ("Asym", "those of one"), ("SparseStaticEmbedding", "the program"),
                          ("SparseAutoEncoder", "without it"), ("HierarchicalTokenPooling", "without it")):
            for modules in ([dict(type=f"sentence_transformers.models.{name}", path="", name="0")], [first, dict(type=f"{KIND}{name}", path="1_X", name="1"), pooling]):
                with self.subTest(name=name, modules=len(modules)):
                    self.put("modules.json", modules)
                    self.refused_in("modules.json", f"a module {name} ", way)
        self.put("modules.json", [first, pooling, dict(type="mine.Module", path="2_Mine", name="2")])
        self.refused_in("modules.json", "a module mine.Module is not known here", "tfmc.from_torch")

    def test_the_states_before_a_module(self):
        """What the message of some says: without modules.json the model gives the states."""
        self.take("sentence_mean")
        (self.folder / "modules.json").unlink()
        self.assertIn("last_hidden_state", self.tfmc(self.folder, "--task", "hidden").stdout)

    def test_keys_that_count_by_being_there(self):
        """Null is no key elsewhere; of these the package makes settings of a query all the same."""
        self.take("colbert_bert")
        file = "config_sentence_transformers.json"
        content = self.content(file) if (self.folder / file).is_file() else {}
        self.put(file, content | dict(scale_dreams=None))
        self.tfmc(self.folder, "--strict")
        for key in ("query_prefix", "document_prefix", "query_length", "document_length", "query_expansion", "do_query_expansion",
                    "attend_to_expansion_tokens", "attend_to_mask_tokens", "skiplist_words"):
            for value in None, 5:
                self.put(file, content | {key: value})
                self.refused_in(file, f'"{key}": PyLate wrote it', "save_pretrained")

    def test_the_version_of_the_package(self):
        self.take("sentence_mean")
        for said, is_good in (("2.2.2", True), ("5.1.0.dev0", True), ("v3.0", True), ("", False), ("new", False), (1, False), (None, False), ({}, False), ("2 .0", False)):
            with self.subTest(said=said):
                self.put("config_sentence_transformers.json", {"__version__": {"sentence_transformers": said, "pytorch": "x"}})
                if is_good:
                    self.tfmc(self.folder, "--strict")
                else:
                    self.refused_in("config_sentence_transformers.json", "is no version")


class Splade(ModuleFiles):
    def setUp(self):
        super().setUp()
        self.take("splade_bert")

    def test_keys(self):
        self.changes("1_SpladePooling/config.json",
                     [(dict(pooling_strategy="sum"), 'splade = ["sum", "relu"]'), (dict(pooling_strategy="<gone>"), 'splade = ["max", "relu"]'),
                      (dict(activation_function="log1p_relu"), 'splade = ["max", "log1p_relu"]'), (dict(embedding_dimension=40), "splade"),
                      (dict(word_embedding_dimension=40), "splade"), (dict(activation_function="<gone>"), '["max", "relu"]')],
                     [(dict(pooling_strategy="mean"), '"pooling_strategy" is mean; it is max or sum'), (dict(pooling_strategy=3), "no string"),
                      (dict(activation_function="gelu"), "it is relu or log1p_relu"), (dict(chunk_size=3), 'nothing reads "chunk_size" (3)')])

    def test_the_task_of_its_model(self):
        """Without a word the kind of the module says it: MLMTransformer has the head for words."""
        bert, modules = self.content("sentence_bert_config.json"), self.content("modules.json")
        for task in ("feature-extraction", "text-generation"):
            self.put("sentence_bert_config.json", bert | dict(transformer_task=task))
            self.refused_in("modules.json", f'"transformer_task" of the model is {task}; what stands behind it is of fill-mask')
        self.put("sentence_bert_config.json", dict(max_seq_length=20))
        self.refused_in("modules.json", "is feature-extraction; what stands behind it is of fill-mask")
        self.put("modules.json", [modules[0] | dict(type="sentence_transformers.sparse_encoder.models.MLMTransformer"), modules[1]])
        self.assertIn("splade = ", self.tfmc(self.folder, "--strict").stdout)
        self.put("1_Pooling/config.json", dict(word_embedding_dimension=24))
        self.put("modules.json", [self.content("modules.json")[0], modules[1] | dict(path="1_Pooling", type=KIND + "pooling.Pooling")])
        self.refused_in("modules.json", "is fill-mask; what stands behind it is of feature-extraction")

    def test_places(self):
        first, splade = self.content("modules.json")
        norm = dict(path="2_Normalize", type=KIND + "normalize.Normalize")
        for modules in ([first, splade, norm], [first, norm, splade], [first, splade, splade], [splade], [first, norm | dict(path="1_SpladePooling"), splade]):
            with self.subTest(modules=modules):
                self.put("modules.json", modules)
                self.refused_in("modules.json", "stands in another place")

    def test_families_without_a_head_for_words(self):
        for name in ("t5_encoder", "gpt2"):
            config = self.take(name)
            self.refused_in("modules.json", "the folder makes numbers of words (SpladePooling) of a text, and model")
        self.write(config)


class Tokens(ModuleFiles):
    def setUp(self):
        super().setUp()
        self.take("colbert_bert")

    def test_what_is_computed(self):
        text = self.tfmc(self.folder, "--strict").stdout
        self.assertIn('sentence = [["tokens"], ["dense", "1_Dense", 24, 16, false, "none", false], ["normalize"]]', text)
        self.assertIn("return token_embeddings = ", text)

    def test_names_of_states(self):
        """A module that reads the vector of a text finds none, and one of tokens stands before no pooling."""
        for file in ("1_Dense/config.json", "3_Normalize/config.json"):
            self.changes(file, [(dict(module_output_name=None), "return token_embeddings"), (dict(module_output_name="<gone>"), "return token_embeddings")],
                         [(dict(module_input_name="sentence_embedding"), "at this place both are token_embeddings"),
                          (dict(module_output_name="sentence_embedding"), "at this place both are token_embeddings"),
                          (dict(module_input_name=None), "no name")])

    def test_softmax_of_tokens(self):
        """torch takes it over the first of three axes."""
        self.changes("1_Dense/config.json", [(dict(activation_function="torch.nn.modules.activation.ELU"), '"elu"')],
                     [(dict(activation_function="torch.nn.modules.activation.Softmax"), "over the texts of a batch")])

    def test_keys_of_the_mask(self):
        self.changes("2_MultiVectorMask/config.json",
                     [(dict(skiplist_words=["."]), "tokens"), (dict(skiplist_tasks=["query"]), "tokens"), (dict(skiplist_words=[]), "tokens")],
                     [(dict(keep_only_token_ids=[3]), '"keep_only_token_ids" is [3]; only null'), (dict(more=1), 'nothing reads "more"')])

    def test_keys_for_text_classes(self):
        """Lengths of queries and tokens that fill them change no number that a model gives of ids."""
        bert = dict(transformer_task="feature-extraction")
        for key, value in (("query_expansion", dict(strategy="fixed", length=8, attend=False)), ("query_length", 8), ("document_length", 9)):
            self.put("sentence_bert_config.json", bert | {key: value})
            self.assertIn("tokens", self.tfmc(self.folder, "--strict").stdout)
        self.put("sentence_bert_config.json", bert | dict(token_pooling="x"))
        self.refused_in("sentence_bert_config.json", '"token_pooling"')

    def test_places(self):
        first, dense, mask, normalize = self.content("modules.json")
        self.put("4_Pooling/config.json", dict(word_embedding_dimension=16))
        pooling = dict(path="4_Pooling", type=KIND + "pooling.Pooling")
        self.put("5_LayerNorm/config.json", dict(dimension=16))
        for modules in ([first, dense, mask, normalize, pooling], [first, pooling, mask], [first, dense, dict(path="5_LayerNorm", type=KIND + "x.LayerNorm")]):
            with self.subTest(modules=modules):
                self.put("modules.json", modules)
                self.refused_in("modules.json", "stands in another place")


class Static(ModuleFiles):
    TYPE = "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding"

    def setUp(self):
        super().setUp()
        self.table = checkpoint.weight("t", [12, 4], 1)
        self.put("modules.json", [dict(idx=0, name="0", path="", type=self.TYPE)])
        save_file({"embedding.weight": self.table}, self.folder / "model.safetensors")

    def test_a_folder_without_config(self):
        self.assertIn('model Static(vocab = 12, d = 4, name = "embedding.weight", sentence = [["pool", ["mean"], true]])', self.tfmc(self.folder, "--strict").stdout)

    def test_modules_behind_it(self):
        self.put("1_Dense/config.json", dict(in_features=4, out_features=3, bias=False, activation_function="torch.nn.modules.linear.Identity"))
        save_file({"linear.weight": checkpoint.weight("w", [3, 4], 1)}, self.folder / "1_Dense/model.safetensors")
        first, dense, norm = self.content("modules.json")[0], dict(name="1", path="1_Dense", type=KIND + "dense.Dense"), dict(name="2", path="2_Normalize", type=KIND + "normalize.Normalize")
        self.put("modules.json", [first, dense, norm])
        self.assertIn('["dense", "1_Dense", 4, 3, false, "none", false], ["normalize"]]', self.tfmc(self.folder, "--strict").stdout)
        pooling = dict(path="2_Pooling", type=KIND + "pooling.Pooling")
        for modules in ([first, pooling], [first, first]):
            self.put("modules.json", modules)
            self.refused_in("modules.json", "stands in another place")
        self.put("modules.json", [first | dict(path="0_StaticEmbedding")])
        self.refused_in("modules.json", 'lies in "0_StaticEmbedding": copy the files of that folder')
        self.put("modules.json", [dict(path="", type="mine.StaticEmbedding")])
        self.refused_in("modules.json", "mine.StaticEmbedding is not known here")

    def test_model2vec(self):
        config = dict(model_type="model2vec", architectures=["StaticModel"], tokenizer_name="x", apply_pca=4, apply_zipf=True, hidden_dim=4,
                      seq_length=1000000, normalize=True)
        first, norm = dict(name="0", path=".", type="sentence_transformers.models.StaticEmbedding"), dict(name="1", path="1_Normalize", type="sentence_transformers.models.Normalize")
        self.put("config.json", config)
        self.put("modules.json", [first, norm])
        save_file({"embeddings": self.table}, self.folder / "model.safetensors")
        self.assertIn('name = "embeddings", sentence = [["pool", ["mean"], true], ["normalize"]])', self.tfmc(self.folder, "--strict").stdout)
        self.put("modules.json", [first])
        self.refused("vectors have the length 1, and modules.json does not say so")
        self.put("config.json", config | dict(normalize=False))
        self.assertIn('[["pool", ["mean"], true]]', self.tfmc(self.folder, "--strict").stdout)
        for change, says in ((dict(pooling="max"), '"pooling" is "max"'), (dict(scale_of_dreams=1), '"scale_of_dreams"'), (dict(architectures=["Other"]), "Other")):
            self.put("config.json", config | dict(normalize=False) | change)
            self.refused(says)
        self.put("config.json", config)
        (self.folder / "modules.json").unlink()
        self.refused("there is no modules.json", "SentenceTransformer(FOLDER).save(NEW_FOLDER)")

    def test_tables_in_parts(self):
        import numpy as np
        for parts in ({"mapping": np.arange(20, dtype=np.int64)}, {"weights": np.ones(12, np.float32)}):
            save_file({"embeddings": self.table} | parts, self.folder / "model.safetensors")
            self.refused_in("modules.json", "the table is stored in parts")
        save_file({"embedding.weight": self.table, "more": np.ones(3, np.float32)}, self.folder / "model.safetensors")
        self.refused_in("model", '"more"')


class OtherForms(ImportCase):
    def test_one_message_that_says_what_helps(self):
        """Models whose first folders are computed by Python files of their own: no list of each key that nothing reads."""
        for config, says in ((dict(model_type="new", architectures=["NewModel"], auto_map={}, pack_qkv=True), "alibaba-nlp-community"),
                             (dict(model_type="xlm-roberta", architectures=["XLMRobertaModel"], lora_adaptations=["a"], lora_rank=4, rotary_emb_base=1.0),
                              "jinaai/jina-embeddings-v3-hf"),
                             (dict(model_type="bert", architectures=["HF_ColBERT"]), "MultiVectorEncoder(FOLDER).save(NEW_FOLDER)")):
            with self.subTest(config=config):
                self.write(config)
                found = self.tfmc(self.folder, code=1, says=["config.json", says])
                self.assertEqual(len(found.stderr.strip().split("\n")), 2, found.stderr)

    def test_modules_without_a_config(self):
        """Router keeps its models in folders of their own: what is named is the module, not a missing file alone."""
        modules = [dict(idx=0, name="0", path="", type="sentence_transformers.base.modules.router.Router")]
        (self.folder / "modules.json").write_text(json.dumps(modules))
        self.tfmc(self.folder, code=1, says=["config.json", "modules.json begins with a module Router"])

    def test_a_type_that_two_families_share(self):
        """Nomic's BERTs with experts and without: the key that counts them decides, if it counts any."""
        config = self.take("nomic_bert")
        for value in (0, None, False):
            self.write(config | dict(num_experts=value))
            self.assertNotIn("models/nomic_experts.tfm", self.tfmc(self.folder, code=None).stderr)
        config = self.take("nomic_experts", CASES.parent / "by_hand")
        self.assertIn("model NomicExperts", self.tfmc(self.folder, "--strict").stdout)
        for key, value, says in (("moe_top_k", None, "how many experts"), ("moe_top_k", 6, "of 5 experts"), ("moe_every_n_layers", 1, "every = 1"),
                                 ("num_shared_experts", 1, "num_shared_experts"), ("activation_function", "swiglu", "activation_function"),
                                 ("mlp_fc1_bias", None, "a bias"), ("rotary_scaling_factor", 2.0, "rotary_scaling_factor"),
                                 ("architectures", ["NomicBertForMaskedLM"], "is not computed")):
            with self.subTest(key=key):
                self.write(config | {key: value})
                self.assertIn(says, self.tfmc(self.folder, "--strict", code=1, says="models/nomic_experts.tfm").stderr)


if __name__ == "__main__":
    import_case.main()
