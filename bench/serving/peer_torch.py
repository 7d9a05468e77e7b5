#!/usr/bin/env python3
"""sentence-transformers behind uvicorn, as it is usually put together: the peer of load.py.

usage: peer_torch.py FOLDER [--port N] [--threads N] [--wait MS] [--backend torch|openvino] [--rerank]

POST /embed as tfmc-serve has it, or, with --rerank, POST /rerank of a cross-encoder. Requests that come within --wait milliseconds are encoded in one call; 0: what waits
when the last call ends. --backend openvino: computed by OpenVINO, in f32. Needs sentence-transformers, starlette and
uvicorn.
"""
import argparse
import asyncio

import torch
import uvicorn
from sentence_transformers import CrossEncoder, SentenceTransformer
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

try:
    import orjson
except ImportError:
    orjson = None
import json


class Peer:
    def __init__(self, arguments):
        options = {"ov_config": {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": arguments.threads}} \
            if arguments.backend == "openvino" else {}
        made = (CrossEncoder if arguments.rerank else SentenceTransformer)(
            arguments.folder, device="cpu", backend=arguments.backend, model_kwargs=options)
        self.compute = made.predict if arguments.rerank else made.encode
        self.wait, self.queue = arguments.wait / 1000, None

    async def batches(self):
        while True:
            waiting = [await self.queue.get()]
            if self.wait:
                await asyncio.sleep(self.wait)
            while not self.queue.empty():
                waiting.append(self.queue.get_nowait())
            texts = [text for group, _ in waiting for text in group]
            try:
                vectors = await asyncio.to_thread(self.compute, texts, show_progress_bar=False)
            except Exception as error:
                for _, future in waiting:
                    future.set_exception(error)
                continue
            at = 0
            for group, future in waiting:
                future.set_result(vectors[at:at + len(group)])
                at += len(group)

    async def computed(self, texts):
        if self.queue is None:
            self.queue = asyncio.Queue()
            self.task = asyncio.ensure_future(self.batches())
        future = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((texts, future))
        return await future

    async def rerank(self, request):
        asked = await request.json()
        scores = (await self.computed([(asked["query"], text) for text in asked["texts"]])).tolist()
        hits = [{"index": i, "score": scores[i]} for i in sorted(range(len(scores)), key=lambda i: -scores[i])]
        return Response(json.dumps(hits), media_type="application/json")

    async def embed(self, request):
        texts = (await request.json())["inputs"]
        vectors = await self.computed([texts] if isinstance(texts, str) else texts)
        body = orjson.dumps(vectors, option=orjson.OPT_SERIALIZE_NUMPY) if orjson else json.dumps(vectors.tolist()).encode()
        return Response(body, media_type="application/json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, default=8081)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--wait", type=float, default=0)
    parser.add_argument("--backend", choices=("torch", "openvino"), default="torch")
    parser.add_argument("--rerank", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    peer = Peer(arguments)
    routes = [Route("/rerank", peer.rerank, methods=["POST"])] if arguments.rerank else \
        [Route("/embed", peer.embed, methods=["POST"])]
    uvicorn.run(Starlette(routes=routes), port=arguments.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
