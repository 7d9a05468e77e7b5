"""What the compiler does beside compiling into this process: checking, building libraries, importing checkpoints."""
import collections.abc
import os
import pathlib
import re
import warnings

from . import _find, _options, _source
from ._errors import CompileError, UsageError
from ._model import CompileWarning, _type_of, compile


class Description:
    """What a model takes and gives, by name; its sizes; the conditions of every run; its weights."""

    def __init__(self, name, inputs, outputs, conditions, weights):
        self.name, self.inputs, self.outputs = name, inputs, outputs
        self.conditions, self.weights = conditions, weights
        dims = [d for kind in inputs.values() for d in kind.shape]
        names = [d for d in dims if isinstance(d, str) and d.isidentifier()]
        self.sizes = tuple(sorted(set(names)))

    def __repr__(self):
        takes = ", ".join(f"{name}: {kind}" for name, kind in self.inputs.items())
        gives = ", ".join(f"{name}: {kind}" for name, kind in self.outputs.items())
        return f"<tfmc.Description {self.name}({takes}) -> {gives}, {len(self.weights)} weights>"


LINE = re.compile(r"  (\S.*?) {1,}(\S+\[.*\])(?:, left out (\S+) everywhere)?$")
CONDITION = re.compile(r"  (.*\S)  *(\S+)$")


def _parse(text):
    """What `tfmc check -v` prints."""
    part, name, tables, conditions = "", "", {"inputs": {}, "outputs": {}, "weights": {}}, []
    for line in text.splitlines():
        if line.startswith("model "):
            name = line[6:].strip()
        elif line and not line.startswith(" "):
            part = line.split(":")[0]
        elif part in tables and (match := LINE.match(line)):
            tables[part][match[1]] = _type_of(match[2], match[3])
        elif part == "conditions of every run" and (match := CONDITION.match(line)):
            conditions.append(match[1].strip())
    return Description(name, tables["inputs"], tables["outputs"], tuple(conditions), tables["weights"])


def _warn(on_message):
    return on_message or (lambda message: warnings.warn(str(message), CompileWarning, stacklevel=5))


def _arguments(source, weights, weights_prefix, model, quantize, settings):
    """(arguments, standard input) that commands with a model share."""
    path, text = _source.read(source)
    if weights is None and isinstance(source, _source.Source):
        weights = source.weights
    if isinstance(weights, collections.abc.Mapping):
        raise UsageError("weights must be a file or a folder here; tfmc.compile takes them from memory")
    arguments = []
    for definition in _source.definitions(settings):
        arguments += ["-D", definition]
    rules = _options.rules(quantize)
    for option, value in (("--model", model), ("--quantize", rules), ("--weights", weights),
                          ("--weights-prefix", weights_prefix or None)):
        if value is not None:
            arguments.append(f"{option}={os.fspath(value)}")
    return arguments + ["--", path or _find.TEXT], text


# ---- about a model that was compiled ----

def stage_of(model, stage, *options):
    """What `tfmc dump` prints. Each stage gets what it depends on: the others refuse an instruction set, and the syntax
    tree everything but the text."""
    march = [f"-march={model.march}"] if stage.endswith("plan") or stage in ("llvm", "asm") else []
    return of_model(model, "dump", [*march, f"--stage={stage}", *options], bare=stage == "ast")


def of_model(model, command, options, weights=False, bare=False):
    """What a command prints about the source of a model; with `weights`, for a command that computes; `bare`: of the text
    alone."""
    if model.closed:
        raise UsageError("the model is closed")
    if model._made_from is None:
        raise UsageError("the model was loaded, and its source is not known: `tfmc.compile` makes models that have one")
    made, compiler = model._made_from
    made = dict.fromkeys(made) | {"source": made["source"], "settings": {}} if bare else made
    arguments, text = _arguments(**{**made, "weights": made["weights"] if weights else None})
    if weights and not made["weights"]:
        options = [*options, "--random-weights=1"]
    return _find.command([command, *options, *arguments], given=compiler, text=text,
                         on_message=lambda message: None)


def profile(model, inputs, iterations, decode):
    import tempfile

    import numpy as np
    kinds = {"f32": np.float32, "i32": np.int32, "bool": np.bool_}
    options = [f"-march={model.march}", f"--iterations={iterations}", *(["--decode"] if decode else []),
               *([f"--threads={model._pool_threads}"] if model._pool_threads else [])]
    with tempfile.TemporaryDirectory(prefix="tfmc-") as folder:
        for number, (name, value) in enumerate(inputs.items()):
            if name not in model.inputs:
                raise UsageError(f"there is no input \"{name}\"; the inputs are {', '.join(model.inputs)}")
            if not isinstance(value, str):
                path = os.path.join(folder, f"{number}.npy")
                np.save(path, np.asarray(value).astype(kinds[model.inputs[name].dtype], order="C"))
                value = f"@{path}"
            options.append(f"--input={name}={value}")
        return of_model(model, "profile", options, weights=True)


# ---- without a model ----

def check(source, *, weights=None, weights_prefix="", model=None, compiler=None, on_message=None, config={},
          **more_config):
    """What a model takes, gives and needs, or its errors; no code is made. With weights, each is compared."""
    arguments, text = _arguments(source, weights, weights_prefix, model, None, {**config, **more_config})
    return _parse(_find.command(["check", "-v", *arguments], given=compiler, text=text, on_message=_warn(on_message)))


def build(source, output, *, weights=None, weights_prefix="", model=None, march=("x86-64-v3",), quantize=None,
          embed_weights=False, compiler=None, on_message=None, config={}, **more_config):
    """Writes libx.so, x.h and x.tfmw for C programs (and tfmc.load): what `tfmc compile -o` does. No C compiler is
    needed. `output` may be x.tfmm instead, one file of code and weights."""
    arguments, text = _arguments(source, weights, weights_prefix, model, quantize, {**config, **more_config})
    sets = march if isinstance(march, str) else ",".join(march)
    options = ["-o", os.fspath(output), f"-march={sets}"] + (["--embed-weights"] if embed_weights else [])
    _find.command(["compile", "-q", *options, *arguments], given=compiler, text=text, on_message=_warn(on_message))
    return pathlib.Path(output)


def import_model(folder, output=None, *, task=None, family=None, strict=False, ignore=(), adapter=None, compiler=None,
                 on_message=None):
    """The model of a checkpoint of Hugging Face, or of a GGUF file, as a Source, whose weights are the folder's; also
    written to `output`. adapter: the folder of an adapter of peft (LoRA), or several, which are merged."""
    named = os.fspath(folder)
    folder = os.path.abspath(named) if os.path.exists(named) else named  # the message about a name of the hub needs it
    adapters = [] if adapter is None else [adapter] if isinstance(adapter, (str, os.PathLike)) else list(adapter)
    adapters = [os.path.abspath(os.fspath(path)) for path in adapters]
    arguments = ["import", folder, *(f"--ignore={name}" for name in ignore), *(f"--adapter={path}" for path in adapters)]
    for option, value in (("--task", task), ("--family", family)):
        if value is not None:
            arguments.append(f"{option}={os.fspath(value)}")
    text = _find.command(arguments + (["--strict"] if strict else []), given=compiler, on_message=_warn(on_message))
    if not text.strip():
        raise CompileError(f"{folder}: the compiler wrote no model")
    if output is not None:
        pathlib.Path(output).write_text(text, encoding="utf-8")
    return _source.Source(text, "+".join([folder, *adapters]), os.path.join(folder, "config.json"))


def from_pretrained(folder, *, task=None, family=None, ignore=(), adapter=None, threads=None, pool=None, march=None,
                    quantize=None, deadline=None, compiler=None, on_message=None, config={}, **more_config):
    """import_model and compile: a checkpoint's folder becomes a model, which remembers it as `folder`."""
    source = import_model(folder, task=task, family=family, ignore=ignore, adapter=adapter, compiler=compiler,
                          on_message=on_message)
    model = compile(source, threads=threads, pool=pool, march=march, quantize=quantize, deadline=deadline,
                    compiler=compiler, on_message=on_message, config={**config, **more_config})
    model.folder = pathlib.Path(os.path.abspath(os.fspath(folder)))
    return model
