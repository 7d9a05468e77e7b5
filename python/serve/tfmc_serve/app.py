"""The routes, and the one middleware in front of all of them: keys, states, ids, errors, log and metrics."""
from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import pathlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from . import batcher, openapi, routes_chat, routes_completions, routes_openai, routes_tei, routes_translate
from .errors import Fault, Gone, is_openai
from .exchanges import Exchange
from .limits import read_body
from .service import TOKENIZERS, Answer, AnyServed, Call, Record, Service, internal
from .shapes import SHAPES, read
from .streams import EventStream
from .texts import COMPUTED, KINDS
from .translators import ServedTranslator
from .writers import ServedWriter

OPEN = ("/health", "/ready")  # without a key
PAGE = {"page.js": "text/javascript", "page.css": "text/css", "icon.svg": "image/svg+xml"}
log = logging.getLogger("tfmc_serve")
requests_log = logging.getLogger("tfmc_serve.requests")


class Post(NamedTuple):
    path: str
    shape: str  # of SHAPES
    kinds: tuple[str, ...]
    handler: Callable[[Call], Awaitable[Answer]]
    about: str


EMBED = Post("/embed", "embed", ("embed",), routes_tei.embed, "vectors of texts")
SIMILARITY = Post("/similarity", "similarity", ("embed",), routes_tei.similarity, "cosines of a text with others")
RERANK = Post("/rerank", "rerank", ("rerank",), routes_tei.rerank, "texts by their scores with a query")
PREDICT = Post("/predict", "predict", ("classify", "rerank"), routes_tei.predict, "labels of texts or pairs")
COMPLETIONS = Post("/v1/completions", "completions", ("write",), routes_completions.completions,
                   "what a model that writes goes on with, as OpenAI's clients ask")
TRANSLATE = Post("/translate", "translate", ("translate",), routes_translate.translate, "translations of texts")
TOKENIZED = (*COMPUTED, "write")
POSTS = [
    EMBED, SIMILARITY, RERANK, PREDICT,
    Post("/tokenize", "tokenize", TOKENIZED, routes_tei.tokenize, "tokens of texts"),
    Post("/decode", "decode", TOKENIZED, routes_tei.decode, "texts of tokens"),
    Post("/v1/embeddings", "embeddings", ("embed",), routes_openai.embeddings, "vectors of texts, as OpenAI's clients ask"),
    Post("/v1/rerank", "v_rerank", ("rerank",), routes_openai.rerank, "texts by their scores with a query, as Jina's do"),
    Post("/v2/rerank", "v_rerank", ("rerank",), routes_openai.rerank, "the same, as Cohere's do"),
    COMPLETIONS,
    Post("/v1/chat/completions", "chat", ("write",), routes_chat.chat_completions, "answers to messages, as OpenAI's "
         "clients ask"),
    TRANSLATE,
]
OWN = {"embed": EMBED, "rerank": RERANK, "classify": PREDICT, "write": COMPLETIONS, "translate": TRANSLATE}
JSON, TEXT = "application/json", "text/plain"
GETS = [("/health", "whether what is asked is computed", JSON), ("/ready", "whether all models are loaded", JSON),
        ("/info", "the models and all settings", JSON), ("/metrics", "numbers for Prometheus", TEXT),
        ("/v1/models", "the models", JSON), ("/v1/models/{id}", "one of them", JSON),
        ("/openapi.json", "this document", JSON), ("/", "a page to try it", "text/html"),
        ("/page/{id}", "the page's parts", "text/*")]


class Reply(NamedTuple):
    """What is answered at once."""
    body: bytes
    status: int = 200
    fields: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"),)


class Route(NamedTuple):
    """A path, or the beginning of paths that end with an id: then it ends with {id}."""
    path: str
    methods: frozenset[str]
    handler: Callable[[Exchange], Awaitable[Reply | EventStream]]


def answer(content: Any) -> Reply:
    """Numbers get the fewest digits that give the f32 back, so JSON carries their bits."""
    return Reply(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY))


def refused(fault: Fault, path: str) -> Reply:
    fields = [(name.encode(), value.encode()) for name, value in fault.headers.items()]
    return Reply(orjson.dumps(fault.body(path)), fault.status(path), ((b"content-type", b"application/json"), *fields))


class Routes:
    """The endpoints of a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        handlers = {"/health": self.health, "/ready": self.ready, "/info": self.info, "/metrics": self.metrics,
                    "/v1/models": self.models, "/v1/models/{id}": self.model, "/openapi.json": self.openapi,
                    "/": self.page, "/page/{id}": self.page_part}
        self.routes = [Route(path, frozenset(("GET", "HEAD")), handlers[path]) for path, *_ in GETS]
        self.routes += [Route(post.path, frozenset(("POST",)), self.endpoint(post)) for post in POSTS]
        self.routes.append(Route("/", frozenset(("POST",)), self.own_route))
        self._found = {(method, route.path): route.handler for route in self.routes for method in route.methods}

    def find(self, exchange: Exchange) -> Callable[[Exchange], Awaitable[Reply | EventStream]]:
        path = exchange.path if exchange.path in KNOWN else pattern_of(exchange.path)
        found = self._found.get((exchange.method, path))
        if found is not None:
            return found
        allowed = {method for method, known in self._found if known == path}
        if not allowed:
            raise no_route(exchange.path)
        ways = ", ".join(method for method in ("GET", "HEAD", "POST") if method in allowed)
        raise Fault("method", f"{exchange.method} is not for this route; {ways} is", headers={"allow": ways})

    # ---- POST ----

    def endpoint(self, post: Post) -> Callable[[Exchange], Awaitable[Reply | EventStream]]:
        async def handle(exchange: Exchange) -> Reply | EventStream:
            return await self.compute(exchange, lambda body: post)
        return handle

    async def own_route(self, exchange: Exchange) -> Reply | EventStream:
        """What the first model is for, or the one that is named; similarity is told by its inputs."""
        def choose(body: Any) -> Post:
            name = body.get("model") if isinstance(body, dict) else None
            first = next(iter(self.service.models))
            post = OWN[self.service.pick(name if isinstance(name, str) else first, KINDS).kind]
            return SIMILARITY if post is EMBED and isinstance(body, dict) and isinstance(body.get("inputs"), dict) else post
        return await self.compute(exchange, choose)

    async def compute(self, exchange: Exchange, choose: Callable[[Any], Post]) -> Reply | EventStream:
        service, options = self.service, self.service.options
        deadline = time.monotonic() + options.timeout
        service.check_ready()
        service.admit()
        service.waiting += 1
        made = None
        try:
            body = await read_body(exchange, options.max_body)
            post = choose(body)
            asked = read(SHAPES[post.shape], body, options.max_inputs)
            served = choose_model(service, asked["model"], post, exchange.path)
            record: Record = exchange.record
            record.model = served.name
            made = await post.handler(Call(service, exchange, record, asked, served, deadline))
        finally:
            if made is None or made.events is None:
                service.waiting -= 1
        if made.events is None:
            return answer(made.content)

        def ended() -> None:
            service.waiting -= 1
        return EventStream(made.events, ended, lambda: internal(record.id))

    # ---- GET ----

    async def health(self, exchange: Exchange) -> Reply:
        stuck = self.service.stuck()
        if stuck is not None:
            raise Fault("not_ready", f"{stuck} has computed for more than {batcher.STUCK:g} s, and rows wait")
        return answer({"status": "ok"})

    async def ready(self, exchange: Exchange) -> Reply:
        self.service.check_ready()
        return answer({"status": "ready"})

    async def info(self, exchange: Exchange) -> Reply:
        self.service.check_ready()
        options, first = self.service.options, next(iter(self.service.models.values()))
        return answer({
            "model_id": first.name, "model_dtype": first.dtype, "model_type": model_type(first),
            "max_concurrent_requests": options.max_waiting, "max_input_length": first.max_length,
            "max_batch_tokens": batcher.RUN_TOKENS, "max_client_batch_size": options.max_inputs, "auto_truncate": False,
            "tokenization_workers": TOKENIZERS, "version": self.service.version, "threads": self.service.threads,
            "max_body": options.max_body, "timeout": options.timeout, "grace": options.grace,
            "keys": self.service.keys is not None,
            "models": [{"name": served.name, **served.settings()} for served in self.service.models.values()]})

    def entry(self, served: AnyServed) -> dict[str, Any]:
        return {"id": served.name, "object": "model", "created": self.service.started_at, "owned_by": "tfmc",
                "tfmc": served.settings()}

    async def models(self, exchange: Exchange) -> Reply:
        self.service.check_ready()
        return answer({"object": "list", "data": [self.entry(served) for served in self.service.models.values()]})

    async def model(self, exchange: Exchange) -> Reply:
        self.service.check_ready()
        return answer(self.entry(self.service.pick(id_of(exchange.path), KINDS)))

    async def metrics(self, exchange: Exchange) -> Reply:
        return Reply(self.service.metrics.text(), fields=((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),))

    async def openapi(self, exchange: Exchange) -> Reply:
        posts = [(post.path, post.shape, post.about) for post in POSTS]
        posts.append(("/", "", "the first model's own route, or that of the one that is named"))
        return answer(openapi.document(posts, GETS, self.service.version,
                                        OPEN if self.service.keys is not None else None))

    async def page(self, exchange: Exchange) -> Reply:
        return page_file("index.html", "text/html")

    async def page_part(self, exchange: Exchange) -> Reply:
        name = id_of(exchange.path)
        if name not in PAGE:
            raise no_route(exchange.path)
        return page_file(name, PAGE[name])


def choose_model(service: Service, name: str | None, post: Post, path: str) -> AnyServed:
    """At /tokenize and at the root a request without a name is for the first of all models."""
    if name is None and (path == "/" or post.kinds == TOKENIZED):
        first = next(iter(service.models.values()))
        name = first.name if first.kind in post.kinds else None
    return service.pick(name, post.kinds)


def page_file(name: str, kind: str) -> Reply:
    content = (pathlib.Path(__file__).parent / "page" / name).read_bytes()
    return Reply(content, fields=(
        (b"content-type", f"{kind}; charset=utf-8".encode() if kind.startswith("text/") else kind.encode()),
        (b"content-security-policy", b"default-src 'self'"), (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store")))


def model_type(served: AnyServed) -> dict[str, Any]:
    """In TEI's words."""
    if isinstance(served, ServedWriter):
        return {"text_generation": {}}
    if isinstance(served, ServedTranslator):
        return {"translation": {}}
    if served.kind == "embed":
        return {"embedding": {"pooling": served.pooling}}
    labels = {"id2label": {str(i): label for i, label in enumerate(served.labels)},
              "label2id": {label: i for i, label in enumerate(served.labels)}}
    return {"reranker" if served.kind == "rerank" else "classifier": labels}


class Gate:
    """Every request passes here first, and every answer last. `paths`: those that are served; None: all."""

    def __init__(self, routes: Routes, service: Service, paths: tuple[str, ...] | None = None) -> None:
        self.routes, self.service, self.paths = routes, service, paths
        self.origin = None if service.options.origin is None or paths is not None else service.options.origin.encode()

    async def __call__(self, exchange: Exchange) -> None:
        began = time.monotonic()
        record = exchange.record = Record(request_id(exchange))
        self.service.enter()
        is_gone = True
        try:
            await self.reply(exchange, record)
            is_gone = exchange.gone
        except Gone:
            record.fault = "the client has gone"
            self.service.metrics.gone("client")
        finally:
            self.service.leave()
            if record.at_once:
                await self.look_around(exchange)
            status = 499 if is_gone else exchange.status  # as nginx's log has it; nobody is answered
            self.report(exchange, record, status, time.monotonic() - began)

    async def look_around(self, exchange: Exchange) -> None:
        """Others that came while the event loop computed begin in its next turns: then requests are not alone."""
        for _ in range(2):
            await asyncio.sleep(0)
            if not exchange.is_alone:
                self.service.batcher.alone = 0

    async def reply(self, exchange: Exchange, record: Record) -> None:
        made = await self.made(exchange, record)
        own = [(b"x-request-id", record.id.encode())]
        origin = exchange.field(b"origin") if self.origin is not None else ""
        if origin:
            own.append((b"vary", b"origin"))
            if origin.encode("latin-1") == self.origin:
                own += [(b"access-control-allow-origin", self.origin),
                        (b"access-control-expose-headers", b"x-request-id, retry-after")]
        if isinstance(made, EventStream):
            await made.send(exchange, own)
        else:
            exchange.answer(made.status, [*made.fields, *own], made.body)

    async def made(self, exchange: Exchange, record: Record) -> Reply | EventStream:
        path = exchange.path
        try:
            if self.origin is not None and exchange.method == "OPTIONS" and exchange.field(b"access-control-request-method"):
                return MAY_ASK
            self.check_key(exchange, record)
            if self.paths is not None and path not in self.paths:
                raise no_route(path)
            if self.service.state == "ending" and path not in (*OPEN, "/metrics"):
                self.service.check_ready()
            return await self.routes.find(exchange)(exchange)
        except Gone:
            raise
        except Fault as error:
            fault = error
        except Exception:
            log.exception("%s: %s %s", record.id, exchange.method, route_of(path))
            fault = internal(record.id)
        record.fault = fault.message
        return refused(fault, path)

    def check_key(self, exchange: Exchange, record: Record) -> None:
        keys = self.service.keys
        if keys is None or exchange.path in OPEN:
            return
        name = keys.name_of(given_key(exchange))
        if name is None:
            # a browser asks for the key by itself, and sends it as a password
            ask = "Basic realm=\"tfmc-serve: the key as password\"" if exchange.path == "/" and exchange.method == "GET" \
                else "Bearer"
            raise Fault("key", "a key is needed: authorization: Bearer KEY", headers={"www-authenticate": ask})
        record.key = name

    def report(self, exchange: Exchange, record: Record, status: int, seconds: float) -> None:
        route = route_of(exchange.path)
        self.service.metrics.answered(route, record.model, status, seconds)
        if not requests_log.isEnabledFor(logging.INFO):
            return
        requests_log.info("request", extra={"tfmc": {
            "id": record.id, "method": exchange.method, "route": route, "code": status, "seconds": round(seconds, 6),
            **{name: value for name, value in (("key", record.key), ("model", record.model), ("rows", record.rows),
                                               ("tokens", record.tokens)) if value}}})


# before a page of the origin sends what it could not send without being allowed to
MAY_ASK = Reply(b"", fields=((b"access-control-allow-methods", b"GET, POST"), (b"access-control-max-age", b"600"),
                             (b"access-control-allow-headers", b"authorization, content-type, x-request-id")))


def given_key(exchange: Exchange) -> str:
    """Of two fields the first counts."""
    kind, _, key = exchange.field(b"authorization").partition(" ")
    if kind.lower() == "bearer":
        return key.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(key, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def request_id(exchange: Exchange) -> str:
    """The client's own, if it can be printed, or a new one."""
    given = exchange.field(b"x-request-id")
    if 0 < len(given) <= 128 and all("!" <= letter <= "~" for letter in given):
        return given
    return os.urandom(16).hex()


def no_route(path: str) -> Fault:
    return Fault("route", "there is no such route; " + ELSEWHERE.get(path, "/openapi.json lists them"))


ELSEWHERE = {  # routes of other servers, and what is here
    "/v1/responses": "POST /v1/chat/completions answers messages", "/generate": "POST /v1/completions continues texts",
    "/generate_stream": "POST /v1/completions continues texts",
    "/embed_all": "POST /embed gives a vector for each text", "/embed_sparse": "POST /embed gives a vector for each text",
}
KNOWN = {path for path, *_ in GETS} | {post.path for post in POSTS}


BEGINNINGS = ("/v1/models/", "/page/")


def pattern_of(path: str) -> str:
    """The path of its route."""
    found = next((start for start in BEGINNINGS if path.startswith(start) and len(path) > len(start)), None)
    return path if found is None else found + "{id}"


def id_of(path: str) -> str:
    return next(path.removeprefix(start) for start in BEGINNINGS if path.startswith(start))


def route_of(path: str) -> str:
    """For log and metrics, where what a client makes up has no place."""
    found = pattern_of(path)
    return found if found in KNOWN else "other"


def make_app(service: Service) -> Gate:
    return Gate(Routes(service), service)


def make_metrics_app(service: Service) -> Gate:
    """For --metrics-port: health, readiness and numbers alone."""
    return Gate(Routes(service), service, (*OPEN, "/metrics"))
