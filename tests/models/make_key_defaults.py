#!/usr/bin/env python3
"""usage: make_key_defaults.py [--check] FAMILIES KEY_DEFAULTS

Writes compiler/import/key_defaults.def: what the config classes of transformers have for keys that a folder lacks, where the model of
the family has another default. A family is for several types, whose classes differ: num_attention_heads is 4 in ELECTRA and 12 in
BERT. Keys that a setting of a block names alone are looked at; the others say themselves what they are without the key. So are
those of training that no block reads, where training without the key is not without what it is for. With --check the file must be
as it would be written. Needs transformers.
"""
import collections
import dataclasses
import json
import os
import pathlib
import re
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from make_key_types import NO_TRANSFORMERS, row, write_or_check

HEAD = """\
/* What a key of config.json is where it is missing: KEY_DEFAULT("value", "types", "keys"), the value as JSON writes it.
 * Without a row it is what the model of the family has.
 *
 * types   values of model_type
 *
 * Written by tests/models/make_key_defaults.py of the config classes of transformers. */
"""
WIDTH = 118
# compiler/import/account.c looks at them; what is 0 or none without the key needs no row.
AT_RANDOM = "mask_time_prob", "mask_feature_prob", "pos_embed_jitter", "pos_embed_rescale", "pos_embed_shift"
HIDES = "apply_spec_augment"
LENGTH = "max_length"  # how many tokens are written at most: no number of the model


def parts(families, name):
    """The types, the block with those of included families before it, and the parameters of the model with their defaults."""
    text = (families / name).read_text()
    head, block = re.search(r"^checkpoint (.*?) \{\n(.*?)^\}", text, re.M | re.S).groups()
    params = re.search(r"^model \w+\((.*?)\) \{", text, re.M | re.S)[1]
    for included in re.findall(r'^include "(\w+\.tfm)"', text, re.M):
        block = parts(families, included)[1] + block
    defaults = dict(re.findall(r"(\w+) = (\[.*?\](?!\])|\"[^\"]*\"|[^,()\s]+)", params))
    return re.findall(r'"([\w-]+)"', head), block, defaults


def plain_keys(block):
    """Parameter and key of the settings that are a key alone, or a choice with one."""
    own = {}
    for line in re.findall(r"^  (\w+ += .*(?:\n   .*)*)$", block, re.M):
        own[line.split(None, 1)[0]] = line.split("=", 1)[1]
    for param, text in own.items():
        for key in re.findall(r"(?:^|\bthen|\belse)\s+([a-z_]\w*)(?=\s*$|\s+else\b)", text):
            yield param, key


def default_of(kind, key):
    """None: the class has none, or computes it, or has a word for what it computes (-1, "auto")."""
    name = kind.attribute_map.get(key, key)
    field = next((f for f in dataclasses.fields(kind) if f.name == name), None)
    if field is None:
        return None
    made = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    made = list(made) if isinstance(made, tuple) else made
    return made if isinstance(made, (bool, int, float, list)) and (isinstance(made, list) or made >= 0) else None


def is_same(text, value):
    """Whether a default of the language is the value."""
    try:
        other = json.loads(text)
    except json.JSONDecodeError:  # another parameter
        return False
    return type(other) is type(value) and other == value


def of_training(kind, block, ignored):
    """Key and value of what training changes at random, where no key says it."""
    quoted = re.findall(r'"([^"]*)"', block)
    read = re.findall(r"\w+", re.sub(r'"[^"]*"', "", block))
    drops = [key for key in ignored if "drop" in key and key not in read and key not in quoted]
    for key in (*drops, *AT_RANDOM):
        if default_of(kind, key):
            yield key, default_of(kind, key)
    if default_of(kind, HIDES) is False:
        yield HIDES, False


def table(families):
    ignored = re.findall(r'^IGNORED\("(\w+)"\)', (families.parent / "compiler/import/ignored_keys.def").read_text(), re.M)
    rows = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in sorted(families.glob("*.tfm")):
        types, block, defaults = parts(families, path.name)
        for of_type in [t for t in types if t not in NO_TRANSFORMERS]:
            for param, key in plain_keys(block):
                value = default_of(CONFIG_MAPPING[of_type], key) if param in defaults and param != LENGTH else None
                if value is not None and not is_same(defaults[param], value):
                    rows[json.dumps(value)][of_type].append(key)
            for key, value in of_training(CONFIG_MAPPING[of_type], block, ignored):
                rows[json.dumps(value)][of_type].append(key)
    return rows


def text(rows):
    lines = []
    for value, of_types in sorted(rows.items()):
        of_keys = collections.defaultdict(list)
        for of_type, keys in of_types.items():
            of_keys[" ".join(sorted(set(keys)))].append(of_type)
        for keys, types in sorted(of_keys.items()):
            lines.append(row(f"KEY_DEFAULT({json.dumps(value)}", " ".join(types), keys))
    return HEAD + "\n".join(lines) + "\n#undef KEY_DEFAULT\n"


def main():
    return write_or_check(lambda families, _: text(table(families)), "families", "key_defaults")


if __name__ == "__main__":
    sys.exit(main())
