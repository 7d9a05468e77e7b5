"""What classes of tokenizers of transformers 5 make of tokenizer.json: its words, and steps of their own in place of its others.

In: the tokenizer of tokenizer.json, the settings of the folder and its config.json. Out: the tokenizer with the steps of
the class, and the settings with the tokens that the class names where they name none; classes that take the file as it is,
and those that are not in BUILT, change nothing, nor do tables of whole words. Refused: a model of another kind than the class is for,
and what transformers refuses.
"""
import base64
import json

from .._errors import InputError
from . import _lingual, _settings

AS_IT_IS = "TokenizersBackend"  # the class that takes tokenizer.json as it is
# The class of each type of model where the settings name none. Where they name another one: that, but for types of which
# transformers knows better, and for those whose own class takes the file as it is.
TYPES = {
    "XLMRoberta": "xlm-roberta gte jina_embeddings_v3", "Camembert": "camembert", "T5": "t5 mt5", "XGLM": "xglm",
    "Gemma": "gemma gemma2 gemma3 gemma3_text t5gemma", "GPT2": "gpt2 gpt_neo gptj phi opt starcoder2",
    "GPTNeoX": "gpt_neox mamba2 mpt", "Roberta": "roberta bart", "Deberta": "deberta", "Cohere": "cohere cohere2",
    "Qwen2": "qwen2 qwen3 qwen2_moe qwen3_moe qwen3_next internvl qwen2_vl qwen2_5_vl qwen3_vl",
    "Qwen3_5": "qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text", "Albert": "albert", "MBart": "mbart", "Pegasus": "pegasus",
    "Bert": "bert electra ernie distilbert nomic_bert", "CLIP": "clip", "DebertaV2": "deberta-v2", "MobileBert": "mobilebert",
    "MPNet": "mpnet", "Whisper": "whisper", "M2M100": "m2m_100", "Marian": "marian", "Siglip": "siglip", "Wav2Vec2CTC": "wav2vec2",
    AS_IT_IS: "glm4_moe_lite gpt_bigcode granitemoehybrid kimi_linear stablelm nemotron mistral ministral granite olmo2 ernie4_5 "
              "glm glm4 ministral3 olmo3 modernbert mixtral olmo_hybrid phi3 umt5 xlm-roberta-xl smolvlm llava mistral3"}
KNOWN_BETTER = "qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text".split()
OF_TYPE = {kind: name for name, kinds in TYPES.items() for kind in kinds.split()}
# Names that are those of other classes, or of classes that only hand on what they are given.
SAME = {"Bart": "Roberta", "LED": "Roberta", "Mvp": "Roberta", "DistilBert": "Bert", "MobileBert": "Bert", "SqueezeBert": "Bert",
        "Lxmert": "Bert"}

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?LETTERS+|\p{N}| ?[^\s\p{L}MARKS\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
OF_BERT = dict(bos_token="[CLS]", eos_token="[SEP]", unk_token="[UNK]", sep_token="[SEP]", pad_token="[PAD]", cls_token="[CLS]",
               mask_token="[MASK]")
OF_FAIRSEQ = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", sep_token="</s>", pad_token="<pad>", cls_token="<s>")
OF_GPT = dict(bos_token="<|endoftext|>", eos_token="<|endoftext|>", unk_token="<|endoftext|>")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
OF_QWEN = dict(eos_token="<|endoftext|>", unk_token="<|endoftext|>", pad_token="<|endoftext|>")


def name_of(settings, config, has_bytes, place="tokenizer_config.json"):
    """The name of the class, without "Tokenizer" and "Fast". `has_bytes`: whether tokenizer.json works on bytes."""
    kind = config.get("model_type")
    for name, value in ("tokenizer_class", settings.get("tokenizer_class")), ("tokenizer_class", config.get("tokenizer_class")), ("model_type", kind):
        if not isinstance(value, (str, type(None))):
            raise InputError(f"{place}: {name} is {value!r:.60} here or in config.json, no name")
    said = settings.get("tokenizer_class") or config.get("tokenizer_class") or ""
    said, own = said.removesuffix("Fast").removesuffix("Tokenizer"), OF_TYPE.get(kind)
    if said == "Llama" and has_bytes and kind not in KNOWN_BETTER:
        return AS_IT_IS
    if said and own and said != own:
        said = AS_IT_IS if own == AS_IT_IS else own if kind in KNOWN_BETTER else said
    said = said or own or AS_IT_IS
    return SAME.get(said, said)


class Builder:
    """The steps of a class: each sets those that it has."""

    def __init__(self, tokenizers, tokenizer, settings, place):
        self.tokenizers, self.tokenizer, self.settings, self.around = tokenizers, tokenizer, settings, None
        self.place = place
        self.same_as, self.is_plain = {}, False  # whose id a token around a text has; whether named tokens take no spaces with them
        self.pre, self.normalizers, self.decoders = tokenizers.pre_tokenizers, tokenizers.normalizers, tokenizers.decoders

    def said(self, name, usual):
        return self.settings.get(name, usual)

    def prefix(self, usual):
        """Whether a space stands before a text, in classes that take null for what is usual."""
        said = self.said("add_prefix_space", usual)
        return usual if said is None else bool(said)

    def more(self, tokens):
        """Tokens that the class has where the settings have no list of more; those of an object have names, and are no list."""
        named = self.said("extra_special_tokens", {})
        if not isinstance(named, dict):
            return
        if named and "additional_special_tokens" in self.settings:
            raise InputError(f"{self.place}: extra_special_tokens has names, and additional_special_tokens is a list beside tokens that "
                             "the class has: save the tokenizer anew with transformers")
        if "additional_special_tokens" not in self.settings:
            self.settings = {**self.settings, "extra_special_tokens": [*named.values(), *tokens]}

    # ---- models ----

    def unigram(self, unknown):
        """The same words; the id of what is unknown is the class's own, a number or a function of the words, whatever the file says."""
        model = json.loads(self.tokenizer.to_str())["model"]
        words = [tuple(word) for word in model["vocab"]]
        unknown = unknown(words) if callable(unknown) else unknown
        if model["unk_id"] != unknown or model["byte_fallback"]:
            self.tokenizer.model = self.tokenizers.models.Unigram(words, unknown, False)

    def pairs(self, unk_token=None, fuse_unk=False, byte_fallback=False, affix="", suffix=None):
        model = self.tokenizer.model
        model.unk_token, model.fuse_unk, model.byte_fallback, model.dropout = unk_token, fuse_unk, byte_fallback, None
        model.continuing_subword_prefix, model.end_of_word_suffix = affix, suffix or affix
        model.ignore_merges = False

    # ---- steps ----

    def charsmap(self):
        """The map of characters of SentencePiece, if the file has one."""
        own = json.loads(self.tokenizer.normalizer.__getstate__()) if self.tokenizer.normalizer else {}
        maps = [part["precompiled_charsmap"] for part in own.get("normalizers", [own]) if part.get("type") == "Precompiled"]
        return [self.normalizers.Precompiled(base64.b64decode(m)) for m in maps[:1]]

    def metaspace(self, scheme, *before):
        space = self.pre.Metaspace(prepend_scheme=scheme)
        self.tokenizer.pre_tokenizer = self.pre.Sequence([*before, space]) if before else space
        self.tokenizer.decoder = self.decoders.Metaspace(prepend_scheme=scheme)

    def pieces(self, has_space):
        self.tokenizer.normalizer = next(iter(self.charsmap()), None)
        self.metaspace("always" if has_space else "never", self.pre.WhitespaceSplit())

    def single_spaces(self, pattern=" {2,}"):
        return self.normalizers.Replace(self.tokenizers.Regex(pattern), " ")

    def letters(self, strip):
        """The decoder of words with bytes among them. `strip`: the space before the first word goes."""
        parts = [self.decoders.Replace("▁", " "), self.decoders.ByteFallback(), self.decoders.Fuse()]
        self.tokenizer.decoder = self.decoders.Sequence([*parts, *([self.decoders.Strip(" ", 1, 0)] if strip else [])])

    def bytes(self, normalizer=None, before=(), use_regex=True, prefix=None):
        """`prefix`: of classes that take null for it; in the others it is an error."""
        prefix = self.said("add_prefix_space", False) if prefix is None else prefix
        byte = self.pre.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)
        self.tokenizer.normalizer = normalizer
        self.tokenizer.pre_tokenizer = self.pre.Sequence([*before, byte]) if before else byte
        self.tokenizer.decoder = self.decoders.ByteLevel()

    def _around(self, side):
        """(token, what the template says of it behind a colon) of a side of `around`."""
        for part in side.split():
            name, colon, kind = part.partition(":")
            token = _settings.content(self.settings[name]) if name in _settings.NAMED else name
            if not token:
                raise InputError(f"{self.place}: {name} is {json.dumps(token)}, and the class puts it around texts")
            yield token, colon + kind

    def post(self):
        """Tokens around a text and a pair, once all tokens have ids."""
        if self.is_plain:
            plain = [_settings.content(t) for t in [*_settings.named(self.settings).values(), *_settings.more(self.settings)]]
            self.tokenizer.add_tokens([self.tokenizers.AddedToken(t, special=True) for t in plain if t])
        if self.around:
            single, pair = (list(self._around(side)) for side in self.around)
            special = [(t, self.tokenizer.token_to_id(self.same_as.get(t, t))) for t in dict.fromkeys(t for t, _ in pair) if t[0] != "$"]
            for token, number in special:
                if number is None:
                    raise InputError(f"{self.place}: the class puts {token} around texts, which is no token of tokenizer.json")
            self.tokenizer.post_processor = self.tokenizers.processors.TemplateProcessing(
                [t + kind for t, kind in single], [t + kind for t, kind in pair], special)


OF_PAIRS = "cls_token $A sep_token", "cls_token $A sep_token $B:1 sep_token:1"
OF_TWO_SEPARATORS = "cls_token $A sep_token", "cls_token $A sep_token sep_token $B sep_token"


def _xlm_roberta(b, unknown=3):
    b.unigram(unknown)
    b.pieces(b.said("add_prefix_space", True))
    b.around = "bos_token $A eos_token", "bos_token $A eos_token eos_token $B eos_token"


def _camembert(b):
    said = _settings.content(b.settings["unk_token"])
    _xlm_roberta(b, lambda words: next((i for i, word in enumerate(words) if word[0] == said), 0))
    b.more(["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"])


def _t5(b):
    b.unigram(2)
    b.pieces(True)
    b.more([f"<extra_id_{i}>" for i in range(b.said("extra_ids", 100))])
    b.around = "$A </s>", "$A </s> $B </s>"
    b.same_as = {"</s>": _settings.content(b.settings["eos_token"])}


def _xglm(b):
    b.unigram(3)
    b.tokenizer.normalizer = b.normalizers.Sequence([*b.charsmap(), b.single_spaces()])
    b.metaspace("always" if b.said("add_prefix_space", True) else "never")
    b.more([f"<madeupword{i}>" for i in range(7)])
    b.around = "eos_token $A", "eos_token $A eos_token eos_token $B"


def _albert(b):
    n = b.normalizers
    marks = [] if b.said("keep_accents", False) else [n.NFKD(), n.StripAccents()]
    lower = [n.Lowercase()] if b.said("do_lower_case", True) else []
    charsmap = b.charsmap()
    b.unigram(1)
    b.pieces(b.said("add_prefix_space", True))
    b.tokenizer.normalizer = n.Sequence([n.Replace("``", '"'), n.Replace("''", '"'), *marks, *lower, *charsmap])
    if b.tokenizer.post_processor is None:  # else the file's holds
        b.around = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"
        b.same_as = {"[CLS]": _settings.content(b.settings["cls_token"]), "[SEP]": _settings.content(b.settings["sep_token"])}


def _deberta_v2(b):
    """Without the map of characters of SentencePiece."""
    said, n = (_settings.content(b.settings["unk_token"]), 0.0), b.normalizers
    b.unigram(lambda words: words.index(said) if said in words else b.said("unk_id", 1))
    lower = [n.Lowercase()] if b.said("do_lower_case", False) else []
    b.tokenizer.normalizer = n.Sequence([*lower, b.single_spaces(r"\s{2,}|[\n\r\t]"), n.NFC(), n.Strip(left=False, right=True)])
    b.metaspace("always" if b.said("add_prefix_space", True) else "first",
                *([b.pre.Punctuation(behavior="isolated")] if b.said("split_by_punct", False) else []))
    b.around = OF_PAIRS


def _pegasus(b):
    said = (_settings.content(b.settings["unk_token"]), 0.0)
    charsmap, sentence = b.charsmap(), b.said("mask_token_sent", "<mask_1>")
    b.unigram(lambda words: words.index(said, 1))
    b.tokenizer.normalizer = b.normalizers.Sequence([*(charsmap or [b.single_spaces("\n")]), b.single_spaces()])
    b.metaspace("always")
    b.more([*([] if sentence is None else [sentence]), *(f"<unk_{i}>" for i in range(2, b.said("offset", 103)))])
    b.around = "$A eos_token", "$A $B eos_token"


def _llama(b):
    b.pairs(None, True, True, None)
    b.tokenizer.normalizer = None
    scheme = "never" if not b.prefix(True) else "always" if b.settings.get("legacy") else "first"
    b.tokenizer.pre_tokenizer = b.pre.Metaspace(prepend_scheme=scheme, split=False)
    b.letters(b.prefix(True))


def _code_llama(b):
    b.pairs(_settings.content(b.settings["unk_token"]), True, True, None)
    b.tokenizer.normalizer = None
    b.tokenizer.pre_tokenizer = b.pre.Metaspace(prepend_scheme="first" if b.prefix(True) else "never", split=False)
    b.letters(True)
    b.around = "bos_token $A", "bos_token $A bos_token:1 $B:1"


def _gemma(b):
    b.pairs(_settings.content(b.settings["unk_token"]), True, True, None)
    b.tokenizer.normalizer = b.normalizers.Replace(" ", "▁")
    b.tokenizer.pre_tokenizer = b.pre.Split(" ", "merged_with_previous")
    b.letters(False)


def _qwen(letters, marks, is_plain=False):
    def build(b):
        b.pairs()
        b.is_plain = is_plain
        found = b.tokenizers.Regex(QWEN.replace("LETTERS", letters).replace("MARKS", marks))
        b.bytes(b.normalizers.NFC(), [b.pre.Split(found, "isolated")], use_regex=False, prefix=b.prefix(False))
    return build


def _gpt2(b):
    b.pairs()
    b.bytes()


def _gpt_neox(b):
    b.pairs()
    b.bytes(b.normalizers.NFC())
    b.around = "$A", "$A $B:1"


def _cohere(b):
    b.pairs()
    b.bytes(b.normalizers.NFC(), [b.pre.Digits(individual_digits=True)])


def _roberta(b):
    _gpt2(b)
    b.around = OF_TWO_SEPARATORS


def _clip(b):
    b.pairs(_settings.content(b.settings["unk_token"]), suffix="</w>")
    n = b.normalizers
    b.bytes(n.Sequence([n.NFC(), b.single_spaces(r"\s+"), n.Lowercase()]), [b.pre.Split(b.tokenizers.Regex(CLIP), "removed", invert=True)],
            prefix=False)
    ends = b.decoders.Replace(b.tokenizers.Regex(r"\A(</w>)+|(</w>)+\z"), "")
    b.tokenizer.decoder = b.decoders.Sequence([b.decoders.ByteLevel(), ends, b.decoders.Replace("</w>", " ")])
    b.around = "bos_token $A eos_token", "bos_token $A eos_token eos_token $B eos_token"


def _bert(around):
    def build(b):
        model = b.tokenizer.model
        model.unk_token, model.continuing_subword_prefix = _settings.content(b.settings["unk_token"]), "##"
        model.max_input_chars_per_word = 100
        b.tokenizer.normalizer = b.normalizers.BertNormalizer(True, b.said("tokenize_chinese_chars", True), b.said("strip_accents", None),
                                                              b.said("do_lower_case", True))
        b.tokenizer.pre_tokenizer, b.tokenizer.decoder = b.pre.BertPreTokenizer(), b.decoders.WordPiece("##")
        b.around = around
    return build


# name: (kind of model, what sets its steps, the tokens that it names)
BUILT = {
    "XLMRoberta": ("Unigram", _xlm_roberta, OF_FAIRSEQ | dict(mask_token="<mask>")),
    "Camembert": ("Unigram", _camembert, OF_FAIRSEQ | dict(mask_token=dict(content="<mask>", lstrip=True, special=True))),
    "T5": ("Unigram", _t5, dict(eos_token="</s>", unk_token="<unk>", pad_token="<pad>")),
    "XGLM": ("Unigram", _xglm, OF_FAIRSEQ),
    "Llama": ("BPE", _llama, dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")),
    "Gemma": ("BPE", _gemma, dict(bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>", mask_token="<mask>")),
    "Qwen2": ("BPE", _qwen(r"\p{L}", "", True), OF_QWEN),
    "Qwen3_5": ("BPE", _qwen(r"[\p{L}\p{M}]", r"\p{M}"), OF_QWEN),
    "GPT2": ("BPE", _gpt2, OF_GPT),
    "GPTNeoX": ("BPE", _gpt_neox, OF_GPT | dict(pad_token="<|padding|>")),
    "Cohere": ("BPE", _cohere, dict(bos_token="<BOS_TOKEN>", eos_token="<|END_OF_TURN_TOKEN|>", unk_token="<UNK>", sep_token="<SEP>",
                                    pad_token="<PAD>", cls_token="<CLS>", mask_token="<MASK_TOKEN>")),
    "Roberta": ("BPE", _roberta, OF_FAIRSEQ | dict(mask_token="<mask>")),
    "Deberta": ("BPE", _roberta, OF_BERT),
    "DebertaV2": ("Unigram", _deberta_v2, OF_BERT),
    "Albert": ("Unigram", _albert, OF_BERT | dict(unk_token="<unk>", pad_token="<pad>")),
    "Pegasus": ("Unigram", _pegasus, dict(eos_token="</s>", unk_token="<unk>", pad_token="<pad>", mask_token="<mask_2>")),
    "CodeLlama": ("BPE", _code_llama, dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", prefix_token="▁<PRE>",
                                           middle_token="▁<MID>", suffix_token="▁<SUF>", eot_token="▁<EOT>", fill_token="<FILL_ME>")),
    "CodeGen": ("BPE", _gpt2, OF_GPT),
    "CLIP": ("BPE", _clip, OF_GPT | dict(bos_token="<|startoftext|>", pad_token="<|endoftext|>")),
    "Bert": ("WordPiece", _bert(OF_PAIRS), {k: v for k, v in OF_BERT.items() if k[:3] not in ("bos", "eos")}),
    "MBart": ("Unigram", _lingual.mbart, OF_FAIRSEQ | dict(mask_token="<mask>")),
    "MBart50": ("Unigram", _lingual.mbart50, {k: v for k, v in OF_FAIRSEQ.items() if k != "bos_token"} | dict(mask_token="<mask>")),
    "Nllb": ("BPE", _lingual.nllb, OF_FAIRSEQ | dict(mask_token="<mask>")),
    "Whisper": ("BPE", _lingual.whisper, OF_GPT),
    "MPNet": ("WordPiece", _bert(OF_TWO_SEPARATORS), OF_FAIRSEQ | dict(
        unk_token="[UNK]", mask_token=dict(content="<mask>", lstrip=True, special=True))),
}


def build(tokenizers, tokenizer, settings, config, place):
    """(the tokenizer, the settings with the tokens of the class, what is to be done once all tokens have ids); None as the third: the
    steps are those of the file."""
    has_bytes = b'"ByteLevel"' in place.with_name("tokenizer.json").read_bytes()  # anywhere, as transformers looks for it
    name = name_of(settings, config, has_bytes, place)
    kind, steps, tokens = BUILT.get(name, (None, None, {}))
    found = type(tokenizer.model).__name__
    if not kind or found in {"WordLevel", "WordPiece"} - {kind}:  # no checkpoint of these classes has one: a file of one's own
        return tokenizer, settings, None
    if found != kind:
        raise InputError(f"{place}: {name}Tokenizer is for models of the kind {kind}, and tokenizer.json has {found}: save "
                         "the tokenizer anew with transformers")
    builder = Builder(tokenizers, tokenizer, tokens | settings, place)
    steps(builder)
    if "added_tokens_decoder" in settings:  # the only tokens beside those that have names: not those of tokenizer.json
        builder.tokenizer = _without_added(tokenizers, tokenizer)
    return builder.tokenizer, builder.settings, builder.post


def _without_added(tokenizers, tokenizer):
    made = tokenizers.Tokenizer(tokenizer.model)
    made.normalizer, made.pre_tokenizer, made.decoder = tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder
    if tokenizer.post_processor is not None:
        made.post_processor = tokenizer.post_processor
    return made
