#!/usr/bin/env python3
"""llama.cpp with the continuous batching of its own server, behind uvicorn: the peer of completions.py.

usage: peer_llama.py FILE.gguf TOKENIZER.json [--port N] [--threads N] [--rows N] [--length N]

POST /v1/completions with a prompt of ids, max_tokens and stream, greedy, as completions.py asks. As in llama-server each
call of llama_decode has a token of every row that writes, and fills up to 2,048 with tokens of prompts; rows are sequences
of one cache. llama-server itself is C++ and keeps beginnings, which this does not. Needs llama-cpp-python, numpy,
tokenizers, starlette and uvicorn.
"""
import argparse
import asyncio
import collections
import threading

import llama_cpp
import numpy as np
import tokenizers
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from peer_stream import stream_of

BATCH = 2048  # tokens of a call, as llama-server has it


class Row:
    def __init__(self, prompt, tokens, out):
        self.prompt, self.left, self.out, self.read, self.sequence = prompt, tokens, out, 0, -1


class Peer:
    def __init__(self, arguments):
        self.rows, self.tokenizer = arguments.rows, tokenizers.Tokenizer.from_file(arguments.tokenizer)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(arguments.file.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"{arguments.file}: llama.cpp cannot read it")
        given = llama_cpp.llama_context_default_params()
        given.n_ctx, given.n_batch, given.n_seq_max = arguments.rows * arguments.length, BATCH, arguments.rows
        given.n_threads = given.n_threads_batch = arguments.threads
        given.kv_unified = True
        self.context = llama_cpp.llama_init_from_model(self.model, given)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        self.waiting, self.changed, self.loop = collections.deque(), threading.Condition(), None

    def put(self, row):
        with self.changed:
            self.waiting.append(row)
            self.changed.notify()

    def work(self):
        running, free = [], list(range(self.rows))
        while True:
            with self.changed:
                while not self.waiting and not running:
                    self.changed.wait()
                while self.waiting and free:
                    row = self.waiting.popleft()
                    row.sequence = free.pop()
                    running.append(row)
            for row, token in self.step(running):
                row.prompt.append(token)
                row.left -= 1
                self.loop.call_soon_threadsafe(row.out.put_nowait, (token, not row.left))
                if not row.left:
                    llama_cpp.llama_memory_seq_rm(self.memory, row.sequence, -1, -1)
                    free.append(row.sequence)
                    running.remove(row)

    def step(self, running):
        """[(row, its next token)] of those whose last token was read"""
        batch, at, ended = self.batch, 0, []
        for row in sorted(running, key=lambda row: len(row.prompt) - row.read):  # those that write come first
            for token in row.prompt[row.read:row.read + BATCH - at]:
                batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.seq_id[at][0] = token, row.read, 1, row.sequence
                batch.logits[at], at, row.read = False, at + 1, row.read + 1
            if row.read == len(row.prompt):
                batch.logits[at - 1] = True
                ended.append((row, at - 1))
        batch.n_tokens = at
        if llama_cpp.llama_decode(self.context, batch):
            raise SystemExit("llama_decode failed")
        found = []
        for row, place in ended:
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, place), shape=(self.vocab,))
            found.append((row, int(logits.argmax())))
        return found

    async def complete(self, request):
        body, out = await request.json(), asyncio.Queue()
        self.loop = asyncio.get_running_loop()
        self.put(Row(list(body["prompt"]), body["max_tokens"], out))
        return stream_of(self.tokenizer, body, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("tokenizer")
    for name, default in (("port", 8082), ("threads", 2), ("rows", 32), ("length", 512)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    peer = Peer(arguments)
    threading.Thread(target=peer.work, daemon=True).start()
    uvicorn.run(Starlette(routes=[Route("/v1/completions", peer.complete, methods=["POST"])]), port=arguments.port,
                log_level="warning")


if __name__ == "__main__":
    main()
