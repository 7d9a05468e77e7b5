"""The answer of a peer without a server of its own: completions as a stream of events, a token each.

In: a tokenizer, the request's body, a queue of (token, is the last). Out: the response. Refuses nothing.
"""
import json

from starlette.responses import StreamingResponse


def stream_of(tokenizer, body, out):
    async def events():
        ids, is_last = body["prompt"][-1:], False
        text = tokenizer.decode(ids)
        while not is_last:
            token, is_last = await out.get()
            ids.append(token)
            whole = tokenizer.decode(ids)
            yield "data: " + json.dumps({"choices": [{"index": 0, "text": whole[len(text):]}]}) + "\n\n"
            text = whole
        yield "data: " + json.dumps({"choices": [], "usage": {"completion_tokens": body["max_tokens"]}}) + "\n\n"
        yield "data: [DONE]\n\n"
    return StreamingResponse(events(), media_type="text/event-stream")
