"""OpenAI's /v1/embeddings, and /v1/rerank and /v2/rerank as Jina's and Cohere's clients send it."""
from __future__ import annotations

import base64
import uuid
from typing import Any

import numpy as np

from .routes_tei import best_first, with_prompt
from .service import Answer, Call


async def embeddings(call: Call) -> Answer:
    asked, served = call.asked, call.served
    served.check_dimensions(asked["dimensions"])
    texts = with_prompt(served, asked["input"], asked["prompt_name"])
    encoded = await call.encode(texts, "input", asked["truncate"], count=True)
    vectors = served.vectors(await call.compute(encoded), True, asked["dimensions"])
    made: list[Any] = list(vectors)
    if asked["encoding_format"] == "base64":
        made = [base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode() for vector in vectors]
    return Answer({
        "object": "list", "model": served.name,
        "data": [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(made)],
        "usage": {"prompt_tokens": encoded.tokens, "total_tokens": encoded.tokens, "truncated_tokens": encoded.truncated}})


async def rerank(call: Call) -> Answer:
    asked, served = call.asked, call.served
    texts = asked["documents"]
    encoded = await call.encode([(asked["query"], text) for text in texts], "documents", asked["truncate"])
    scores = served.scores(await call.compute(encoded), False)[:, 0]
    results = [{"index": i, "relevance_score": scores[i],
                **({"document": {"text": texts[i]}} if asked["return_documents"] else {})}
               for i in best_first(scores)[:asked["top_n"]]]
    return Answer({"id": uuid.uuid4().hex, "model": served.name, "results": results,
                   "usage": {"total_tokens": encoded.tokens}})
