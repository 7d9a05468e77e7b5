"""The routes of text-embeddings-inference: texts in, lists of numbers out."""
from __future__ import annotations

from typing import Any

import numpy as np

from .errors import Fault
from .service import Answer, Call
from .texts import Served


async def embed(call: Call) -> Answer:
    asked, served = call.asked, call.served
    served.check_dimensions(asked["dimensions"])
    texts = with_prompt(served, asked["inputs"], asked["prompt_name"])
    encoded = await call.encode(texts, "inputs", asked["truncate"], asked["truncation_direction"])
    numbers = await call.compute(encoded)
    return Answer(served.vectors(numbers, asked["normalize"], asked["dimensions"]))


async def similarity(call: Call) -> Answer:
    inputs, settings, served = call.asked["inputs"], call.asked["parameters"], call.served
    texts = with_prompt(served, [inputs["source_sentence"], *inputs["sentences"]], settings["prompt_name"])
    encoded = await call.encode(texts, "inputs", settings["truncate"], settings["truncation_direction"])
    vectors = served.vectors(await call.compute(encoded), True, None)
    return Answer(np.sum(vectors[1:] * vectors[0], axis=1, dtype=np.float32))


async def rerank(call: Call) -> Answer:
    asked, served = call.asked, call.served
    pairs = [(asked["query"], text) for text in asked["texts"]]
    encoded = await call.encode(pairs, "texts", asked["truncate"], asked["truncation_direction"])
    scores = served.scores(await call.compute(encoded), asked["raw_scores"])[:, 0]
    return Answer([{"index": i, "score": scores[i], **({"text": asked["texts"][i]} if asked["return_text"] else {})}
                   for i in best_first(scores)])


async def predict(call: Call) -> Answer:
    asked, served = call.asked, call.served
    rows, alone = asked["inputs"]
    texts = [row[0] if len(row) == 1 else tuple(row) for row in rows]
    encoded = await call.encode(texts, "inputs", asked["truncate"], asked["truncation_direction"])
    scores = served.scores(await call.compute(encoded), asked["raw_scores"])
    found = [[{"label": served.labels[i], "score": row[i]} for i in best_first(row)] for row in scores]
    return Answer(found[0] if alone else found)


async def tokenize(call: Call) -> Answer:
    asked, tokenizer = call.asked, call.served.tokenizer
    texts = asked["inputs"]

    def work() -> list[list[dict[str, Any]]]:
        encodings = tokenizer.encode_batch(texts, add_special_tokens=asked["add_special_tokens"])
        return [tokens_of(text, encoding) for text, encoding in zip(texts, encodings)]
    return Answer(await call.tokenizing(work, sum(map(len, texts))))


def tokens_of(text: str, encoding: Any) -> list[dict[str, Any]]:
    """Special tokens are nowhere in the text."""
    found = []
    parts = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets)
    for token, name, special, (start, stop) in parts:
        found.append({"id": token, "text": name if special else text[start:stop], "special": bool(special),
                      "start": None if special else start, "stop": None if special else stop})
    return found


async def decode(call: Call) -> Answer:
    rows, served = call.asked["ids"], call.served
    for i, row in enumerate(rows):
        if max(row) >= served.vocab:
            raise Fault("invalid", f"ids[{i}]: {max(row)} is no token's id; the model has {served.vocab} tokens", "ids")

    def work() -> list[str]:
        texts: list[str] = served.tokenizer.decode_batch(rows, skip_special_tokens=call.asked["skip_special_tokens"])
        return texts
    return Answer(await call.tokenizing(work, sum(map(len, rows))))


def with_prompt(served: Served, inputs: list[Any], name: str | None) -> list[Any]:
    prompt = served.prompt(name)
    if name is not None and any(isinstance(text, list) for text in inputs):
        raise Fault("invalid", "prompt_name: prompts are put before texts, not before ids", "prompt_name")
    return [prompt + text if isinstance(text, str) else text for text in inputs] if prompt else inputs


def best_first(scores: Any) -> list[int]:
    """Of equal scores the lower index."""
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order
