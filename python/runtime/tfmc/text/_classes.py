"""What classes of tokenizers of transformers 5 make of tokenizer.json: its words, and steps of their own in place of its others.

In: the tokenizer of tokenizer.json, the settings of the folder and its config.json. Out: the tokenizer with the steps of
the class, and the settings with the tokens that the class names where they name none; classes that take the file as it is,
and those that are not in BUILT, change nothing, nor do tables of whole words. Refused: a model of another kind than the class is for.
"""
import base64
import json

from .._errors import InputError
from . import _settings

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

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?LETTERS+|\p{N}| ?[^\s\p{L}MARKS\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
OF_BERT = dict(bos_token="[CLS]", eos_token="[SEP]", unk_token="[UNK]", sep_token="[SEP]", pad_token="[PAD]", cls_token="[CLS]",
               mask_token="[MASK]")
OF_FAIRSEQ = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", sep_token="</s>", pad_token="<pad>", cls_token="<s>")
OF_GPT = dict(bos_token="<|endoftext|>", eos_token="<|endoftext|>", unk_token="<|endoftext|>")
OF_QWEN = dict(eos_token="<|endoftext|>", unk_token="<|endoftext|>", pad_token="<|endoftext|>")


def name_of(settings, config, has_bytes):
    """The name of the class, without "Tokenizer" and "Fast". `has_bytes`: tokenizer.json works on bytes."""
    said = (settings.get("tokenizer_class") or config.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")
    kind = config.get("model_type")
    own = OF_TYPE.get(kind)
    if said == "Llama" and has_bytes and kind not in KNOWN_BETTER:
        return AS_IT_IS
    if said and own and said != own:
        return AS_IT_IS if own == AS_IT_IS else own if kind in KNOWN_BETTER else said
    return said or own or AS_IT_IS


class Builder:
    """The steps of a class: each sets those that it has."""

    def __init__(self, tokenizers, tokenizer, settings, place):
        self.tokenizers, self.tokenizer, self.settings, self.around = tokenizers, tokenizer, settings, None
        self.place = place
        self.same_as, self.is_plain = {}, False  # whose id a token around a text has; whether named tokens take no spaces with them
        self.pre, self.normalizers, self.decoders = tokenizers.pre_tokenizers, tokenizers.normalizers, tokenizers.decoders

    def prefix(self, usual):
        said = self.settings.get("add_prefix_space", usual)
        return usual if said is None else bool(said)

    def more(self, tokens):
        """Tokens that the class has where the settings have no list of more."""
        if not {"extra_special_tokens", "additional_special_tokens"} & set(self.settings):
            self.settings = {**self.settings, "extra_special_tokens": tokens}

    # ---- models ----

    def unigram(self, unknown):
        """The same words; the id of what is unknown is the class's own, whatever the file says."""
        model = json.loads(self.tokenizer.to_str())["model"]
        words = [tuple(word) for word in model["vocab"]]
        unknown = unknown if isinstance(unknown, int) else next((i for i, word in enumerate(words) if word[0] == unknown), 0)
        if model["unk_id"] != unknown or model["byte_fallback"]:
            self.tokenizer.model = self.tokenizers.models.Unigram(words, unknown, False)

    def pairs(self, unk_token=None, fuse_unk=False, byte_fallback=False, affix=""):
        model = self.tokenizer.model
        model.unk_token, model.fuse_unk, model.byte_fallback, model.dropout = unk_token, fuse_unk, byte_fallback, None
        model.continuing_subword_prefix = model.end_of_word_suffix = affix
        model.ignore_merges = False

    # ---- steps ----

    def charsmap(self):
        """The map of characters of SentencePiece, if the file has one."""
        own = json.loads(self.tokenizer.normalizer.__getstate__()) if self.tokenizer.normalizer else {}
        maps = [part["precompiled_charsmap"] for part in own.get("normalizers", [own]) if part.get("type") == "Precompiled"]
        return [self.normalizers.Precompiled(base64.b64decode(m)) for m in maps[:1]]

    def pieces(self, usual=True):
        self.tokenizer.normalizer = next(iter(self.charsmap()), None)
        scheme = "always" if usual is None or self.prefix(True) else "never"
        self.tokenizer.pre_tokenizer = self.pre.Sequence([self.pre.WhitespaceSplit(), self.pre.Metaspace(prepend_scheme=scheme)])
        self.tokenizer.decoder = self.decoders.Metaspace(prepend_scheme=scheme)

    def letters(self, strip):
        """The decoder of words with bytes among them. `strip`: the space before the first word goes."""
        parts = [self.decoders.Replace("▁", " "), self.decoders.ByteFallback(), self.decoders.Fuse()]
        self.tokenizer.decoder = self.decoders.Sequence([*parts, *([self.decoders.Strip(" ", 1, 0)] if strip else [])])

    def bytes(self, normalizer=None, before=(), use_regex=True):
        byte = self.pre.ByteLevel(add_prefix_space=self.prefix(False), use_regex=use_regex)
        self.tokenizer.normalizer = normalizer
        self.tokenizer.pre_tokenizer = self.pre.Sequence([*before, byte]) if before else byte
        self.tokenizer.decoder = self.decoders.ByteLevel()

    def post(self):
        """Tokens around a text and a pair, once all tokens have ids."""
        if self.is_plain:
            more = self.settings.get("extra_special_tokens") or self.settings.get("additional_special_tokens") or []
            plain = [_settings.content(t) for t in [*_settings.named(self.settings).values(), *([] if isinstance(more, dict) else more)]]
            self.tokenizer.add_tokens([self.tokenizers.AddedToken(t, special=True) for t in plain if t])
        if self.around:
            names = {name: _settings.content(self.settings.get(name)) for name in ("bos_token", "eos_token", "cls_token", "sep_token")}
            single, pair = ([names.get(part, part) for part in side.split()] for side in self.around)
            if None in pair:
                missing = next(part for part in self.around[1].split() if part in names and names[part] is None)
                raise InputError(f"{self.place}: {missing} is null, and the class puts it around texts")
            around = dict.fromkeys(part for part in pair if part[0] != "$")
            special = [(t, self.tokenizer.token_to_id(self.same_as.get(t, t))) for t in around]
            self.tokenizer.post_processor = self.tokenizers.processors.TemplateProcessing(single, pair, special)


def _xlm_roberta(b):
    b.unigram(3)
    b.pieces()
    b.around = "bos_token $A eos_token", "bos_token $A eos_token eos_token $B eos_token"


def _camembert(b):
    _xlm_roberta(b)
    b.more(["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"])
    b.unigram(_settings.content(b.settings["unk_token"]))


def _t5(b):
    b.unigram(2)
    b.pieces(None)
    b.more([f"<extra_id_{i}>" for i in range(b.settings.get("extra_ids", 100))])
    b.around = "$A </s>", "$A </s> $B </s>"
    b.same_as = {"</s>": _settings.content(b.settings["eos_token"])}


def _xglm(b):
    b.unigram(3)
    b.tokenizer.normalizer = b.normalizers.Sequence([*b.charsmap(), b.normalizers.Replace(b.tokenizers.Regex(" {2,}"), " ")])
    scheme = "always" if b.prefix(True) else "never"
    b.tokenizer.pre_tokenizer = b.pre.Metaspace(prepend_scheme=scheme)
    b.tokenizer.decoder = b.decoders.Metaspace(prepend_scheme=scheme)
    b.more([f"<madeupword{i}>" for i in range(7)])
    b.around = "eos_token $A", "eos_token $A eos_token eos_token $B"


def _llama(b):
    b.pairs(None, True, True, None)
    b.tokenizer.normalizer = None
    scheme = "never" if not b.prefix(True) else "always" if b.settings.get("legacy") else "first"
    b.tokenizer.pre_tokenizer = b.pre.Metaspace(prepend_scheme=scheme, split=False)
    b.letters(b.prefix(True))


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
        b.bytes(b.normalizers.NFC(), [b.pre.Split(found, "isolated")], use_regex=False)
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
    b.around = "cls_token $A sep_token", "cls_token $A sep_token sep_token $B sep_token"


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
}


def build(tokenizers, tokenizer, settings, config, place):
    """(the settings with the tokens of the class, what is to be done once all tokens have ids); None as the second: the steps are
    those of the file."""
    has_bytes = any(part is not None and b'"ByteLevel"' in part.__getstate__() for part in (tokenizer.pre_tokenizer, tokenizer.decoder))
    name = name_of(settings, config, has_bytes)
    kind, steps, tokens = BUILT.get(name, (None, None, {}))
    found = type(tokenizer.model).__name__
    if not kind or found in ("WordLevel", "WordPiece"):  # no checkpoint of these classes has one: a file of one's own
        return settings, None
    if found != kind:
        raise InputError(f"{place}: {name}Tokenizer is for models of the kind {kind}, and tokenizer.json has {found}: save "
                         "the tokenizer anew with transformers")
    builder = Builder(tokenizers, tokenizer, tokens | settings, place)
    steps(builder)
    return builder.settings, builder.post
