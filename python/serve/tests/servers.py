"""Tiny checkpoints, servers of their own, and clients that send what a test wants: with http.client, or bytes.

Checkpoints are cases of tests/models with words w0, w1 ... and a, b, c as their tokens. Each is compiled once to a file, so
that a server is ready at once.
"""
from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import http.client
import importlib.util
import json
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = [] if importlib.util.find_spec("tfmc_serve") else [str(HERE.parent)]  # none where the wheel is installed
sys.path[:0] = [*SOURCES, str(HERE.parents[1] / "tests")]

import tfmc  # noqa: E402
import tfmc.text  # noqa: E402
from chat_styles import STYLES, write_style  # noqa: E402
from test_generate import CASES, write_checkpoint  # noqa: E402
from test_text import write_pairs, write_tokenizer  # noqa: E402

from tfmc_serve import app, serving, texts  # noqa: E402
from tfmc_serve.service import Options, Service  # noqa: E402

WAIT = 300  # seconds after which a test has failed; nothing is expected to take them, on a machine with other work too


TEMPLATE = """{% for m in messages %}{% if m.content == "raise" %}{{ raise_exception("not this") }}{% endif %}
{% if m.content == "loop" %}{% for i in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}{% endif %}
w10 {{ "b" if m.role == "user" else "c" }} {{ m.content if m.content is string else m.content[0].text }} w11
{% endfor %}{{ "a" if brief else "" }} w12"""


BYTES_TEMPLATE = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}<s>assistant: {{ \"a\" if brief }}"
STATES = {"states": "qwen3_5.json", "scan": "mamba2.json"}  # beside attention, and alone
BYTES = ("bytes", "tools", *STYLES)
WRITERS = ("write", "chat", *BYTES, *STATES)
TOOLS_TEMPLATE = """{% if tools %}<s>tools: {% for tool in tools %}{{ tool | tojson }}
{% endfor %}</s>{% endif %}{% for m in messages %}<s>{{ m.role }}: {{ m.content or "" }}
{%- for call in m.tool_calls or [] %}

<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant: {% endif %}"""


def write_bytes(folder, vocab, calls=False):
    """Tokens of bytes, and some longer ones that JSON is made of; a template that ends each turn by the end token.
    `calls`: it knows tools, and has tokens around calls."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<unk>", "<s>", "</s>"], initial_alphabet=alphabet,
                                  show_progress=False)
    made.train_from_iterator(['{"name": "bob", "age": 12, "kind": "cat"}', '{"name": "tom", "is": true}'] * 5, trainer)
    if calls:
        made.add_tokens(["<tool_call>", "</tool_call>"])
    made.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TOOLS_TEMPLATE if calls else BYTES_TEMPLATE)
    return made


def write_languages(folder, vocab):
    """Words, and tokens of two languages, of which the first begins each source."""
    from tokenizers import processors
    made = write_tokenizer(folder, vocab - 2)
    made.add_special_tokens(["eng_Latn", "__fr__"])
    made.post_processor = processors.TemplateProcessing("eng_Latn $A w2", special_tokens=[
        ("eng_Latn", made.token_to_id("eng_Latn")), ("w2", 2)])
    made.save(str(folder / "tokenizer.json"))


def write_case(folder, kind):
    """A checkpoint of a kind: embed, classify (three labels), rerank (one), write, chat, which is write with a template,
    bytes, which is chat with tokens of bytes, tools, which is bytes with a template that knows tools, a name of STYLES,
    which is bytes with that template, translate, and states and scan, which are write with layers that keep states."""
    name = {"embed": "sentence_mean.json", **dict.fromkeys(WRITERS, "llama.json"), **STATES,
            "translate": "m2m_100.json"}.get(kind, "bert_classify.json")
    case = json.loads((CASES / name).read_text())
    config = case["files"]["config.json"]
    if kind == "rerank":
        config["id2label"], config["label2id"] = {"0": "LABEL_0"}, {"LABEL_0": 0}
        case["weights"]["classifier.weight"][0] = case["weights"]["classifier.bias"][0] = 1
    if kind == "states":
        config["max_position_embeddings"] = 2048
    if kind in BYTES:
        config["vocab_size"], config["max_position_embeddings"] = 300, 256 if kind == "bytes" else 1024
        for name in ("lm_head.weight", "model.embed_tokens.weight"):
            case["weights"][name][0] = 300
    folder.mkdir()
    write_checkpoint(case, folder)
    if kind in BYTES:
        tokenizer = write_bytes(folder, 290, kind == "tools")
        if kind in STYLES:
            write_style(folder, kind, tokenizer)
    elif kind == "translate":
        write_languages(folder, config["vocab_size"])
    elif kind in ("write", "chat", *STATES):
        tokenizer = write_tokenizer(folder, config["vocab_size"], around=False)
        if kind == "chat":
            tokenizer.add_special_tokens(["w10", "w11", "w12"])
            tokenizer.save(str(folder / "tokenizer.json"))
            (folder / "chat_template.jinja").write_text(TEMPLATE)
    else:
        (write_tokenizer if kind == "embed" else write_pairs)(folder, config["vocab_size"])


@functools.cache
def made(kind):
    """(folder, file of the compiled model)"""
    folder = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    write_case(folder / kind, kind)
    model = tfmc.from_pretrained(folder / kind, task={"embed": "embed", **dict.fromkeys((*WRITERS, "translate"))}.get(kind, "classify"))
    return folder / kind, model.save(folder / f"{kind}.tfmm")


@functools.cache
def library(kind):
    """What a caller of the library has: vectors and scores that the server's must be."""
    folder, file = made(kind)
    make = {"embed": tfmc.text.Embedder, **dict.fromkeys(WRITERS, tfmc.text.Writer), "translate": tfmc.text.Translator}.get(kind, tfmc.text.Reranker)
    return make(tfmc.load(file), folder=folder)


def place(kind):
    folder, file = made(kind)
    return f"{folder}={file}"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


class Client:
    """Requests to one port; connections are kept."""

    def __init__(self, port, key=None):
        self.port, self.key, self._connection = port, key, None
        weakref.finalize(self, lambda held: held and held[0].close(), held := [])
        self._held = held

    def request(self, method, path, body=None, headers=None):
        headers = {**({"authorization": f"Bearer {self.key}"} if self.key else {}), **(headers or {})}
        for attempt in (0, 1):
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
                self._held[:] = [self._connection]
            try:
                self._connection.request(method, path, body, headers)
                response = self._connection.getresponse()
                return Answer(response.status, response.headers, response.read())
            except (http.client.RemoteDisconnected, ConnectionError):
                self.close()
                if attempt:
                    raise

    def get(self, path, **named):
        return self.request("GET", path, **named)

    def post(self, path, content, headers=None):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.request("POST", path, body, {"content-type": "application/json", **(headers or {})})

    def close(self):
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def raw(port, data, seconds=WAIT):
    """What the server answers to bytes, up to the end of the connection or of the first answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        return read_answer(connection)


def read_answer(connection):
    found = b""
    while True:
        head, _, body = found.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.I)
        if length and len(body) >= int(length[1]):
            return found
        try:
            part = connection.recv(65536)
        except ConnectionResetError:
            return found
        if not part:
            return found
        found += part


def head(path, length, more=b"", method=b"POST"):
    return (method + b" " + path.encode() + b" HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" + more +
            b"content-length: %d\r\n\r\n" % length)


class Process:
    """tfmc-serve in a process of its own. `program`: arguments of Python in place of `-m tfmc_serve`."""

    def __init__(self, *arguments, program=("-m", "tfmc_serve"), wait_ready=True, environment=None):
        path = os.pathsep.join([*SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, *program, "--port=0", "--threads=2", *map(str, arguments)], stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": path, **(environment or {})})
        self.lines, self.log, self._seen = [], queue.Queue(), 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        listening = self.wait_for("listening on")
        self.ports = [int(port) for port in re.findall(r"', (\d+)", listening)]
        self.port = self.ports[0]
        if wait_ready:
            self.wait_for("ready: ")

    def _read(self):
        for line in self.process.stderr:
            self.log.put(line)
        self.log.put(None)

    def wait_for(self, word):
        """The next line of the log with this word."""
        while True:
            line = self.log.get(timeout=WAIT)
            if line is None:
                raise AssertionError(f"the server ended without {word!r}: {''.join(self.lines)[-2000:]}")
            self.lines.append(line)
            if word in line:
                return line

    def client(self, **named):
        return Client(self.port, **named)

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def ended(self):
        return self.process.wait(WAIT)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(WAIT)
        self.process.stderr.close()


class Inside:
    """A server in a thread of this process, whose models a test can hold. `options` are those of Options."""

    def __init__(self, *kinds, protocol=None, **options):
        self.deaths, self._began, self._kinds = [], queue.Queue(), kinds
        places = tuple(texts.read_place(place(kind)) for kind in kinds)
        self._options, self._protocol = Options(places=places, port=0, **{"threads": 2, **options}), protocol
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.port = self._began.get(timeout=WAIT)

    def _run(self):
        asyncio.run(self._serve())

    async def _serve(self):
        self.service = Service(self._options, self.deaths.append)
        self.service.start()
        listening = serving.listen(self._options, 0)
        self.server = serving.make_server(app.make_app(self.service))
        if self._protocol is not None:
            self.server.config.http = self._protocol
        self.loop = asyncio.get_running_loop()
        await self.service.load()
        self._began.put(listening.getsockname()[1])
        await self.server.serve([listening])
        self.service.close()

    def client(self, **named):
        return Client(self.port, **named)

    def until(self, condition):
        """Waits until something is true of the service."""
        for _ in range(WAIT * 200):
            if condition(self.service):
                return
            time.sleep(0.005)
        raise AssertionError("it did not come to be")

    def close(self):
        self.server.should_exit = True
        self._thread.join(WAIT)


class Held:
    """In place of a model: its runs wait until they are let go. `runs`: the shapes of all of them."""

    def __init__(self, model):
        self.model, self.runs, self.go, self.entered = model, [], threading.Event(), threading.Semaphore(0)
        self.inputs, self.weights_bytes = model.inputs, model.weights_bytes

    def _call_alone(self, **inputs):
        self.runs.append(inputs["input_ids"].copy())
        self.entered.release()
        if not self.go.wait(WAIT):
            raise TimeoutError("nobody let it go")
        return self.model._call_alone(**inputs)

    __call__ = _call_alone


@contextlib.contextmanager
def held(inside, kind="embed"):
    """The model of a kind, held until the end."""
    served = next(s for s in inside.service.models.values() if s.kind == kind)
    model = served.model
    served.model, inside.service.batcher.alone = Held(model), -10 ** 6  # the event loop must not be held
    try:
        yield served.model
    finally:
        served.model.go.set()
        served.model, inside.service.batcher.alone = model, 0


class Case(unittest.TestCase):
    """Tests of one server, made once."""

    @classmethod
    def started(cls, server):
        cls.addClassCleanup(server.close)
        return server

    def setUp(self):
        if hasattr(self, "server"):
            self.client = self.server.client()
            self.addCleanup(self.client.close)

    def refused(self, answer, status, *words, openai=False):
        """The form of an error: a status, and a message with words in it."""
        self.assertEqual(answer.status, status, answer)
        error = answer.json["error"]
        if openai:
            self.assertEqual(sorted(error), ["code", "message", "param", "type"])
            error = error["message"]
        else:
            self.assertEqual(sorted(answer.json), ["error", "error_type"])
        for word in words:
            self.assertIn(word, error)
        self.assertNotIn("/tmp", error)
        self.assertNotIn(".py", error)
        return error

    def ask_at_random(self, seconds):
        """Eight clients call self.ask(client, choose), each at least once, until the time is over; how many calls."""
        until = time.monotonic() + seconds

        def client(number):
            choose, own, asked = random.Random(number), self.server.client(), 0
            while time.monotonic() < until or not asked:
                self.ask(own, choose)
                asked += 1
            own.close()
            return asked
        return sum(self.threads([lambda n=n: client(n) for n in range(8)]))

    def threads(self, works):
        """Calls all at the same time; their results."""
        results = [None] * len(works)

        def call(i):
            try:
                results[i] = works[i]()
            except Exception as error:
                results[i] = error
        started = [threading.Thread(target=call, args=(i,)) for i in range(len(works))]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(WAIT + (600 if "TFM_LONG" in os.environ else 0))
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results


def f32(values):
    return np.array(values, np.float32)
