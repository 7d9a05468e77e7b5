"""Scores and translations against sentence-transformers and transformers: small models with random weights."""
import importlib.util
import os
import pathlib
import unittest

import numpy as np

import tfmc
from support import Case

os.environ.setdefault("HF_HUB_OFFLINE", "1")
WORDS = ["<unk>", "<pad>", "<s>", "</s>", "eng_Latn", "fra_Latn", *(f"w{i}" for i in range(30))]
NEEDED = ("tokenizers", "torch", "transformers", "sentence_transformers")
MISSING = [name for name in NEEDED if not importlib.util.find_spec(name)]


def sentences(seed, count, longest=12):
    random = np.random.default_rng(seed)
    return [" ".join(f"w{i}" for i in random.integers(0, 30, n)) for n in random.integers(1, longest, count)]


def fast_tokenizer(single, pair, kind=None, **settings):
    """A tokenizer of transformers' of the words above; `single` and `pair` say where its special tokens stand."""
    import tokenizers
    import transformers
    numbers = {word: i for i, word in enumerate(WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(WORDS[:6])
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single, pair, special_tokens=[(word, numbers[word]) for word in WORDS[:6]])
    return (kind or transformers.PreTrainedTokenizerFast)(
        tokenizer_object=made, pad_token="<pad>", unk_token="<unk>", eos_token="</s>", **settings)


@unittest.skipIf(MISSING, f"not run: {', '.join(MISSING)} is missing")
class Peers(Case):
    def setUp(self):
        import torch
        import transformers
        torch.manual_seed(3)
        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()

    def saved(self, model, tokenizer):
        """A folder with both; matrices are large enough that scores and tokens differ."""
        import torch
        folder = pathlib.Path(self.folder())
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1 and parameter.requires_grad:  # sines stay
                    parameter.normal_(0, 0.4)
        model.eval().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    def cross_encoder(self, kind, config, single, pair, **settings):
        import sentence_transformers
        folder = self.saved(kind(config), fast_tokenizer(single, pair, model_max_length=20, **settings))
        theirs, ours = sentence_transformers.CrossEncoder(str(folder), device="cpu"), tfmc.text.Reranker(folder)
        pairs = list(zip(sentences(5, 20), sentences(6, 20, longest=18)))
        wanted = theirs.predict(pairs)
        self.assertGreater(np.ptp(wanted, axis=0).max(), 0.05)
        np.testing.assert_allclose(ours.predict(pairs), wanted, atol=1e-5)
        np.testing.assert_allclose(ours.predict(pairs[0]), theirs.predict(pairs[0]), atol=1e-5)
        theirs.save_pretrained(str(folder / "again"))
        again = tfmc.text.Reranker(ours.model, folder=folder / "again")
        self.assertEqual(again.predict(pairs).tobytes(), ours.predict(pairs).tobytes())
        return theirs, ours, pairs

    SIZES = dict(vocab_size=len(WORDS), hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
                 intermediate_size=40)

    def test_bert_with_segments(self):
        import transformers as hf
        config = hf.BertConfig(**self.SIZES, max_position_embeddings=20, num_labels=1, pad_token_id=1)
        theirs, ours, pairs = self.cross_encoder(
            hf.BertForSequenceClassification, config, "<s> $A </s>", "<s> $A </s> $B:1 </s>:1",
            model_input_names=["input_ids", "token_type_ids", "attention_mask"])
        query, documents = pairs[0][0], [second for _, second in pairs]
        wanted = theirs.rank(query, documents, top_k=5, return_documents=True)
        made = ours.rank(query, documents, top_k=5, return_documents=True)
        self.assertEqual([(hit["corpus_id"], hit["text"]) for hit in made],
                         [(hit["corpus_id"], hit["text"]) for hit in wanted])
        np.testing.assert_allclose([hit["score"] for hit in made], [hit["score"] for hit in wanted], atol=1e-5)

    def test_where_activations_and_limits_stand(self):
        """In config.json by the keys of two ages; the files beside it count only in a folder with modules.json."""
        import json

        import sentence_transformers
        import transformers as hf
        config = hf.BertConfig(**self.SIZES, max_position_embeddings=20, num_labels=1, pad_token_id=1)
        folder = self.saved(hf.BertForSequenceClassification(config), fast_tokenizer("<s> $A </s>", "<s> $A </s> $B:1 </s>:1", model_max_length=20))
        plain, pairs = json.loads((folder / "config.json").read_text()), list(zip(sentences(5, 20), sentences(6, 20, longest=18)))
        tanh, identity = "torch.nn.modules.activation.Tanh", "torch.nn.modules.linear.Identity"
        for keys, files in ((dict(sbert_ce_default_activation_function=identity), {}), (dict(sentence_transformers=dict(activation_fn=tanh)), {}),
                            (dict(sbert_ce_default_activation_function=identity, sentence_transformers=dict(activation_fn=tanh)), {}),
                            ({}, {"config_sentence_transformers.json": dict(activation_fn=identity, prompts=dict(a="w1 w2 "), default_prompt_name="a")}),
                            (dict(sbert_ce_default_activation_function=tanh), {"sentence_bert_config.json": dict(max_seq_length=7)})):
            for name, content in {"config.json": plain | keys, **files}.items():
                (folder / name).write_text(json.dumps(content))
            with self.subTest(keys=keys, files=files):
                theirs = sentence_transformers.CrossEncoder(str(folder), device="cpu").predict(pairs)
                np.testing.assert_allclose(tfmc.text.Reranker(folder).predict(pairs), theirs, atol=1e-5)

    def test_roberta_with_three_labels(self):
        import transformers as hf
        config = hf.RobertaConfig(**self.SIZES, max_position_embeddings=26, num_labels=3, pad_token_id=1,
                                  type_vocab_size=1)
        theirs, ours, pairs = self.cross_encoder(
            hf.RobertaForSequenceClassification, config, "<s> $A </s>", "<s> $A </s> </s> $B </s>")
        np.testing.assert_allclose(ours.predict(pairs, apply_softmax=True), theirs.predict(pairs, apply_softmax=True),
                                   atol=1e-5)

    def test_deberta_with_kinds_and_electra_without(self):
        """Of a pair the tokenizer tells the texts apart, or not; both as transformers' classes take it."""
        import transformers as hf
        deberta = hf.DebertaV2Config(**self.SIZES, max_position_embeddings=20, num_labels=1, pad_token_id=1, type_vocab_size=2,
                                     relative_attention=True, position_buckets=4, pos_att_type=["p2c", "c2p"],
                                     share_att_key=True, norm_rel_ebd="layer_norm")
        self.cross_encoder(hf.DebertaV2ForSequenceClassification, deberta, "<s> $A </s>", "<s> $A </s> $B:1 </s>:1",
                           model_input_names=["input_ids", "attention_mask", "token_type_ids"])
        electra = hf.ElectraConfig(**self.SIZES, max_position_embeddings=20, num_labels=1, pad_token_id=1)
        self.cross_encoder(hf.ElectraForSequenceClassification, electra, "<s> $A </s>", "<s> $A </s> $B:1 </s>:1")

    def sentence_encoder(self, settings, **more):
        """(theirs, the folder) of a BERT with pooling; `more`: files of the folder, by name."""
        import json

        import sentence_transformers as st
        import transformers as hf
        config = hf.BertConfig(**self.SIZES, max_position_embeddings=20, pad_token_id=1)
        folder = self.saved(hf.BertModel(config), fast_tokenizer("<s> $A </s>", "<s> $A </s> $B </s>", model_max_length=20))
        parts = [("", "Transformer"), ("1_Pooling", "Pooling")]
        modules = [dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}")
                   for i, (path, kind) in enumerate(parts)]
        (folder / "1_Pooling").mkdir()
        files = {"modules.json": modules, "config_sentence_transformers.json": settings, **more,
                 "1_Pooling/config.json": dict(word_embedding_dimension=24, pooling_mode_mean_tokens=True)}
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content))
        return st.SentenceTransformer(str(folder), device="cpu"), folder

    def test_sentences_with_prompts_cut_to_a_width(self):
        prompts = {"query": "w1 w2 ", "passage": "w3 ", "other": "w4 w4 "}
        theirs, folder = self.sentence_encoder({"prompts": prompts, "default_prompt_name": "other"})
        ours, texts = tfmc.text.Embedder(folder), sentences(4, 12)
        for name in ("encode", "encode_query", "encode_document"):
            for options in ({}, {"truncate_dim": 8}, {"truncate_dim": 8, "normalize_embeddings": True}, {"prompt": "w9 "},
                            {"prompt_name": "passage"}):
                wanted = getattr(theirs, name)(texts, **options)
                np.testing.assert_allclose(getattr(ours, name)(texts, **options), wanted, atol=1e-5, err_msg=str(options))

    def test_sentences_in_small_letters(self):
        for asked, kind in ((True, "bert"), (False, "bert"), (True, "roberta"), (True, "xlm-roberta"), (True, "xlnet")):
            theirs, folder = self.sentence_encoder({}, **{f"sentence_{kind}_config.json": {"max_seq_length": 5, "do_lower_case": asked}})
            self.assertEqual(theirs.max_seq_length, 5)
            texts = [text.upper() for text in sentences(4, 9)]
            np.testing.assert_allclose(tfmc.text.Embedder(folder).encode(texts), theirs.encode(texts), atol=1e-5)

    def test_which_limit_holds(self):
        """That of the sentence encoder where it says one, whatever the tokenizer says."""
        import json

        import sentence_transformers
        texts = sentences(3, 20, longest=30)
        for said in None, 8, 18:
            _, folder = self.sentence_encoder({}, **({} if said is None else {"sentence_bert_config.json": {"max_seq_length": said}}))
            settings = json.loads((folder / "tokenizer_config.json").read_text())
            (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 10}))
            theirs, ours = sentence_transformers.SentenceTransformer(str(folder), device="cpu"), tfmc.text.Embedder(folder)
            self.assertEqual((theirs.max_seq_length, max(map(len, ours.tokens(texts)))), (said or 10, said or 10))
            np.testing.assert_allclose(ours.encode(texts), theirs.encode(texts), atol=1e-5)
        for name, key in ("tokenizer_config.json", "model_max_length"), ("config.json", "max_position_embeddings"):
            settings = json.loads((folder / name).read_text())
            del settings[key]
            (folder / name).write_text(json.dumps(settings))
        (folder / "sentence_bert_config.json").unlink()
        self.assertEqual(tfmc.text._folder.most_tokens(folder), tfmc.text.UNLIMITED)

    def test_answers_to_messages(self):
        import transformers as hf
        if not importlib.util.find_spec("jinja2"):
            self.skipTest("not run: jinja2 is missing")
        sizes = dict(vocab_size=len(WORDS), n_embd=24, n_layer=2, n_head=4, n_positions=40, bos_token_id=2, eos_token_id=3)
        tokenizer = fast_tokenizer("$A", "$A $B")
        folder = self.saved(hf.GPT2LMHeadModel(hf.GPT2Config(**sizes)), tokenizer)
        tokenizer.chat_template = ("{% for m in messages %}{{ '<s> ' + m['content'] + ' </s> ' }}{% endfor %}"
                                   "{% if add_generation_prompt %}w0{% endif %}")
        tokenizer.save_pretrained(folder)
        writer = tfmc.text.Writer(folder)
        messages = [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3"},
                    {"role": "user", "content": "w4"}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        self.assertEqual(writer.tokens_of(messages), ids)
        self.assertEqual(writer.chat(messages, max_new_tokens=5),
                         writer.generate("<s> w1 w2 </s> <s> w3 </s> <s> w4 </s> w0", max_new_tokens=5))
        self.assertEqual("".join(writer.stream_chat(messages, max_new_tokens=5)).strip(), writer.chat(messages, max_new_tokens=5))
        self.refused(tfmc.UsageError, "messages[0] has no content", writer.chat, [{"role": "user"}])

    def translations(self, model, tokenizer, texts, given={}, **options):
        """Both translate greedily and with three beams. <pad> is never written, for which M2M100 counts no position."""
        import torch
        folder = self.saved(model, tokenizer)
        model, ours = type(model).from_pretrained(folder).eval(), tfmc.text.Translator(folder)
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        for beams in (1, 3):
            with torch.no_grad():
                made = model.generate(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"],
                                      num_beams=beams, max_new_tokens=8, do_sample=False, suppress_tokens=[1], **given)
            wanted = tokenizer.batch_decode(made, skip_special_tokens=True)
            self.assertGreater(len(set(wanted)), 2)
            ours_made = ours.translate(texts, num_beams=beams, max_new_tokens=8, suppress_tokens=[1], **options)
            self.assertEqual(ours_made, wanted)

    BART = dict(vocab_size=len(WORDS), d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                decoder_attention_heads=4, encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=40,
                decoder_start_token_id=3, eos_token_id=3, bos_token_id=2, pad_token_id=1)

    def test_marian(self):
        import transformers as hf
        config = hf.MarianConfig(**self.BART | {"decoder_start_token_id": 1}, forced_eos_token_id=3)
        self.translations(hf.MarianMTModel(config), fast_tokenizer("$A </s>", "$A $B </s>"), sentences(7, 9))

    def test_m2m_with_a_language(self):
        import transformers as hf
        tokenizer = fast_tokenizer("eng_Latn $A </s>", "eng_Latn $A $B </s>")
        french = WORDS.index("fra_Latn")
        self.translations(hf.M2M100ForConditionalGeneration(hf.M2M100Config(**self.BART)), tokenizer, sentences(8, 9),
                          {"forced_bos_token_id": french}, target="fra_Latn")

    def test_t5_with_a_prompt(self):
        import transformers as hf
        config = hf.T5Config(vocab_size=len(WORDS), d_model=24, d_kv=6, d_ff=40, num_layers=2, num_heads=4,
                             decoder_start_token_id=1, eos_token_id=3, pad_token_id=1)
        texts = sentences(9, 9)
        self.translations(hf.T5ForConditionalGeneration(config), fast_tokenizer("$A </s>", "$A $B </s>"), texts)
        folder = self.saved(hf.T5ForConditionalGeneration(config), fast_tokenizer("$A </s>", "$A $B </s>"))
        ours = tfmc.text.Translator(folder)
        self.assertEqual(ours.translate(texts, prompt="w3 w4 ", max_new_tokens=5),
                         ours.translate([f"w3 w4 {text}" for text in texts], max_new_tokens=5))


if not MISSING:
    import tfmc.text  # noqa: E402
