"""Classes of tokenizers that put languages around texts: those of mBART, NLLB and Whisper, as transformers 5 has them.

In: the builder of a class (_classes), whose settings say the language: src_lang, or language and task of Whisper. Out: its steps, and
the tokens around a text whatever tokenizer.json has there. Refused: languages that are no tokens, and names of them for Whisper.
"""
import json
import re

from .._errors import InputError
from . import _settings

MBART = [*"ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO ru_RU "
         "si_LK tr_TR vi_VN zh_CN".split()]
MBART50 = [*MBART, *"af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN "
                    "te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI".split()]
# Of M2M100 by its setting language_codes; their ids are those behind the vocabulary, in this order.
M2M100 = {"m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig "
                    "ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl "
                    "so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu".split(),
          "wmt21": "en ha is ja cs ru zh de".split()}
NLLB = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")


def _source(b, usual):
    """The language of sources. The token that masks words takes the spaces before it, if the folder says no more than its name."""
    mask = b.settings.get("mask_token")
    if isinstance(mask, str):
        b.settings = {**b.settings, "mask_token": dict(content=mask, lstrip=True, normalized=True, special=True)}
    said = b.said("src_lang", usual)
    said = usual if said is None else said
    if not isinstance(said, str) or not said or set(said) & set(" :$"):
        raise InputError(f"{b.place}: src_lang is {json.dumps(said)}, no name of a language")
    return said


def _around(b, before, behind):
    b.around = f"{before} $A {behind}".strip(), f"{before} $A $B {behind}".strip()


def mbart(b):
    language = _source(b, "en_XX")
    b.unigram(3)
    b.pieces(True)
    b.tokenizer.normalizer = None
    b.more(MBART)
    _around(b, "", f"eos_token {language}")


def mbart50(b):
    language = _source(b, "en_XX")
    if language not in MBART50 or not any(b.tokenizer.token_to_id(code) is not None for code in MBART50):
        raise InputError(f"{b.place}: src_lang is {json.dumps(language)}, and the class and tokenizer.json have no such language")
    charsmap = b.charsmap()
    b.unigram(3)
    b.tokenizer.normalizer = b.normalizers.Sequence([*charsmap, b.single_spaces()])
    b.metaspace("always")
    b.more(MBART50)
    _around(b, language, "eos_token")


def nllb(b):
    language, charsmap = _source(b, "eng_Latn"), b.charsmap()
    b.pairs(_settings.content(b.settings["unk_token"]), True, False, None)
    b.tokenizer.normalizer = b.normalizers.Sequence([*charsmap, b.single_spaces()]) if charsmap else None
    b.metaspace("always")
    lists = "extra_special_tokens", "additional_special_tokens"  # where neither is said, null being nothing, the class has its own
    b.settings = {name: value for name, value in b.settings.items() if value is not None or name not in lists}
    b.more(sorted(word for word in b.tokenizer.get_vocab() if NLLB.fullmatch(word)))
    if b.said("legacy_behaviour", False):
        _around(b, "", f"eos_token {language}")
    else:
        _around(b, language, "eos_token")


def whisper(b):
    language, task, words = b.said("language", None), b.said("task", None), ["<|startoftranscript|>"]
    if language is not None:
        words.append(f"<|{language}|>".lower())
        if b.tokenizer.token_to_id(words[-1]) is None:
            raise InputError(f"{b.place}: language is {json.dumps(language)}, and there is no token {words[-1]}; the short names of "
                             "languages are known (\"en\")")
    if task not in (None, "transcribe", "translate"):
        raise InputError(f"{b.place}: task is {json.dumps(task)}, neither \"transcribe\" nor \"translate\"")
    words += [f"<|{task}|>"] * (task is not None) + ["<|notimestamps|>"] * (not b.said("predict_timestamps", False))
    b.pairs(affix="")
    b.bytes()
    b.around = f"{' '.join(words)} $A eos_token", f"{' '.join(words)} $A $B:1 eos_token:1"
