#!/usr/bin/env python3
"""usage: make_key_types.py [--check] FAMILIES KEY_TYPES

Writes compiler/import/key_types.def: of which kinds transformers takes the values of the keys of config.json, for each model type
of the families in models/, other and older names of keys too. What the config classes say is compared with what they take: each key with
a value of each kind. With --check the file must be as it would be written. Needs transformers.
"""
import argparse
import collections
import copy
import dataclasses
import inspect
import os
import pathlib
import re
import sys
import types
import typing

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

HEAD = """\
/* Kinds of values that keys of config.json have: KEY_TYPE("kind|kind", "types", "keys"). A value of another kind is refused,
 * as transformers refuses it. A key that is in no row of its type may be of any kind.
 *
 * kinds   null, bool, int, float (a number with a fraction or an exponent, as JSON writes it), str, list, list[int],
 *         list[float], list[str], dict, dict[dict]; 'text': that text; [0,1] behind int or float: from 0 to 1, [0,):
 *         from 0 on
 * types   values of model_type; "clip.text_config": the object text_config of it
 *
 * Written by tests/models/make_key_types.py of the config classes of transformers. */
"""
SAMPLES = {"null": None, "bool": True, "int": 1, "float": 0.5, "str": "something", "list[int]": [1], "list[float]": [0.5, 0.5],
           "list[str]": ["something"], "dict": {}, "dict[dict]": dict(full_attention={})}
WORDS = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "dict"}
# Keys that the base of all models reads of its config, known to the class of the config or not: the spread of what a folder
# lacks, where nothing is as good as a number, torch's names of what models are computed in, how attention is computed, and
# in whose code classes are looked for.
NAMES = "'bfloat16'|'double'|'float'|'float16'|'float32'|'float64'|'half'|null"
ATTENTION = "'eager'|'flash_attention_2'|'flash_attention_3'|'flash_attention_4'|'flex_attention'|'sdpa'|dict|null"
OF_ALL = {"initializer_range": "bool|float[0,)|int[0,)|null", "dtype": NAMES, "torch_dtype": NAMES,
          "_attn_implementation": ATTENTION, "auto_map": "dict|list|str"}
# Numbers that torch refuses outside a range when the model is made: shares that are dropped, and the spread of random numbers.
RANGES = {r"dropout|pdrop|layerdrop|drop_path|_drop_rate$|_drop$": "[0,1]", r"^initializer_|^init_std$": "[0,)"}
# Numbers of which torch makes a parameter as they are: of whole ones it makes none, since they have no gradient.
PARAMETERS = ("logit_scale_init_value",)
# Inside an object of which the config class knows no more than that it is one: the class cuts by these numbers.
INSIDE = {("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_5_text", "qwen3_5_moe_text"): {"mrope_section": "list[int]"}}
ROTARY = ("rope_parameters", "rope_scaling")  # both spellings
NO_TRANSFORMERS = ("static_embedding", "model2vec", "nomic_bert_experts")  # which transformers has no class for
WIDTH = 118


def model_types(families):
    """Of the heads of the checkpoint blocks."""
    found = []
    for path in sorted(families.glob("*.tfm")):
        head = re.search(r"^checkpoint (.*?) \{", path.read_text(), re.M | re.S)
        found += re.findall(r'"([\w-]+)"', head[1]) if head else []
    return list(dict.fromkeys(found))


def kinds(annotation):
    """The words of a type, each once; of objects no more than that they are."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return list(dict.fromkeys(k for a in args for k in kinds(a)))
    if origin is typing.Literal:
        return [f"'{a}'" for a in args]
    if origin is list:
        return [f"list[{args[0].__name__}]" if args[0] in (int, float, str) else "list"]
    if origin is dict or typing.is_typeddict(annotation):
        return ["dict[dict]" if args[1:] == (dict,) else "dict"]
    return [WORDS[annotation]] if annotation in WORDS else []  # tuples and classes: JSON has none


def holds_lists(annotation):
    """Whether it is a list of lists, or may be one."""
    args = typing.get_args(annotation)
    return typing.get_origin(annotation) in (list, tuple) and typing.get_origin(args[0]) is not None or any(map(holds_lists, args))


def ranged(key, words):
    found = next((interval for pattern, interval in RANGES.items() if re.search(pattern, key)), "")
    words = [word for word in words if word != "int" or key not in PARAMETERS]
    return [word + found if word in ("int", "float") else word for word in words]


def in_order(words):
    return "|".join(sorted(words, key=lambda word: (word == "null", word)))


def fits(sample, words):
    return sample in words or sample[:4] in words or sample == "dict" and "dict[dict]" in words  # of an empty object all are objects


def taken(kind, key, sample):
    try:
        kind(**{key: copy.copy(sample)})
    except StrictDataclassFieldValidationError as e:
        return f"'{key}'" not in str(e).split("\n")[0]
    except Exception:  # of the right kind, and no value for it
        return True
    return True


def whole_types(text_parts):
    """Of models that read more than text, whose part for text is taken: the part itself has a type of its own."""
    return list(dict.fromkeys(re.findall(r'^TEXT_PART\("([\w-]+)"', text_parts.read_text(), re.M)))


def classes(families, text_parts):
    wholes = whole_types(text_parts)
    for name in [*model_types(families), *wholes]:
        if name in NO_TRANSFORMERS:
            continue
        kind = CONFIG_MAPPING[name]
        yield name, kind
        for part, inner in kind.sub_configs.items() if name not in wholes else ():
            yield f"{name}.{part}", inner


def older_names(kind):
    """Keys that are no fields: the class puts their values into fields, which take some kinds. Key: kinds. (How positions turn has
    kinds of its own, and what the base of all classes takes is no older name.)
    """
    read = [inspect.getsource(c.__post_init__) for c in kind.__mro__ if c.__module__ == kind.__module__ and "__post_init__" in vars(c)]
    known = {field.name for field in dataclasses.fields(kind)} | set(kind.attribute_map) | {"rope_scaling", *OF_ALL}
    for key in dict.fromkeys(re.findall(r'kwargs\.(?:pop|get)\(\s*"(\w+)"', "\n".join(read))):
        words = [word for word, sample in SAMPLES.items() if key not in known and fits_field(kind, key, sample)]
        if words and len(words) < len(SAMPLES):
            yield key, [w for w in words if w != "dict[dict]" or "dict" not in words]


def fits_field(kind, key, sample):
    try:
        kind(**{key: copy.copy(sample)})
    except StrictDataclassFieldValidationError:
        return False
    except Exception:  # of the right kind, and no value for it
        return True
    return True


def table(families, text_parts):
    """kinds and types: the keys."""
    of_key = collections.defaultdict(lambda: collections.defaultdict(list))
    for name, kind in classes(families, text_parts):
        for field in dataclasses.fields(kind):
            words = kinds(field.type)
            if not field.init or isinstance(field.type, str) or field.name == "dtype" or holds_lists(field.type):
                continue  # nothing is compared with a type that is a text; the base's own is a name of torch below
            for word, sample in SAMPLES.items():
                if taken(kind, field.name, sample) != fits(word, words):
                    raise SystemExit(f"{name}: {field.name} is {field.type}, and {sample!r} is {'not ' * fits(word, words)}taken")
            written = in_order(ranged(field.name, words))
            of_key[field.name][written].append(name)
            for other in (a for a, key in kind.attribute_map.items() if key == field.name):
                of_key[other][written].append(name)
        for key, words in older_names(kind):
            of_key[key][in_order(ranged(key, words))].append(name)
        known = {field.name for field in dataclasses.fields(kind)} - {"dtype"} | set(kind.attribute_map)
        for key, words in OF_ALL.items():
            if key not in known:
                of_key[key][words].append(name)
    for of_types, inside in INSIDE.items():
        for key, words in inside.items():
            of_key[key][words] += [f"{name}.{part}" for name in of_types for part in ROTARY]
    rows = collections.defaultdict(list)
    for key, found in sorted(of_key.items()):
        for words, of_types in found.items():
            rows[words, " ".join(dict.fromkeys(of_types))].append(key)
    return rows


def row(begin, *texts):
    """The row that begins so, with these texts, which are cut between words where a line is full."""
    lines = [begin]
    for text in texts:
        lines[-1] += ", "
        if len(lines[-1]) + len(text.split(" ")[0]) + 4 > WIDTH:
            lines.append(" " * 9)
        lines[-1] += '"'
        for word in re.findall(r"\S+ ?", text) or [""]:
            if len(lines[-1]) + len(word) + 2 > WIDTH:
                lines[-1] += '"'
                lines.append(" " * 9 + '"')
            lines[-1] += word
        lines[-1] += '"'
    return "\n".join(line.rstrip() for line in lines) + ")"


def text(rows):
    lines = [row(f'KEY_TYPE("{words}"', of_types, " ".join(keys)) for (words, of_types), keys in sorted(rows.items())]
    return HEAD + "\n".join(lines) + "\n#undef KEY_TYPE\n"


def write_or_check(table_of, families, path):
    """Arguments of the command line; the text of table_of(families, path) is written to path, or with --check compared."""
    parser = argparse.ArgumentParser(usage=sys.modules["__main__"].__doc__.split("\n\n")[0][7:])
    parser.add_argument("--check", action="store_true")
    parser.add_argument(families, type=pathlib.Path)
    parser.add_argument(path, type=pathlib.Path)
    args = vars(parser.parse_args())
    file = args[path]
    written = table_of(args[families], file)
    if args["check"]:
        return written != file.read_text() and f"{file.name} is not what transformers says"
    file.write_text(written)
    return 0


def main():
    return write_or_check(lambda families, file: text(table(families, file.with_name("text_parts.def"))), "families", "key_types")


if __name__ == "__main__":
    sys.exit(main())
