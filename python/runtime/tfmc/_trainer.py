"""Trainers: steps of a model's objective on batches that a program makes, and the weights as they are."""
import collections
import collections.abc
import contextlib
import hashlib
import math
import os
import pathlib
import re

import numpy as np

from . import _core, _errors, _find, _group, _lora, _model, _nested, _options, _room, _source
from ._errors import Diverged, EnvError, InputError, UsageError

STEP, GRADIENTS, EVALUATE = range(3)  # of _core.Trainer._run
WEIGHT, GRADIENT, MEAN = 0, 1, 4       # of _core.Trainer._tensor
NO_LABEL = "no label that counts"      # in the message about a batch without anything to divide by


class Step(collections.namedtuple("Step", "step loss norm rate results skipped", defaults=(False,))):
    """step: how many are done; norm: of all gradients, before clipping; results: of the objective by name, the loss first;
    skipped: no label counts in the batch, so that nothing was changed and the loss is NaN."""

    __slots__ = ()


class Fit(collections.namedtuple("Fit", "best history seconds skipped stopped folder")):
    """best: the record of the best validation, or None; history: the lines of the run's log.jsonl, as dicts; skipped: batches
    in which no label counts; stopped: "end", "patience", "callback" or "signal"; folder: of the run, or None."""

    __slots__ = ()


def _setting(name, value):
    """A setting of the train block as the compiler takes it; a str is a word, or an expression of the language."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(f'"{v}"' if isinstance(v, str) else _setting(name, v) for v in value) + "]"
    try:
        return _source._expression(name, value)
    except UsageError:
        raise UsageError(f"the setting {name} is of type {type(value).__name__}, not a number, a flag, a text, a list or "
                         "None") from None


def _patterns(new, weights):
    new = _options.patterns("new", new)
    if new and weights is None:
        raise UsageError("new= says which weights are not those of weights=: without any all of them are new")
    return new


def with_objective(text, objective):
    """The text with these members before the last brace of its model."""
    end = text.rfind("}")
    if end < 0 or re.sub(r"#[^\n]*|//[^\n]*", "", text[end + 1:]).strip():
        raise UsageError("objective= goes before the last brace of a model, but the text does not end with one")
    return f"{text[:end]}{objective}\n{text[end:]}"


class Trainer(_core.Trainer):
    """Trains the weights of a model, as its train block says: a text, a Source, or what `tfmc compile --training` made.

    weights: what training begins with; None: the weights of the Source, or initial values for `seed`; new: patterns of
    those that have initial values nevertheless, such as a new head. memory: bytes that a step may take: batches are computed
    in parts that fit, with the same results. recompute: "none", "cheap" (None) or "layer", what is computed again in place of
    being kept; less memory, the same numbers. settings and
    more_settings take the place of those of the train block (lr=1e-4, schedule="linear"); objective is text that goes
    before the model's last brace, such as an objective and a train block. config: values of the model's configuration.
    One thread at a time; Ctrl-C ends a step, and the weights are as before.

    group: processes that train together, each with the same calls: a group of torch.distributed, a communicator of mpi4py,
    or an object with rank, ranks and exchange(peer, bytes) -> bytes. A step is cut into `shards`, of which each takes its
    share; with as many shards 1, 2 and 4 ranks have the same weights, to the bit.
    """

    def __new__(cls, *args, **named):
        return super().__new__(cls)

    def __init__(self, source, *, weights=None, new=(), objective=None, settings={}, seed=0, threads=None, pool=None,
                 memory=None, recompute=None, shards=1, group=None, march=None, compiler=None, config={}, on_message=None,
                 **more_settings):
        settings = _options.apart(_options.mapping("settings", settings, "a dict"), more_settings)
        self._make(source, None, weights=weights, new=new, objective=objective, settings=settings,
                   seed=seed, threads=threads, pool=pool, memory=memory, recompute=recompute, shards=shards, group=group,
                   march=march, compiler=compiler, config=config, on_message=on_message)

    @classmethod
    def resume(cls, folder, source, *, weights=None, objective=None, settings={}, threads=None, pool=None, memory=None,
               recompute=None, shards=1, group=None, march=None, compiler=None, config={}, on_message=None, **more_settings):
        """Goes on from a checkpoint: a folder step-XXXXXXXX, the folder of a run (from its newest), or a state.tfmt. The
        seed is the checkpoint's; what it was compiled of, and settings, are to be given again; of a model with adapters the
        base too, as weights or as those of the Source."""
        made = cls.__new__(cls)
        settings = _options.apart(_options.mapping("settings", settings, "a dict"), more_settings)
        made._make(source, _state_in(_options.path("folder", folder)), weights=weights, new=(), objective=objective,
                   settings=settings, seed=0, threads=threads, pool=pool, memory=memory,
                   recompute=recompute, shards=shards, group=group, march=march, compiler=compiler, config=config,
                   on_message=on_message)
        return made

    def _make(self, source, state, *, weights, new, objective, settings, seed, threads, pool, memory, recompute, shards, group,
              march, compiler, config, on_message):
        shards = _options.whole("shards", shards, 1, (1 << 31) - 1)
        seed = _options.whole("seed", seed, 0, (1 << 64) - 1)
        _options.function("on_message", on_message)
        _options.mapping("config", config, "a dict of the configuration's values")
        if march is not None and not isinstance(march, str):
            raise UsageError(f"march is of type {type(march).__name__}, not the name of an instruction set")
        if compiler is not None:
            _options.path("compiler", compiler)
        self._group = _group.of(group)
        if self._group is not None and shards == 1:
            shards = self._group.ranks
        self._shards = shards
        path, text = _source.read(source)
        self.source = source if isinstance(source, _source.Source) else None
        self._made, self._on_message, self.seed = None, on_message, seed if state is None else None
        if path is not None and _model.is_made(path):
            given = {"weights": weights, "new": new, "objective": objective, "settings": settings, "recompute": recompute,
                     "march": march, "config": config}
            for name, value in given.items():
                if value:
                    raise UsageError(f"{path} is compiled: {name}= is for texts")
            is_library = _model._is_library(path)
            (self._open if is_library else self._map)(os.fsencode(os.path.abspath(path) if is_library else path))
        else:
            if objective is not None:
                text = with_objective(pathlib.Path(path).read_text(encoding="utf-8") if text is None else text, objective)
            if weights is None and self.source is not None and (state is None or self.source.adapts or self.source.base_is_apart):
                weights = self.source.weights
            words = tuple(f"{n}={_setting(n, v)}" for n, v in settings.items())
            self._made = {"path": None if path is None else os.path.abspath(path), "text": text, "march": march,
                          "compiler": compiler, "config": config, "settings": words, "shards": shards, "recompute": recompute}
            if isinstance(weights, collections.abc.Mapping) and not weights:
                raise UsageError("weights= has no weight: leave it out for initial values")
            self._compile_with(weights, (), _patterns(new, weights))
        pool = _model._pool_for(threads, pool)
        ranks = (0, 1, None) if self._group is None else (self._group.rank, self._group.ranks, self._group.exchange)
        self._begin(pool, seed, None if state is None else os.fsencode(state), shards, *ranks)
        inputs, self.results, self._paths, self.settings = self._describe()
        self.inputs = {name: _model._type_of(kind) for name, kind in inputs}
        self.results, self._paths = tuple(self.results), tuple(self._paths)
        self.trained = tuple(p for p in self._paths if self._tensor(p, GRADIENT) is not None)
        forms = {path: self._form(path) for path in self._paths}
        self._shapes = {path: shape for path, (_, shape) in forms.items()}
        self._narrow = {path: form for path, (form, _) in forms.items() if form != "f32"}  # kept in 16 bits
        self._epoch, self._pool, self._without_dropout, self.memory = 0, pool, None, memory
        self.has_average = bool(self.trained) and self._tensor(self.trained[0], MEAN) is not None
        if memory is not None:
            _room.check(self, memory)
        self._check_ranks()

    def _compile_with(self, weights, more_settings, new):
        made = self._made
        options = {
            **_model.request(made["path"], made["text"], weights, made["config"]), "training": 1,
            "march": _model._encode(made["march"]), "compiler": _model._encode(_find.compiler(made["compiler"])),
            "recompute": _model._encode(_options.word("recompute", made["recompute"], "none", "cheap", "layer")),
            "settings": tuple(word.encode() for word in (*made["settings"], *more_settings)),
            "new": tuple(word.encode() for word in new)}
        _model.run_compiler(self, options, made["text"], self._on_message)

    def _check_ranks(self):
        if self._group is None:
            return
        digest = hashlib.sha256()
        for path in self._paths:
            digest.update(self.weight(path).tobytes())
        if not self._group.are_alike(digest.digest()):
            raise UsageError("the ranks begin with other weights than each other: give them the same, or the same seed")

    # ---- steps ----

    def _row(self, batch, named):
        if batch is None:
            batch = {}
        elif type(batch) is not dict:  # asked first, for each step
            _options.mapping("the batch", batch, "a dict of arrays by the inputs' names")
        twice = [name for name in named if name in batch]
        if twice:
            raise UsageError(f'input "{twice[0]}" is given twice, in the batch and by its name')
        values = _nested.flat({**batch, **named}, self.inputs)
        unknown = [n for n in values if n not in self.inputs]
        missing = [n for n in self.inputs if n not in values]
        if unknown or missing:
            word, names = ("there is no", unknown) if unknown else ("missing is", missing)
            raise UsageError(f"{word} input \"{names[0]}\"; the inputs of the objective are {', '.join(self.inputs)}")
        return tuple(values[n] for n in self.inputs)

    def _parts(self, batch, parts, named):
        if parts is None:
            return (self._row(batch, named),)
        if batch is not None or named:
            raise UsageError("give a batch or parts, not both")
        if isinstance(parts, collections.abc.Mapping) or not isinstance(parts, collections.abc.Iterable):
            raise UsageError(f"parts is of type {type(parts).__name__}, not a list of batches")
        parts = tuple(self._row(part, {}) for part in parts)
        if not parts:
            raise UsageError("there are no parts: at least one is needed")
        return parts

    def _step_of(self, result):
        step, loss, norm, rate, results = result
        return Step(step, loss, norm, rate, dict(zip(self.results, results)))

    def _share(self, parts):
        """The parts that are this process's, and how many items come before them."""
        if self.memory is not None:
            parts = _room.fitting(self, parts)
        if self._shards == 1 or len(parts) % self._shards == 0 and self._group is None:
            return parts, 0
        parts, items = _group.shares(parts, self.inputs, self._shards)
        if self._group is None:
            return tuple(parts), 0
        each = len(parts) // self._group.ranks
        begin = self._group.rank * each
        return tuple(parts[begin:begin + each]), sum(items[:begin])

    def _do(self, how, parts):
        try:
            return self._step_of(self._run(how, *self._share(parts)))
        except Diverged as error:
            error.step = self.steps + 1
            raise
        except InputError as error:
            raise (self.source.explained(error) if self.source is not None else error) from None

    def step(self, batch=None, /, *, parts=None, **named):
        """One step on a batch: arrays by the names of the objective's inputs. parts: several batches that count as one. A batch
        in which no label counts changes nothing: `skipped` of what is returned is true."""
        try:
            return self._do(STEP, self._parts(batch, parts, named))
        except InputError as error:
            if NO_LABEL not in str(error):
                raise
            return Step(self.steps, math.nan, 0.0, 0.0, dict.fromkeys(self.results, math.nan), True)

    def gradients(self, batch=None, /, *, parts=None, dropout=True, **named):
        """The first half of a step: {path: gradient} of what is trained, the trainer's own memory, which may be changed
        before update(). dropout=False: those of the objective without dropout, as copies, which update() takes after a call
        with it alone."""
        if not _options.flag("dropout", dropout):
            return {path: array.copy() for path, array in self._plain().gradients(batch, parts=parts, **named).items()}
        self._do(GRADIENTS, self._parts(batch, parts, named))
        return {path: self.gradient(path) for path in self.trained}

    def _plain(self):
        """A trainer of the same objective without dropout, with the weights of now."""
        if self._made is None:
            raise UsageError("the trainer is of a compiled file: dropout=False is for texts")
        if self._without_dropout is None:
            made = type(self).__new__(type(self))
            made.__dict__.update(self.__dict__)
            made._compile_with(self.weights(), ("dropout=false", 'frozen="f32"'), ())
            made._begin(self._pool, 0, None, self._shards, 0, 1, None)
            made._narrow, made._group = {}, None
            self._without_dropout = made
        for path in self._paths:
            self._without_dropout.weight(path)[...] = self.weight(path)
        return self._without_dropout

    def update(self, gradients=None):
        """The second half. gradients: what takes the place of some, by path."""
        for path, value in _options.mapping("gradients", {} if gradients is None else gradients, "a dict of arrays by path").items():
            own, value = self.gradient(path), np.asarray(value)
            if value.shape != own.shape:
                raise InputError(f"the gradient of {path} is {list(value.shape)}, expected {list(own.shape)}", reason="shape")
            own[...] = value
        return self._step_of(self._update())

    def evaluate(self, data=None, /, *, parts=None, batch_items=None, batch_tokens=None, pad=None, average=False, **named):
        """The results by name, without dropout; no weight changes.

        data: a batch, as of step(); or items, as fit() takes them (columns with batch_items or batch_tokens, which say how many
        are computed at a time), or batches, such as a DataLoader's: the results over all of them. average: of the running mean
        of the weights.
        """
        from . import _evaluate
        with self._averaged(average):
            if parts is None and not named and _evaluate.is_data(data, batch_items, batch_tokens):
                return _evaluate.evaluate(self, data, batch_items, batch_tokens, pad)
            if (batch_items, batch_tokens, pad) != (None, None, None):
                raise UsageError("batch_items, batch_tokens and pad are for items, not for a batch")
            return self._do(EVALUATE, self._parts(data, parts, named)).results

    # ---- runs ----

    def fit(self, train, valid=None, *, out=None, resume=False, metric=None, callbacks=(), progress=None, pad=None,
            skip_long=False, **options):
        """A run over items, as `tfmc train` does it, with the same files in the folder `out`: Fit. The trainer is then as
        the run ended.

        train, valid: columns (a dict of arrays or of lists of rows, a datasets.Dataset), a list of dicts or of tuples, a
        Dataset of torch, or safetensors files; or batches in an order of their own (a DataLoader, any other iterable of dicts
        or tuples), then for both, with options epochs or steps, valid_every, save_every, log_every, keep, patience,
        empty_batches. options: epochs or steps, batch_items or batch_tokens, part_tokens, pool,
        valid_every, save_every, log_every, keep, patience, memory, empty_batches, recompute. resume: go on with the run in
        `out`, if there is one. order="given" keeps the order of the items. metric(trainer) gives a number after each validation,
        the greater the better, or a dict of numbers; best names the result or number by which validations are judged ("accuracy",
        "-loss"; "score" is a single metric's): the best weights are kept, and patience follows it. Without best= these are the
        least loss, and patience follows a metric. callbacks get each line of the log as an Event; one that returns True ends the
        run.
        """
        from . import _fit
        return _fit.fit(self, train, valid, out, resume, metric, callbacks, progress, pad, skip_long, options)

    def _take(self, state, epoch):
        """Goes on from a state; the note that was saved with it."""
        note = self._load(os.fsencode(state), epoch)
        self._epoch = epoch
        return note

    # ---- where it stands ----

    @property
    def steps(self):
        """Steps that are done."""
        return self._steps()

    @property
    def epoch(self):
        """From 0, for schedules that depend on it. Whoever makes the batches sets it."""
        return self._epoch

    @epoch.setter
    def epoch(self, number):
        number = _options.whole("epoch", number, 0, (1 << 63) - 1)
        self._set_epoch(number)
        self._epoch = number

    def bytes(self, **sizes):
        """Memory for steps with these run-time sizes, in bytes, that of the trainer included."""
        names = {d for kind in self.inputs.values() for d in kind.shape if isinstance(d, str)}
        if set(sizes) != names:
            raise UsageError(f"the sizes are {', '.join(sorted(names)) or 'none'}, not {', '.join(sizes) or 'none'}")
        sizes = {name: _options.whole(f"the size {name}", size, 0, (1 << 63) - 1) for name, size in sizes.items()}
        found = self._bytes(tuple(tuple(sizes.get(d, d) for d in kind.shape) for kind in self.inputs.values()))
        if found < 0:
            raise InputError("a size is out of range", reason="shape")
        return found

    # ---- weights ----

    def _numbers(self, path):
        """Those of a weight that is kept in 16 bits, to be read."""
        return np.frombuffer(self._read(path), np.float32).reshape(self._shapes[path])

    def _set(self, path, value):
        if path in self._narrow:
            self._write(path, np.ascontiguousarray(value, np.float32))
        else:
            self.weight(path)[...] = value

    def _array(self, path, which):
        if not isinstance(path, str):
            raise UsageError(f"the path of a weight is {path!r:.60}, not a text")
        if which == WEIGHT and path in self._narrow:
            return self._numbers(path)
        found = self._tensor(path, which) if path in self._shapes else None
        if found is None:
            known = self._paths if which == WEIGHT else self.trained
            raise InputError(f"there is no {'' if which == WEIGHT else 'trained '}weight {path!r}; there are "
                             + ", ".join(known[:20]) + (" ..." if len(known) > 20 else ""))
        return np.asarray(found)

    def weight(self, path):
        """The trainer's own memory, to be read and written between calls; of a weight that is kept in 16 bits a copy that can
        only be read (load_state_dict sets it)."""
        return self._array(path, WEIGHT)

    def gradient(self, path):
        """That of the last step, before clipping: the trainer's own memory."""
        return self._array(path, GRADIENT)

    @contextlib.contextmanager
    def _averaged(self, wanted=True):
        """Within it the weights are their running mean."""
        means = {path: self._tensor(path, MEAN) for path in self.trained} if _options.flag("average", wanted) else {}
        if None in means.values():
            raise UsageError("there is no running mean of the weights: the setting average=0.999 makes one")
        exchanged = [(self.weight(path), np.asarray(mean)) for path, mean in means.items()] if self.steps else []
        for weight, mean in exchanged:  # before the first step it is the weights
            weight[...], mean[...] = mean.copy(), weight.copy()
        try:
            yield
        finally:
            for weight, mean in exchanged:
                weight[...], mean[...] = mean.copy(), weight.copy()

    @property
    def state_bytes(self):
        """Bytes of what is kept between steps: weights, gradients, moments."""
        return self._state_bytes()

    def weights(self, *, average=False):
        """Copies of all weights, under the paths of the text; with average their running mean."""
        with self._averaged(average):
            return {path: self.weight(path).copy() for path in self._paths}

    def state_dict(self, *, average=False):
        """Copies of all weights. Of a Source of from_torch they are what the module's load_state_dict takes: tied weights
        have all their names, and what the text does not use is as it was."""
        weights = self.weights(average=average)
        if self.source is None or not self.source.state:
            return weights
        return {name: value.detach().clone() if hasattr(value, "detach") else value
                for name, value in self.source.state_dict(weights).items()}

    def load_state_dict(self, state, strict=True):
        """Sets weights by name: of the text, or of the module that from_torch took. All or nothing; strict: every weight
        and nothing else. Moments and steps stay as they are."""
        names = self._names_of_state()
        _options.mapping("state", state, "a dict of weights by name")
        _options.flag("strict", strict)
        unknown = [n for n in state if n not in names]
        given = {names[n] for n in state if names.get(n)}
        missing = [p for p in self._paths if p not in given and p not in self._constants()]
        if strict and (unknown or missing):
            raise InputError("\n".join([f"there is no weight {n!r}" for n in unknown[:5]]
                                       + [f"the weight {n!r} is missing" for n in missing[:5]]))
        for name in [name for name in state if name in names and name in self._paths and not names[name]]:
            if not np.array_equal(np.asarray(state[name]), self.source.state[name].numpy()):
                raise InputError(f"{name} is a buffer of integers with other numbers than the text was made with: call from_torch again",
                                 reason="value")
        found = {}
        for name, value in state.items():
            if names.get(name):
                found.setdefault(names[name], []).append((name, self._checked(name, names[name], value)))
        for path, values in found.items():
            first = values[0][1]
            for name, value in values[1:]:
                if not np.array_equal(first, value, equal_nan=True):
                    raise InputError(f"{values[0][0]} and {name} are one weight, and differ", reason="value")
        for path, values in found.items():
            self._set(path, values[0][1])

    def to_torch(self, module, strict=True, *, average=False):
        """Copies the weights into a module of torch, which has the names of state_dict: all or nothing."""
        import torch
        if not isinstance(module, torch.nn.Module):
            raise UsageError(f"module is of type {type(module).__name__}, not a module of torch")
        _options.flag("strict", strict)
        state = {name: torch.as_tensor(value) for name, value in self.state_dict(average=average).items()}
        own = module.state_dict(keep_vars=True)
        wrong = [f"{name} is {list(state[name].shape)} here and {list(own[name].shape)} in the module" for name in state
                 if name in own and state[name].shape != own[name].shape]
        wrong += [f"{name} is {str(own[name].dtype)[6:]} in the module, not {str(state[name].dtype)[6:]}" for name in state
                  if name in own and state[name].dtype != own[name].dtype]
        if strict:
            wrong += [f"the module has no {name}" for name in state if name not in own]
            wrong += [f"the module's {name} is missing" for name in own if name not in state]
        if wrong:
            raise InputError("\n".join(wrong[:10]))
        with torch.no_grad():
            for name, value in state.items():
                if name in own:
                    own[name].copy_(value)

    def _constants(self):
        """Weights of the text that no state_dict has as such: plain tensors, and buffers of integers, which are f32 here."""
        if self.source is None:
            return ()
        return {*self.source.constants, *(name for name, kept in self.source.state.items() if not isinstance(kept, str))}

    def _names_of_state(self):
        """Names of state_dict -> path; None: the text does not use it."""
        if self.source is not None and self.source.state:
            return {name: kept if isinstance(kept, str) else None for name, kept in self.source.state.items()}
        return {path: path for path in self._paths}

    def _checked(self, name, path, value):
        array = _as_array(name, value)
        if array.shape != self._shapes[path]:
            raise InputError(f"the weight {name} is {list(array.shape)}, expected {list(self._shapes[path])}", reason="shape")
        return array

    # ---- checkpoints and models ----

    def save(self, folder, note=None):
        """Writes folder/step-XXXXXXXX, whole or not at all: state.tfmt, from which resume() goes on, and
        weights.safetensors. note: bytes of your own, found again as `note`. Returns the path."""
        if note is not None and not isinstance(note, bytes):
            raise UsageError(f"the note is of type {type(note).__name__}, not bytes")
        folder = pathlib.Path(_options.path("folder", folder))
        self._save(os.fsencode(folder), note)
        return folder / f"step-{self.steps:08d}"

    @property
    def has_adapter(self):
        """Whether the model has adapters that save_adapter can write."""
        return self._has_adapter()

    def save_adapter(self, folder, base=None):
        """Writes the model's adapters (a line `adapt`, as lora() writes it) as peft has them: adapter_config.json and
        adapter_model.safetensors. base: what the config names as the model that they are for; None: the folder of the
        source's weights. Returns the folder."""
        base = _lora.base_of(self.source) if base is None else base
        self._save_adapter(os.fsencode(_options.path("folder", folder)), None if base is None else os.fsdecode(base))
        return pathlib.Path(folder)

    @property
    def note(self):
        """What save() was given with the checkpoint that the trainer was resumed from; None: nothing."""
        return self._note()

    def save_compiled(self, path):
        """Writes the code to one file (x.tfmm), with the weights of now if training began with given ones: Trainer(path)
        needs no compiler. Only the same version of tfmc opens it."""
        path = pathlib.Path(_options.path("path", path))
        self._save_compiled(os.fsencode(path))
        return path

    def model(self, *, average=False, quantize=None, threads=None, pool=None):
        """A Model with the weights of now, which stay its own; with average their running mean. It cannot be saved, but with
        quantize=, for which it is compiled anew; tfmc.compile(source, weights=trainer.weights()) makes one that can."""
        if quantize is not None:
            if self._made is None:
                raise UsageError("the trainer is of a compiled file: quantize= is for texts")
            made = self._made
            source = _source.Source(made["text"]) if made["path"] is None else made["path"]
            return _model.compile(source, weights=self.weights(average=average), quantize=quantize, march=made["march"],
                                  compiler=made["compiler"], config=made["config"], threads=threads, pool=pool)
        made = _model.Model.__new__(_model.Model)
        with self._averaged(average):
            made._of(self)
        return made._begin("it belongs to a trainer", threads, self._pool if threads is None and pool is None else pool)

    def __reduce__(self):
        raise UsageError("a trainer cannot be pickled: save() it, and resume() it there")

    def __repr__(self):
        takes = ", ".join(f"{name}: {kind}" for name, kind in self.inputs.items())
        return f"<tfmc.Trainer ({takes}) -> {', '.join(self.results)}; step {self.steps}>"


def _as_array(name, value):
    """A weight that is given, as f32; f64 is refused, whose digits would be lost without a word."""
    import sys
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype in (torch.bfloat16, torch.float16) else value).numpy()
    array = np.asarray(value)
    if array.dtype.newbyteorder("=") not in (np.float32, np.float16):
        raise InputError(f"the weight {name} is {array.dtype.name}, expected float32", reason="type")
    return array


def newest_checkpoint(folder):
    """The folder of the checkpoint that a run goes on from; None: there is none. It is the one that `latest` names; if that is
    missing, because the process died before it wrote it the first time, the newest."""
    latest = folder / "latest"
    if latest.is_file():
        return folder / latest.read_text(encoding="utf-8").strip()
    found = [path for path in folder.glob("step-*") if path.name[5:].isdecimal()]
    return max(found, key=lambda path: int(path.name[5:]), default=None)


def _state_in(folder):
    """The path of the state in a checkpoint, or in the newest checkpoint of a run."""
    path = pathlib.Path(folder)
    if path.is_dir() and not (path / "state.tfmt").is_file():
        path = newest_checkpoint(path) or path
    if path.is_dir():
        path = path / "state.tfmt"
    if not path.is_file():
        raise EnvError(f"{folder} holds no checkpoint: there is no {path}")
    return path
