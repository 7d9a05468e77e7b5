#!/usr/bin/env python3
"""The decoding loop of libtfm against tests/goldens/generate_reference.py, on random scores and random options.

usage: decoding.py LIBTFM.so [--first SEED] [--count N]

The model is a table of random scores that depends on the item, the last two tokens and the length; every other one
gives the logs of its sums too. Cases in which a
comparison is closer than rounding may be are left out, and counted. The last line is `N passed, N failed`.
"""
import argparse
import ctypes
import pathlib
import random
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "goldens"))
from generate_reference import EveryTokenForbidden, Options, generate, log_softmax, process

INT64, POINTER = ctypes.c_int64, ctypes.POINTER
LEAST_MARGIN = 1e-4


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 512), ("reason", ctypes.c_int), ("place", ctypes.c_char_p)]


class StepRows(ctypes.Structure):
    _fields_ = [("n", INT64), ("tokens", POINTER(POINTER(ctypes.c_int32))), ("lengths", POINTER(INT64)),
                ("items", POINTER(INT64)), ("parents", POINTER(INT64))]


Scores = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, POINTER(StepRows), POINTER(ctypes.c_float), POINTER(ctypes.c_float), POINTER(Error))


class Model(ctypes.Structure):
    _fields_ = [("vocab", INT64), ("user", ctypes.c_void_p), ("scores", Scores), ("gives_logsumexp", ctypes.c_int32),
                ("share", ctypes.c_void_p), ("best", ctypes.c_void_p), ("most_best", INT64)]


class GenerateOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("max_length", INT64), ("max_new_tokens", INT64), ("min_length", INT64),
                ("min_new_tokens", INT64), ("num_beams", INT64), ("num_return_sequences", INT64),
                ("length_penalty", ctypes.c_double), ("early_stopping", ctypes.c_int), ("repetition_penalty", ctypes.c_double),
                ("no_repeat_ngram_size", INT64), ("forced_bos_token_id", INT64), ("forced_eos_token_id", INT64),
                ("pad_token_id", INT64), ("eos_token_ids", POINTER(INT64)), ("n_eos_token_ids", ctypes.c_uint64),
                ("suppress_tokens", POINTER(INT64)), ("n_suppress_tokens", ctypes.c_uint64), ("do_sample", ctypes.c_int32),
                ("temperature", ctypes.c_double), ("top_k", INT64), ("top_p", ctypes.c_double), ("seed", ctypes.c_uint64),
                ("on_token", ctypes.c_void_p), ("on_token_user", ctypes.c_void_p),
                ("on_scores", ctypes.c_void_p), ("on_scores_user", ctypes.c_void_p),
                ("return_token_scores", ctypes.c_int32),
                ("newer", ctypes.c_char * 256)]  # members that this script does not know


class Prompts(ctypes.Structure):
    _fields_ = [("n", INT64), ("width", INT64), ("tokens", POINTER(ctypes.c_int32)), ("lengths", POINTER(INT64)),
                ("padding", POINTER(INT64))]


class Generated(ctypes.Structure):
    _fields_ = [("n", INT64), ("width", INT64), ("sequences", POINTER(ctypes.c_int32)), ("lengths", POINTER(INT64)),
                ("scores", POINTER(ctypes.c_float)), ("n_tokens", INT64), ("token_scores", POINTER(ctypes.c_float))]


def table_of(seed, vocab):
    """Scores by (item, tokens): the same for equal arguments, exact in f32."""
    known = {}

    def scores(item, tokens):
        key = (int(item), *(int(t) for t in tokens[-2:]), len(tokens))
        if key not in known:
            known[key] = np.random.default_rng([seed, *key]).normal(size=vocab, scale=2).astype(np.float32)
        return known[key]

    return scores


def random_options(rng, vocab):
    beams = rng.choice([1, 1, 2, 3, 4, min(vocab, 9)])
    eos = rng.choice([None, [1], [1], [1, 3], [0, 2, 4]])
    return Options(
        max_new_tokens=rng.randint(1, 9), min_new_tokens=0 if rng.random() < 0.6 else 1, num_beams=beams,
        num_return_sequences=rng.randint(1, beams), length_penalty=rng.choice([1.0, 0.0, -1.0, 0.6, 2.5]),
        early_stopping=rng.choice([False, True, "never"]), repetition_penalty=rng.choice([1.0, 1.0, 1.3, 0.7]),
        no_repeat_ngram_size=rng.choice([0, 0, 2, 3]), forced_bos_token_id=rng.choice([None, None, 2]),
        forced_eos_token_id=rng.choice([None, None, 1]), suppress_tokens=rng.choice([(), (), (3,)]),
        temperature=rng.choice([1.0, 0.5, 1.7]), top_k=rng.choice([0, 0, 3]), top_p=rng.choice([1.0, 0.8, 0.3]),
        eos_token_id=eos, pad_token_id=0)


def given_options(library, o, kept):
    g = GenerateOptions()
    library.tfm_generate_defaults(ctypes.byref(g))
    for name in ("max_new_tokens min_new_tokens num_beams num_return_sequences length_penalty repetition_penalty "
                 "no_repeat_ngram_size do_sample temperature top_k top_p pad_token_id").split():
        setattr(g, name, getattr(o, name))
    g.early_stopping = {False: 0, True: 1, "never": 2}[o.early_stopping]
    g.forced_bos_token_id = -1 if o.forced_bos_token_id is None else o.forced_bos_token_id
    g.forced_eos_token_id = -1 if o.forced_eos_token_id is None else o.forced_eos_token_id
    for tokens, name in ((o.eos, "eos_token_ids"), (o.suppress_tokens, "suppress_tokens")):
        array = (INT64 * max(len(tokens), 1))(*tokens)
        kept.append(array)
        setattr(g, name, array)
        setattr(g, "n_" + name, len(tokens))
    return g


def run_ours(library, vocab, table, prompt, lead, options, gives_logsumexp):
    kept = []

    def scores(_, rows, out, logsumexp, error):
        for i in range(rows[0].n):
            tokens = rows[0].tokens[i][:rows[0].lengths[i]]
            row = table(rows[0].items[i], tokens)
            ctypes.memmove(ctypes.addressof(out.contents) + 4 * i * vocab, row.ctypes.data, row.nbytes)
            if gives_logsumexp and logsumexp:
                logsumexp[i] = np.log(np.exp(row.astype(float)).sum())
        return 0

    model = Model(vocab, None, Scores(scores), gives_logsumexp, None)
    tokens = (ctypes.c_int32 * prompt.size)(*prompt.ravel().tolist())
    prompts = Prompts(prompt.shape[0], prompt.shape[1], tokens, None, (INT64 * len(lead))(*lead))
    error, generated = Error(), Generated()
    g = given_options(library, options, kept)
    references = [ctypes.byref(x) for x in (model, prompts, g)]
    if options.do_sample:
        out = np.zeros((len(prompt), vocab), np.float32)
        status = library.tfm_generate_first_step(*references, out.ctypes.data_as(POINTER(ctypes.c_float)), ctypes.byref(error))
        return (out, None) if status == 0 else (error.message.decode(), None)
    if library.tfm_generate(*references, ctypes.byref(generated), ctypes.byref(error)):
        return error.message.decode(), None
    n, width = generated.n, generated.width
    rows = np.array(generated.sequences[:n * width]).reshape(n, width)
    found = np.array(generated.scores[:n]) if generated.scores else None
    library.tfm_generated_free(ctypes.byref(generated))
    return rows, found


def refused(got):
    right = isinstance(got, str) and "every token is forbidden" in got
    return None if right else f"no token is left, but it goes on: {got}"


def compare(library, seed):
    """None if they agree, a text if not, "close" if rounding may decide."""
    rng = random.Random(seed)
    vocab = rng.randint(5, 9) if rng.random() < 0.7 else rng.randint(100, 500)
    items, length = rng.randint(1, 3), rng.randint(1, 4)
    prompt = np.array([[rng.randrange(vocab) for _ in range(length)] for _ in range(items)])
    lead = [rng.randint(0, length - 1) for _ in range(items)]
    options, table = random_options(rng, vocab), table_of(seed, vocab)
    options.min_new_tokens = min(options.min_new_tokens, options.max_new_tokens)
    next_scores = lambda rows, of: np.stack([table(i, r) for i, r in zip(of, np.asarray(rows).tolist())]).astype(float)
    if rng.random() < 0.2:
        options.num_beams = options.num_return_sequences = 1
        options.do_sample = True
        options.max_length = length + options.max_new_tokens
        wanted = process(next_scores(prompt, range(items)), prompt, options, length, lead)
        got, _ = run_ours(library, vocab, table, prompt, lead, options, seed % 2)
        if not (wanted > -np.inf).any(-1).all():
            return refused(got)
        wanted = np.exp(log_softmax(wanted))
        close = not isinstance(got, str) and np.abs(got - wanted).max() < 1e-5
        return None if close else f"probabilities: {got}\nwanted {wanted}"
    if options.num_beams == 1:
        options.num_return_sequences = 1
    with np.errstate(all="ignore"):
        try:
            rows, scores, margin = generate(next_scores, prompt, options, lead)
        except EveryTokenForbidden:
            return refused(run_ours(library, vocab, table, prompt, lead, options, seed % 2)[0])
    if not margin > LEAST_MARGIN or (scores is not None and not (np.array(scores) > -1e6).all()):
        return "close"
    got, found = run_ours(library, vocab, table, prompt, lead, options, seed % 2)
    if isinstance(got, str) or not np.array_equal(got, rows):
        return f"{options}\n{got}\nwanted\n{rows}"
    if scores is not None and not np.allclose(found, scores, atol=1e-4):
        return f"{options}\nscores {found}\nwanted {scores}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    arguments = parser.parse_args()
    library = ctypes.CDLL(str(pathlib.Path(arguments.library).resolve()))
    passed = failed = close = 0
    for seed in range(arguments.first, arguments.first + arguments.count):
        why = compare(library, seed)
        passed, failed, close = passed + (why is None), failed + (why not in (None, "close")), close + (why == "close")
        if why not in (None, "close"):
            print(f"FAIL seed {seed}: {why}")
    print(f"{close} cases are too close to compare")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
