"""The routes, and the one middleware in front of all of them: keys, states, ids, errors, log and metrics."""
from __future__ import annotations

import asyncio
import base64
import binascii
import importlib.resources
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from . import batcher, openapi, routes_chat, routes_completions, routes_openai, routes_tei, routes_translate
from .asgi import App, Message, Receive, Scope, Send, Whole
from .errors import Fault, Gone, is_openai
from .limits import read_body
from .service import TOKENIZERS, Answer, AnyServed, Call, Record, Service, internal
from .shapes import SHAPES, read
from .streams import EventStream
from .texts import COMPUTED, KINDS
from .translators import ServedTranslator
from .writers import ServedWriter

OPEN = ("/health", "/ready")  # without a key
INDEX, PAGE = "index.html", {"page.js": b"text/javascript; charset=utf-8", "page.css": b"text/css; charset=utf-8",
                             "icon.svg": b"image/svg+xml"}
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


def answer(content: Any) -> Whole:
    """Numbers get the fewest digits that give the f32 back, so JSON carries their bits."""
    return Whole(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY))


Endpoint = Callable[[Scope, Receive], Awaitable[App]]


class Routes:
    """The endpoints of a service, by path and method."""

    def __init__(self, service: Service) -> None:
        self.service = service
        handlers = {"/health": self.health, "/ready": self.ready, "/info": self.info, "/metrics": self.metrics,
                    "/v1/models": self.models, "/v1/models/{id}": self.model, "/openapi.json": self.openapi,
                    "/": self.page, "/page/{id}": self.page_part}
        self.endpoints: dict[str, dict[str, Endpoint]] = {path: {"GET": handlers[path]} for path, *_ in GETS}
        for post in POSTS:
            self.endpoints[post.path] = {"POST": self.endpoint(post)}
        self.endpoints["/"]["POST"] = self.own_route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        methods = self.endpoints.get(route_of(path))
        if methods is None:
            raise Fault("route", "there is no such route; " + ELSEWHERE.get(path, "/openapi.json lists them"))
        endpoint = methods.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            allowed = ", ".join(name for known in methods for name in (("GET", "HEAD") if known == "GET" else (known,)))
            raise Fault("method", f"{method} is not for this route; {allowed} is", headers={"allow": allowed})
        await (await endpoint(scope, receive))(scope, receive, send)

    # ---- POST ----

    def endpoint(self, post: Post) -> Endpoint:
        async def handle(scope: Scope, receive: Receive) -> App:
            return await self.compute(scope, receive, lambda body: post)
        return handle

    async def own_route(self, scope: Scope, receive: Receive) -> App:
        """What the first model is for, or the one that is named; similarity is told by its inputs."""
        def choose(body: Any) -> Post:
            name = body.get("model") if isinstance(body, dict) else None
            first = next(iter(self.service.models))
            post = OWN[self.service.pick(name if isinstance(name, str) else first, KINDS).kind]
            return SIMILARITY if post is EMBED and isinstance(body, dict) and isinstance(body.get("inputs"), dict) else post
        return await self.compute(scope, receive, choose)

    async def compute(self, scope: Scope, receive: Receive, choose: Callable[[Any], Post]) -> App:
        service, options = self.service, self.service.options
        deadline = time.monotonic() + options.timeout
        service.check_ready()
        service.admit()
        service.waiting += 1
        made = None
        try:
            body = await read_body(scope, receive, options.max_body)
            post = choose(body)
            asked = read(SHAPES[post.shape], body, options.max_inputs)
            served = choose_model(service, asked["model"], post, scope["path"])
            record: Record = scope["tfmc"]
            record.model = served.name
            made = await post.handler(Call(service, scope["state"]["client"], record, asked, served, deadline))
        finally:
            if made is None or made.events is None:
                service.waiting -= 1
        if made.events is None:
            return answer(made.content)

        def ended() -> None:
            service.waiting -= 1
        return EventStream(made.events, ended, lambda: internal(record.id))

    # ---- GET ----

    async def health(self, scope: Scope, receive: Receive) -> App:
        stuck = self.service.stuck()
        if stuck is not None:
            raise Fault("not_ready", f"{stuck} has computed for more than {batcher.STUCK:g} s, and rows wait")
        return answer({"status": "ok"})

    async def ready(self, scope: Scope, receive: Receive) -> App:
        self.service.check_ready()
        return answer({"status": "ready"})

    async def info(self, scope: Scope, receive: Receive) -> App:
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

    async def models(self, scope: Scope, receive: Receive) -> App:
        self.service.check_ready()
        return answer({"object": "list", "data": [self.entry(served) for served in self.service.models.values()]})

    async def model(self, scope: Scope, receive: Receive) -> App:
        self.service.check_ready()
        return answer(self.entry(self.service.pick(scope["path"].removeprefix("/v1/models/"), KINDS)))

    async def metrics(self, scope: Scope, receive: Receive) -> App:
        return Whole(self.service.metrics.text(), kind=b"text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, scope: Scope, receive: Receive) -> App:
        posts = [(post.path, post.shape, post.about) for post in POSTS]
        posts.append(("/", "", "the first model's own route, or that of the one that is named"))
        return answer(openapi.document(posts, GETS, self.service.version,
                                        OPEN if self.service.keys is not None else None))

    async def page(self, scope: Scope, receive: Receive) -> App:
        return page_file(INDEX, b"text/html; charset=utf-8")

    async def page_part(self, scope: Scope, receive: Receive) -> App:
        name = scope["path"].removeprefix("/page/")
        return page_file(name, PAGE[name])


def choose_model(service: Service, name: str | None, post: Post, path: str) -> AnyServed:
    """At /tokenize and at the root a request without a name is for the first of all models."""
    if name is None and (path == "/" or post.kinds == TOKENIZED):
        first = next(iter(service.models.values()))
        name = first.name if first.kind in post.kinds else None
    return service.pick(name, post.kinds)


def page_file(name: str, kind: bytes) -> Whole:
    content = importlib.resources.files(__package__).joinpath("page", name).read_bytes()
    return Whole(content, 200, kind, (
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
    """Every request passes here first. `paths`: those that are served; None: all."""

    def __init__(self, app: App, service: Service, paths: tuple[str, ...] | None = None) -> None:
        self.app, self.service, self.paths = app, service, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began, record, status = time.monotonic(), Record(request_id(scope)), 0
        scope["tfmc"] = record

        async def sends(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", record.id.encode())]
            await send(message)
        self.service.enter()
        try:
            await self.answer(scope, receive, sends, record)
        except Gone:
            record.fault = "the client has gone"
            self.service.metrics.gone("client")
            status = 499  # as nginx's log has it; nobody is answered
        finally:
            self.service.leave()
            asyncio.get_running_loop().call_soon(  # behind the answer, which goes to the socket when the loop turns
                self.report, scope, record, status, time.monotonic() - began)

    async def answer(self, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        path = scope["path"]
        try:
            self.check_key(scope, record)
            if self.paths is not None and path not in self.paths:
                raise Fault("route", "there is no such route; " + ", ".join(self.paths) + " are")
            if self.service.state == "ending" and path not in (*OPEN, "/metrics"):
                self.service.check_ready()
            await self.app(scope, receive, send)
            return
        except Gone:
            raise
        except Fault as error:
            fault = error
        except Exception:
            log.exception("%s: %s %s", record.id, scope["method"], route_of(path))
            fault = internal(record.id)
        record.fault = fault.message
        headers = tuple((name.encode(), value.encode("latin-1")) for name, value in fault.headers.items())
        await Whole(orjson.dumps(fault.body(path)), fault.status(path), headers=headers)(scope, receive, send)

    def check_key(self, scope: Scope, record: Record) -> None:
        keys = self.service.keys
        if keys is None or scope["path"] in OPEN:
            return
        name = keys.name_of(given_key(scope))
        if name is None:
            # a browser asks for the key by itself, and sends it as a password
            ask = "Basic realm=\"tfmc-serve: the key as password\"" if scope["path"] == "/" and scope["method"] == "GET" \
                else "Bearer"
            raise Fault("key", "a key is needed: authorization: Bearer KEY", headers={"www-authenticate": ask})
        record.key = name

    def report(self, scope: Scope, record: Record, status: int, seconds: float) -> None:
        route = route_of(scope["path"])
        self.service.metrics.answered(route, record.model, status, seconds)
        requests_log.info("request", extra={"tfmc": {
            "id": record.id, "method": scope["method"], "route": route, "code": status, "seconds": round(seconds, 6),
            **{name: value for name, value in (("key", record.key), ("model", record.model), ("rows", record.rows),
                                               ("tokens", record.tokens)) if value}}})


def given_key(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, key = value.decode("latin-1").partition(" ")
            if kind.lower() == "bearer":
                return str(key.strip())
            if kind.lower() == "basic":
                try:
                    return base64.b64decode(key, validate=True).decode().partition(":")[2]
                except (binascii.Error, UnicodeDecodeError):
                    return ""
    return ""


def request_id(scope: Scope) -> str:
    """The client's own, if it can be printed, or a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and 0 < len(value) <= 128 and all(33 <= byte < 127 for byte in value):
            return str(value.decode())
    return uuid.uuid4().hex


ELSEWHERE = {  # routes of other servers, and what is here
    "/v1/responses": "POST /v1/chat/completions answers messages", "/generate": "POST /v1/completions continues texts",
    "/generate_stream": "POST /v1/completions continues texts",
    "/embed_all": "POST /embed gives a vector for each text", "/embed_sparse": "POST /embed gives a vector for each text",
}
KNOWN = {path for path, *_ in GETS} | {post.path for post in POSTS}


def route_of(path: str) -> str:
    """For log and metrics, where what a client makes up has no place."""
    if path.startswith("/v1/models/"):
        return "/v1/models/{id}"
    if path.startswith("/page/"):
        return "/page/{id}" if path.removeprefix("/page/") in PAGE else "other"
    return path if path in KNOWN else "other"


def make_app(service: Service) -> App:
    app: App = Gate(Routes(service), service)
    if service.options.origin is not None:
        from starlette.middleware.cors import CORSMiddleware  # most servers are not for pages of others
        app = CORSMiddleware(app, allow_origins=[service.options.origin], allow_methods=["GET", "POST"],
                             allow_headers=["authorization", "content-type", "x-request-id"],
                             expose_headers=["x-request-id", "retry-after"])
    return app


def make_metrics_app(service: Service) -> App:
    """For --metrics-port: health, readiness and numbers alone."""
    return Gate(Routes(service), service, (*OPEN, "/metrics"))
