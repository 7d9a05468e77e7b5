"""The folder that text.finetune leaves: the checkpoint that training began with, with the weights that were trained.

In: the folder of a checkpoint, weights by their paths. Out: a folder with its configs, its tokenizer, its modules, and
model.safetensors under the names that the tensors had, which transformers and sentence-transformers open too. What was not
trained is as it was; a copy of a trained tensor follows it. Refused: a weight that the checkpoint has under no name.
"""
import json
import os
import pathlib
import shutil

import numpy as np

from .. import _tensors
from .._errors import InputError
from . import _folder

COPIED = (".json", ".txt", ".model", ".jinja")
NOT_COPIED = (".index.json", "trainer_state.json", "adapter_config.json")
SIZES = {"F32": 4, "F16": 2, "BF16": 2}


def _tensors_of(folder):
    """name -> (type, shape, bytes) of the safetensors files of a folder, mapped."""
    single = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    files = [single] if single.is_file() else sorted(
        {folder / name for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()} if index.is_file() else ())
    return {name: tensor for path in files for name, tensor in _tensors.mapped(path).items()}


def _copies(tensors, trained):
    """name -> the trained matrix that it is a copy of, such as the table of a head that is tied. Matrices of one number are
    alike for another reason."""
    sizes = {}
    for name in trained:
        sizes.setdefault((*tensors[name][:2],), []).append(name)
    found = {}
    for name, (dtype, shape, data) in tensors.items():
        for other in sizes.get((dtype, shape), ()) if name not in trained and len(shape) > 1 else ():
            if np.array_equal(data, tensors[other][2]) and np.any(data[SIZES.get(dtype, 1):] != data[:-SIZES.get(dtype, 1)]):
                found[name] = other
                break
    return found


def _write(path, tensors, trained):
    """The tensors, those that were trained in f32."""
    taken = {**{name: name for name in trained}, **_copies(tensors, trained)}
    parts = {name: ("F32", shape, np.asarray(trained[taken[name]], np.float32)) if name in taken else (dtype, shape, data)
             for name, (dtype, shape, data) in tensors.items()}
    new = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    _tensors.write_parts(new, parts, {"format": "pt"})
    os.replace(new, path)


def copy_files(folder, out):
    """Everything that says what the model and its tokenizer are."""
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    modules = [folder / module["path"] for module in _folder.read_list(folder, "modules.json") if module.get("path")]
    for source in [folder, *modules]:
        to = out / source.relative_to(folder)
        to.mkdir(parents=True, exist_ok=True)
        for path in source.iterdir() if source.is_dir() else ():
            if path.is_file() and path.suffix in COPIED and not path.name.endswith(NOT_COPIED):
                shutil.copyfile(path, to / path.name)
    config = _folder.read(out, "config.json")
    changed = {key: "float32" for key in ("dtype", "torch_dtype") if config.get(key)}
    if changed:  # or what was learned would be rounded when it is read
        (out / "config.json").write_text(json.dumps({**config, **changed}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write(folder, out, weights):
    """weights: path -> array, all of the text's."""
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    copy_files(folder, out)
    left = dict(weights)
    modules = [module["path"] for module in _folder.read_list(folder, "modules.json") if module.get("path")]
    for place in [*modules, ""]:
        tensors, prefix = _tensors_of(folder / place), f"{place}." if place else ""
        trained = {name: left.pop(prefix + name) for name in tensors if prefix + name in left}
        wrong = [name for name, value in trained.items() if tensors[name][1] != value.shape]
        if wrong:
            raise InputError(f"{folder}: {wrong[0]} is {list(tensors[wrong[0]][1])}, and the model's weight is "
                             f"{list(trained[wrong[0]].shape)}", reason="shape")
        if tensors:
            _write(out / place / "model.safetensors", tensors, trained)
    if left:
        raise InputError(f"{folder} has no tensor {next(iter(left))}: this family's weights have other names than the checkpoint's; "
                         "train it as a module of transformers, by from_torch")
