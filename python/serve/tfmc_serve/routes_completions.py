"""OpenAI's /v1/completions, and what /v1/chat/completions (routes_chat.py) shares with it.

The numbers of an answer are those of its row alone: choice c of a prompt has the tokens of row c of `Model.generate` with
the same seed and options.
"""
from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

from . import grammar
from .errors import Fault
from .pieces import UNKNOWN, Piece, Text
from .scheduler import Job, Row
from .scoring import Scoring
from .service import Answer, Call
from .shapes import MOST_CHOICES

DEFAULT_TOKENS = 16
# of rows that are only read: no option of the folder's forbids or forces a token
PLAIN: dict[str, Any] = {
    "do_sample": False, "eos_token_id": [], "suppress_tokens": [], "begin_suppress_tokens": [], "bad_words_ids": [],
    "forced_bos_token_id": -1, "forced_eos_token_id": -1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_new_tokens": 0, "min_length": 0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0}


class Asked:
    """What all answers of a request share."""
    prefix, object, piece_object = "cmpl-", "text_completion", "text_completion"
    shown: frozenset[int] = frozenset()  # special tokens that are part of the text

    def __init__(self, call: Call, prompts: list[list[int]]) -> None:
        asked, self.served = call.asked, call.served
        self.call, self.prompts, self.n = call, prompts, asked["n"]
        self.seed: int = secrets.randbits(53) if asked["seed"] is None else asked["seed"]
        self.ends: tuple[int, ...] = () if asked["ignore_eos"] else self.served.ends
        self.scores: dict[int, list[Any]] = {}  # of the prompts' tokens, by the number of the prompt
        self.compiled: Any = None  # the grammar that all answers follow
        self.name, self.created = f"{self.prefix}{uuid.uuid4().hex}", int(time.time())

    def head(self, is_piece: bool = False) -> dict[str, Any]:
        return {"id": self.name, "object": self.piece_object if is_piece else self.object, "created": self.created,
                "model": self.served.name, "system_fingerprint": f"tfmc-{self.call.service.version}", "seed": self.seed}

    def grammar(self) -> grammar.Grammar | None:
        """What all answers follow."""
        return grammar.read(self.call.asked)

    def job(self, logprobs: int | None) -> Job:
        """The rows of the request: those of a prompt follow one another, and the first of them reads it. logprobs: how
        many of the likeliest tokens are wanted beside each."""
        call, asked = self.call, self.call.asked
        job, options = Job(call.record.key), {**options_of(asked), "eos_token_id": list(self.ends)}
        for number, prompt in enumerate(self.prompts):
            limit = self.limit(prompt, number)
            leader: Row | None = None
            for choice in range(self.n):
                chooser = call.scheduler.chooser(prompt, max(limit, len(prompt) + 1), self.seed % 2 ** 64, choice, logprobs, options)
                text = Text(self.served.tokenizer, self.before(prompt), asked["stop"], frozenset(self.ends),
                            self.shown)
                follower = None if self.compiled is None else grammar.Follower(self.compiled)
                job.rows.append(Row(job, number * self.n + choice, chooser, text, prompt, leader, follower))
                if leader is None:
                    leader = job.rows[-1]
                    self.score(leader, limit, logprobs)
        call.record.rows, call.record.tokens = len(job.rows), sum(map(len, self.prompts))
        return job

    def score(self, row: Row, limit: int, logprobs: int | None) -> None:
        """The probabilities of a prompt's tokens are wanted where it is echoed with those of the answer."""
        if not self.call.asked.get("echo") or logprobs is None:
            return
        row.ends_with_prompt = limit == len(row.prompt)
        if len(row.prompt) == 1:
            if row.ends_with_prompt:
                raise Fault("invalid", "max_tokens: 0, and the prompt has one token: there is nothing to compute", "max_tokens")
            self.scores[row.index // self.n] = []
            return
        chooser = self.call.scheduler.chooser(row.prompt[:1], max(2, len(row.prompt)), 0, 0, logprobs, PLAIN)
        row.scoring = Scoring(chooser, row.prompt, self.served.vocab)

    def before(self, prompt: list[int]) -> list[int]:
        """Tokens whose text the answer's goes on with."""
        return prompt

    def limit(self, prompt: list[int], number: int) -> int:
        """The greatest length of a row."""
        where = f"prompt[{number}]" if len(self.prompts) > 1 else "prompt"
        return self.limit_of(prompt, self.call.asked["max_tokens"], DEFAULT_TOKENS, where)

    def limit_of(self, prompt: list[int], wanted: int | None, default: int, where: str, member: str = "max_tokens") -> int:
        left: int = self.served.max_length - len(prompt)
        if wanted is None:
            return len(prompt) + min(default, left)
        if wanted > left:
            raise Fault("invalid", f"{member}: {where} has {len(prompt)} tokens, and with {wanted} more there are more "
                        f"than the {self.served.max_length} that the model takes; {left} are left", member)
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
                         ("no_repeat_ngram_size", "no_repeat_ngram_size"), ("min_new_tokens", "min_tokens"),
                         ("presence_penalty", "presence_penalty"), ("frequency_penalty", "frequency_penalty"),
                         ("min_p", "min_p"), ("logit_bias", "logit_bias")):
        if asked[member] is not None:
            options[name] = asked[member]
    return options


class Choice:
    """One answer as far as it is there."""

    def __init__(self, asked: Asked, index: int) -> None:
        self.asked, self.index, self.length = asked, index, 0
        members = asked.call.asked
        self.has_ids: bool = members["return_token_ids"]
        self.has_logprobs = members["logprobs"] not in (None, False)
        self.echoes: bool = members.get("echo", False)

    def entry(self, pieces: list[Piece]) -> dict[str, Any]:
        """The whole answer."""
        return self.made(pieces)

    def events(self, pieces: list[Piece]) -> Iterator[dict[str, Any]]:
        """What a stream has of these pieces, which follow one another."""
        made = self.made(pieces)
        if made["text"] or made["finish_reason"] or self.has_logprobs or self.has_ids:
            yield made

    def text(self, pieces: list[Piece]) -> str:
        text = "".join(piece.text for piece in pieces)
        if self.echoes:  # the first time
            prompt = self.asked.prompts[self.index // self.asked.n]
            text = self.asked.served.tokenizer.decode(prompt, skip_special_tokens=True) + text
        return text

    def add_ids(self, made: dict[str, Any], pieces: list[Piece]) -> dict[str, Any]:
        if self.has_ids:
            made["token_ids"] = [token if isinstance(token, int) else token[0] for piece in pieces for token in piece.tokens]
        return made

    def made(self, pieces: list[Piece]) -> dict[str, Any]:
        made: dict[str, Any] = {"index": self.index, "text": self.text(pieces), "finish_reason": pieces[-1].finish,
                                "stop_reason": pieces[-1].stop, "logprobs": None}
        if self.has_logprobs:
            tokens = [token for piece in pieces for token in piece.tokens]
            if self.echoes:
                number = self.index // self.asked.n
                for piece in pieces:
                    if piece.scores is not None:  # of the first answer to this prompt
                        self.asked.scores[number] = piece.scores
                tokens = [(self.asked.prompts[number][0], None, ()), *self.asked.scores[number], *tokens]
            made["logprobs"] = self.logprobs(tokens)
        self.echoes = False
        return self.add_ids(made, pieces)

    def logprobs(self, tokens: list[Any]) -> dict[str, Any]:
        """A first token follows nothing, and has no probability."""
        texts = [self.text_of(token) for token, *_ in tokens]
        offsets = []
        for text in texts:
            offsets.append(self.length)
            self.length += len(text)
        likeliest: list[dict[str, float] | None] = []
        for _, logprob, top in tokens:
            own: dict[str, float] = {}
            for token, likely in top:
                own.setdefault(self.text_of(token), finite(likely))
            likeliest.append(None if logprob is None else own)
        found = [None if logprob is None else finite(logprob) for _, logprob, _ in tokens]
        return {"tokens": texts, "token_logprobs": found, "top_logprobs": likeliest,
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
    return await answer(Asked(call, prompts), asked["logprobs"], Choice)


async def answer(request: Asked, logprobs: int | None, make: type[Choice]) -> Answer:
    """Whole, or as a stream."""
    call = request.call
    wanted = request.grammar()
    if wanted is not None:
        request.compiled = await call.compiling(request.served.grammars, wanted, request.ends)
    job = request.job(logprobs)
    call.put(job)
    choices = [make(request, row.index) for row in job.rows]
    if call.asked["stream"]:
        return Answer(None, stream(request, job, choices))
    pieces: list[list[Piece]] = [[] for _ in choices]
    async for some in call.follow(job):
        for piece in some or ():
            pieces[piece.choice].append(piece)
    written = sum(len(piece.tokens) for own in pieces for piece in own)
    return Answer({**request.head(), "choices": [choice.entry(own) for choice, own in zip(choices, pieces)],
                   "usage": request.usage(job, written)})


def check(asked: dict[str, Any]) -> None:
    rows = asked["n"] * len(asked["prompt"])
    if rows > MOST_CHOICES:
        raise Fault("too_large", f"n: {rows} answers; a request may have {MOST_CHOICES}", "n")
    if asked["best_of"] not in (None, asked["n"]):
        raise Fault("invalid", f"best_of: {asked['best_of']} is not n, {asked['n']}; all answers are given", "best_of")
    if asked["max_tokens"] == 0 and (not asked["echo"] or asked["logprobs"] is None or asked["n"] > 1):
        raise Fault("invalid", "max_tokens: 0 is for the probabilities of a prompt alone, with echo, logprobs and one answer",
                    "max_tokens")
    check_stream(asked)


def check_stream(asked: dict[str, Any]) -> None:
    if asked["stream_options"]["include_usage"] and not asked["stream"]:
        raise Fault("invalid", "stream_options: they are for streams", "stream_options")


async def stream(request: Asked, job: Job, choices: list[Choice]) -> AsyncIterator[Any]:
    """Events for what each choice has gained since the last ones; one with the numbers of tokens, if it is asked for."""
    written = 0
    async for some in request.call.follow(job):
        if some is None:
            yield None
            continue
        gained: dict[int, list[Piece]] = {}
        for piece in some:
            gained.setdefault(piece.choice, []).append(piece)
        for number, own in gained.items():
            written += sum(len(piece.tokens) for piece in own)
            for made in choices[number].events(own):
                yield {**request.head(True), "choices": [made]}
    if request.call.asked["stream_options"]["include_usage"]:
        yield {**request.head(True), "choices": [], "usage": request.usage(job, written)}
