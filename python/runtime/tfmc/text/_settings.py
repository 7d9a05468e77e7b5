"""What tokenizer_config.json says of a tokenizer beside tokenizer.json, as transformers takes it.

In: the tokenizer of tokenizer.json, the settings. Out: the tokenizer with tokens that the settings name, and the side on
which texts are cut. Refused: what contradicts tokenizer.json. Which tokens stand around a text is for tokenizer.json alone:
transformers reads add_bos_token and add_eos_token only where there is none.
"""
import json

from .._errors import InputError

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes that take tokenizer.json as it is


def content(token):
    return token.get("content") if isinstance(token, dict) else token


def apply(tokenizers, tokenizer, settings, place):
    """Gives the tokenizer the settings of the file `place`."""
    _check(tokenizers, tokenizer, settings, place)
    try:
        _add(tokenizers, tokenizer, settings, place)
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f"{place}: tokens are not said as transformers says them ({error!r})") from error
    tokenizer.encode_special_tokens = bool(settings.get("split_special_tokens"))


def side(tokenizer, settings, place):
    """On which side texts are cut: "right" or "left"."""
    said = settings.get("truncation_side") or (tokenizer.truncation or {}).get("direction", "right")
    if said not in ("right", "left"):
        raise InputError(f"{place}: truncation_side is {said!r}, neither \"left\" nor \"right\"")
    return said


# ---- what classes make of letters and spaces ----

def _check(tokenizers, tokenizer, settings, place):
    """Classes of tokenizers with steps of their own make them by the settings; tokenizer.json must say the same."""
    if settings.get("tokenizer_class") in GENERIC:
        return
    own, pre = tokenizer.normalizer, json.loads(tokenizer.pre_tokenizer.__getstate__()) if tokenizer.pre_tokenizer else {}
    there = {"do_lower_case": own is not None and own.normalize_str("A").strip("▁ ") == "a"}
    if isinstance(own, tokenizers.normalizers.BertNormalizer):
        there |= {"strip_accents": own.strip_accents, "tokenize_chinese_chars": own.handle_chinese_chars}
    for part in pre.get("pretokenizers", [pre]):
        if part.get("type") == "ByteLevel":
            there["add_prefix_space"] = part["add_prefix_space"]
        if part.get("type") == "Metaspace":
            there["add_prefix_space"] = part["prepend_scheme"] != "never"
    for key, found in there.items():
        said = settings.get(key)
        if isinstance(said, bool) and isinstance(found, bool) and said != found:
            raise InputError(f"{place}: {key} is {json.dumps(said)}, and tokenizer.json says {json.dumps(found)}; which of them holds "
                             "depends on the class: save the tokenizer anew with transformers")


# ---- tokens ----

def _add(tokenizers, tokenizer, settings, place):
    """Tokens that the settings name: those that tokenizer.json lacks stand behind its own, in the order of their ids."""
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    decoder = settings.get("added_tokens_decoder") or {}
    if not all(number.isdecimal() for number in decoder):
        raise InputError(f"{place}: a key of added_tokens_decoder is no id")
    for number, said in sorted(decoder.items(), key=lambda item: int(item[0])):
        if said["content"] in known:
            continue
        properties = {name: said[name] for name in ("lstrip", "rstrip", "normalized", "single_word", "special") if name in said}
        tokenizer.add_tokens([tokenizers.AddedToken(said["content"], **properties)])
        known.add(said["content"])
        if tokenizer.token_to_id(said["content"]) != int(number):
            raise InputError(f"{place}: added_tokens_decoder gives {said['content']!r} the id {number}, tokenizer.json "
                             f"{tokenizer.token_to_id(said['content'])}")
    named = [content(settings.get(name)) for name in NAMED]
    for more in ("additional_special_tokens", "extra_special_tokens"):
        tokens = settings.get(more) or []
        named += [content(token) for token in (tokens.values() if isinstance(tokens, dict) else tokens)]
    for token in named:
        if token and token not in known:
            tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False, special=True)])
            known.add(token)
