#!/usr/bin/env python3
"""transformers' model behind uvicorn with batches of what waits: the peer of completions.py.

usage: peer_generate.py FOLDER [--port N] [--threads N] [--rows N]

POST /v1/completions with a prompt of ids, max_tokens and stream, greedy, as completions.py asks. Requests that wait when a
batch ends make the next one, at most --rows, padded on the left; each step is one call of the model with its cache. Needs
torch, transformers, tokenizers, starlette and uvicorn.
"""
import argparse
import asyncio

import tokenizers
import torch
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from transformers import AutoModelForCausalLM

from peer_stream import stream_of


class Peer:
    def __init__(self, folder, rows):
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
        self.rows, self.queue, self.loop = rows, None, None

    async def batches(self):
        while True:
            waiting = [await self.queue.get()]
            while not self.queue.empty() and len(waiting) < self.rows:
                waiting.append(self.queue.get_nowait())
            await asyncio.to_thread(self.write, waiting)

    @torch.inference_mode()
    def write(self, waiting):
        longest = max(len(prompt) for prompt, *_ in waiting)
        ids = torch.zeros((len(waiting), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, (prompt, *_) in enumerate(waiting):
            ids[row, longest - len(prompt):], mask[row, longest - len(prompt):] = torch.tensor(prompt), 1
        places, cache = (mask.cumsum(1) - 1).clamp(min=0), None
        for step in range(max(tokens for _, tokens, _ in waiting)):
            made = self.model(ids, attention_mask=mask, position_ids=places, past_key_values=cache, use_cache=True,
                              logits_to_keep=1)
            cache, ids = made.past_key_values, made.logits[:, -1].argmax(-1, keepdim=True)
            mask, places = torch.cat([mask, torch.ones_like(ids)], 1), places[:, -1:] + 1
            for (_, tokens, out), token in zip(waiting, ids[:, 0].tolist()):
                if step < tokens:
                    self.loop.call_soon_threadsafe(out.put_nowait, (token, step + 1 == tokens))

    async def complete(self, request):
        body, out = await request.json(), asyncio.Queue()
        self.queue.put_nowait((body["prompt"], body["max_tokens"], out))
        return stream_of(self.tokenizer, body, out)

    async def begin(self):
        self.loop, self.queue = asyncio.get_running_loop(), asyncio.Queue()
        self.task = asyncio.create_task(self.batches())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    for name, default in (("port", 8081), ("threads", 2), ("rows", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    peer = Peer(arguments.folder, arguments.rows)

    class App(Starlette):
        async def __call__(self, scope, receive, send):
            if peer.queue is None:
                await peer.begin()
            await super().__call__(scope, receive, send)
    uvicorn.run(App(routes=[Route("/v1/completions", peer.complete, methods=["POST"])]), port=arguments.port,
                log_level="warning")


if __name__ == "__main__":
    main()
