"""Models: what they take and give, and how they are made, opened, called, pickled and closed."""
import collections
import json
import os
import pathlib
import stat
import threading
import warnings
import weakref

from . import _arrays, _core, _errors, _find, _generate, _nested, _options, _source
from ._core import Pool
from ._errors import CompileError, EnvError, InputError, UsageError

os.register_at_fork(after_in_child=_core.after_fork)

_lock = threading.Lock()
_shared_pool = None


def _pool_for(threads, pool):
    """The threads of a model: those given, its own, or those that all models of the process share."""
    global _shared_pool
    if pool is not None:
        if threads is not None:
            raise UsageError("threads and pool are both given; a pool has its own threads")
        if not isinstance(pool, Pool):
            raise UsageError(f"the pool is of type {type(pool).__name__}, not a tfmc.Pool")
        return pool
    if threads is not None:
        return Pool(_options.whole("threads", threads, 0, 1024))
    with _lock:
        if _shared_pool is None:
            _shared_pool = Pool()
        return _shared_pool


class TensorType(collections.namedtuple("TensorType", "dtype shape default", defaults=(None,))):
    """dtype: "f32", "i32" or "bool"; shape: numbers, and texts in terms of the sizes; default: what each element is of an
    input that a call leaves out, None: no call may."""

    __slots__ = ()

    def __str__(self):
        default = "" if self.default is None else f" = {str(self.default).lower()}"
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{default}"


def _type_of(text, default=None):
    """`default`: as a text."""
    dtype, _, dims = text.partition("[")
    parts = [d.strip() for d in dims.rstrip("]").split(",")] if dims.rstrip("]") else []
    if default is not None:
        default = {"f32": float, "i32": int, "bool": lambda text: text == "true"}[dtype](default)
    return TensorType(dtype, tuple(int(d) if d.isdigit() else d for d in parts), default)


def _types(tensors):
    def default(tensor):
        value = tensor.get("default")
        return float(value) if isinstance(value, str) else value  # infinities, which JSON has no numbers for
    return {t["name"]: _type_of(t["type"])._replace(default=default(t)) for t in tensors}


class Model(_core.Model):
    """A compiled model. It is constant: any number of threads may call it at once.

    Calling it takes the inputs by place or by name and returns the output, or a named tuple of several. Made by
    tfmc.compile and tfmc.load. `source` is the Source that it was compiled from, if it was one.
    """

    source = None
    _made_from = None  # by compile: the arguments of commands about it, and the compiler

    def __init__(self, *args, **named):
        raise UsageError("a model is made by tfmc.compile or tfmc.load")

    def _begin(self, origin, threads, pool):
        """What every way of opening ends with. `origin`: how another process opens it, or a text that says why not."""
        pool = _pool_for(threads, pool)
        description, self.march, vocab, bos = self._setup(pool, 2 * (os.cpu_count() or 1))
        self._pool_threads = pool.threads
        data = json.loads(description)
        writes = data.get("generate")
        self._starts = bos >= 0
        self.generation = writes and _generate.Generation(
            writes["input"], writes["output"], vocab, writes["incremental"], writes["reason"],
            writes.get("bytes_per_token"))
        self._origin, self._threads, self._layout = origin, threads, data["layout"]
        self.name, self.sizes, self.weights_bytes = data["model"], tuple(data["sizes"]), data["weights_bytes"]
        self.inputs, self.outputs = _types(data["inputs"]), _types(data["outputs"])
        self._outputs_type = collections.namedtuple("Outputs", self.outputs, rename=True)
        self._set_outputs_type(_Maker(self._outputs_type))
        return self

    def _apart(self, named):
        """For a call with names that are no inputs: the values of nested inputs; None: there are none."""
        found = _nested.flat(named, self.inputs)
        return None if found is named else found

    def run(self, inputs, *, outputs=None, out=None):
        """The outputs by name. outputs: the names of those that are wanted; out: arrays to write some of them to."""
        inputs, out = _nested.flat(inputs, self.inputs), out or {}
        unknown = [n for n in inputs if n not in self.inputs]
        missing = [n for n, kind in self.inputs.items() if n not in inputs and kind.default is None]
        if unknown or missing:
            word, names = ("there is no", unknown) if unknown else ("missing is", missing)
            raise UsageError(f"{word} input \"{names[0]}\"; the inputs are {', '.join(self.inputs)}")
        wanted = dict.fromkeys(self.outputs if outputs is None else outputs, True)
        wanted.update(out)
        for name in wanted:
            if name not in self.outputs:
                raise UsageError(f"there is no output \"{name}\"; the outputs are {', '.join(self.outputs)}")
        results = self._run(tuple(inputs.get(n) for n in self.inputs), tuple(wanted.get(n) for n in self.outputs))
        return {name: result for name, result in zip(self.outputs, results) if name in wanted}

    def generate(self, prompts=None, *, config=None, on_token=None, on_scores=None, **options_and_inputs):
        """Continues rows of tokens: Generated.

        prompts: [rows, tokens], or a list of rows of different lengths; None: rows begin with the model's own token.
        config: a generation_config.json, its folder or its content; options win over it. on_token(item, token) is
        called for each token, and ends the generation if its answer is true; on_scores(item, tokens, scores) may
        change the scores of a row's next token in place.
        """
        return _generate.generate(self, prompts, config, on_token, on_scores, options_and_inputs)

    def stream(self, prompts=None, *, config=None, on_scores=None, **options_and_inputs):
        """The same as an iterator of Token(item, token); its `generated` is there after the last one."""
        return _generate.stream(self, prompts, config, on_scores, options_and_inputs)

    def decoder(self, *, max_rows, max_length, step_rows=0, step_kept=0, cache_bytes=0, items=0, source_length=0, **sources):
        """Rows with caches, for a search or a schedule of one's own; `sources` are the inputs of the encoder. Without
        sources: step_rows, step_kept: rows of a step, and its rows of logits that there is room for (0: max_rows);
        cache_bytes: of all pages (0: enough for all rows). items: sources at a time that add_source gives later, of
        source_length at most."""
        limits = step_rows, step_kept, cache_bytes, items, source_length
        return _generate.decoder(self, max_rows, max_length, limits, sources)

    def chooser(self, prompt, *, limit, config=None, seed=0, number=0, logprobs=None, **options):
        """A row that Decoder.write writes: it has what row `number` of generate with this seed has. limit: its greatest
        length; logprobs: how many of the likeliest tokens are told beside each, None: not even its own probability."""
        return _generate.chooser(self, prompt, limit, config, seed, number, logprobs, options)

    def save(self, path):
        """Writes code and weights to one file for tfmc.load; it is whole or not there."""
        path = pathlib.Path(path)
        self._save(os.fsencode(path))
        return path

    def dump(self, stage="fused"):
        """A stage of compilation as text: ast, graph, fused, plan, llvm, asm; of models that write also step, step-plan
        and others. Of models made by tfmc.compile; a source that is a file is read again."""
        from . import _commands
        return _commands.stage_of(self, stage)

    def report(self):
        """What was fused, what was not, and why, as text. Of models made by tfmc.compile."""
        from . import _commands
        return _commands.stage_of(self, "fused", "--report")

    def profile(self, inputs=None, /, *, iterations=20, decode=False, **named):
        """Where the time of a run goes, as text: measured by the command, in a process of its own, with the model's
        number of threads. Inputs are arrays, or texts such as "4x16": random ones with these sizes. Weights that came
        from memory are random too. decode: of each new token, after the inputs as prompts."""
        from . import _commands
        return _commands.profile(self, {**(inputs or {}), **named}, iterations, decode)

    def _all_sizes(self, sizes):
        if set(sizes) != set(self.sizes):
            raise UsageError(f"the sizes are {', '.join(self.sizes) or 'none'}, not {', '.join(sizes) or 'none'}")
        return tuple(sizes[name] for name in self.sizes)

    def reserve(self, **sizes):
        """Makes room for calls with sizes up to these."""
        self._reserve(self._all_sizes(sizes))

    def workspace_bytes(self, **sizes):
        """Bytes that a call with these sizes works in, beside its inputs, outputs and weights."""
        return self._workspace_bytes(self._all_sizes(sizes))

    def close(self):
        """Waits for the calls under way and gives code, weights and memory back. Later calls are refused."""
        self._close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __repr__(self):
        if self.closed:
            return "<tfmc.Model, closed>"
        takes = ", ".join(f"{name}: {kind}" for name, kind in self.inputs.items())
        gives = ", ".join(f"{name}: {kind}" for name, kind in self.outputs.items())
        return f"<tfmc.Model {self.name}({takes}) -> {gives}>"

    def __reduce__(self):
        if self.closed:
            raise UsageError("the model is closed")
        if isinstance(self._origin, str):
            raise UsageError(f"the model cannot be pickled: {self._origin}")
        return _reopen, (self._origin, self._threads, self._layout, _core.version())


class _Guarded(Model):
    """A model whose text refuses values by a division by zero (Source.guards): its errors say which."""

    def __call__(self, *args, **named):
        try:
            return super().__call__(*args, **named)
        except InputError as error:
            raise self.source.explained(error) from None

    def run(self, inputs, **named):
        try:
            return super().run(inputs, **named)
        except InputError as error:
            raise self.source.explained(error) from None


class _Maker:
    """Several outputs, as a named tuple of their names."""

    __slots__ = ("make",)

    def __init__(self, kind):
        self.make = kind._make

    def __call__(self, *values):
        return self.make(values)


# ---- opening ----

def load(path, *, weights=None, threads=None, pool=None):
    """Opens x.tfmm, as Model.save writes it, or libx.so with x.tfmw beside it (or `weights`), as `tfmc compile` does.

    The kind of the file is read from its beginning, not from its name.
    """
    path = os.path.abspath(os.fspath(path))
    weights = None if weights is None else os.path.abspath(os.fspath(weights))
    model = Model.__new__(Model)
    if _is_library(path):
        model._open(os.fsencode(path), None if weights is None else os.fsencode(weights))
    elif weights is not None:
        raise UsageError(f"{path} holds its weights: weights= is for libraries")
    else:
        model._map(os.fsencode(path))
    return model._begin(("load", path, weights), threads, pool)


def _is_library(path):
    """Missing files too are for the one who opens libraries, if they are called so."""
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as file:
                return file.read(4) == b"\x7fELF" or path.endswith(".so")
    except OSError:
        pass
    return path.endswith(".so")


def is_made(path):
    """Whether the file was compiled: a library, or a .tfmm file."""
    if _is_library(path):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(7) == b"TFMPART"
    except OSError:
        return False


# ---- pickles ----

_opened: "weakref.WeakValueDictionary[str, Model]" = weakref.WeakValueDictionary()


def _reopen(origin, threads, layout, version):
    """A pickle opens the file that it names, once a process."""
    if version != _core.version():
        raise EnvError(f"the pickle was made by tfmc {version}, this is {_core.version()}")
    key = json.dumps([origin, threads])
    model = _opened.get(key)
    if model is None or model.closed:
        how, *args = origin
        if how == "load":
            model = load(args[0], weights=args[1], threads=threads)
        else:
            model = compile(threads=threads, **args[0])
        if model._layout != layout:
            raise EnvError(f"{origin[1]} is another model than the one that was pickled")
        _opened[key] = model
    return model


# ---- compiling ----

class CompileWarning(UserWarning):
    """A warning of the compiler's, where no on_message takes it."""


def _encode(text):
    return None if text is None else os.fsencode(text)


def _report(error, messages, text):
    """The exception for what the command said; str() is what the command prints."""
    errors = [m for m in messages if m.severity == "error"]
    if not errors:
        return error
    if errors[0].text.startswith("the model has weights"):  # the command speaks of --weights
        return UsageError("the model has weights: give weights=, a file, a folder or a mapping of names to arrays")
    kind = CompileError if isinstance(error, InputError) else type(error)
    return kind(_errors.render(errors, text), reason=error.reason, place=errors[0].place, diagnostics=messages)


def request(path, text, weights, settings):
    """What tfm_compile is given of a source, its weights and its configuration."""
    in_memory = isinstance(weights, collections.abc.Mapping)
    if not in_memory and not isinstance(weights, (str, bytes, os.PathLike, type(None))):
        raise UsageError(f"weights is of type {type(weights).__name__}, neither a path nor a dict of arrays by name")
    return {
        "path": _encode(path), "text": None if text is None else text.encode(),
        "weights_path": None if weights is None or in_memory else os.fsencode(weights),
        "weights": tuple(_arrays.weight(n, v) for n, v in weights.items()) if in_memory else None,
        "definitions": tuple(d.encode() for d in _source.definitions(settings)),
    }


def run_compiler(made, options, text, on_message):
    """Compiles `made`, a Model or a Trainer that is new, and passes the compiler's messages on."""
    lines = []
    try:
        made._compile(options, lines.append)
    except _errors.Error as error:
        raise _report(error, _errors.diagnostics(lines), text) from None
    for message in _errors.diagnostics(lines):
        if on_message:
            on_message(message)
        else:
            warnings.warn(_errors.render([message], text), CompileWarning, stacklevel=3)


def compile(source, *, weights=None, weights_prefix="", model=None, march=None, quantize=None, threads=None, pool=None,
            in_process=False, deadline=None, memory_limit=None, compiler=None, on_message=None, config={}, **more_config):
    """Compiles a model: a file, a text or a Source.

    weights: a safetensors file, an index or a checkpoint's folder, or a mapping of names to arrays. More keywords are
    values of the model's configuration; `config` takes those whose names are parameters here.
    """
    settings = {**config, **more_config}
    path, text = _source.read(source)
    if weights is None and isinstance(source, _source.Source):
        weights = source.weights
    in_memory = isinstance(weights, collections.abc.Mapping)
    rules = _options.rules(quantize)
    options = {
        **request(path, text, weights, settings), "model": _encode(model),
        "march": _encode(march), "quantize": _encode(rules), "weights_prefix": _encode(weights_prefix or None),
        "in_process": int(in_process), "deadline_ms": 0 if deadline is None else max(1, int(deadline * 1000)),
        "memory_limit": memory_limit or 0, "compiler": _encode(None if in_process else _find.compiler(compiler)),
    }
    kind = _Guarded if isinstance(source, _source.Source) and source.guards else Model
    made = kind.__new__(kind)
    run_compiler(made, options, text, on_message)
    origin = "its weights came from memory: save() it first" if in_memory else (
        "compile", {"source": text if path is None else os.path.abspath(path), "weights_prefix": weights_prefix,
                    "weights": None if weights is None else os.path.abspath(os.fspath(weights)), "model": model,
                    "march": march, "quantize": rules, "config": settings})
    made.source = source if isinstance(source, _source.Source) else None
    made._made_from = {"source": text if path is None else os.path.abspath(path), "weights_prefix": weights_prefix,
                       "weights": None if in_memory or weights is None else os.path.abspath(os.fspath(weights)),
                       "model": model, "quantize": rules, "settings": settings}, compiler
    return made._begin(origin, threads, pool)
