"""Vectors of tokens (ColBERT), numbers of words (SPLADE) and tables of vectors beside sentence-transformers: small models with
random weights."""
import json
import os
import pathlib
import unittest

import numpy as np

import test_text_modules
import tfmc
from test_text_peers import MISSING, WORDS, sentences

os.environ.setdefault("HF_HUB_OFFLINE", "1")
EXPANSIONS = (None, dict(strategy="fixed", length=9, attend=False), dict(strategy="fixed", length=9, attend=True, token="w7"),
              dict(strategy="min", length=6, attend=False), dict(strategy="min", length=8, attend=True))


class Shared(test_text_modules.Modules):
    """The folders of the tests beside; none of its tests runs again."""


for name in [name for name in dir(Shared) if name.startswith("test_")]:
    setattr(Shared, name, None)


@unittest.skipIf(MISSING, f"not run: {', '.join(MISSING)} is missing")
class Multi(Shared):
    def folders(self, kind="bert", **settings):
        """(their encoder, the folder) of a body with a narrower vector for each token."""
        import sentence_transformers as st
        import torch
        import transformers as hf
        from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
        from sentence_transformers.sentence_transformer import modules as parts
        sizes = self.SIZES | dict(pad_token_id=1, max_position_embeddings=40)
        body = hf.BertModel(hf.BertConfig(**sizes)) if kind == "bert" else hf.ModernBertModel(hf.ModernBertConfig(
            **sizes, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3, local_attention=8))
        tokens = dict(module_input_name="token_embeddings", module_output_name="token_embeddings")
        first = parts.Transformer(str(self.saved(body, mask_token="w5")), **settings)
        dense = parts.Dense(24, 16, bias=False, activation_function=torch.nn.Identity(), **tokens)
        theirs = st.MultiVectorEncoder(modules=[first, dense, MultiVectorMask(["w3", "w4", "none"]), parts.Normalize(**tokens)],
                                       device="cpu", prompts={"query": "w1 ", "document": "w2 w9 "})
        folder = pathlib.Path(self.folder())
        theirs.save_pretrained(str(folder))
        return theirs, folder

    def same(self, ours, theirs):
        self.assertEqual([v.shape for v in ours], [v.shape for v in theirs])
        for a, b in zip(ours, theirs):
            np.testing.assert_allclose(a, np.asarray(b), atol=1e-5)

    def test_queries_and_documents(self):
        """Prompts, lengths, words that do not count, queries that are filled up, each text alone to the bit."""
        texts = sentences(7, 12, longest=14)
        for expansion in EXPANSIONS:
            with self.subTest(expansion=expansion):
                lengths = dict(document_length=11) if expansion else dict(document_length=11, query_length=7)
                theirs, folder = self.folders(query_expansion=expansion, **lengths)
                ours = tfmc.text.MultiVectorEmbedder(folder)
                self.assertEqual(ours.dimension, 16)
                for name in ("encode_query", "encode_document", "encode"):
                    made = getattr(ours, name)(texts)
                    self.same(made, getattr(theirs, name)(texts))
                    for text, whole in zip(texts, made):
                        self.assertEqual(getattr(ours, name)(text).tobytes(), whole.tobytes())
                queries, documents = ours.encode_query(texts[:4]), ours.encode_document(texts[4:])
                wanted = theirs.similarity(theirs.encode_query(texts[:4]), theirs.encode_document(texts[4:]))
                np.testing.assert_allclose(ours.similarity(queries, documents), np.asarray(wanted), atol=1e-4)

    def test_a_body_with_windows(self):
        theirs, folder = self.folders("modernbert", query_expansion=EXPANSIONS[1])
        ours = tfmc.text.MultiVectorEmbedder(folder)
        texts = sentences(8, 9, longest=14)
        self.same(ours.encode_query(texts), theirs.encode_query(texts))
        self.same(ours.encode_document(texts, normalize=True), theirs.encode_document(texts, normalize_embeddings=True))

    def test_refusals(self):
        _, folder = self.folders()
        with self.assertRaisesRegex(tfmc.Error, "tfmc.text.MultiVectorEmbedder takes"):
            tfmc.text.Embedder(folder)
        ours = tfmc.text.MultiVectorEmbedder(folder)
        with self.assertRaisesRegex(tfmc.Error, "query"):
            ours.encode(["w1"], task="passage")
        with self.assertRaisesRegex(tfmc.Error, "truncate=True cuts it"):
            ours.encode_document(["w1 " * 50], truncate=False)
        for wrong in (dict(strategy="longest", length=8), dict(strategy="fixed"), dict(strategy="fixed", length=8, more=1),
                      dict(strategy="fixed", length=8, token="none")):
            (folder / "sentence_bert_config.json").write_text(json.dumps(dict(query_expansion=wrong)))
            with self.subTest(wrong=wrong), self.assertRaisesRegex(tfmc.Error, "query_expansion|fills queries"):
                tfmc.text.MultiVectorEmbedder(ours.model, folder=folder)

    def test_options(self):
        """None is as if an option were not given; numbers are Python's own."""
        _, folder = self.folders()
        ours = tfmc.text.MultiVectorEmbedder(folder)
        plain = tfmc.text.MultiVectorEmbedder(ours.model, truncate=None, batch_tokens=None, max_length=None)
        self.assertEqual((plain.truncate, plain.batch_tokens, plain.max_length), (True, ours.batch_tokens, ours.max_length))
        short = tfmc.text.MultiVectorEmbedder(ours.model, max_length=np.int32(5))
        self.assertIs(type(short.max_length), int)
        self.assertLessEqual(len(short.encode_document("w1 " * 50)), 5)

    def test_a_model_of_one_vector(self):
        import transformers as hf
        from sentence_transformers.sentence_transformer import modules as st
        _, ours = self.encoder(hf.BertModel(hf.BertConfig(**self.SIZES, pad_token_id=1)), st.Pooling(24))
        with self.assertRaisesRegex(tfmc.Error, "tfmc.text.Embedder takes"):
            tfmc.text.MultiVectorEmbedder(ours.model, folder=ours.folder)


@unittest.skipIf(MISSING, f"not run: {', '.join(MISSING)} is missing")
class Others(Shared):
    def test_numbers_of_words(self):
        import sentence_transformers as st
        import transformers as hf
        body = hf.BertForMaskedLM(hf.BertConfig(**self.SIZES, pad_token_id=1, max_position_embeddings=40))
        theirs = st.SparseEncoder(str(self.saved(body)), device="cpu", prompts={"query": "w1 ", "document": "w2 w9 "})
        folder = self.folder()
        theirs.save_pretrained(str(folder))
        ours, texts = tfmc.text.Embedder(folder), sentences(9, 12)
        self.assertEqual(ours.dimension, len(WORDS))
        for name in ("encode", "encode_query", "encode_document"):
            wanted = getattr(theirs, name)(texts).to_dense().numpy()
            self.assertGreater((wanted > 0).mean(), 0.1)
            np.testing.assert_allclose(getattr(ours, name)(texts), wanted, atol=1e-5)
        self.assertEqual(np.stack([ours.encode(t) for t in texts]).tobytes(), ours.encode(texts).tobytes())

    def test_tables_of_vectors(self):
        """No special tokens, texts of any length, an empty one too, and a tokenizer that cuts."""
        import sentence_transformers as st
        import torch
        from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
        from test_text_peers import fast_tokenizer
        for cut in (None, 5):
            tokenizer = fast_tokenizer("<s> $A </s>", "<s> $A </s> $B </s>")
            if cut:
                tokenizer._tokenizer.enable_truncation(cut)
            table = StaticEmbedding(tokenizer, embedding_weights=torch.randn(len(WORDS), 12))
            theirs = st.SentenceTransformer(modules=[table, *([Normalize()] if cut else [])], device="cpu", prompts={"query": "w1 "})
            folder = self.folder()
            theirs.save_pretrained(str(folder))
            ours, texts = tfmc.text.Embedder(folder), [*sentences(10, 9), "", *sentences(11, 2, longest=300)]
            for name in ("encode", "encode_query"):
                np.testing.assert_allclose(getattr(ours, name)(texts), getattr(theirs, name)(texts), atol=1e-5)
            self.assertEqual(np.stack([ours.encode(t) for t in texts]).tobytes(), ours.encode(texts).tobytes())


if __name__ == "__main__":
    unittest.main()
