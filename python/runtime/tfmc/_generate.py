"""Generation: prompts and options in, rows of tokens out; streams; decoders."""
import collections
import collections.abc
import functools
import json
import os
import queue
import threading

import numpy as np

from . import _core, _options
from ._errors import InputError, UsageError

OPTIONS = _core.options()  # name -> kind (generate_options.def)
SETTINGS = _core.settings()  # what else a config may say: name -> JSON of what changes nothing, None: all (generation_keys.def)

Token = collections.namedtuple("Token", "item token")
Generation = collections.namedtuple("Generation", "input output vocab incremental reason bytes_per_token")


class Generated(collections.abc.Sequence):
    """Rows of tokens, prompts included and padding left out: item by item, the best first.

    padded [n, width] and lengths [n] are the same with padding; scores [n] in beam search, else None; token_scores
    [n, width] with return_token_scores, else None; n_tokens: how many tokens were made.
    """

    def __init__(self, padded, lengths, scores, token_scores, n_tokens):
        self.padded, self.lengths, self.scores = padded, lengths, scores
        self.token_scores, self.n_tokens = token_scores, n_tokens

    def __len__(self):
        return len(self.padded)

    def __getitem__(self, row):
        if isinstance(row, slice):
            return [self[i] for i in range(len(self))[row]]
        return self.padded[row, :self.lengths[row]]

    def __repr__(self):
        return f"<tfmc.Generated, {len(self)} rows, {self.n_tokens} new tokens>"


# ---- what is given ----

def _read_config(config):
    """A generation_config.json, its folder, or its content: the options that are set there. What else is set must change
    nothing."""
    if config is None:
        return {}
    path = "config"
    if not isinstance(config, collections.abc.Mapping):
        path = os.fspath(_options.path("config", config))
        if os.path.isdir(path):
            path = os.path.join(path, "generation_config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        if not isinstance(config, dict):
            raise InputError(f"{path}: a generation config must be a JSON object")
    for name, value in config.items():
        if value is not None and name not in OPTIONS and not _changes_nothing(name, value):
            raise InputError(f"{path}: {name!r} ({value!r}) is no option of generation here, and may change the tokens: take "
                             "it out", reason="value")
    return {name: value for name, value in config.items() if name in OPTIONS and value is not None}


def _changes_nothing(name, value):
    if name not in SETTINGS or SETTINGS[name] is None:
        return name in SETTINGS
    neutral = json.loads(SETTINGS[name])
    same = lambda other: value == other and isinstance(value, bool) == isinstance(other, bool)  # noqa: E731
    return same(neutral) or isinstance(neutral, list) and any(map(same, neutral))


def _split(model, given):
    """(inputs, options) of keywords; a name that is neither is refused, with the nearest."""
    inputs, options = {}, {}
    for name, value in given.items():
        if name in model.inputs:
            inputs[name] = value
        elif name in OPTIONS:
            options[name] = value
        else:
            import difflib
            near = difflib.get_close_matches(name, [*model.inputs, *OPTIONS], 1)
            raise UsageError(f"{name!r} is no input of {model.name} and no option of generation"
                             + (f"; did you mean {near[0]!r}?" if near else ""))
    return inputs, options


def _is_ragged(value):
    return (isinstance(value, (list, tuple)) and len(value) > 0
            and all(isinstance(row, (list, tuple, np.ndarray)) for row in value)
            and len({len(row) for row in value}) > 1)


def _pad(name, rows):
    """Rows of different lengths as one array, filled with zeros, and the lengths."""
    arrays = [np.asarray(row) if len(row) else np.zeros(0, np.int64) for row in rows]
    if any(a.ndim != 1 for a in arrays):
        raise InputError(f'input "{name}": rows of different lengths have one axis', reason="shape")
    lengths = np.array([len(a) for a in arrays], np.int64)
    padded = np.zeros((len(arrays), lengths.max()), np.result_type(*arrays))
    for row, array in zip(padded, arrays):
        row[:len(array)] = array
    return padded, lengths


def _words(value):
    """bad_words_ids: lists of one id each."""
    tokens = [t for word in value for t in word]
    if len(tokens) != len(value):
        raise InputError("bad_words_ids: each of the lists must hold one token")
    return tokens


def _rows(model, inputs):
    """Rows that a call without prompts makes: one for each item of the other inputs."""
    for name, kind in model.inputs.items():
        if name in inputs and kind.shape and kind.shape[0] == model.inputs[model.generation.input].shape[0]:
            return len(inputs[name])
    return 1


def _prepare(model, prompts, config, given):
    """What the extension takes: (inputs in order, lengths of prompts, lengths of sizes, options)."""
    if model.generation is None:
        raise UsageError(f"{model.name} has no generate block")
    inputs, options = _split(model, given)
    options = {**_read_config(config), **options}
    tokens = model.generation.input
    if prompts is not None:
        if tokens in inputs:
            raise UsageError(f'the prompts and the input "{tokens}" are the same; give one')
        inputs[tokens] = prompts
    prompt_lengths, size_lengths = None, {}
    for name, value in inputs.items():
        if not _is_ragged(value):
            continue
        inputs[name], lengths = _pad(name, value)
        if name == tokens:
            prompt_lengths = lengths
        else:
            size_lengths[str(model.inputs[name].shape[-1])] = lengths
    start = next((options.pop(n) for n, kind in OPTIONS.items() if kind == "start" and n in options), None)
    fallback = next((options.pop(n) for n, kind in OPTIONS.items() if kind == "fallback" and n in options), None)
    if tokens not in inputs and (start is not None or (fallback is not None and not _has_start(model))):
        inputs[tokens] = np.full((_rows(model, inputs), 1), fallback if start is None else start, np.int32)
    for name, kind in OPTIONS.items():
        if kind == "words" and name in options:
            options["suppress_tokens"] = [*options.get("suppress_tokens", ()), *_words(options.pop(name))]
    missing = [n for n in model.inputs if n not in inputs and n != tokens]
    if missing:
        raise UsageError(f'input "{missing[0]}" is missing: {model.inputs[missing[0]]}')
    return tuple(inputs.get(n) for n in model.inputs), prompt_lengths, size_lengths, options


def _has_start(model):
    return model._starts


# ---- generate, stream, decoder ----

def generate(model, prompts, config, on_token, on_scores, given):
    _options.function("on_token", on_token)
    _options.function("on_scores", on_scores)
    inputs, prompt_lengths, size_lengths, options = _prepare(model, prompts, config, given)
    return Generated(*model._generate(inputs, prompt_lengths, size_lengths, options, on_token, on_scores))


class _Stop(Exception):
    pass


class TokenStream:
    """Tokens as they are chosen: an iterator of Token(item, token). Closing or dropping it ends the generation.

    The work is done by a thread of its own, which knows nothing of this object, so that dropping it is noticed.
    """

    def __init__(self, work):
        self._queue, self._stop = queue.SimpleQueue(), threading.Event()
        self.generated = None
        self._thread = threading.Thread(target=_fill, args=(work, self._queue, self._stop), daemon=True)
        self._thread.start()

    def __iter__(self):
        return self

    def __next__(self):
        if self._stop.is_set():
            raise StopIteration
        kind, value = self._queue.get()
        if kind == "token":
            return value
        self._stop.set()
        self._thread.join()
        if kind == "error":
            raise value
        self.generated = value
        raise StopIteration

    def close(self):
        """Ends the generation after the token that is under way, and waits for that."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __del__(self):
        if hasattr(self, "_stop"):
            self._stop.set()


def _fill(work, tokens, stop):
    def on_token(item, token):
        tokens.put(("token", Token(item, token)))
        return stop.is_set()
    try:
        tokens.put(("end", work(on_token)))
    except BaseException as error:  # it belongs to whoever reads the stream
        tokens.put(("error", error))


def stream(model, prompts, config, on_scores, given):
    _options.function("on_scores", on_scores)
    prepared = _prepare(model, prompts, config, given)  # wrong calls are refused here, not at the first token
    return TokenStream(functools.partial(_run, model, prepared, on_scores))


def _run(model, prepared, on_scores, on_token):
    return Generated(*model._generate(*prepared, on_token, on_scores))


def decoder(model, max_rows, max_length, limits, sources):
    names = model._sources() if not limits[3] else ()
    if set(names) != set(sources):
        raise UsageError(f"the sources are {', '.join(names) or 'none'}, not {', '.join(sources) or 'none'}")
    return model._decoder(tuple(sources[n] for n in names), max_rows, max_length, *limits)


def chooser(model, prompt, limit, config, seed, number, logprobs, options):
    inputs, options = _split(model, options)
    if inputs:
        raise UsageError(f"{next(iter(inputs))!r} is an input of {model.name}, and no option of generation")
    options = {**_read_config(config), **options}
    for name, kind in OPTIONS.items():  # what a row begins with is its prompt, and how long it may be is its limit
        if kind in ("start", "fallback") or name in ("max_length", "max_new_tokens", "seed"):
            options.pop(name, None)
        elif kind == "words" and name in options:
            options["suppress_tokens"] = [*options.get("suppress_tokens", ()), *_words(options.pop(name))]
    return model._chooser(prompt, limit, seed, number, -1 if logprobs is None else logprobs, options)
