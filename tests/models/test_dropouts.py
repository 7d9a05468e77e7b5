#!/usr/bin/env python3
"""usage: test_dropouts.py TFMC CASES [CASE ...]

Dropouts of imported families stand where transformers has them, with the p of the config: in both a dropout becomes a factor
that depends on its p, each key of the config has a p of its own, and the class of transformers is in training mode; then outputs
are equal only if every dropout is in its place. Those that the text has none for are named in its head, as is what else training
changes at random, and are off in both. Without CASE: the first case of each family and class. Dropping of whole layers and of whole
items (layerdrop, drop_path) is off: texts have none. Needs torch and transformers. The last line is 'N passed, N failed'.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

import checkpoint
from case_outputs import arrays, each

try:
    import torch
    import theirs
except ImportError as error:
    print(f"not run: {error}")
    sys.exit(77)

TFMC, CASES = sys.argv[1], pathlib.Path(sys.argv[2])
TOLERANCE = 2e-5
OFF = "layerdrop", "drop_path"  # whole layers and whole items
KEPT = 0.37


def factor(x, p=0.5, training=True, inplace=False):
    return x * (1 - KEPT * p) if training and p else x


def tfmc(*args):
    done = subprocess.run([TFMC, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"tfmc {args[0]} ends with {done.returncode}: {done.stderr}")
    return done.stdout


def marked(config, number=0):
    """The config with a p of its own for each key of a dropout, in parts too; MPT's in attn_config is 0 or 1."""
    made = {}
    for key, value in sorted(config.items()):
        if isinstance(value, dict) and key not in ("rope_parameters", "rope_scaling", "attn_config"):
            made[key], number = marked(value, number)
        elif "drop" in key and not isinstance(value, (bool, str)):
            made[key], number = (0.0 if any(word in key for word in OFF) else round(0.05 + 0.06 * (number % 14), 2)), number + 1
        else:
            made[key] = value
    return {key: made[key] for key in config}, number


def without(config, path):
    """The config with a dropout of 0, or places that stay."""
    key, _, rest = path.partition(".")
    off = None if key.startswith("pos_embed_") else 0.0
    return {**config, key: without(config[key], rest) if rest else off}


def imported(case, folder):
    """The text, and the config whose dropouts it has all."""
    config = case["files"]["config.json"] = marked(case["files"]["config.json"])[0]
    checkpoint.write(case, folder)
    lacking = re.search(r"^# Training is without the dropouts of config.json: (.*)$", tfmc("import", folder), re.M)
    for said in lacking[1].split(", ") if lacking else ():
        path = said.split(" = ")[0]
        inside = config.get("text_config")
        config = without(config, f"text_config.{path}" if path.split(".")[0] not in config and inside else path)
    case["files"]["config.json"] = config
    checkpoint.write(case, folder)
    text = tfmc("import", folder)
    assert "# Training is without" not in text
    return text, config, len(lacking[1].split(", ")) if lacking else 0


class Marked(theirs.Theirs):
    """In training mode, where a dropout is a factor."""

    def run(self, model, inputs):
        model.train()
        kept, torch.nn.functional.dropout = torch.nn.functional.dropout, factor
        try:
            return super().run(model, inputs)
        finally:
            torch.nn.functional.dropout = kept


def run(name):
    case = json.loads((CASES / f"{name}.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text, config, lacking = imported(case, folder)
        made, n = re.subn(r"\bdropout\(", "marked(", text)
        (folder / "model.tfm").write_text(f"{made}\nfn marked(x, p) = x * (1.0 - {KEPT} * p)\n")
        inputs = arrays(case["inputs"])
        save_file(inputs, folder / "in.safetensors")
        tfmc("run", folder / "model.tfm", "--weights", folder, "-q", "--threads", 1, "--engine=reference", "--inputs",
             folder / "in.safetensors", "-o", folder / "out.safetensors", *(option for option in case.get("options", []) if "fusion" not in option))
        made = load_file(folder / "out.safetensors")
        given = {k: torch.from_numpy(v.astype(np.int64) if v.dtype == np.int32 else v) for k, v in inputs.items()}
        wanted = Marked(case).outputs(folder, config, given)
        same = set(made) & set(wanted)
        assert same, f"outputs {sorted(made)}, wanted {sorted(wanted)}"
        for key in same:
            a, b = made[key], wanted[key]
            if case["masked"]:
                a, b = (x[inputs[case["masked"]] != 0] for x in (a, b))
            worst = np.abs(a - b).max() / max(1, np.abs(b).max())
            assert worst < TOLERANCE, f"{key} differs by {worst:.2g} with {n} dropouts in the text"
    return f": {n} dropouts in the text, {lacking} named"


def chosen():
    """The first case of each family and class."""
    seen = {}
    for path in sorted(CASES.glob("*.json")):
        files = json.loads(path.read_text())["files"]
        config = files["config.json"]
        if "modules.json" not in files:  # of sentence-transformers, whose body another case is of
            seen.setdefault((config.get("model_type"), tuple(config.get("architectures") or ())), path.stem)
    return sorted(seen.values())


if __name__ == "__main__":
    sys.exit(each(sys.argv[3:] or chosen(), run))
