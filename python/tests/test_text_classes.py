"""Classes of tokenizers that transformers 5 builds anew of the words of tokenizer.json: the ids of transformers, whatever steps
the file has, and which class a folder's is."""
import importlib.util
import json
import pathlib
import re
import unittest

import tfmc
from support import Case
from tfmc.text import _classes

MISSING = [name for name in ("tokenizers", "transformers") if not importlib.util.find_spec(name)]
MODELS = pathlib.Path(__file__).parents[2] / "models"
NAMED = ["<pad>", "<unk>", "</s>", "<s>", "[CLS]", "[SEP]", "<|endoftext|>", "<bos>", "<eos>", "<mask>", "[UNK]"]
LANGUAGES = ["en_XX", "fr_XX", "eng_Latn", "fra_Latn", "<|startoftranscript|>", "<|en|>", "<|fr|>", "<|transcribe|>", "<|notimestamps|>"]
TEXTS = ["A  b é", "<s> a</s>b", " b", "", "ab 12 3\n\n x", "İ ﬁ x'll A", "a<extra_id_1>b", "<|endoftext|>a ", "``A'' 中b <mask>x",
         "a<s>NOTUSEDb<madeupword1>", "ａｂ x", "a en_XXb fra_Latn <|en|>"]
SETTINGS = [{}, dict(add_prefix_space=False), dict(add_prefix_space=True), dict(legacy=True), dict(add_bos_token=True, bos_token="<s>"),
            dict(extra_ids=3), dict(extra_special_tokens=[]), dict(additional_special_tokens=["x", "<extra_id_0>"]), dict(unk_token="a"),
            dict(add_prefix_space=None), dict(extra_special_tokens={}), dict(extra_special_tokens={"image": "x"}), dict(extra_special_tokens=None),
            dict(extra_special_tokens={}, additional_special_tokens=["x"]), dict(additional_special_tokens=None),
            dict(added_tokens_decoder={"3": dict(content="<s>", special=True)}), dict(added_tokens_decoder={}),
            dict(keep_accents=True, strip_accents=False, split_by_punct=True), dict(do_lower_case=False, tokenize_chinese_chars=False),
            dict(unk_id=0, mask_token_sent=None, offset=4, cls_token="</s>"),
            dict(bos_token="[CLS]", eos_token="[SEP]", cls_token="<s>"), dict(mask_token=dict(content="A", lstrip=True, __type="AddedToken"))]
# The class that is named, the type of the model; the class that transformers takes is another one in the third row.
FOLDERS = [("XLMRobertaTokenizerFast", "new"), (None, "xlm-roberta"), ("CamembertTokenizer", "camembert"), ("T5Tokenizer", "t5"), ("XGLMTokenizer", "xglm"),
           ("LlamaTokenizer", "llama"), ("LlamaTokenizerFast", "mistral"), ("LlamaTokenizer", "qwen2"), ("GemmaTokenizer", "gemma3"),
           ("Qwen2Tokenizer", "qwen3"), ("PreTrainedTokenizerFast", "qwen2"), (None, "qwen3_5"), ("GPT2Tokenizer", "gpt2"), (None, "gpt_neox"),
           ("CohereTokenizer", "cohere"), ("RobertaTokenizer", "roberta"), ("DebertaTokenizer", "deberta"), (None, "llama"),
           ("BartTokenizerFast", "bart"), ("CodeGenTokenizer", "phi"), ("CodeLlamaTokenizer", "llama"), ("CLIPTokenizer", "clip"),
           ("DebertaV2TokenizerFast", "deberta-v2"), ("AlbertTokenizer", "albert"), ("PegasusTokenizer", "pegasus"),
           ("BertTokenizer", "bert"), ("DistilBertTokenizerFast", "distilbert"), (None, "mobilebert"), ("MPNetTokenizer", "mpnet"),
           (None, "mbart"), ("MBart50TokenizerFast", "mbart"), ("NllbTokenizerFast", "m2m_100"), (None, "whisper")]
# Classes of transformers with steps of their own that are not built here: their folders keep the file's.
EXCEPTIONS = {name: reason for reason, names in {
    "models that no family here reads": "SeamlessM4T Barthez BigBird Blenderbot DPRQuestionEncoder Esmc Funnel Herbert Lasr Luke MLuke OpenAIGPT Reformer RemBert "
                                        "RoFormer Splinter XLNet",
    "texts of pages and pictures": "LayoutLMv2 LayoutLMv3 LayoutXLM MarkupLM Nougat Siglip2 Tipsv2 Udop VideoPrism"}.items() for name in names.split()}


@unittest.skipIf(MISSING, f"not run: {', '.join(MISSING)} is missing")
class Classes(Case):
    def model(self, kind):
        import tokenizers
        if kind == "Unigram":
            words = ["▁", "▁a", "▁b", "a", "b", "A", "é", "e", "中", "ab", "▁ab", "x", "X"]
            return tokenizers.models.Unigram([*((w, 0.0) for w in NAMED), *((w, -1.0 - i / 50) for i, w in enumerate(words + LANGUAGES[:4]))], 0, True)
        if kind == "WordPiece":
            words = [*NAMED, "a", "##b", "b", "x", "##x", "中", "A", "##B", "1", "'", "`", "é", "e"]
            return tokenizers.models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="<unk>")
        words = NAMED + ["▁", "a</w>", "ab</w>", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *("<0x%02X>" % i for i in range(256)), "ab", "Ġa", "▁a", "12", *LANGUAGES]
        return tokenizers.models.BPE({w: i for i, w in enumerate(dict.fromkeys(words))}, [("a", "b"), ("Ġ", "a"), ("▁", "a"), ("1", "2")],
                                     unk_token="<unk>")

    def saved(self, kind, settings, config, **parts):
        import tokenizers
        folder, made = pathlib.Path(self.folder()), tokenizers.Tokenizer(self.model(kind))
        for name, part in parts.items():
            setattr(made, name, part)
        made.add_special_tokens(NAMED)
        made.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def agrees(self, folder):
        """What transformers refuses is refused, too."""
        import transformers
        try:
            theirs = transformers.AutoTokenizer.from_pretrained(folder)
        except Exception as error:
            self.refused(tfmc.InputError, "tokenizer_config.json", tfmc.text.load_tokenizer, folder)
            return error
        ours = tfmc.text.load_tokenizer(folder)
        for text in TEXTS:
            ids = theirs(text)["input_ids"]
            self.assertEqual(ours.encode(text).ids, ids, (text, theirs))
            self.assertEqual(ours.decode(ids, skip_special_tokens=False), theirs.decode(ids), (text, theirs))
            made, wanted = ours.encode(text, "b"), theirs(text, "b", return_token_type_ids=True)
            self.assertEqual((made.ids, made.type_ids), (wanted["input_ids"], wanted["token_type_ids"]), (text, theirs))

    def folders(self):
        for named, model_type in FOLDERS:
            name = _classes.name_of({"tokenizer_class": named}, {"model_type": model_type}, False)
            yield _classes.BUILT.get(name, ("BPE",))[0], {"tokenizer_class": named} if named else {}, {"model_type": model_type}

    def test_steps_of_the_file(self):
        import tokenizers
        n, p = tokenizers.normalizers, tokenizers.pre_tokenizers
        around = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1", special_tokens=[("[CLS]", 4), ("[SEP]", 5)])
        for kind, named, config in self.folders():
            for parts in ({}, dict(normalizer=n.NFKC()), dict(normalizer=n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")]), post_processor=around),
                          dict(pre_tokenizer=p.ByteLevel(add_prefix_space=False)), dict(normalizer=n.Lowercase(), pre_tokenizer=p.BertPreTokenizer())):
                with self.subTest(named=named, config=config, parts=parts):
                    self.agrees(self.saved(kind, named, config, **parts))

    def test_settings(self):
        for kind, named, config in self.folders():
            for settings in SETTINGS:
                with self.subTest(named=named, config=config, settings=settings):
                    self.agrees(self.saved(kind, settings | named, config))

    def test_languages(self):
        """They stand around a text as the settings say, whatever tokenizer.json has there; one that is no token is refused."""
        import tokenizers
        around = tokenizers.processors.TemplateProcessing("$A </s> fra_Latn", "$A $B </s> fra_Latn", special_tokens=[("</s>", 2), ("fra_Latn", 0)])
        for named, model_type, more in (("MBartTokenizer", "mbart", [dict(src_lang="fr_XX"), dict(src_lang=None), dict(mask_token="x")]),
                                        ("MBart50Tokenizer", "mbart", [dict(src_lang="fr_XX"), dict(src_lang=None, tgt_lang="fr_XX"), dict(mask_token="x")]),
                                        ("NllbTokenizer", "m2m_100", [dict(src_lang="fra_Latn"), dict(legacy_behaviour=True), dict(mask_token="x"),
                                                                      dict(src_lang="fra_Latn", legacy_behaviour=True), dict(unk_token="x")]),
                                        ("WhisperTokenizer", "whisper", [dict(language="en"), dict(predict_timestamps=True), dict(add_prefix_space=True),
                                                                         dict(language="EN", task="transcribe")])):
            kind = _classes.BUILT[named.removesuffix("Tokenizer")][0]
            for settings in [{}, *more]:
                with self.subTest(named=named, settings=settings):
                    self.agrees(self.saved(kind, settings | dict(tokenizer_class=named), dict(model_type=model_type), post_processor=around))
        for named, settings, word in (("MBartTokenizer", dict(src_lang="xx_XX"), "xx_XX"), ("MBart50Tokenizer", dict(src_lang="xx_XX"), "src_lang is \"xx_XX\""),
                                      ("NllbTokenizer", dict(src_lang="french"), "french"), ("NllbTokenizer", dict(src_lang=5), "src_lang is 5"),
                                      ("WhisperTokenizer", dict(language="hindi"), "language is \"hindi\""), ("WhisperTokenizer", dict(task="sing"), "\"sing\"")):
            kind = _classes.BUILT[named.removesuffix("Tokenizer")][0]
            self.refused(tfmc.InputError, ("tokenizer_config.json", word), tfmc.text.load_tokenizer, self.saved(kind, settings | dict(tokenizer_class=named), {}))

    @unittest.skipUnless(importlib.util.find_spec("sentencepiece"), "not run: sentencepiece is missing")
    def test_maps_of_characters(self):
        """Some classes keep the map of SentencePiece, alone or with steps of their own, and some drop it."""
        import sentencepiece
        import tokenizers
        from tfmc.text import _pieces
        path = pathlib.Path(self.folder()) / "made"
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b ab ba aab"] * 9), model_prefix=str(path), vocab_size=8,
                                                 model_type="unigram", hard_vocab_limit=False, minloglevel=2)
        n, found = tokenizers.normalizers, tokenizers.normalizers.Precompiled(_pieces.read(path.with_suffix(".model"))[2])
        self.assertEqual(found.normalize_str("ﬁ"), "fi")
        for kind, named, config in self.folders():
            if kind == "Unigram":
                for normalizer in (found, n.Sequence([n.Lowercase(), found, n.Replace("a", "b")])):
                    with self.subTest(named=named, config=config, normalizer=normalizer):
                        self.agrees(self.saved(kind, named, config, normalizer=normalizer))

    def test_models_of_other_kinds(self):
        for kind, named in ("BPE", "T5Tokenizer"), ("Unigram", "LlamaTokenizer"), ("Unigram", "Qwen2Tokenizer"):
            self.refused(tfmc.InputError, ("tokenizer_config.json", named, f"tokenizer.json has {kind}"), tfmc.text.load_tokenizer,
                         self.saved(kind, {"tokenizer_class": named}, {}))

    def test_what_is_no_setting(self):
        """Refused with the place, whatever the fault is; the first of all classes, the rest of one that is built."""
        t5, xlm, names = {"tokenizer_class": "T5Tokenizer"}, {"tokenizer_class": "XLMRobertaTokenizer"}, {"image": "x"}
        for settings, config, word in (
                (xlm | dict(eos_token=None), {}, "eos_token is null"), (xlm | dict(eos_token=""), {}, "eos_token is \"\""),
                (t5 | dict(extra_ids=None), {}, "NoneType"), (t5 | dict(extra_ids="3"), {}, "str"), (t5 | dict(extra_special_tokens=5), {}, "extra_special_tokens is 5"),
                (dict(tokenizer_class=["T5Tokenizer"]), {}, "tokenizer_class is ['T5Tokenizer']"), ({}, dict(model_type=["t5"]), "model_type is ['t5']"),
                (t5 | dict(added_tokens_decoder={"3": "x"}), {}, "'x' the id 3"), (t5 | dict(extra_special_tokens=names, additional_special_tokens=["b"]), {}, "has names")):
            with self.subTest(settings=settings, config=config):
                self.refused(tfmc.InputError, ("tokenizer_config.json", word), tfmc.text.load_tokenizer, self.saved("Unigram", settings, config))

    def test_bytes_anywhere_in_the_file(self):
        """A model that says it works on bytes is no Llama's, wherever tokenizer.json says so."""
        import tokenizers
        byte = tokenizers.processors.ByteLevel(trim_offsets=False)
        for parts in dict(post_processor=byte), dict(normalizer=tokenizers.normalizers.ByteLevel()), dict(decoder=tokenizers.decoders.ByteLevel()):
            self.agrees(self.saved("BPE", {"tokenizer_class": "LlamaTokenizer"}, {"model_type": "llama"}, **parts))

    def test_every_class(self):
        """Each that transformers builds anew is built here, or is of what no file here reads."""
        from transformers.models.auto import tokenization_auto as theirs
        for name in {name for name in theirs.TOKENIZER_MAPPING_NAMES.values() if name} | {f"{name}Tokenizer" for name in _classes.SAME}:
            made, short = theirs.tokenizer_class_from_name(name), name.removesuffix("Fast").removesuffix("Tokenizer")
            if issubclass(made, theirs.TokenizersBackend) and "__init__" in vars(made) and made is not theirs.TokenizersBackend:
                own = _classes.SAME.get(short, short)
                self.assertEqual(own in _classes.BUILT, own not in EXCEPTIONS, name)
                if made.__name__ not in ("DistilBertTokenizer", "MobileBertTokenizer"):  # DistilBert's only hands on
                    self.assertEqual(made.__name__.removesuffix("Fast").removesuffix("Tokenizer"), own, name)

    def test_which_class(self):
        """Those of transformers, for every type of a family here."""
        from transformers.models.auto import tokenization_auto as theirs
        types = {kind for path in MODELS.glob("*.tfm") for head in re.findall(r"^checkpoint (.*?) \{", path.read_text(), re.M | re.S)
                 for kind in re.findall(r'"([\w-]+)"', head)} | set(_classes.OF_TYPE)
        for kind in sorted(types):
            wanted = theirs.TOKENIZER_MAPPING_NAMES.get(kind)
            if wanted in ("MistralCommonBackend", "PreTrainedTokenizerFast"):
                wanted = _classes.AS_IT_IS
            self.assertEqual(_classes.OF_TYPE.get(kind), wanted and wanted.removesuffix("Fast").removesuffix("Tokenizer"), kind)
        known_better = {kind for kind in types if kind in theirs.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
                        and _classes.OF_TYPE.get(kind) not in (None, _classes.AS_IT_IS)}
        self.assertEqual(known_better, set(_classes.KNOWN_BETTER) & types)


if __name__ == "__main__":
    unittest.main()
