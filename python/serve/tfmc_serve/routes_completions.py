"""OpenAI's /v1/completions.

The numbers of an answer are those of its row alone: choice c of a prompt has the tokens of row c of `Model.generate` with
the same seed and options.
"""
from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from .errors import Fault
from .pieces import UNKNOWN, Piece, Text
from .scheduler import Job, Row
from .service import Answer, Call
from .shapes import MOST_CHOICES

DEFAULT_TOKENS = 16


class Asked:
    """What all answers of a request share."""

    def __init__(self, call: Call, prompts: list[list[int]]) -> None:
        asked, self.served = call.asked, call.served
        self.call, self.prompts, self.n = call, prompts, asked["n"]
        self.seed: int = secrets.randbits(53) if asked["seed"] is None else asked["seed"]
        self.head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time()),
                     "model": self.served.name, "system_fingerprint": f"tfmc-{call.service.version}", "seed": self.seed}

    def job(self) -> Job:
        """The rows of the request: those of a prompt follow one another, and the first of them reads it."""
        call, asked = self.call, self.call.asked
        job, ends = Job(call.record.key), frozenset(() if asked["ignore_eos"] else self.served.ends)
        for number, prompt in enumerate(self.prompts):
            limit = self._limit(prompt, number)
            leader: Row | None = None
            for choice in range(self.n):
                chooser = call.scheduler.chooser(prompt, limit, self.seed % 2 ** 64, choice, asked["logprobs"],
                                                 options_of(asked))
                text = Text(self.served.tokenizer, prompt, asked["stop"], ends)
                job.rows.append(Row(job, number * self.n + choice, chooser, text, prompt, leader))
                leader = leader or job.rows[-1]
        return job

    def _limit(self, prompt: list[int], number: int) -> int:
        left: int = self.served.max_length - len(prompt)
        wanted = self.call.asked["max_tokens"]
        if wanted is None:
            return len(prompt) + min(DEFAULT_TOKENS, left)
        if wanted > left:
            where = f"prompt[{number}]" if len(self.prompts) > 1 else "prompt"
            raise Fault("invalid", f"max_tokens: {where} has {len(prompt)} tokens, and with {wanted} more there are more "
                        f"than the {self.served.max_length} that the model takes; {left} are left", "max_tokens")
        return len(prompt) + int(wanted)

    def usage(self, job: Job, written: int) -> dict[str, Any]:
        read = sum(map(len, self.prompts))
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written,
                "prompt_tokens_details": {"cached_tokens": job.cached}}


def options_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Options of generation. What is left out is as the model's folder has it, but for temperature and top_p, which are 1
    on OpenAI's routes."""
    options = {"do_sample": asked["temperature"] > 0, "temperature": asked["temperature"], "top_p": asked["top_p"]}
    for name, member in (("top_k", "top_k"), ("repetition_penalty", "repetition_penalty"),
                         ("no_repeat_ngram_size", "no_repeat_ngram_size"), ("min_new_tokens", "min_tokens")):
        if asked[member] is not None:
            options[name] = asked[member]
    if asked["ignore_eos"]:
        options["eos_token_id"] = []
    return options


class Choice:
    """One answer as far as it is there."""

    def __init__(self, asked: Asked, index: int) -> None:
        self.asked, self.index, self.length = asked, index, 0
        members = asked.call.asked
        self.has_logprobs, self.has_ids = members["logprobs"] is not None, members["return_token_ids"]
        self.before = ""  # the prompt's text, if it is wanted and was not given yet
        if members["echo"]:
            prompt = asked.prompts[index // asked.n]
            self.before = asked.served.tokenizer.decode(prompt, skip_special_tokens=True)

    def entry(self, pieces: list[Piece]) -> dict[str, Any]:
        """Of these pieces, which follow one another."""
        text, self.before = self.before + "".join(piece.text for piece in pieces), ""
        tokens = [token for piece in pieces for token in piece.tokens]
        made: dict[str, Any] = {"index": self.index, "text": text, "finish_reason": pieces[-1].finish,
                                "stop_reason": pieces[-1].stop, "logprobs": None}
        if self.has_logprobs:
            made["logprobs"] = self.logprobs(tokens)
        if self.has_ids:
            made["token_ids"] = [token if isinstance(token, int) else token[0] for token in tokens]
        return made

    def logprobs(self, tokens: list[Any]) -> dict[str, Any]:
        texts = [self.text_of(token) for token, *_ in tokens]
        offsets = []
        for text in texts:
            offsets.append(self.length)
            self.length += len(text)
        likeliest: list[dict[str, float]] = []
        for _, _, top in tokens:
            likeliest.append({})
            for token, logprob in top:
                likeliest[-1].setdefault(self.text_of(token), finite(logprob))
        return {"tokens": texts, "token_logprobs": [finite(logprob) for _, logprob, _ in tokens], "top_logprobs": likeliest,
                "text_offset": offsets}

    def text_of(self, token: int) -> str:
        """A token's own text; its name where its bytes are no whole character."""
        tokenizer = self.asked.served.tokenizer
        text: str = tokenizer.decode([token], skip_special_tokens=False)
        return text if UNKNOWN not in text else str(tokenizer.id_to_token(token))


def finite(logprob: float) -> float:
    """JSON has no infinity: a token that an option forces may be one that never follows."""
    return max(logprob, -1e30)


async def completions(call: Call) -> Answer:
    asked = call.asked
    check(asked)
    given = asked["prompt"]
    characters = sum(len(prompt) for prompt in given if isinstance(prompt, str))
    prompts = await call.tokenizing(lambda: call.served.encode(given, "prompt"), characters)
    request = Asked(call, prompts)
    job = request.job()
    call.record.rows, call.record.tokens = len(job.rows), sum(map(len, prompts))
    call.put(job)
    choices = [Choice(request, row.index) for row in job.rows]
    if asked["stream"]:
        return Answer(None, stream(call, request, job, choices))
    pieces: list[list[Piece]] = [[] for _ in choices]
    async for some in call.follow(job):
        for piece in some or ():
            pieces[piece.choice].append(piece)
    written = sum(len(piece.tokens) for own in pieces for piece in own)
    return Answer({**request.head, "choices": [choice.entry(own) for choice, own in zip(choices, pieces)],
                   "usage": request.usage(job, written)})


def check(asked: dict[str, Any]) -> None:
    rows = asked["n"] * len(asked["prompt"])
    if rows > MOST_CHOICES:
        raise Fault("too_large", f"n: {rows} answers; a request may have {MOST_CHOICES}", "n")
    if asked["best_of"] not in (None, asked["n"]):
        raise Fault("invalid", f"best_of: {asked['best_of']} is not n, {asked['n']}; all answers are given", "best_of")
    if asked["echo"] and asked["logprobs"] is not None:
        raise Fault("invalid", "echo: the probabilities of a prompt's tokens are not computed; either echo or logprobs",
                    "echo")
    if asked["stream_options"]["include_usage"] and not asked["stream"]:
        raise Fault("invalid", "stream_options: they are for streams", "stream_options")


async def stream(call: Call, request: Asked, job: Job, choices: list[Choice]) -> AsyncIterator[Any]:
    """An event for what each choice has gained since the last one; one with the numbers of tokens, if it is asked for."""
    written = 0
    async for some in call.follow(job):
        if some is None:
            yield None
            continue
        gained: dict[int, list[Piece]] = {}
        for piece in some:
            gained.setdefault(piece.choice, []).append(piece)
        for index, own in gained.items():
            written += sum(len(piece.tokens) for piece in own)
            choice = choices[index]
            entry = choice.entry(own)
            if entry["text"] or entry["finish_reason"] or choice.has_logprobs or choice.has_ids:
                yield {**request.head, "choices": [entry]}
    if call.asked["stream_options"]["include_usage"]:
        yield {**request.head, "choices": [], "usage": request.usage(job, written)}
