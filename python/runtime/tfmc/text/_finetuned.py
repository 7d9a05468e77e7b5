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

from .._errors import InputError
from . import _folder

COPIED = (".json", ".txt", ".model", ".jinja")
NOT_COPIED = (".index.json", "trainer_state.json", "adapter_config.json")
SIZES = {"F32": 4, "F16": 2, "BF16": 2}


class _Tensors:
    """The tensors of the safetensors files of a folder, mapped."""

    def __init__(self, folder):
        self.found = {}  # name -> (type, shape, bytes)
        single = folder / "model.safetensors"
        index = folder / "model.safetensors.index.json"
        files = [single] if single.is_file() else sorted(
            {folder / name for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
            if index.is_file() else ())
        for path in files:
            data = np.memmap(path, np.uint8, "r")
            begin = 8 + int.from_bytes(bytes(data[:8]), "little")
            for name, info in json.loads(bytes(data[8:begin])).items():
                if name != "__metadata__":
                    first, last = info["data_offsets"]
                    self.found[name] = info["dtype"], tuple(info["shape"]), data[begin + first:begin + last]


def _copies(tensors, trained):
    """name -> the trained matrix that it is a copy of, such as the table of a head that is tied. Matrices of one number are
    alike for another reason."""
    sizes = {}
    for name in trained:
        sizes.setdefault((*tensors.found[name][:2],), []).append(name)
    found = {}
    for name, (dtype, shape, data) in tensors.found.items():
        for other in sizes.get((dtype, shape), ()) if name not in trained and len(shape) > 1 else ():
            if np.array_equal(data, tensors.found[other][2]) and np.any(data[SIZES.get(dtype, 1):] != data[:-SIZES.get(dtype, 1)]):
                found[name] = other
                break
    return found


def _write(path, tensors, trained):
    """The tensors, those that were trained in f32."""
    taken = {**{name: name for name in trained}, **_copies(tensors, trained)}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.found.items():
        size = 4 * int(np.prod(shape, dtype=np.int64)) if name in taken else len(data)
        header[name] = {"dtype": "F32" if name in taken else dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    new = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(new, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, (_, _, data) in tensors.found.items():
            file.write(np.ascontiguousarray(trained[taken[name]], np.float32).data if name in taken else data.data)
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
        tensors, prefix = _Tensors(folder / place), f"{place}." if place else ""
        trained = {name: left.pop(prefix + name) for name in tensors.found if prefix + name in left}
        wrong = [name for name, value in trained.items() if tensors.found[name][1] != value.shape]
        if wrong:
            raise InputError(f"{folder}: {wrong[0]} is {list(tensors.found[wrong[0]][1])}, and the model's weight is "
                             f"{list(trained[wrong[0]].shape)}", reason="shape")
        if tensors.found:
            _write(out / place / "model.safetensors", tensors, trained)
    if left:
        raise InputError(f"{folder} has no tensor {next(iter(left))}: this family's weights have other names than the checkpoint's; "
                         "train it as a module of transformers, by from_torch")
