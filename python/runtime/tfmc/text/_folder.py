"""What the classes of tfmc.text share: a checkpoint's folder, rows of tokens, runs of rows of like length."""
import fnmatch
import json
import os
import pathlib
import threading

import numpy as np

from .. import _core, _options
from .._commands import from_pretrained
from .._errors import EnvError, InputError, UsageError
from .._model import Model
from . import _classes, _settings

UNLIMITED = 10 ** 6  # what tokenizers say is beyond this where they know no limit


def need_tokenizers():
    try:
        import tokenizers
    except ImportError:
        raise EnvError("texts need the package tokenizers: pip install tokenizers") from None
    return tokenizers


def load_tokenizer(folder):
    """The tokenizers.Tokenizer of a folder's tokenizer.json and tokenizer_config.json, which neither cuts nor pads."""
    return loaded(folder)[0]


def loaded(folder):
    """(tokenizer, the side on which it cuts texts, the side on which it pads them)."""
    tokenizers = need_tokenizers()
    path = pathlib.Path(folder) / "tokenizer.json"
    if pathlib.Path(folder).is_file():
        raise EnvError(f"{folder}: the tokenizer in a GGUF file is not read: give folder=, where tokenizer.json is")
    if not path.is_file():
        raise EnvError(f"{path}: there is no such file; tokenizer.save_pretrained writes it, in transformers, for "
                       "tokenizers that are fast")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(os.fspath(path))
    except Exception as error:  # the package raises plain exceptions
        raise InputError(f"{path}: {error}") from None
    settings, place = tokenizer_settings(folder), path.with_name("tokenizer_config.json")
    _settings.check(settings, place)
    sides = (_settings.side("truncation_side", settings, tokenizer.truncation, place),
             _settings.side("padding_side", settings, tokenizer.padding, place))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        tokenizer, settings, finish = _classes.build(tokenizers, tokenizer, settings, read(folder, "config.json"), place)
        _settings.apply(tokenizers, tokenizer, settings, place, finish)
    except InputError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{place}: it does not say things as transformers says them ({error!r})") from error
    return tokenizer, *sides


def tokenizer_settings(folder):
    return _settings.with_older(*(read(folder, name) for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")))


def read(folder, name):
    """The object in a JSON file of the folder; {} if there is no such file."""
    path = pathlib.Path(folder) / name
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: an object is expected")
    return content


# How sentence-transformers takes texts: the first of these files that says anything (sentence_files.def).
TEXT_SETTINGS = tuple(_core.sentence_files())


def is_whole(folder):
    """Whether the folder is one of sentence-transformers: it reads its other files beside modules.json alone."""
    return (pathlib.Path(folder) / "modules.json").is_file()


def text_settings(folder):
    return {} if not is_whole(folder) else next((found for name in TEXT_SETTINGS if (found := read(folder, name))), {})


def read_list(folder, name):
    """The objects in a JSON list; none if there is no such file."""
    path = pathlib.Path(folder) / name
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    return [item for item in content if isinstance(item, dict)] if isinstance(content, list) else []


def open_model(model, folder, options):
    """(model, folder) of what the classes here are made from: a folder, or a model with its folder."""
    if not isinstance(model, Model):
        folder = pathlib.Path(model if folder is None else folder)
        return from_pretrained(model, **options), folder
    folder = folder or getattr(model, "folder", None)
    if folder is None:
        raise UsageError("the model does not know its checkpoint: give folder=, where tokenizer.json is")
    if options:
        raise UsageError(f"{next(iter(options))}= is for models that are compiled here")
    return model, pathlib.Path(folder)


def generation_settings(folder, options):
    """Those of generation_config.json, without what from_pretrained was told to leave out."""
    left_out = options.get("ignore", ())
    return {name: value for name, value in read(folder, "generation_config.json").items()
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in left_out)}


def check_text(text, what):
    """Refuses what is no text, and halves of surrogate pairs, which UTF-8 has no bytes for."""
    if not isinstance(text, str):
        raise UsageError(f"{what} is of type {type(text).__name__}, not str")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{what} is no Unicode: {error.reason}, at character {error.start}") from None


def as_list(things, what):
    """What can be iterated, as a list."""
    try:
        return list(things)
    except TypeError:
        raise UsageError(f"{what} are expected, not an object of type {type(things).__name__}") from None


def as_texts(texts, what="text"):
    """The texts as a list; whether there was one alone, without a list."""
    alone = isinstance(texts, str)
    texts = [texts] if alone else as_list(texts, f"{what}s")
    for i, text in enumerate(texts):
        check_text(text, f"{what} {i}")
    return texts, alone


def without_faults(texts):
    """For a corpus: (texts, those that are none being empty, {number of such a text: what it is})."""
    faults = {}
    for i, text in enumerate(texts):
        try:
            check_text(text, "the text")
        except UsageError as error:
            faults[i] = str(error)
    return ["" if i in faults else text for i, text in enumerate(texts)] if faults else texts, faults


def whole(number, name):
    """A number of at least 1, or None."""
    return None if number is None else _options.whole(name, number)


def check_call(batch_size, show_progress_bar, **flags):
    """What calls have in common: a number and flags, None where they are not told. The first two change nothing."""
    whole(batch_size, "batch_size")
    for name, value in {"show_progress_bar": show_progress_bar, **flags}.items():
        if value is not None:
            _options.flag(name, value)


# Classes of tokenizers whose texts of a pair are told apart by token_type_ids, as transformers 5 has them; those of other
# classes are zeros. Below, the class where tokenizer_config.json names none, by model_type.
TELL_APART = ("Bert", "Electra", "Deberta", "ConvBert", "MobileBert", "SqueezeBert", "Tapas", "FNet", "Canine")
TELL_APART_MODELS = ("bert", "electra", "deberta", "deberta-v2", "mobilebert", "nomic_bert")


def tells_apart(folder):
    """Whether the folder's tokenizer gives token_type_ids to the model."""
    settings = read(folder, "tokenizer_config.json")
    names, kind = settings.get("model_input_names"), settings.get("tokenizer_class")
    if names is not None:
        return "token_type_ids" in names
    if kind is not None:
        return kind.startswith(TELL_APART)
    return read(folder, "config.json").get("model_type") in TELL_APART_MODELS


def lower_case(tokenizer, folder):
    """What sentence-transformers does for do_lower_case in its settings of texts: texts in small letters, before
    the tokenizer's own normalizer."""
    if not text_settings(folder).get("do_lower_case"):
        return tokenizer
    normalizers = need_tokenizers().normalizers
    own = tokenizer.normalizer
    parts = own if isinstance(own, normalizers.Sequence) else [own]
    if any(isinstance(part, normalizers.Lowercase) for part in parts):
        return tokenizer
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *([] if own is None else [own])])
    return tokenizer


def is_static(folder):
    """Whether the folder is a table of vectors, whose texts have no special tokens and any length."""
    return any(m.get("type", "").endswith(".StaticEmbedding") for m in read_list(folder, "modules.json")[:1])


def special_token(folder, name):
    """The text of a special token that tokenizer_config.json or special_tokens_map.json names, or None."""
    return _settings.content(tokenizer_settings(folder).get(name))


def open_encoder(model, folder, options, output, rank=2):
    """(model, folder, Cutter, whether it takes token_type_ids) of a model that makes a row of numbers of a text, or with
    rank=3 of each token. `output`: whether its output may have this name; else a text that says what it is and what
    helps."""
    model, folder = open_model(model, folder, options)
    (name, kind), *more = model.outputs.items()
    fed = {"input_ids", "attention_mask", "token_type_ids"}
    needed = {n for n, kind in model.inputs.items() if kind.default is None}
    if not more and len(kind.shape) == 3 and rank == 2 and name == "token_embeddings":
        raise InputError(f"{folder}: {model!r} gives a vector for each token, which tfmc.text.MultiVectorEmbedder takes")
    if more or len(kind.shape) != rank or not needed <= fed or "input_ids" not in model.inputs or not output[0](name):
        raise InputError(f"{folder}: {model!r} {output[1]}")
    tokenizer, side, pads = loaded(folder)
    cutter, kinds = Cutter(lower_case(tokenizer, folder), not is_static(folder), side), "token_type_ids" in model.inputs and tells_apart(folder)
    if pads == "left" and "attention_mask" in model.inputs:
        check_front(model, folder, cutter.whole(["a"])[0], kinds)
    return model, folder, cutter, kinds


FRONT = 6  # tokens of padding


def check_front(model, folder, row, kinds):
    """Refuses a folder that pads texts in front where its model makes other numbers of such a text than of the text alone: they
    would depend on the texts beside it."""
    limit = positions(folder)
    front = FRONT if limit is None else min(FRONT, limit - len(row.ids))
    if not row.ids or front < 1:
        return
    inputs = inputs_of(model.inputs, [row], [0], kinds)
    filled = {name: np.pad(array, ((0, 0), (front, 0))) for name, array in inputs.items()}
    pad = read(folder, "config.json").get("pad_token_id")
    filled["input_ids"][:, :front] = pad if isinstance(pad, int) and pad >= 0 else 0
    alone, padded = model(**inputs), model(**filled)
    padded = padded[:, front:] if padded.ndim == 3 else padded
    if np.abs(padded - alone).max(initial=0) > 5e-3 * np.abs(alone).max(initial=0):
        raise InputError(f"{pathlib.Path(folder) / 'tokenizer_config.json'}: padding_side is left, and the model counts places from the first "
                         "token: the numbers of a text would be others in each batch; \"right\" gives those that each text has alone")


def inputs_of(model, encoded, numbers, kinds):
    """What a run of these rows takes: ids with padding behind them, and of the rest what the model has."""
    rows = [encoded[i].ids for i in numbers]
    ids, mask = padded(rows)
    inputs = {"input_ids": ids}
    if "attention_mask" in model:
        inputs["attention_mask"] = mask
    if kinds:
        inputs["token_type_ids"] = padded([encoded[i].type_ids for i in numbers])[0]
    elif "token_type_ids" in model and model["token_type_ids"].default is None:
        inputs["token_type_ids"] = np.zeros_like(ids)
    return inputs


def positions(folder):
    """How many tokens a row may have by the model's table of positions; None: config.json names no limit."""
    config = read(folder, "config.json")
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int):
        return None
    is_roberta = "roberta" in config.get("model_type", "")  # whose positions begin behind that of padding
    return positions - (config.get("pad_token_id", 1) + 1 if is_roberta else 0)


def most_tokens(folder):
    """The limit of sentence-transformers' files, else that of the tokenizer, and never more than the model has positions;
    of a table of vectors that of its tokenizer alone."""
    if is_static(folder):
        cut = read(folder, "tokenizer.json").get("truncation")
        return cut["max_length"] if cut else UNLIMITED
    said = text_settings(folder).get("max_seq_length")
    settings = read(folder, "tokenizer_config.json")  # of which transformers 2 called the limit max_len
    limits = [settings.get("model_max_length", settings.get("max_len")) if said is None else said, positions(folder)]
    if isinstance(limits[0], (int, float)) and (limits[0] < 0 or isinstance(limits[0], float) and limits[0] < UNLIMITED):
        raise InputError(f"{folder}: texts have a limit of {limits[0]} tokens (model_max_length)")
    limits = [int(n) for n in limits if isinstance(n, (int, float)) and 0 < n < UNLIMITED]
    return min(limits, default=UNLIMITED)


class Cutter:
    """A tokenizer, and a copy of it that cuts: tokenizers are changed by being told to cut, which threads would see."""

    def __init__(self, tokenizer, special=True, side="right"):
        """special: texts get the special tokens of the tokenizer. side: where they are cut."""
        self.tokenizer, self._special, self._side, self._cuts = tokenizer, special, side, (None, None)

    def whole(self, texts):
        return self.tokenizer.encode_batch_fast(texts, add_special_tokens=self._special)

    def encode(self, texts, truncate, max_length):
        """The encodings of texts or pairs, special tokens included; those that are too long are cut or refused."""
        if not truncate:
            rows = self.whole(texts)
            for i, row in enumerate(rows):
                if len(row.ids) > max_length:
                    raise InputError(f"text {i} has {len(row.ids)} tokens, and the model takes {max_length}; "
                                     "truncate=True cuts it")
            return rows
        cut_to, cuts = self._cuts
        if cut_to != max_length:
            cuts = need_tokenizers().Tokenizer.from_str(self.tokenizer.to_str())
            cuts.enable_truncation(max_length, direction=self._side)
            cuts.encode_special_tokens = self.tokenizer.encode_special_tokens
            self._cuts = max_length, cuts
        return cuts.encode_batch_fast(texts, add_special_tokens=self._special)


LEAST_CELLS = 32  # a thread that reads all weights for fewer tokens waits for memory: a run takes as long as with these
RUN_CELLS = 8     # what a run costs beside its tokens, in tokens


def threads_of(model):
    return model._pool_threads or len(os.sched_getaffinity(0))


def _cuts(lengths, ends, most, least):
    """For rows that are sorted by length, in groups of equal length that end before `ends`: for each group, at which
    one the run begins that ends with it, if all up to it cost the least. A run costs its cells, padding included."""
    costs, begins, tokens = [0], [], [0]
    for last, end in enumerate(ends):
        longest, best = lengths[end - 1], None
        tokens.append(tokens[-1] + (end - (ends[last - 1] if last else 0)) * longest)
        for first in range(last, -1, -1):
            cells = (end - (ends[first - 1] if first else 0)) * longest
            if cells - tokens[-1] + tokens[first] > (last - first + 1) * (least + RUN_CELLS):
                break  # a run for each group would cost less, and more padding makes it no better
            cost = costs[first] + max(least, cells) + RUN_CELLS * -(-cells // most)
            if best is None or cost < best:
                best, begin = cost, first
        costs.append(best)
        begins.append(begin)
    return begins


def even_runs(rows, batch_tokens, threads):
    """Lists of numbers of rows, as many as batch_tokens allows, with little padding: rows of one length make a run,
    and with others only where they are too few to be worth one."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    lengths = [max(1, len(rows[i])) for i in order]
    ends = [k for k in range(1, len(order) + 1) if k == len(order) or lengths[k] != lengths[k - 1]]
    begins = _cuts(lengths, ends, max(1, batch_tokens), min(batch_tokens, LEAST_CELLS * threads))
    group = len(ends)
    while group:
        end, group = ends[group - 1], begins[group - 1]
        many = max(1, batch_tokens // lengths[end - 1])
        for k in range(ends[group - 1] if group else 0, end, many):
            yield order[k:min(k + many, end)]


MANY_RUNS = 4  # of each thread: from here on threads that each have a run of their own are done at about the same time


def each_run(model, rows, batch_tokens, work):
    """work(model or what is called like it, a run) for the runs of all rows. Many runs are computed side by side, each by
    one thread, which wait for each other less than threads that share every run; few are shared by all threads."""
    threads = threads_of(model)
    alone = list(even_runs(rows, batch_tokens, 1)) if threads > 1 else []
    alone.sort(key=lambda run: -len(run) * max(len(rows[i]) for i in run))  # who ends last waits for a short one
    if len(alone) < MANY_RUNS * threads:
        for run in even_runs(rows, batch_tokens, threads):
            work(model, run)
        return
    alone, errors = iter(alone), []

    def work_alone():
        try:
            for run in alone:  # an iterator of a list gives each to one thread
                if errors:
                    break
                work(model._call_alone, run)
        except BaseException as error:  # raised again by the thread that was called
            errors.append(error)
    others = [threading.Thread(target=work_alone, daemon=True) for _ in range(threads - 1)]
    for other in others:
        other.start()
    work_alone()
    for other in others:
        other.join()
    if errors:
        raise errors[0]


def runs(rows, batch_tokens):
    """Lists of numbers of rows: those of like length together, as many as batch_tokens allows. For decoders, which
    gain more by many rows than they lose by padding."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    run, tokens = [], 0
    for i in order:
        if run and tokens + len(rows[i]) > batch_tokens:
            yield run
            run, tokens = [], 0
        run.append(i)
        tokens += len(rows[i])
    if run:
        yield run


def padded(rows):
    """(ids, mask) i32 [rows, longest]; zeros behind the end of a row, and where a token is the mask is 1."""
    ids = np.zeros((len(rows), max(1, max(map(len, rows)))), np.int32)
    mask = np.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, :len(row)] = row
        mask[place, :len(row)] = 1
    return ids, mask
