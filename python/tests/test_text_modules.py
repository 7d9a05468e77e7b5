"""Folders that sentence-transformers saves, whole: modules behind the body, prompts that are not pooled, vectors of decoders,
rerankers that answer yes or no, with messages or without. Beside the package itself, on small models with random weights."""
import importlib.util
import os
import pathlib
import unittest

import numpy as np

import tfmc
from support import Case
from test_text_peers import MISSING, WORDS, fast_tokenizer, sentences

os.environ.setdefault("HF_HUB_OFFLINE", "1")
TEMPLATE = ("{% for m in messages %}{% if m.role == 'system' %}w0 {{ m.content }} {% elif m.role == 'query' %}w1 {{ m.content }} "
            "{% elif m.role == 'document' %}w2 {{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %} w3{% endif %}")


@unittest.skipIf(MISSING, f"not run: {', '.join(MISSING)} is missing")
class Modules(Case):
    SIZES = dict(vocab_size=len(WORDS), hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)
    GROUPED = SIZES | dict(num_key_value_heads=2, max_position_embeddings=40, pad_token_id=1, bos_token_id=2, eos_token_id=3)

    def setUp(self):
        import torch
        import transformers
        torch.manual_seed(3)
        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()

    def saved(self, model, single="<s> $A </s>", pair="<s> $A </s> $B </s>", **settings):
        """A folder with a body and its tokenizer; matrices are large enough that results differ."""
        import torch
        folder = pathlib.Path(self.folder()) / "body"
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, 0.4)
        model.eval().save_pretrained(folder)
        fast_tokenizer(single, pair, model_max_length=30, **settings).save_pretrained(folder)
        return folder

    def encoder(self, model, *modules, prompts=None, **settings):
        """(theirs, ours) of a body with modules, as the package saves them."""
        import sentence_transformers as st
        from sentence_transformers.sentence_transformer import modules as parts
        body = parts.Transformer(str(self.saved(model, **settings)))
        theirs = st.SentenceTransformer(modules=[body, *modules], device="cpu", prompts=prompts)
        folder = pathlib.Path(self.folder()) / "whole"
        theirs.save_pretrained(str(folder))
        return theirs, tfmc.text.Embedder(folder)

    def test_texts_that_are_padded_in_front(self):
        """A model that turns its words gives the same numbers; of one that counts places they depend on the batch, and are refused."""
        import transformers as hf
        from sentence_transformers.sentence_transformer.modules import Pooling
        config = hf.LlamaConfig(**self.GROUPED)
        self.compare(*self.encoder(hf.LlamaModel(config), Pooling(24), padding_side="left"))
        for kind, config, mode in ((hf.BertModel, hf.BertConfig(**self.SIZES, max_position_embeddings=40, pad_token_id=1), "mean"),
                                   (hf.DistilBertModel, hf.DistilBertConfig(vocab_size=len(WORDS), dim=24, n_layers=1, n_heads=4, hidden_dim=40, max_position_embeddings=40), "mean"),
                                   (hf.NomicBertModel, hf.NomicBertConfig(**self.SIZES, max_position_embeddings=40, pad_token_id=1), "cls")):
            with self.subTest(kind=kind):
                self.refused(tfmc.InputError, ("tokenizer_config.json", "padding_side is left", "\"right\""), self.encoder, kind(config), Pooling(24, mode), padding_side="left")
        self.compare(*self.encoder(hf.NomicBertModel(config), Pooling(24), padding_side="left"))

    def compare(self, theirs, ours, **options):
        texts = sentences(4, 12)
        for name in ("encode", "encode_query", "encode_document"):
            np.testing.assert_allclose(getattr(ours, name)(texts, **options), getattr(theirs, name)(texts, **options), atol=1e-5)
        alone = np.stack([ours.encode(text, **options) for text in texts])
        self.assertEqual(alone.tobytes(), ours.encode(texts, **options).tobytes())

    def test_dense_behind_several_poolings(self):
        import torch
        import transformers as hf
        from sentence_transformers.sentence_transformer import modules as st
        body = hf.BertModel(hf.BertConfig(**self.SIZES, max_position_embeddings=30, pad_token_id=1))
        theirs, ours = self.encoder(body, st.Pooling(24, ["cls", "max", "mean"]), st.Dense(72, 20), st.LayerNorm(20),
                                    st.Dense(20, 24, bias=False, activation_function=torch.nn.Identity()), st.Normalize(),
                                    prompts={"query": "w1 w2 ", "document": "w3 "})
        self.assertEqual(ours.dimension, 24)
        self.compare(theirs, ours)
        self.compare(theirs, ours, truncate_dim=8)

    def test_vectors_of_the_last_token(self):
        """A body that writes otherwise, padded in front there; the end token is the tokenizer's to add."""
        import transformers as hf
        from sentence_transformers.sentence_transformer import modules as st
        body = hf.Qwen3Model(hf.Qwen3Config(**self.GROUPED, head_dim=8))
        theirs, ours = self.encoder(body, st.Pooling(24, "lasttoken"), st.Normalize(), prompts={"query": "w1 w2 w3 "},
                                    single="$A </s>", padding_side="left")
        self.compare(theirs, ours)

    def test_prompts_that_are_not_pooled(self):
        import transformers as hf
        from sentence_transformers.sentence_transformer import modules as st
        for modes in ("mean", ["cls", "weightedmean", "mean_sqrt_len_tokens", "max"], "lasttoken"):
            with self.subTest(modes=modes):
                body = hf.BertModel(hf.BertConfig(**self.SIZES, max_position_embeddings=30, pad_token_id=1))
                theirs, ours = self.encoder(body, st.Pooling(24, modes, include_prompt=False), prompts={"query": "w1 w2 ", "document": "w3 "})
                self.compare(theirs, ours)
                self.compare(theirs, ours, prompt="w7 w8 w9 ")

    def scores(self, theirs, messages):
        folder = pathlib.Path(self.folder()) / "whole"
        theirs.save_pretrained(str(folder))
        ours, pairs = tfmc.text.Reranker(folder), list(zip(sentences(5, 20), sentences(6, 20)))
        self.assertEqual(messages, ours._template is not None)
        for options in ({}, dict(prompt="w4 w4 "), dict(prompt_name="find")):
            wanted = theirs.predict(pairs, **options)
            self.assertGreater(np.ptp(wanted), 0.05)
            np.testing.assert_allclose(ours.predict(pairs, **options), wanted, atol=1e-5)
        self.assertEqual(np.stack([ours.predict(pair) for pair in pairs]).tobytes(), ours.predict(pairs).tobytes())
        return ours

    def test_scores_by_yes_and_no(self):
        import transformers as hf
        from sentence_transformers.cross_encoder.modules import LogitScore
        for config in (hf.Qwen3Config(**self.GROUPED, head_dim=8, tie_word_embeddings=True), hf.LlamaConfig(**self.GROUPED)):
            with self.subTest(kind=config.model_type):
                model = hf.AutoModelForCausalLM.from_config(config)
                self.scores(self.yes_no(model, LogitScore(34, 33)), messages=False)

    def yes_no(self, model, score, **settings):
        import sentence_transformers as st
        from sentence_transformers.base.modules import Transformer
        body = Transformer(str(self.saved(model, pair="$A </s> $B </s>", padding_side="left", **settings)), transformer_task="text-generation")
        return st.CrossEncoder(modules=[body, score], device="cpu", prompts={"find": "w5 w6 "})

    @unittest.skipUnless(importlib.util.find_spec("jinja2"), "not run: jinja2 is missing")
    def test_scores_of_messages(self):
        """The folder's chat template says how a question and a document stand together."""
        import transformers as hf
        from sentence_transformers.cross_encoder.modules import LogitScore
        model = hf.Qwen3ForCausalLM(hf.Qwen3Config(**self.GROUPED, head_dim=8))
        ours = self.scores(self.yes_no(model, LogitScore(30), chat_template=TEMPLATE), messages=True)
        with self.assertRaisesRegex(tfmc.InputError, "pairs of a chat template are not cut"):
            ours.predict([("w1 " * 20, "w2 " * 20)])
        asked = self.yes_no(model, LogitScore(30, 31), chat_template=TEMPLATE)
        asked[0].processing_kwargs = {"chat_template": {"add_generation_prompt": True}}
        self.scores(asked, messages=True)


if __name__ == "__main__":
    unittest.main()
