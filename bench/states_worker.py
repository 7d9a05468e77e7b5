"""Workers of states.py: an engine in a process of its own, which reads prompts and writes tokens.

usage: states_worker.py ENGINE FILE THREADS PROMPT NEW; ENGINE is tfmc (FILE: a saved model) or llama (a GGUF file)

Reads commands, a line each, and answers with a line that begins with `@`: `go` reads a prompt of PROMPT tokens and writes
NEW, greedily, and tells the seconds of the one and the other; `tokens` tells those that were written; `rows N` (tfmc)
writes NEW tokens of N rows with prompts of other lengths, and tells the seconds of a step. The prompt is the same for all.
"""
import os
import sys
import time

import numpy as np

VOCAB = 32768
RAGGED = [32 + 4 * i for i in range(8)]  # tokens of the prompts of `rows`


def prompt_of(length, row=0):
    return np.random.default_rng(3 + row).integers(1, VOCAB - 1, length).astype(np.int32)


class Tfmc:
    def __init__(self, path, threads, room):
        import tfmc
        self.model = tfmc.load(path, threads=threads)
        self.decoder = self.model.decoder(max_rows=8, max_length=room)
        self.row = None

    def leave(self):
        if self.row is not None:
            self.decoder.leave(self.row)
        self.row = None

    def clear(self):
        self.leave()
        self.row = self.decoder.join()

    def step(self, tokens):
        return int(np.asarray(self.decoder.step([(self.row, tokens)])).argmax())

    def rows(self, n, new):
        """Seconds of a step with n rows behind prompts of different lengths."""
        self.leave()
        rows = [self.decoder.join() for _ in range(n)]
        for i, row in enumerate(rows):
            self.decoder.step([(row, prompt_of(RAGGED[i], i))])
        token, began = np.array([5], np.int32), time.perf_counter()
        for _ in range(new):
            self.decoder.step([(row, token) for row in rows])
        seconds = (time.perf_counter() - began) / new
        for row in rows:
            self.decoder.leave(row)
        return seconds


class Llama:
    def __init__(self, path, threads, room):
        import llama_cpp as llama
        self.llama = llama
        llama.llama_backend_init()
        self.model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        if not self.model:
            raise RuntimeError("llama.cpp cannot read its file")
        p = llama.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch, p.type_k, p.type_v = room, 512, 512, threads, threads, 0, 0
        self.context, self.batch = llama.llama_init_from_model(self.model, p), llama.llama_batch_init(512, 0, 1)
        if not self.context:
            raise RuntimeError("llama.cpp makes no context")
        self.past = 0

    def clear(self):
        self.llama.llama_memory_clear(self.llama.llama_get_memory(self.context), True)
        self.past = 0

    def step(self, tokens):
        batch, n = self.batch, len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = int(token), self.past + i, 1, 0
            batch.logits[i] = i == n - 1
        batch.n_tokens = n
        if self.llama.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")
        self.past += n
        return int(np.ctypeslib.as_array(self.llama.llama_get_logits_ith(self.context, n - 1), (VOCAB,)).argmax())


def go(engine, prompt, new):
    """Seconds of the prompt, of all new tokens, and the tokens."""
    engine.clear()
    began = time.perf_counter()
    tokens = [engine.step(prompt)]
    read = time.perf_counter()
    for _ in range(new):
        tokens.append(engine.step(np.array(tokens[-1:], np.int32)))
    return read - began, time.perf_counter() - read, tokens


def main():
    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what engines print is no answer
    kind, path, threads, length, new = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    try:
        engine = {"tfmc": Tfmc, "llama": Llama}[kind](path, threads, max(length, *RAGGED) + new + 16)
        engine.clear()
        engine.step(prompt_of(4))
    except Exception as reason:  # whatever an engine raises
        print("@fail", " ".join(str(reason).split())[:200] or type(reason).__name__, file=say)
        return
    print("@ready", file=say)
    tokens = []
    for line in sys.stdin:
        command, *words = line.split()
        if command == "go":
            read, written, tokens = go(engine, prompt_of(length), new)
            print("@times", read, written, file=say)
        elif command == "tokens":
            print("@tokens", *tokens, file=say)
        elif command == "rows":
            print("@times", engine.rows(int(words[0]), new), file=say)
        elif command == "quit":
            return


if __name__ == "__main__":
    main()
