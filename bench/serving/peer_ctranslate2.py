#!/usr/bin/env python3
"""CTranslate2 behind uvicorn, with batches of what comes within 10 ms: the peer of load.py --route translate.

usage: peer_ctranslate2.py FOLDER [--port N] [--threads N] [--wait MS]

FOLDER of make_models.py m2m: its tokenizer, and FOLDER/ct2. POST /translate as tfmc-serve has it, greedy, in f32. Needs
ctranslate2, tokenizers, starlette and uvicorn.
"""
import argparse
import asyncio

import ctranslate2
import tokenizers
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


class Peer:
    def __init__(self, arguments):
        self.tokenizer = tokenizers.Tokenizer.from_file(f"{arguments.folder}/tokenizer.json")
        self.model = ctranslate2.Translator(f"{arguments.folder}/ct2", device="cpu", compute_type="float32", inter_threads=1,
                                            intra_threads=arguments.threads)
        self.wait, self.queue = arguments.wait / 1000, None

    def translate(self, texts, tokens):
        rows = [row.tokens for row in self.tokenizer.encode_batch_fast(texts)]
        made = self.model.translate_batch(rows, beam_size=1, max_decoding_length=tokens, max_batch_size=2048,
                                          batch_type="tokens")
        return [self.tokenizer.decode([self.tokenizer.token_to_id(token) for token in row.hypotheses[0]]) for row in made]

    async def batches(self):
        while True:
            waiting = [await self.queue.get()]
            await asyncio.sleep(self.wait)
            while not self.queue.empty():
                waiting.append(self.queue.get_nowait())
            texts = [text for group, _, _ in waiting for text in group]
            made = await asyncio.to_thread(self.translate, texts, max(tokens for _, tokens, _ in waiting))
            for group, _, future in waiting:
                future.set_result(made[:len(group)])
                made = made[len(group):]

    async def answer(self, request):
        asked = await request.json()
        if self.queue is None:
            self.queue = asyncio.Queue()
            self.task = asyncio.ensure_future(self.batches())
        future = asyncio.get_running_loop().create_future()
        texts = [asked["text"]] if isinstance(asked["text"], str) else asked["text"]
        self.queue.put_nowait((texts, asked["max_new_tokens"], future))
        return JSONResponse({"translations": await future})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    for name, default in (("port", 8081), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--wait", type=float, default=10)
    arguments = parser.parse_args()
    peer = Peer(arguments)
    uvicorn.run(Starlette(routes=[Route("/translate", peer.answer, methods=["POST"])]), port=arguments.port,
                log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
