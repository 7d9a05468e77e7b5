"""text.finetune: a checkpoint of Hugging Face and texts in, the folder of a trained checkpoint out.

In: a folder, rows of texts (task says which), settings. Out: a folder that tfmc.text, transformers and sentence-transformers
open, or, with lora, the files of peft; the run (checkpoints, log) beside it. Refused: tasks that the checkpoint has no output
for, rows of another form, options that do not belong to the task.
"""
import collections.abc
import inspect
import json
import os
import pathlib
import re
import shutil
import tempfile

from .. import _fit, _lora, _options, _tensors
from .._commands import check, import_model
from .._errors import EnvError, UsageError
from .._trainer import Trainer
from . import _finetuned, _folder, _objectives

LOSSES = {"pairs": ("multiple_negatives",), "scores": ("cosine", "cosent"), "triplets": ("triplet",),
          "labels": ("cross_entropy", "bce"), "text": ("cross_entropy",)}
OF_FIT = (*_fit.OPTIONS, "metric", "callbacks", "progress", "skip_long")


def _checked_adapters(lora):
    known = [name for name in inspect.signature(_lora.lora).parameters if name != "source"]
    if not isinstance(lora, collections.abc.Mapping) or "targets" not in lora:
        raise UsageError('lora is what tfmc.lora takes, such as {"targets": ["*.query", "*.value"], "rank": 8}')
    unknown = [name for name in lora if name not in known]
    if unknown:
        raise UsageError(f"lora has {unknown[0]!r}, and tfmc.lora takes {', '.join(known)}")


def _checked(task, loss, labels, pack, folder, out):
    if not isinstance(task, str) or task not in LOSSES:
        raise UsageError(f"task is {task!r:.60}, none of {', '.join(LOSSES)}")
    if loss is not None and not (isinstance(loss, str) and loss in LOSSES[task]):
        raise UsageError(f"loss is {loss!r:.60}; for {task!r} there is {', '.join(LOSSES[task])}")
    if labels is not None and task != "labels":
        raise UsageError('labels= are the names of the classes of task="labels"')
    if labels is not None and (isinstance(labels, (str, bytes, collections.abc.Mapping)) or not isinstance(labels, collections.abc.Sized) or
                               not isinstance(labels, collections.abc.Iterable) or len({*map(str, labels)}) < len(labels)):
        raise UsageError(f"labels is {labels!r:.60}, not a list of different names")
    if _options.flag("pack", pack) and task != "text":
        raise UsageError('pack=True is for task="text"')
    if not pathlib.Path(folder).is_dir():
        raise EnvError(f"{folder}: there is no such folder; finetune begins with the folder of a checkpoint")
    if pathlib.Path(out).exists() and os.path.samefile(folder, out):
        raise UsageError(f"out is the folder that training begins with: {folder}")


# ---- classes ----

def _names(rows, labels, config):
    """The names of the classes: those that are given, those of the checkpoint, those of the data."""
    if labels is not None:
        names = list(labels)
    elif "ForSequenceClassification" in (config.get("architectures") or [""])[0]:
        names = [config["id2label"][str(i)] for i in range(len(config["id2label"]))] if config.get("id2label") else ["0", "1"]
    else:
        given = [one for row in rows for one in (row[-1] if isinstance(row[-1], (list, tuple, set, frozenset)) else [row[-1]])]
        named = all(isinstance(one, str) for one in given)
        names = sorted(set(given)) if named else [str(i) for i in range(1 + max((one for one in given if isinstance(one, int)), default=0))]
    if len(names) < 2:
        raise UsageError(f"there is one class, {names}: a classifier has two or more; labels= names them")
    return names


def _with_head(folder, names, several, seed, made):
    """The checkpoint as one of a class that classifies: the folder itself, or a copy with a new head."""
    config = _folder.read(folder, "config.json")
    if "ForSequenceClassification" in (config.get("architectures") or [""])[0] and len(config.get("id2label") or "12") == len(names):
        return folder
    try:
        import torch
        import transformers
    except ImportError:
        raise EnvError("a new head is made by transformers: pip install torch transformers, or begin with a checkpoint that has "
                       f"one for {len(names)} classes") from None
    torch.manual_seed(seed)
    problem = "multi_label_classification" if several else "single_label_classification"
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(names), id2label=dict(enumerate(map(str, names))), problem_type=problem, dtype=torch.float32,
        label2id={str(name): i for i, name in enumerate(names)}, ignore_mismatched_sizes=True)
    _finetuned.copy_files(folder, made)
    for name in ("modules.json", *_folder.TEXT_SETTINGS, "config_sentence_transformers.json"):
        pathlib.Path(made, name).unlink(missing_ok=True)  # it is no sentence encoder any more
    model.save_pretrained(made)
    return made


# ---- the end of a text ----

def _end(folder):
    for name in ("generation_config.json", "config.json"):
        end = _folder.read(folder, name).get("eos_token_id")
        if end is not None:
            return [end[0] if isinstance(end, list) else end]
    return []


# ---- the run ----

class _Task:
    """One call: what the checkpoint is, and how rows become items."""

    def __init__(self, folder, task, loss, names, pack, max_tokens, lora):
        self.folder, self.task, self.loss, self.names, self.pack = pathlib.Path(folder), task, loss, names, pack
        kind = {"labels": "classify", "text": None}.get(task, "embed")
        self.source = import_model(folder, task=kind)
        if lora is not None:
            self.source = _lora.lora(self.source, **lora)
        tokenizer, side, _ = _folder.loaded(folder)
        cutter = _folder.Cutter(_folder.lower_case(tokenizer, folder), not _folder.is_static(folder), side)
        limit = _folder.most_tokens(folder)
        max_tokens = _folder.whole(max_tokens, "max_tokens") or (min(limit, 512) if task == "text" else limit)
        inputs = check(self.source.text).inputs
        self.towers = _objectives.Towers(inputs, cutter, min(limit, max_tokens),
                                         task == "labels" and "token_type_ids" in inputs and _folder.tells_apart(folder))

    def items(self, rows, word):
        """(text of the objective, items)"""
        if self.task == "labels":
            return _objectives.classes(self.towers, rows, self.names, word)
        if self.task == "text":
            return _objectives.texts(self.towers, rows, _end(self.folder), self.pack, word)
        return getattr(_objectives, self.task)(self.towers, rows, self.loss, word)


LACKING = re.compile(r"^# Training is without the dropouts of config.json: (.*)$", re.MULTILINE)  # in the head of what was imported


def _check_dropouts(job, settings):
    """Dropouts that the config asks for are those of the text, or are left out by who says so."""
    said = LACKING.search(job.source.text)
    if said and settings.get("dropout") not in (False,):  # None is the default too
        raise UsageError(f"config.json asks for dropout that the text of this family does not have ({said[1]}); dropout=False trains "
                         "without any")


def _write_out(job, trainer, run, out):
    if job.source.adapts:
        _finetuned.copy_files(job.folder, out)
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            shutil.copyfile(run / "adapter" / name, out / name)
        return
    kept = run / ("average.safetensors" if trainer.has_average else "weights.safetensors")
    _finetuned.write(job.folder, out, _tensors.read_tensors(kept))


def finetune(folder, data, *, task, out, valid=None, lora=None, max_tokens=None, loss=None, labels=None, pack=False, seed=0,
             resume=False, threads=None, settings={}, config={}, compiler=None, on_message=None, **options):
    """Trains a checkpoint on texts: Fit. `out` is a folder as `folder` is, with the best weights by `valid`, or the newest.

    task and rows: "pairs" (anchor, positive[, negatives]), "scores" (text, text, number in -1 .. 1), "triplets" (anchor, positive,
    negative), "labels" (text[, text], label or list of labels), "text" (text, or prompt and answer). Rows are lists of tuples or
    dicts, columns, a datasets.Dataset. lora: what tfmc.lora takes ({"targets": [...]}): then `out` has peft's two files.
    loss: "cosent" for scores. labels: names of the classes. max_tokens: longer texts are cut. pack: texts stand end to end.
    options are those of Trainer.fit (epochs, batch_items, patience ...) and settings of the train block (lr=2e-5).
    """
    folder, out = pathlib.Path(_options.path("folder", folder)), pathlib.Path(_options.path("out", out))
    seed = _options.whole("seed", seed, 0, (1 << 64) - 1)
    _checked(task, loss, labels, pack, folder, out)
    of_fit = {name: options.pop(name) for name in OF_FIT if name in options}
    settings = {"lr": 5e-5, "weight_decay": 0.0, "clip_norm": 1, **_options.apart(_options.mapping("settings", settings, "a dict"), options)}
    if lora is not None:
        _checked_adapters(lora)
    rows, checked = _objectives.rows_of(data, "data"), None if valid is None else _objectives.rows_of(valid, "valid")
    if of_fit.get("epochs") is None and of_fit.get("steps") is None:
        of_fit["epochs"] = 1
    if of_fit.get("batch_items") is None and of_fit.get("batch_tokens") is None:
        of_fit["batch_items"] = 32
    with tempfile.TemporaryDirectory(prefix="tfmc-") as made:
        names = _names(rows, labels, _folder.read(folder, "config.json")) if task == "labels" else None
        begin = folder if names is None else _with_head(folder, names, isinstance(rows[0][-1], (list, tuple, set, frozenset)), seed, made)
        job = _Task(begin, task, loss, names, pack, max_tokens, lora)
        _check_dropouts(job, settings)
        objective, items = job.items(rows, "data")
        held = None if checked is None else job.items(checked, "valid")[1]
        trainer = Trainer(job.source, objective=objective, settings=settings, seed=seed, threads=threads, config=config,
                          compiler=compiler, on_message=on_message)
        out.mkdir(parents=True, exist_ok=True)
        fit = trainer.fit(items, held, out=out / "run", resume=resume, **of_fit)
        _write_out(job, trainer, out / "run", out)
    if lora is not None:
        path = out / "adapter_config.json"
        named = {**json.loads(path.read_text(encoding="utf-8")), "base_model_name_or_path": os.path.abspath(folder)}
        path.write_text(json.dumps(named, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return fit._replace(folder=out)
