"""What tokenizer_config.json says beside tokenizer.json: the ids of transformers, by every setting that decides them."""
import importlib.util
import json
import pathlib
import unittest

import tfmc
from support import Case

MISSING = [name for name in ("tokenizers", "transformers") if not importlib.util.find_spec(name)]
WORDS = ["<unk>", "<pad>", "<s>", "</s>", "[CLS]", "[SEP]", "▁a", "▁b", "a", "b", "A", "é", "e", "中", "Ġa", "Ġb", "##a"]
TEXTS = ["a b", "A b é", "a 中b", "<s> a", "a</s>", "  b", "[x] a", ""]


@unittest.skipIf(MISSING, f"not run: {', '.join(MISSING)} is missing")
class Settings(Case):
    def saved(self, tokenizer, **settings):
        folder = pathlib.Path(self.folder())
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | settings))
        return folder

    def made(self, post="$A", **parts):
        import tokenizers
        numbers = {word: i for i, word in enumerate(WORDS)}
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="<unk>"))
        for name, part in parts.items():
            setattr(made, name, part)
        made.add_special_tokens(WORDS[:6])
        made.post_processor = tokenizers.processors.TemplateProcessing(post, f"{post} $B:1", special_tokens=[(w, numbers[w]) for w in WORDS[:6]])
        return made

    def agrees(self, folder, texts=TEXTS):
        import transformers
        theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), tfmc.text.load_tokenizer(folder)
        for text in texts:
            self.assertEqual(ours.encode(text).ids, theirs(text)["input_ids"], (text, theirs))
            self.assertEqual(ours.encode(text, "b").ids, theirs(text, "b")["input_ids"], (text, theirs))
        return ours

    def test_tokens_around_a_text(self):
        """tokenizer.json says which; the flags are for folders without it."""
        import tokenizers
        pieces = tokenizers.pre_tokenizers.Whitespace()
        for post in "$A", "<s> $A", "<s> $A </s>":
            for flags in dict(add_bos_token=True), dict(add_eos_token=True), dict(add_bos_token=False, add_eos_token=False):
                self.agrees(self.saved(self.made(post, pre_tokenizer=pieces), bos_token="<s>", eos_token="</s>", **flags))

    def test_tokens_of_its_own(self):
        import tokenizers
        pieces = tokenizers.pre_tokenizers.Whitespace()
        self.agrees(self.saved(self.made(pre_tokenizer=pieces), mask_token="[x]", pad_token="<pad>"))
        self.agrees(self.saved(self.made(pre_tokenizer=pieces), extra_special_tokens=["[x]", "[y]"]))
        said = dict(content="[x]", lstrip=True, rstrip=False, normalized=False, single_word=False, special=True)
        self.agrees(self.saved(self.made(pre_tokenizer=pieces), added_tokens_decoder={str(len(WORDS)): said}))
        self.refused(tfmc.InputError, ("tokenizer_config.json", "added_tokens_decoder", "'[x]'", "99"), tfmc.text.load_tokenizer,
                     self.saved(self.made(pre_tokenizer=pieces), added_tokens_decoder={"99": said}))
        self.agrees(self.saved(self.made(pre_tokenizer=pieces), split_special_tokens=True))

    def test_kinds_of_values(self):
        """What transformers does not take, in whichever class."""
        import tokenizers
        folder, wrong = self.saved(self.made(pre_tokenizer=tokenizers.pre_tokenizers.Whitespace())), dict(
            split_special_tokens=(None, 0, 1, "false", [False]), add_prefix_space=(0, "false", [False]), added_tokens_decoder=(None, []),
            model_max_length=("9", [9], {}), pad_token=({}, 5, ["<pad>"]), additional_special_tokens=("[x]", [None], [{}], {"x": "[x]"}),
            extra_special_tokens=("[x]", [5], {"x_token": 5}), tokenizer_class=({}, 5), max_len=("9",), add_special_tokens=(True, False))
        for key, values in wrong.items():
            for value in values:
                with self.subTest(key=key, value=value):
                    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", key: value}))
                    self.refused(tfmc.InputError, ("tokenizer_config.json", key), tfmc.text.load_tokenizer, folder)
        for limit in -1, 8.0, 0.5:
            (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": limit}))
            self.refused(tfmc.InputError, f"limit of {limit} tokens", tfmc.text._folder.most_tokens, folder)
        for said, limit in (dict(max_len=7), 7), (dict(max_len=7, model_max_length=9), 9), (dict(max_len=7, model_max_length=None), tfmc.text._folder.UNLIMITED):
            (folder / "tokenizer_config.json").write_text(json.dumps(said))
            self.assertEqual(tfmc.text._folder.most_tokens(folder), limit)
        (folder / "tokenizer_config.json").write_text('{"model_max_length": 1e30}')
        self.assertEqual(tfmc.text._folder.most_tokens(folder), tfmc.text._folder.UNLIMITED)

    def test_tokens_of_older_files(self):
        """They count where tokenizer_config.json has no list of tokens; the map is before it."""
        import tokenizers
        pieces = tokenizers.pre_tokenizers.Whitespace()
        said = dict(content="[x]", lstrip=True, rstrip=False, normalized=False, single_word=False)
        texts = [*TEXTS, "a [x] b", "a[y]b [z]", "b [z]b"]
        for files in (dict(special_tokens_map=dict(mask_token=said)), dict(special_tokens_map=dict(mask_token="[x]", image_token="[y]")),
                      dict(special_tokens_map=dict(additional_special_tokens=["[y]", "[x]"])), dict(added_tokens={"[y]": 18, "[x]": 17}),
                      dict(special_tokens_map=dict(extra_special_tokens=["[z]", said])), dict(added_tokens={"[x]": 17}, special_tokens_map=dict(pad_token="[z]")),
                      dict(special_tokens_map=dict(pad_token="[x]"), added_tokens={"[x]": 17})):
            for settings in {}, dict(mask_token="[z]", pad_token="<pad>"), dict(added_tokens_decoder={}), dict(extra_special_tokens=["[y]"]):
                folder = self.saved(self.made(pre_tokenizer=pieces), **settings)
                for name, content in files.items():
                    (folder / f"{name}.json").write_text(json.dumps(content))
                with self.subTest(files=files, settings=settings):
                    self.agrees(folder, texts)
        (folder / "tokenizer_config.json").write_text("{}")
        (folder / "added_tokens.json").write_text('{"[x]": 40}')
        self.refused(tfmc.InputError, ("added_tokens.json", "'[x]'", "40"), tfmc.text.load_tokenizer, folder)

    def test_what_tokens_do_to_spaces(self):
        """The settings have the last word on tokens that tokenizer.json has, too, and names of one model's own are names."""
        import tokenizers
        byte = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        for there in (dict(lstrip=True), dict(rstrip=True), dict(special=False), dict(single_word=True)):
            for here in (dict(lstrip=True, special=True), dict(rstrip=True, special=True), dict(special=False, normalized=True), dict(special=True, normalized=False)):
                made = self.made(pre_tokenizer=byte)
                made.add_tokens([tokenizers.AddedToken("[x]", **(dict(special=True, normalized=False) | there))])
                with self.subTest(there=there, here=here):
                    self.agrees(self.saved(made, added_tokens_decoder={"17": dict(content="[x]") | here}), ["a [x] b", "a[x]b", "[x] [x]", " [x]"])
                    self.agrees(self.saved(made, mask_token=dict(content="[x]", __type="AddedToken") | here), ["a [x] b", "a[x]b", "[x] [x]", " [x]"])
                    self.agrees(self.saved(self.made(pre_tokenizer=byte), audio_token=dict(content="[x]", __type="AddedToken") | here), ["a [x] b", "a[x]b"])

    def test_tokens_that_are_not_said_so(self):
        for damaged in dict(added_tokens_decoder=["a"]), dict(added_tokens_decoder={"x": {"content": "[x]"}}), \
                dict(added_tokens_decoder={"17": {}}), dict(added_tokens_decoder={"17": {"content": 5}}), dict(mask_token=5), \
                dict(extra_special_tokens=5):
            self.refused(tfmc.InputError, ("tokenizer_config.json",), tfmc.text.load_tokenizer, self.saved(self.made(), **damaged))

    def test_contradictions(self):
        """Of letters and spaces; a class that takes tokenizer.json as it is does not look at these settings."""
        import tokenizers
        pre, bert = tokenizers.pre_tokenizers, tokenizers.normalizers.BertNormalizer
        byte, space = pre.ByteLevel(add_prefix_space=False), pre.Metaspace(prepend_scheme="always")
        lower = dict(normalizer=bert(lowercase=True, strip_accents=False), pre_tokenizer=pre.BertPreTokenizer())
        for parts, right in ((lower, dict(do_lower_case=True)), (lower, dict(tokenize_chinese_chars=True)), (lower, dict(strip_accents=False)),
                             (dict(pre_tokenizer=pre.Whitespace()), dict(do_lower_case=False)), (dict(pre_tokenizer=byte), dict(add_prefix_space=False)),
                             (dict(pre_tokenizer=pre.Sequence([pre.Digits(), byte])), dict(add_prefix_space=False)),
                             (dict(pre_tokenizer=space), dict(add_prefix_space=True))):
            (key, value), = right.items()
            for kind in "BertTokenizer", None:
                named = {} if kind is None else dict(tokenizer_class=kind)
                folder = self.saved(self.made(**parts), **named, **right)
                tfmc.text.load_tokenizer(folder)
                settings = {"tokenizer_class": kind, key: not value}
                (folder / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))
                self.refused(tfmc.InputError, ("tokenizer_config.json", f"{key} is {json.dumps(not value)}"), tfmc.text.load_tokenizer, folder)
            self.agrees(self.saved(self.made(**parts), **{key: not value}))

    def test_what_classes_of_bert_do_unasked(self):
        """They make small letters and take Chinese apart, whatever tokenizer.json does."""
        import tokenizers
        pre = tokenizers.pre_tokenizers.BertPreTokenizer()
        for key, parts in ("do_lower_case", dict(lowercase=False)), ("tokenize_chinese_chars", dict(handle_chinese_chars=False)):
            made = self.made(normalizer=tokenizers.normalizers.BertNormalizer(**parts), pre_tokenizer=pre)
            for kind in "BertTokenizerFast", "ElectraTokenizer":
                self.refused(tfmc.InputError, (f"{key} is true where it is not said",), tfmc.text.load_tokenizer,
                             self.saved(made, tokenizer_class=kind))
                tfmc.text.load_tokenizer(self.saved(made, tokenizer_class=kind, **{key: False}))
            self.agrees(self.saved(made))

    def test_the_side_that_is_cut(self):
        import tokenizers
        from tfmc.text import _folder
        for said, whole, wanted in ((None, None, "right"), ("left", None, "left"), ("right", "left", "right"), (None, "left", "left")):
            made = self.made("<s> $A", pre_tokenizer=tokenizers.pre_tokenizers.Whitespace())
            if whole:
                made.enable_truncation(8, direction=whole)
            tokenizer, side, _ = _folder.loaded(self.saved(made, **({"truncation_side": said} if said else {})))
            self.assertEqual(side, wanted)
            cut = _folder.Cutter(tokenizer, side=side).encode(["a b b a", "a"], True, 3)
            self.assertEqual([row.ids for row in cut], [[2, 9, 8] if wanted == "left" else [2, 8, 9], [2, 8]])
        for key in "truncation_side", "padding_side":
            for said in "middle", "", None:
                self.refused(tfmc.InputError, ("tokenizer_config.json", key), _folder.loaded, self.saved(made, **{key: said}))

    def test_spaces_that_are_taken_out_of_texts(self):
        """As transformers decodes: of words and pieces where the settings say so, of pairs where another one says so, too."""
        import random

        import tokenizers
        import transformers
        words = ["a", "n't", "'", "'s", "'m", "'ve", "'re", ".", ",", "?", "!", "b", "do not", "n", "s"]
        spaced, draw = [f"▁{word}" for word in words], random.Random(5)
        rows = [[draw.randrange(len(words)) for _ in range(40)] for _ in range(8)]
        models, both = tokenizers.models, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
        number = lambda names: {name: i for i, name in enumerate(names)}
        for model, names in ((models.WordLevel(number(words), unk_token="a"), words), (models.WordPiece(number(words), unk_token="a"), words),
                             (models.Unigram([(name, 0.0) for name in spaced], 0), spaced), (models.BPE(number(spaced), []), spaced)):
            for settings in {}, {"clean_up_tokenization_spaces": True}, {both: True}, {"clean_up_tokenization_spaces": True, both: True}, \
                    {"clean_up_tokenization_spaces": None}, {"clean_up_tokenization_spaces": 1}:
                made = tokenizers.Tokenizer(model)
                if names is spaced:
                    made.decoder = tokenizers.decoders.Metaspace()
                folder = self.saved(made, **settings)
                theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), tfmc.text._translate.FileTokens(folder)
                with self.subTest(model=model, settings=settings):
                    self.assertEqual([ours.decode(row) for row in rows], [theirs.decode(row, skip_special_tokens=True) for row in rows])
                    self.assertEqual(ours.cleans, bool(settings.get("clean_up_tokenization_spaces")) and (names is not spaced or (
                        both in settings or not isinstance(model, models.BPE))))

    def test_pieces_of_cleaned_texts(self):
        """However a text comes, its pieces are the cleaned text, and a word is not held back."""
        import random
        from tfmc.text import _settings
        draw = random.Random(7)
        for _ in range(300):
            text = "".join(draw.choice([" ", " ", ".", "'", "n't", "'s", "x", "ve", ",", "m"]) for _ in range(draw.randrange(30)))
            cuts = sorted(draw.randrange(len(text) + 1) for _ in range(5))
            pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]
            self.assertEqual("".join(_settings.cleaned_pieces(iter(pieces))), _settings.cleaned(text), pieces)
        self.assertEqual(list(_settings.cleaned_pieces(["a ha", " b", " ."])), ["a ha", " b", "."])


if __name__ == "__main__":
    unittest.main()
