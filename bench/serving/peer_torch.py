#!/usr/bin/env python3
"""sentence-transformers behind uvicorn, as it is usually put together: the peer of load.py.

usage: peer_torch.py FOLDER [--port N] [--threads N] [--wait MS] [--backend torch|openvino]

POST /embed as tfmc-serve has it. Requests that come within --wait milliseconds are encoded in one call; 0: what waits
when the last call ends. --backend openvino: computed by OpenVINO, in f32. Needs sentence-transformers, starlette and
uvicorn.
"""
import argparse
import asyncio

import torch
import uvicorn
from sentence_transformers import SentenceTransformer
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

try:
    import orjson
except ImportError:
    orjson = None
import json


class Peer:
    def __init__(self, folder, wait, backend):
        options = {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}} if backend == "openvino" else {}
        self.model = SentenceTransformer(folder, device="cpu", backend=backend, model_kwargs=options)
        self.wait, self.queue = wait, None

    async def batches(self):
        while True:
            waiting = [await self.queue.get()]
            if self.wait:
                await asyncio.sleep(self.wait)
            while not self.queue.empty():
                waiting.append(self.queue.get_nowait())
            texts = [text for group, _ in waiting for text in group]
            try:
                vectors = await asyncio.to_thread(self.model.encode, texts, show_progress_bar=False)
            except Exception as error:
                for _, future in waiting:
                    future.set_exception(error)
                continue
            at = 0
            for group, future in waiting:
                future.set_result(vectors[at:at + len(group)])
                at += len(group)

    async def embed(self, request):
        if self.queue is None:
            self.queue = asyncio.Queue()
            self.task = asyncio.ensure_future(self.batches())
        texts = (await request.json())["inputs"]
        future = asyncio.get_running_loop().create_future()
        self.queue.put_nowait(([texts] if isinstance(texts, str) else texts, future))
        vectors = await future
        body = orjson.dumps(vectors, option=orjson.OPT_SERIALIZE_NUMPY) if orjson else json.dumps(vectors.tolist()).encode()
        return Response(body, media_type="application/json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, default=8081)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--wait", type=float, default=0)
    parser.add_argument("--backend", choices=("torch", "openvino"), default="torch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    peer = Peer(arguments.folder, arguments.wait / 1000, arguments.backend)
    uvicorn.run(Starlette(routes=[Route("/embed", peer.embed, methods=["POST"])]), port=arguments.port,
                log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
