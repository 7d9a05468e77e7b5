#!/usr/bin/env python3
"""usage: make_part_defaults.py [--check] FAMILIES PART_DEFAULTS

Writes compiler/import/part_defaults.def: what configs of before transformers 4.26 say of every setting within the objects
of their parts, where it is what the part means without it. The values are those of today's base of all configs and of its
settings of generation; OLDER has those that today's transformers knows in some classes or not at all. A class of a part
that has another default is an error. With --check the file must be as it would be written. Needs transformers.
"""
import dataclasses
import json
import os
import re
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from transformers import GenerationConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from make_key_types import NO_TRANSFORMERS, write_or_check

HEAD = """\
/* What configs of before transformers 4.26 say within the settings of a part (`text_config` of CLIP) of whatever the
 * part is: all that configs can say, though it is what they mean without it. PART_DEFAULT("key", "value", as JSON).
 *
 * Written by tests/models/make_part_defaults.py of the config classes of transformers. */
"""
# What the base of all configs had before 5.0.
OLDER = dict(add_cross_attention=False, is_decoder=False, tf_legacy_loss=False, tie_encoder_decoder=False, tie_word_embeddings=True,
             use_bfloat16=False)
# Read of any part, or known to change nothing wherever they stand (ignored_keys.def).
ELSEWHERE = {"output_hidden_states", "return_dict", "use_cache"}
NEWER = re.compile("assistant|lookbehind|^epsilon_cutoff$|^eta_cutoff$|^encoder_repetition_penalty$")  # than 4.26


def classes_of_parts(families):
    """Of the parts that blocks of families read as objects: {"clip.text_config": its class}."""
    found = {}
    for path in sorted(families.glob("*.tfm")):
        head, block = re.search(r"^checkpoint (.*?) \{\n(.*?)^\}", path.read_text(), re.M | re.S).groups()
        for of_type in set(re.findall(r'"([\w-]+)"', head)) - set(NO_TRANSFORMERS):
            for key, kind in CONFIG_MAPPING[of_type].sub_configs.items():
                if re.search(rf"\b{key}\.\w", block) and issubclass(kind, PreTrainedConfig):
                    found[f"{of_type}.{key}"] = kind
    return found


def defaults(kind):
    return {f.name: f.default for f in dataclasses.fields(kind) if f.default is not dataclasses.MISSING}


def table(families):
    generation = {k: v for k, v in GenerationConfig._get_default_generation_params().items() if not NEWER.search(k)}
    base = {k: v for k, v in defaults(PreTrainedConfig).items() if isinstance(v, (bool, int))}
    rows = {k: v for k, v in (OLDER | generation | base).items() if v is not None and k not in ELSEWHERE}
    for part, kind in classes_of_parts(families).items():
        for key, value in defaults(kind).items():
            if key in rows and value != rows[key]:
                raise SystemExit(f"{part}: {key} is {json.dumps(value)} without the key, not {json.dumps(rows[key])}")
    return rows


def text(rows):
    lines = [f'PART_DEFAULT("{key}", "{json.dumps(value)}")\n' for key, value in sorted(rows.items())]
    return HEAD + "".join(lines) + "#undef PART_DEFAULT\n"


def main():
    return write_or_check(lambda families, _: text(table(families)), "families", "part_defaults")


if __name__ == "__main__":
    sys.exit(main())
