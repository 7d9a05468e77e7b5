"""Adapters (LoRA): the line `adapt` of a text, from settings or from an adapter of peft.

In: a source, patterns of weights, or the folder of an adapter. Out: a Source whose text has the line, and whose weights are
read with the adapter's. Refused: kinds of adapters that the line has no words for.
"""
import copy
import json
import os
import pathlib
import re

from . import _options, _source, _tensors
from ._errors import EnvError, InputError, UsageError

ROOT, ENDING = "base_model.model.", ".lora_A.weight"
UNSAID = {"use_dora", "layer_replication", "lora_bias", "target_parameters", "trainable_token_indices"}


def _text_list(items):
    return "[" + ", ".join(json.dumps(item, ensure_ascii=False) for item in items) + "]"


def _read(folder):
    """What an adapter of peft is: the settings of the line, by name."""
    path = pathlib.Path(folder) / "adapter_config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        names = _tensors.mapped(pathlib.Path(folder) / "adapter_model.safetensors")
    except FileNotFoundError as error:
        raise EnvError(f"{folder} is no adapter of peft: there is no {error.filename}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    if config.get("peft_type") != "LORA":
        raise InputError(f"{path}: peft_type is {config.get('peft_type')!r}; LORA is read")
    said = [key for key in sorted(UNSAID) if config.get(key)]
    if said:
        raise InputError(f"{path}: {said[0]} is set, and the line adapt has no word for it")
    targets = sorted(n[len(ROOT):-len(ENDING)] for n in names if n.startswith(ROOT) and n.endswith(ENDING))
    whole = sorted({n[len(ROOT):].rpartition(".")[0] for n in names if n.startswith(ROOT) and ".lora_" not in n})
    return {"rank": config.get("r", 8), "alpha": config.get("lora_alpha", 8), "dropout": config.get("lora_dropout", 0.0),
            "ranks": _of_modules(f"{path}: rank_pattern", config.get("rank_pattern"), targets),
            "alphas": _of_modules(f"{path}: alpha_pattern", config.get("alpha_pattern"), targets),
            "rslora": bool(config.get("use_rslora")), "targets": targets, "also": [f"{module}.*" for module in whole]}


def _of_modules(name, patterns, modules):
    """The numbers of modules, by peft's rule: the first expression that is the end of a module's name."""
    found, patterns = {}, _options.mapping(name, patterns or {}, "an object of numbers by patterns")
    for module in modules:
        try:
            number = next((n for key, n in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), None)
        except re.error as error:
            raise InputError(f"{name}: {error.pattern!r} is no regular expression: {error}") from None
        if number is not None:
            found[module] = number
    return found


def _numbers(name, given):
    _options.mapping(name, given, 'a dict of numbers by patterns, such as {"*.query": 4}')
    pairs = zip(_options.patterns(name, list(given)), given.values())
    return "[" + ", ".join(f"[{json.dumps(p, ensure_ascii=False)}, {_source._expression(name, n)}]" for p, n in pairs) + "]"


def lora(source, rank=None, alpha=None, targets=None, *, dropout=None, rslora=None, also=None, ranks=None, alphas=None, adapter=None):
    """The source with adapters: a Source whose text has a line `adapt`. Training moves them and the weights of `also` alone.

    targets: patterns of paths of weights that are factors of products (linear, x @ w), with or without ".weight"; rank (8):
    of the changes, which count alpha / rank times (alpha None: 2 rank), with rslora alpha / sqrt(rank); dropout: before
    A; ranks, alphas: other numbers of some modules, by patterns. adapter: the folder of an adapter of peft, with whose settings
    and weights training goes on; what is given besides takes the place of its settings.
    """
    found = {"rank": 8, "alpha": None, "dropout": 0.0, "rslora": False, "also": [], "targets": None, "ranks": {}, "alphas": {}}
    if adapter is not None:
        found.update(_read(_options.path("adapter", adapter)))
    given = {"rank": rank, "alpha": alpha, "dropout": dropout, "rslora": rslora, "also": also, "targets": targets,
             "ranks": ranks, "alphas": alphas}
    found.update({name: value for name, value in given.items() if value is not None})
    if found["targets"] is None:
        raise UsageError("targets= are patterns of the weights that get adapters, such as [\"*.query\", \"*.value\"]")
    settings = [f"rank = {_source._expression('rank', found['rank'])}"]
    if found["alpha"] is not None:
        settings.append(f"alpha = {_source._expression('alpha', found['alpha'])}")
    dropout = _source._expression("dropout", found["dropout"])
    if dropout not in ("0", "0.0"):
        settings.append(f"dropout = {dropout}")
    if _options.flag("rslora", found["rslora"]):
        settings.append("rslora = true")
    also = _options.patterns("also", found["also"])
    if also:
        settings.append(f"also = {_text_list(also)}")
    numbers = {name: _numbers(name, found[name]) for name in ("ranks", "alphas")}
    settings += [f"{name} = {text}" for name, text in numbers.items() if text != "[]"]
    line = f"  adapt {_text_list(_options.patterns('targets', found['targets']))} {{ {'  '.join(settings)} }}"
    return _with_line(source, line, adapter)


def _with_line(source, line, adapter):
    from ._trainer import with_objective
    path, text = _source.read(source)
    if text is None:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    made = copy.copy(source) if isinstance(source, _source.Source) else _source.Source(text, name=path or "<text>")
    made.text, made.adapts = with_objective(text, line), True
    if adapter is not None:
        if made.weights is None or not isinstance(made.weights, (str, os.PathLike)):
            raise UsageError("adapter= changes weights of a file or folder, which the source does not have: import_model gives such")
        made.weights = f"{os.fspath(made.weights)}+{os.path.abspath(os.fspath(adapter))}"
    return made


def base_of(source):
    """The folder of the checkpoint that a source's weights are; None: they are no folder's."""
    weights = None if source is None else source.weights
    if not isinstance(weights, (str, os.PathLike)):
        return None
    weights = os.fspath(weights)
    base = weights if os.path.isdir(weights) else weights.partition("+")[0]
    return base if os.path.isdir(base) else None


def name_base(folder, source):
    """Writes the base into the config of an adapter that a run left, if there is one."""
    path, base = folder / "adapter_config.json", base_of(source)
    if base is None or not path.is_file():
        return
    config = json.loads(path.read_text(encoding="utf-8"))
    new = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    new.write_text(json.dumps({**config, "base_model_name_or_path": base}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(new, path)
