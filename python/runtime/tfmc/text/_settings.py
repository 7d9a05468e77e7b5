"""What tokenizer_config.json says of a tokenizer beside tokenizer.json, as transformers takes it, or in its place the older
special_tokens_map.json and added_tokens.json.

In: the tokenizer of tokenizer.json, the settings. Out: the tokenizer with tokens that the settings name, the side on which
texts are cut, and whether spaces are taken out of decoded texts. Refused: what contradicts tokenizer.json. Which tokens stand around a text is for tokenizer.json alone:
transformers reads add_bos_token and add_eos_token only where there is none. What classes do by themselves is _classes'.
"""
import json

from .._errors import InputError

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
PROPERTIES = ("lstrip", "rstrip", "normalized", "single_word", "special")
GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes that take tokenizer.json as it is
BERTS = ("Bert", "DistilBert", "Electra", "MobileBert", "Funnel", "LayoutLM", "MPNet")
OF_BERTS = dict(do_lower_case=True, tokenize_chinese_chars=True)  # what they do where tokenizer_config.json does not say it


def content(token):
    return token.get("content") if isinstance(token, dict) else token


def check(settings, place):
    """Kinds of values that every class of transformers refuses."""
    lists, flag, number = ("additional_special_tokens", "extra_special_tokens"), (bool,), (int, float, type(None))
    kinds = dict(split_special_tokens=flag, add_prefix_space=(bool, type(None)), added_tokens_decoder=(dict,), model_max_length=number,
                 max_len=number, add_special_tokens=())  # the last is the name of a method
    wrong = [key for key, kind in kinds.items() if key in settings and not isinstance(settings[key], kind)]
    wrong += [key for key in NAMED if settings.get(key) is not None and not isinstance(content(settings[key]), str)]
    for key in lists:
        said = settings.get(key) or []
        said = list(said.values()) if isinstance(said, dict) and key == lists[1] else said
        wrong += [key] * (not isinstance(said, list) or not all(isinstance(content(token), str) for token in said))
    for key in wrong:
        raise InputError(f"{place}: {key} is {json.dumps(settings[key]):.80}, which no tokenizer takes there")


def apply(tokenizers, tokenizer, settings, place, finish=None):
    """Gives the tokenizer the settings of the file `place`. `finish`: of a tokenizer with the steps of its class, what is to be
    done once all tokens have ids."""
    if not finish:
        _check(tokenizers, tokenizer, settings, place)
    _add(tokenizers, tokenizer, settings, place)
    if finish:
        finish()
    tokenizer.encode_special_tokens = bool(settings.get("split_special_tokens"))


def side(key, settings, usual, place):
    """On which side something happens to texts, "right" or "left". `usual`: what tokenizer.json says of it, or None."""
    said = settings.get(key, (usual or {}).get("direction", "right"))
    if said not in ("right", "left"):
        raise InputError(f"{place}: {key} is {said!r}, neither \"left\" nor \"right\"")
    return said


# ---- texts of tokens ----

CLEANED = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"),
           (" 've", "'ve"), (" 're", "'re"))  # in this order
WITHIN = frozenset("".join(before for before, _ in CLEANED))  # no change reaches over another character


def cleaned(text):
    for before, after in CLEANED:
        text = text.replace(before, after)
    return text


def cleaned_pieces(pieces):
    """The pieces of the cleaned text of pieces: what a change may still reach is held back."""
    held = ""
    for piece in pieces:
        held += piece
        end = len(held)
        while end and held[end - 1] in WITHIN:
            end -= 1
        if end:
            yield cleaned(held[:end])
            held = held[end:]
    if held:
        yield cleaned(held)


def cleans(settings, tokenizer=None):
    """Whether texts of tokens are cleaned: where the settings say so, but of a tokenizer of pairs (BPE) only where another one
    says so, too. `tokenizer`: None for one that is none of the package tokenizers'."""
    is_of_pairs = tokenizer is not None and type(tokenizer.model).__name__ == "BPE"
    return bool(settings.get("clean_up_tokenization_spaces")) and (
        not is_of_pairs or bool(settings.get("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output")))


# ---- what classes make of letters and spaces ----

def _check(tokenizers, tokenizer, settings, place):
    """Classes of tokenizers with steps of their own make them by the settings; tokenizer.json must say the same."""
    if settings.get("tokenizer_class") in GENERIC:
        return
    own, pre = tokenizer.normalizer, json.loads(tokenizer.pre_tokenizer.__getstate__()) if tokenizer.pre_tokenizer else {}
    there = {"do_lower_case": own is not None and own.normalize_str("A").strip("▁ ") == "a"}
    is_bert = isinstance(own, tokenizers.normalizers.BertNormalizer)
    usual = OF_BERTS if is_bert and (settings.get("tokenizer_class") or "").startswith(BERTS) else {}
    if is_bert:
        there |= {"strip_accents": own.strip_accents, "tokenize_chinese_chars": own.handle_chinese_chars}
    for part in pre.get("pretokenizers", [pre]):
        if part.get("type") == "ByteLevel":
            there["add_prefix_space"] = part["add_prefix_space"]
        if part.get("type") == "Metaspace":
            there["add_prefix_space"] = part["prepend_scheme"] != "never"
    for key, found in there.items():
        said = settings.get(key, usual.get(key))
        if isinstance(said, bool) and isinstance(found, bool) and said != found:
            unsaid = "" if key in settings else " where it is not said"
            raise InputError(f"{place}: {key} is {json.dumps(said)}{unsaid}, and tokenizer.json says {json.dumps(found)}; which of "
                             "them holds depends on the class: save the tokenizer anew with transformers")


# ---- tokens ----

def with_older(settings, tokens, added):
    """The settings with those of special_tokens_map.json and added_tokens.json, which count where tokenizer_config.json has
    no list of its own of the tokens behind the vocabulary."""
    if "added_tokens_decoder" in settings:
        return settings
    merged = {**settings, **tokens}
    more = [settings.get("extra_special_tokens"), tokens.get("extra_special_tokens")]
    if all(isinstance(m, list) for m in more):
        merged["extra_special_tokens"] = [*more[0], *(m for m in more[1] if m not in more[0])]
    return {**merged, "added_tokens": added} if added else merged


def named(settings):
    """{name: token} of those that have a name of their own, the usual ones first; None for those that have none."""
    own = {name: token for name, token in settings.items() if name.endswith("_token") and isinstance(token, (str, dict))}
    extra = settings.get("extra_special_tokens")
    return {name: settings.get(name) for name in NAMED} | own | (extra if isinstance(extra, dict) else {})


def more(settings):
    """Tokens without a name of their own."""
    said = settings.get("extra_special_tokens")
    return said if said and not isinstance(said, dict) else settings.get("additional_special_tokens") or []


def _made(tokenizers, said, special=False):
    """Of a text, or of an object with what it does to spaces beside it. `special`: it is, whatever the object says."""
    if isinstance(said, str):
        return tokenizers.AddedToken(said, special=True)
    made = tokenizers.AddedToken(said["content"], **{name: said[name] for name in PROPERTIES if name in said})
    made.special = made.special or special
    return made


def _listed(tokenizers, settings, place):
    """The tokens with an id, in the order of these: of added_tokens_decoder, or of added_tokens.json."""
    decoder = settings.get("added_tokens_decoder") or {}
    if not all(number.isdecimal() for number in decoder):
        raise InputError(f"{place}: a key of added_tokens_decoder is no id")
    found = [(int(number), _made(tokenizers, said)) for number, said in decoder.items()]
    names = {content(token) for token in [*named(settings).values(), *(settings.get("extra_special_tokens") or [])]}
    found += [(number, tokenizers.AddedToken(said, normalized=said not in names, special=said in names))
              for said, number in settings.get("added_tokens", {}).items()]
    return sorted(found, key=lambda pair: pair[0])


def _add(tokenizers, tokenizer, settings, place):
    """Tokens that the settings name: those that tokenizer.json lacks stand behind its own, in the order of their ids; of
    those that it has, too, the properties are those that are said here."""
    known = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    is_older = "added_tokens_decoder" not in settings
    for number, token in _listed(tokenizers, settings, place):
        if is_older and token.content in known:
            continue
        tokenizer.add_tokens([token])
        known[token.content] = token
        if tokenizer.token_to_id(token.content) != number:
            raise InputError(f"{place}: {'added_tokens.json' if is_older else 'added_tokens_decoder'} gives {token.content!r} the id "
                             f"{number}, tokenizer.json {tokenizer.token_to_id(token.content)}")
    for token in [*named(settings).values(), *more(settings)]:
        if token is not None and content(token) and content(token) not in known:
            tokenizer.add_tokens([_made(tokenizers, token, special=True)])
            known[content(token)] = token
