"""/translate: texts in, their translations out."""
from __future__ import annotations

import logging
from typing import Any

import tfmc

from .errors import Fault
from .scheduler import Job, Row
from .service import Answer, Call, internal
from .translators import Ids

log = logging.getLogger("tfmc_serve")


async def translate(call: Call) -> Answer:
    asked, served = call.asked, call.served
    texts: list[str] = asked["text"]

    def work() -> tuple[list[list[int]], dict[str, Any]]:
        found: tuple[list[list[int]], dict[str, Any]] = served.encode(texts, asked["target"], asked["source"],
                                                                      asked["truncate"])
        return found
    sources, options = await call.tokenizing(work, sum(map(len, texts)))
    limit = limit_of(call)
    call.record.rows, call.record.tokens = len(sources), sum(map(len, sources))
    beams = asked["num_beams"] or served.beams
    if beams > 1:
        rows = await search(call, sources, {**options, "num_beams": beams, "max_new_tokens": limit - len(served.start)})
    else:
        rows = await write(call, sources, options, limit)
    read = call.record.tokens
    written = sum(len(row) - len(served.start) for row in rows)
    return Answer({"translations": [served.decode(row) for row in rows], "usage": {
        "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}})


def limit_of(call: Call) -> int:
    """The greatest length of a row."""
    served, wanted = call.served, call.asked["max_new_tokens"]
    most: int = served.row_length - len(served.start)
    if wanted is not None and wanted > most:
        raise Fault("invalid", f"max_new_tokens: {wanted}, and the model writes at most {most}", "max_new_tokens")
    new: int = wanted or served.new_tokens
    return len(served.start) + new


async def write(call: Call, sources: list[list[int]], options: dict[str, Any], limit: int) -> list[list[int]]:
    """Rows of the scheduler."""
    served = call.served
    job = Job(call.record.key)
    given = {**options, "do_sample": False, "num_beams": 1, "num_return_sequences": 1}
    for i, source in enumerate(sources):
        chooser = call.scheduler.chooser(served.start, limit, 0, 0, None, given)
        row = Row(job, i, chooser, Ids(served.ends), served.start, None)
        row.source = served.source_of(source)
        job.rows.append(row)
    call.put(job)
    rows = [list(served.start) for _ in sources]
    async for some in call.follow(job):
        for piece in some or ():
            rows[piece.choice] += piece.tokens
    return rows


async def search(call: Call, sources: list[list[int]], options: dict[str, Any]) -> list[list[int]]:
    """The best beam of each source."""
    try:
        call.scheduler.chooser(call.served.start, options["max_new_tokens"] + len(call.served.start), 0, 0, None,
                               {name: value for name, value in options.items() if name not in ("num_beams", "max_new_tokens")})
        wanted = call.searcher.put(sources, options)
        try:
            return await call.until_deadline(wanted.future)
        finally:
            wanted.cancelled = True
    except tfmc.Error as error:
        log.error("%s: %s: %s", call.record.id, call.served.name, error)
        raise internal(call.record.id) from None
