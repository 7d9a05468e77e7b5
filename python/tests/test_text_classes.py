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
NAMED = ["<unk>", "<pad>", "</s>", "<s>", "[CLS]", "[SEP]", "<|endoftext|>", "<bos>", "<eos>", "<mask>"]
TEXTS = ["A  b é", "<s> a</s>b", " b", "", "ab 12 3\n\n x", "İ ﬁ x'll A", "a<extra_id_1>b", "<|endoftext|>a"]
SETTINGS = [{}, dict(add_prefix_space=False), dict(add_prefix_space=True), dict(legacy=True), dict(add_bos_token=True, bos_token="<s>"),
            dict(extra_ids=3), dict(extra_special_tokens=[]), dict(additional_special_tokens=["x", "<extra_id_0>"]), dict(unk_token="a"),
            dict(bos_token="[CLS]", eos_token="[SEP]", cls_token="<s>"), dict(mask_token=dict(content="A", lstrip=True, __type="AddedToken"))]
# The class that is named, the type of the model; the class that transformers takes is another one in the third row.
FOLDERS = [("XLMRobertaTokenizerFast", "new"), (None, "xlm-roberta"), ("CamembertTokenizer", "camembert"), ("T5Tokenizer", "t5"), ("XGLMTokenizer", "xglm"),
           ("LlamaTokenizer", "llama"), ("LlamaTokenizerFast", "mistral"), ("LlamaTokenizer", "qwen2"), ("GemmaTokenizer", "gemma3"),
           ("Qwen2Tokenizer", "qwen3"), ("PreTrainedTokenizerFast", "qwen2"), (None, "qwen3_5"), ("GPT2Tokenizer", "gpt2"), (None, "gpt_neox"),
           ("CohereTokenizer", "cohere"), ("RobertaTokenizer", "roberta"), ("DebertaTokenizer", "deberta"), (None, "llama")]


@unittest.skipIf(MISSING, f"not run: {', '.join(MISSING)} is missing")
class Classes(Case):
    def model(self, kind):
        import tokenizers
        if kind == "Unigram":
            words = ["▁", "▁a", "▁b", "a", "b", "A", "é", "e", "中", "ab", "▁ab", "x", "X"]
            return tokenizers.models.Unigram([*((w, 0.0) for w in NAMED), *((w, -1.0 - i / 50) for i, w in enumerate(words))], 0, True)
        words = NAMED + ["▁", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *("<0x%02X>" % i for i in range(256)), "ab", "Ġa", "▁a", "12"]
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
        import transformers
        theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), tfmc.text.load_tokenizer(folder)
        for text in TEXTS:
            ids = theirs(text)["input_ids"]
            self.assertEqual(ours.encode(text).ids, ids, (text, theirs))
            self.assertEqual(ours.decode(ids, skip_special_tokens=False), theirs.decode(ids), (text, theirs))
            made, wanted = ours.encode(text, "b"), theirs(text, "b", return_token_type_ids=True)
            self.assertEqual((made.ids, made.type_ids), (wanted["input_ids"], wanted["token_type_ids"]), (text, theirs))

    def folders(self):
        for named, model_type in FOLDERS:
            unigram = {"XLMRoberta", "Camembert", "T5", "XGLM"}
            name = _classes.name_of({"tokenizer_class": named}, {"model_type": model_type}, False)
            yield "Unigram" if name in unigram else "BPE", {"tokenizer_class": named} if named else {}, {"model_type": model_type}

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

    def test_models_of_other_kinds(self):
        for kind, named in ("BPE", "T5Tokenizer"), ("Unigram", "LlamaTokenizer"), ("Unigram", "Qwen2Tokenizer"):
            self.refused(tfmc.InputError, ("tokenizer_config.json", named, f"tokenizer.json has {kind}"), tfmc.text.load_tokenizer,
                         self.saved(kind, {"tokenizer_class": named}, {}))
        self.refused(tfmc.InputError, ("tokenizer_config.json", "eos_token"), tfmc.text.load_tokenizer,
                     self.saved("Unigram", {"tokenizer_class": "XLMRobertaTokenizer", "eos_token": None}, {}))

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
