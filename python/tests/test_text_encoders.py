"""Vectors and scores of texts: what of a text reaches the model, what is cut, prompts, and what is refused. Against the
model called by hand; sentence-transformers is beside in test_text_peers.py."""
import json
import pathlib
import subprocess
import sys
import unittest

import numpy as np

import tfmc
from support import Case
from test_generate import Checkpoint
from test_text import PAIRS, TEXTS, WORDS, TextCase, tokenizers, write_pairs, write_tokenizer


class Inputs(Case):
    """Inputs with a default, which a call may leave out."""

    TEXT = """model M {
      forward(x: f32[n, 4], kinds: i32[n] = 2, keep: bool[n, 4] = true, by: f32[] = 0.5) {
        return y = where(keep, x * by, 0) + f32(kinds)[:, none]
      }
    }"""

    def test_an_input_that_is_left_out_is_its_default(self):
        model, x = tfmc.compile(self.TEXT), np.arange(12, dtype=np.float32).reshape(3, 4)
        given = dict(kinds=np.full(3, 2, np.int32), keep=np.ones((3, 4), bool), by=np.float32(0.5))
        whole = model(x=x, **given)
        self.assertEqual(whole.tobytes(), (x / 2 + 2).tobytes())
        for name in [None, *given]:
            some = {k: v for k, v in given.items() if k != name} if name else {}
            self.assertEqual(model(x, **some).tobytes(), whole.tobytes())
            self.assertEqual(model.run({"x": x, **some})["y"].tobytes(), whole.tobytes())
        self.assertEqual(model(x, None, None, 1.0).tobytes(), (x + 2).tobytes())
        self.assertEqual(model(x[:1], kinds=[5]).tobytes(), (x[:1] / 2 + 5).tobytes())
        self.assertEqual(model(np.zeros((0, 4), np.float32)).shape, (0, 4))
        self.assertEqual([str(kind) for kind in model.inputs.values()],
                         ["f32[n, 4]", "i32[n] = 2", "bool[n, 4] = true", "f32[] = 0.5"])
        self.assertEqual(tfmc.check(self.TEXT).inputs, model.inputs)

    def test_shapes_of_such_an_input_are_checked(self):
        model, x = tfmc.compile(self.TEXT), np.zeros((3, 4), np.float32)
        self.refused(tfmc.InputError, ["kinds", "3"], model, x, kinds=np.zeros(2, np.int32))
        self.refused(tfmc.InputError, ["kinds", "3"], model, x, kinds=np.zeros(0, np.int32))
        self.refused(tfmc.InputError, "keep", model, x, keep=np.ones((3, 5), bool))
        self.refused(tfmc.InputError, "by", model, x, by=np.zeros(1, np.float32))
        self.refused(tfmc.UsageError, "x", model, kinds=np.zeros(3, np.int32))
        self.refused(tfmc.UsageError, "x", model.run, {"by": 1.0})
        self.refused(tfmc.UsageError, "x", model, None)

    def test_files_and_libraries_keep_defaults(self):
        x, folder = np.arange(8, dtype=np.float32).reshape(2, 4), pathlib.Path(self.folder())
        model = tfmc.compile(self.TEXT)
        tfmc.build(self.TEXT, folder / "libm.so")
        for other in (tfmc.load(model.save(folder / "m.tfmm")), tfmc.load(folder / "libm.so")):
            self.assertEqual(other.inputs, model.inputs)
            self.assertEqual(other(x).tobytes(), model(x).tobytes())


class Importing(Case):
    def test_parts_are_there_without_an_import_of_their_own(self):
        code = "import tfmc; print(tfmc.text.Embedder.__name__, tfmc.corpus.embed.__name__); tfmc.nothing"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        if not tokenizers:
            self.skipTest("not run: the package tokenizers is missing")
        self.assertEqual(done.stdout.split(), ["Embedder", "embed"])
        self.assertIn("module 'tfmc' has no attribute 'nothing'", done.stderr)


class Encoding(TextCase):
    kind = "sentence_mean"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.embedder = tfmc.text.Embedder(cls.checkpoint.model)

    def settings(self, name, content):
        """A copy of the folder with one more file."""
        folder = self.checkpoint.copy(self.folder())
        write_tokenizer(folder, self.vocab)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
        return folder

    def test_vectors_are_cut(self):
        whole = self.embedder.encode(TEXTS)
        self.assertEqual(self.embedder.encode(TEXTS, truncate_dim=7).tobytes(), whole[:, :7].tobytes())
        self.assertEqual(tfmc.text.Embedder(self.checkpoint.model, truncate_dim=7).encode("a").shape, (7,))
        self.assertEqual(self.embedder.encode(TEXTS, truncate_dim=1000).tobytes(), whole.tobytes())
        lengths = np.linalg.norm(self.embedder.encode(TEXTS, truncate_dim=7, normalize=True), axis=1)
        np.testing.assert_allclose(lengths, 1, atol=1e-6)
        for wrong in (0, -3, 2.5, "7", True):
            self.refused(tfmc.UsageError, "truncate_dim", self.embedder.encode, "a", truncate_dim=wrong)

    def test_vectors_that_the_folder_cuts(self):
        """As sentence transformers saves truncate_dim; more numbers than the model then gives are refused."""
        whole, made = self.embedder.encode(TEXTS), None
        for n in (7, whole.shape[1], 1000, None):
            made = tfmc.text.Embedder(self.settings("config_sentence_transformers.json", {"truncate_dim": n}))
            wanted = whole[:, :n]
            self.assertEqual(made.encode(TEXTS).tobytes(), wanted.tobytes())
            self.assertEqual((made.dimension, made.encode("a", truncate_dim=3).shape), (wanted.shape[1], (3,)))
            if n == 7:
                folder = made.folder
                self.refused(tfmc.UsageError, "cuts vectors to 7", made.encode, "a", truncate_dim=8)
                self.refused(tfmc.UsageError, "cuts vectors to 7", tfmc.text.Embedder, folder, truncate_dim=8)
                self.assertEqual(made.encode("a", truncate_dim=7).shape, (7,))
        for wrong in (0, -1, "7", 2.0, True):
            self.refused(tfmc.Error, "truncate_dim", tfmc.text.Embedder, self.settings("config_sentence_transformers.json", {"truncate_dim": wrong}))

    def test_long_texts_by_a_setting_of_the_embedder(self):
        long = "a " * 60
        strict = tfmc.text.Embedder(self.checkpoint.model, truncate=False)
        self.refused(tfmc.InputError, ["text 0", "62", "truncate=True"], strict.encode, long)
        self.assertEqual(strict.encode(long, truncate=True).tobytes(), self.embedder.encode(long).tobytes())

    def test_prompts_of_questions_and_documents(self):
        prompts = {"query": "b c ", "passage": "c c ", "corpus": "a "}
        folder = self.settings("config_sentence_transformers.json",
                               {"prompts": {**prompts, "document": None}, "default_prompt_name": "corpus"})
        made = tfmc.text.Embedder(self.checkpoint.model, folder=folder)
        same = lambda vectors, texts: self.assertEqual(vectors.tobytes(), self.embedder.encode(texts).tobytes())  # noqa
        same(made.encode_query(["a", "c"]), ["b c a", "b c c"])
        same(made.encode_document("a"), "a")
        same(made.encode("a"), "a a")
        same(made.encode_query("a", prompt="b "), "b a")
        same(made.encode_query("a", prompt_name="passage", truncate_dim=None), "c c a")
        folder = self.settings("config_sentence_transformers.json", {"prompts": {"passage": "c c "}})
        made = tfmc.text.Embedder(self.checkpoint.model, folder=folder)
        same(made.encode_document("a", "passage"), "c c a")
        same(made.encode_query("a"), "a")

    def test_prompts_that_are_not_pooled(self):
        """A model that pools them all the same is refused; test_text_modules compares one that does not."""
        pooling = json.loads((self.checkpoint.folder / "1_Pooling" / "config.json").read_text())
        folder = self.settings("1_Pooling/config.json", {**pooling, "include_prompt": False})
        made = tfmc.text.Embedder(self.checkpoint.model, folder=folder)
        self.assertEqual(made.encode(TEXTS).tobytes(), self.embedder.encode(TEXTS).tobytes())
        self.refused(tfmc.InputError, ["include_prompt", "made of another folder"], made.encode, "a", prompt="b ")

    def test_small_letters_where_the_folder_asks_for_them(self):
        for asked, same in ((True, True), (False, False)):
            folder = self.settings("sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": asked})
            made = tfmc.text.Embedder(self.checkpoint.model, folder=folder).encode("A B c")
            self.assertEqual(made.tobytes() == self.embedder.encode("a b c").tobytes(), same)

    def test_settings_of_texts_by_older_names(self):
        """The first file that says anything counts, by the command too."""
        lower, kept, none = ({"max_seq_length": 6, "do_lower_case": True}, {"do_lower_case": False}, {})
        small = self.embedder.encode("a b c").tobytes()
        for files, same in (((none, lower, kept), True), ((none, kept, lower), False), ((lower, kept, none), True)):
            folder = self.settings("sentence_bert_config.json", files[0])
            for name, settings in zip(("sentence_roberta_config.json", "sentence_xlnet_config.json"), files[1:]):
                (folder / name).write_text(json.dumps(settings))
            made = tfmc.text.Embedder(self.checkpoint.model, folder=folder)
            self.assertEqual((made.encode("A B c").tobytes() == small, made.max_length == 6), (same, same))
        for name in ("bert", "roberta"):
            (folder / f"sentence_{name}_config.json").unlink()
        (folder / "sentence_camembert_config.json").write_text('{"max_seq_length": "six"}')
        self.refused(tfmc.CompileError, ["sentence_camembert_config.json", "max_seq_length"], tfmc.text.Embedder, folder)

    def test_what_is_no_text(self):
        """Every refusal is the package's own, whatever lies below."""
        self.refused(tfmc.UsageError, "NoneType", self.embedder.encode, None)
        self.refused(tfmc.UsageError, "surrogate", self.embedder.encode, ["\ud800"])
        for call in (self.embedder.encode, self.embedder.encode_query, self.embedder.encode_document, self.embedder.tokens):
            self.refused(tfmc.UsageError, "NoneType", call, None)
            self.refused(tfmc.UsageError, ["text 1", "surrogate"], call, ["a", "b\ud800"])
            self.refused(tfmc.UsageError, ["text 0", "bytes"], call, [b"a"])
        self.refused(tfmc.UsageError, "prompt", self.embedder.encode, "a", prompt="\udfff")
        self.refused(tfmc.UsageError, "prompt", self.embedder.encode, "a", prompt=3)
        vectors, reasons, tokens = self.embedder.encode_each(["a", "b\ud800", None, "c"])
        self.assertEqual((sorted(reasons), tokens), ([1, 2], 6))
        self.assertEqual(vectors[3].tobytes(), self.embedder.encode("c").tobytes())

    def test_models_of_another_kind_are_refused(self):
        self.refused(tfmc.InputError, ["logits", "classify"], tfmc.text.Reranker, self.checkpoint.model)
        classifier = Checkpoint("bert_classify").model
        self.refused(tfmc.InputError, "vector", tfmc.text.Embedder, classifier, folder=self.checkpoint.folder)

    def test_a_family_of_ones_own(self):
        """from_pretrained and what takes its options read the file, in place of the family that the compiler has."""
        from safetensors.numpy import save_file
        family = pathlib.Path(self.folder()) / "mine.tfm"
        block = "checkpoint \"mine\" {\n  ignore \"hidden_act\"\n}\n\n"
        family.write_text(block + "model Mine {\n  w = Embedding(40, 24) as \"embeddings.word_embeddings\"\n"
                          "  forward(input_ids: i32[batch, time]) { return v = w(input_ids)[:, 0] }\n}\n")
        folder = self.settings("config.json", {"model_type": "mine"})
        (folder / "modules.json").unlink()
        save_file({"embeddings.word_embeddings.weight": np.ones((40, 24), np.float32)}, folder / "model.safetensors")
        made = tfmc.text.Embedder(folder, family=family, on_message=lambda message: None)
        self.assertEqual((made.model.name, made.encode("a").shape), ("Mine", (24,)))
        model = tfmc.from_pretrained(folder, family=str(family), on_message=lambda message: None)
        self.assertEqual(model.name, "Mine")


class Pairs(TextCase):
    kind = "bert_classify"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_pairs(cls.checkpoint.folder, cls.vocab)

    def test_classes_of_tokenizers(self):
        """As transformers' classes have model_input_names; `None`: the class is found by model_type."""
        folder = self.checkpoint.copy(self.folder())
        settings = folder / "tokenizer_config.json"
        plain = tfmc.text.Reranker(self.checkpoint.model, folder=folder).predict(PAIRS).tobytes()
        kinds = {"BertTokenizer": True, "BertTokenizerFast": True, "DebertaV2Tokenizer": True, "RobertaTokenizerFast": False,
                 "PreTrainedTokenizerFast": False, "TokenizersBackend": False, "AlbertTokenizer": False}
        for kind, told in kinds.items():
            settings.write_text(json.dumps({"tokenizer_class": kind}))
            made = tfmc.text.Reranker(self.checkpoint.model, folder=folder).predict(PAIRS).tobytes()
            self.assertEqual(made == plain, told, kind)

    def test_what_is_no_pair(self):
        reranker = tfmc.text.Reranker(self.checkpoint.model)
        self.refused(tfmc.UsageError, "NoneType", reranker.predict, None)
        self.refused(tfmc.UsageError, ["pair 1", "surrogate"], reranker.predict, [("a", "b"), ("a", "\ud800")])
        strict = tfmc.text.Reranker(self.checkpoint.model, truncate=False)
        self.refused(tfmc.InputError, "text 0", strict.predict, ("a " * 30, "b"))


class Answers(TextCase):
    kind, around = "gpt2", False

    def test_texts_that_leave_no_place(self):
        writer = tfmc.text.Writer(self.checkpoint.model)
        for most in ({}, {"max_length": 600, "max_new_tokens": 5}):
            self.refused(tfmc.InputError, ["1", "500 tokens", "64"], writer.generate, ["a", "a " * 500], **most)
        self.refused(tfmc.InputError, ["text 0", "64 tokens", "64 rows"],
                     lambda: list(writer.stream("a " * 64, max_length=600, max_new_tokens=5)))
        self.assertEqual(len(writer.generate("a " * 62, max_new_tokens=2, eos_token_id=None).split()), 2)
        self.refused(tfmc.UsageError, "surrogate", writer.generate, "\ud800")
        self.refused(tfmc.UsageError, "NoneType", writer.generate, None)
        self.refused(tfmc.UsageError, "surrogate", lambda: list(writer.stream("\ud800")))
        self.refused(tfmc.UsageError, "dict", writer.generate, [{"role": "user", "content": "a"}])

    def test_a_folder_without_a_chat_template(self):
        writer = tfmc.text.Writer(self.checkpoint.model)
        self.refused(tfmc.UsageError, ["chat_template.jinja", "generate()"], writer.chat, [{"role": "user", "content": "a"}])


if __name__ == "__main__":
    unittest.main()
