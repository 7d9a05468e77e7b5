#!/usr/bin/env python3
"""A server of all kinds of models under random load, for as long as one likes: usage: soak.py [MINUTES] [--clients N]
[--every SECONDS] [--cache-bytes N] [--seed N] [--kinds embeddings,rows,...].

In: the package tfmc, what tfmc-serve requires and the compiler, as for run_serve.py. Requests of random lengths, options,
grammars, tools, common beginnings and numbers of choices, with guesses, some streamed; clients that go while they wait
or are answered, that send or read a few bytes at a time, that send what is refused.
Out: a line for every 10 s (memory, descriptors, threads, caches, rows, requests), a table at the end, status 0. Status 1
if an answer is not to the bit that of its rows alone; if memory, descriptors or threads grow from the second to the last
fifth of the time; if the caches of all models take more than --cache-bytes each; if rows or connections stay when all clients have gone.
Rows alone are those of tfmc.text and Model.generate; those that follow a grammar are computed before by a server with
one row at a time, without guesses and beginnings.

A machine may stand still for minutes: then clocks of the server have run out (it gives a head 10 s, a reader a minute).
Such an answer (408, an early end) counts as "late", never as right, if the request took more than 8 s.
"""
import argparse
import base64
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import socket
import statistics
import sys
import threading
import time

import numpy as np

import servers
from servers import Client, Process, head, library, place
from test_serve_completions import VOCAB, events, options_of, random_request
from test_serve_grammar import ASKED
from test_serve_tools import CLOCK, WEATHER, named

servers.WAIT = 3600                     # seconds: nothing is given up because the machine stood still
LATE = 8.0                              # of a request, after which clocks of the server may have run out
MOST_GROWTH = 4e6                       # bytes of memory, from the second fifth of the time to the last
STATES_VOCAB = 24
MODELS, WRITERS = ("embed", "rerank", "write", "states", "tools", "translate"), 4  # so many of them have caches
LIMITS = ("--max-rows=6", "--step-ms=1", "--max-waiting=256", "--timeout=3000")


class Request:
    """What a client sends, and what makes the answers of two servers alike."""

    def __init__(self, path, body, wanted=None, read=None, streams=False):
        self.path, self.body, self.wanted, self.read, self.streams = path, body, wanted, read, streams


def bits(values):
    return np.array(values, np.float32).tobytes()


def embeddings(choose, count=120):
    """Vectors and scores, each text alone in the library."""
    embedder, reranker = library("embed"), library("rerank")
    texts = [" ".join(choose.choice("abc") for _ in range(choose.randint(0, 13))) for _ in range(150)]
    vectors = [embedder.encode(text) for text in texts]
    scores = [reranker.predict(("a b", text)) for text in texts]
    for _ in range(count):
        numbers = [choose.randrange(len(texts)) for _ in range(choose.choice((1, 1, 3, 30)))]
        asked, wanted = [texts[i] for i in numbers], b"".join(vectors[i].tobytes() for i in numbers)
        yield choose.choice((
            Request("/embed", {"inputs": asked}, wanted, lambda found: b"".join(map(bits, found))),
            Request("/v1/embeddings", {"input": asked, "model": "embed", "encoding_format": "base64"}, wanted,
                    lambda found: b"".join(base64.b64decode(entry["embedding"]) for entry in found["data"])),
            Request("/rerank", {"query": "a b", "texts": asked}, b"".join(bits(scores[i]) for i in numbers),
                    lambda found: b"".join(bits(hit["score"]) for hit in sorted(found, key=lambda hit: hit["index"])))))


def ids_of(answer):
    return [choice["token_ids"] for choice in answer["choices"]]


def rows(choose, count=160):
    """Rows of generate, of a model with attention alone and of one with states; a third has a common beginning."""
    begin = [choose.randrange(3, VOCAB) for _ in range(40)]
    for number in range(count):
        body = {**random_request(choose, 30), "model": "write"}
        if number % 3 == 0:
            body["prompt"] = begin[:choose.randint(17, 40)] + body["prompt"][:3]
        elif number % 3 == 1:  # long ones: the other model has room
            body["model"] = "states"
            prompt = (begin * 30)[:choose.choice((20, 90, 600, 1100))] + body["prompt"][:5]
            body["prompt"] = [token % STATES_VOCAB for token in prompt]
            body = {name: value for name, value in body.items() if name not in ("logit_bias", "no_repeat_ngram_size")}
        room = (63 if body["model"] == "write" else 1500) - len(body["prompt"])
        body["max_tokens"] = min(body["max_tokens"], room)
        body["min_tokens"] = min(body.get("min_tokens", 0), body["max_tokens"])
        made = library(body["model"]).model.generate([body["prompt"]] * body.get("n", 1), **options_of(body))
        yield Request("/v1/completions", body, [row[len(body["prompt"]):].tolist() for row in made], ids_of, True)


def translations(choose, count=40):
    for _ in range(count):
        texts = [" ".join(choose.choice("abc") for _ in range(choose.randint(0, 10))) for _ in range(choose.choice((1, 2, 7)))]
        body = {"text": texts, "num_beams": choose.choice((1, 1, 3)), "max_new_tokens": choose.randint(1, 12)}
        own = {name: value for name, value in body.items() if name != "text"}
        yield Request("/translate", body, library("translate").translate(texts, **own), lambda found: found["translations"])


def choices(answer):
    """Without the names that the server draws for calls."""
    made = answer["choices"]
    for choice in made:
        for call in choice.get("message", {}).get("tool_calls", []):
            call.pop("id")
    return made


def structured(choose, count=120):
    """Chats with grammars and tools, echoes with probabilities. What is wanted comes from a server with one row at a time."""
    for _ in range(count):
        body = {"model": "tools", "seed": choose.randrange(999), "temperature": choose.choice((0, 0.7, 1.5)),
                "n": choose.choice((1, 1, 3)), "max_tokens": choose.choice((20, 120, 300)), "return_token_ids": True}
        if choose.random() < 0.3:
            body["logit_bias"] = {str(choose.randrange(290)): choose.choice((-100, -2, 1.5)) for _ in range(12)}
        if choose.random() < 0.15:
            body.update(prompt=[choose.randrange(3, 290) for _ in range(choose.choice((2, 17, 40)))], max_tokens=20, echo=True,
                        logprobs=2)
            yield Request("/v1/completions", body, None, choices)
            continue
        text = "".join(choose.choice('ab {"name": 1') for _ in range(choose.choice((3, 40, 200))))
        body["messages"] = [{"role": "user", "content": text}]
        if choose.random() < 0.5:
            body.update(tools=[WEATHER, CLOCK][:choose.randint(1, 2)], parallel_tool_calls=choose.random() < 0.7,
                        tool_choice=choose.choice(("auto", "required", "none", named("weather"))))
        else:
            body.update(choose.choice(ASKED)[0])
        yield Request("/v1/chat/completions", body, None, choices)


def wrong(choose, count=20):
    """Refused, each with its status."""
    for _ in range(count):
        path, body, status = choose.choice((
            ("/embed", {"inputs": "a", "nothing": 1}, 422), ("/v1/completions", {"prompt": "a", "temperature": -1}, 400),
            ("/" + str(choose.random()), {}, 404), ("/v1/completions", {"prompt": "a", "model": "gone"}, 404),
            ("/v1/chat/completions", {"model": "tools", "messages": [], "grammar": {"regex": "("}}, 400)))
        yield Request(path, body, status)


KINDS = {made.__name__: made for made in (embeddings, rows, translations, structured, wrong)}


def prepared(seed, kinds):
    choose, made = random.Random(seed), []
    for kind in kinds:
        made += KINDS[kind](choose)
    plain = Process(place("tools"), "--max-rows=1", "--speculate=off", "--prefixes=off")
    client = plain.client()
    for request in made:
        if request.wanted is None:
            answer = client.post(request.path, request.body)
            assert answer.status == 200, (request.body, answer)
            request.wanted = request.read(answer.json)
    client.close()
    plain.close()
    return made


class Clients:
    """Threads that ask until the end, and what became of their requests."""

    def __init__(self, server, requests, until, seed):
        self.server, self.requests, self.until, self.seed = server, requests, until, seed
        self.counts, self.faults, self._lock = collections.Counter(), [], threading.Lock()

    def count(self, what):
        with self._lock:
            self.counts[what] += 1

    def fail(self, request, seconds, found):
        with self._lock:
            if seconds > LATE and (found == 408 or isinstance(found, str)):
                self.counts["late"] += 1
                return
            self.faults.append(f"{request.path} {json.dumps(request.body)[:600]}: {str(found)[:600]} after {seconds:.1f} s")
            print(self.faults[-1], flush=True)  # not only at the end, which may be far

    def work(self, number):
        choose, own = random.Random(self.seed * 1000 + number), self.server.client()
        ways = (self.ask, self.ask, self.ask, self.stream, self.vanish, self.slowly, self.read_nothing)
        while time.monotonic() < self.until and len(self.faults) < 20:
            request, way = choose.choice(self.requests), choose.choice(ways)
            began = time.monotonic()
            try:
                way(own, request, choose)
            except Exception as error:
                is_connection = isinstance(error, (OSError, EOFError, http.client.HTTPException))
                self.fail(request, time.monotonic() - began if is_connection else 0, f"{way.__name__}: {error!r}")
        own.close()

    def check(self, request, began, status, found):
        seconds = time.monotonic() - began
        if isinstance(request.wanted, int):
            self.count("refused") if status == request.wanted else self.fail(request, seconds, status)
        elif status != 200:
            self.fail(request, seconds, status)
        elif found() != request.wanted:
            self.fail(request, 0, "another answer")
        else:
            self.count("right")

    def ask(self, own, request, choose):
        began, answer = time.monotonic(), own.post(request.path, request.body)
        self.check(request, began, answer.status, lambda: request.read(answer.json))

    def stream(self, own, request, choose):
        if not request.streams:
            return
        began = time.monotonic()
        answer = own.post(request.path, {**request.body, "stream": True})

        def found():
            pieces, done = events(answer)
            if not done:
                raise EOFError(f"a stream without an end: {answer}")
            made = [[] for _ in request.wanted]
            for event in pieces:
                for choice in event["choices"]:
                    made[choice["index"]] += choice["token_ids"]
            return made
        self.check(request, began, answer.status, found)

    def sent(self, request, more=None):
        content = json.dumps({**request.body, **(more or {})}).encode()
        connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=servers.WAIT)
        return connection, head(request.path, len(content)) + content

    def vanish(self, own, request, choose):
        """Goes before, in or after what it sends, or after a part of what it gets."""
        connection, data = self.sent(request, {"stream": True} if request.streams else None)
        with connection:
            if choose.random() < 0.2:
                connection.sendall(data[:choose.randrange(len(data))])
            else:
                connection.sendall(data)
                connection.settimeout(choose.choice((0.001, 0.02, 0.1)))
                with contextlib.suppress(TimeoutError):
                    connection.recv(choose.choice((1, 300, 900)))
        self.count("went")

    def slowly(self, own, request, choose):
        """Sends and reads a few bytes at a time."""
        began = time.monotonic()
        connection, data = self.sent(request)
        with connection:
            size = max(30, len(data) // 40)
            for i in range(0, len(data), size):
                connection.sendall(data[i:i + size])
                time.sleep(0.005)
            found = b""
            while b"\r\n\r\n" not in found or len(found) < found.index(b"\r\n\r\n") + 4 + int(re.search(
                    rb"content-length: (\d+)", found, re.I)[1]):
                part = connection.recv(choose.choice((50, 500)))
                if not part:
                    raise EOFError("no whole answer")
                found += part
                time.sleep(0.001)
        beginning, _, content = found.partition(b"\r\n\r\n")
        self.check(request, began, int(beginning.split()[1]), lambda: request.read(json.loads(content)))

    def read_nothing(self, own, request, choose):
        if not request.streams or choose.random() < 0.7:
            return
        connection, data = self.sent(request, {"stream": True, "n": 20})
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.sendall(data)
            time.sleep(choose.uniform(0, 2))
        self.count("read nothing")


class Watch:
    """What a server has, sampled."""
    names = ("seconds", "memory", "descriptors", "threads", "cache", "kept", "running", "waiting", "requests")

    def __init__(self, server, clients):
        self.server, self.clients, self.began, self.samples = server, clients, time.monotonic(), []
        self.client = Client(server.port)

    def metrics(self):
        text = self.client.get("/metrics").body.decode()
        found = collections.defaultdict(list)
        for name, value in re.findall(r"^(tfmc_\w+)(?:\{[^}]*\})? (\S+)$", text, re.M):
            found[name].append(float(value))
        return found

    def sample(self):
        while not self.server.log.empty():  # nobody else reads it
            self.server.log.get()
        folder, found = pathlib.Path("/proc") / str(self.server.process.pid), self.metrics()
        resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self.samples.append((time.monotonic() - self.began, resident, len(os.listdir(folder / "fd")),
                             len(os.listdir(folder / "task")), sum(found["tfmc_cache_bytes"]), sum(found["tfmc_rows_kept"]),
                             sum(found["tfmc_rows_running"]), sum(found["tfmc_waiting"]), sum(self.clients.counts.values())))
        print("{:7.0f} s {:.1f} MB, {:.0f} descriptors, {:.0f} threads, caches {:.0f} bytes, {:.0f} rows kept, {:.0f} "
              "running, {:.0f} waiting, {:.0f} requests, {} right, {} faults".format(
                  self.samples[-1][0], resident / 1e6, *self.samples[-1][2:], self.clients.counts["right"], len(self.clients.faults)),
              flush=True)

    def fifth(self, number):
        n = len(self.samples)
        return self.samples[n * number // 5:max(n * number // 5 + 1, n * (number + 1) // 5)]

    def table(self):
        print("| fifth of the time | memory MB, median | most | descriptors, median | most | threads | caches, most | requests |\n"
              "|---|---|---|---|---|---|---|---|")
        for number in range(5):
            part = list(zip(*self.fifth(number)))
            print(f"| {number + 1} | {statistics.median(part[1]) / 1e6:.1f} | {max(part[1]) / 1e6:.1f} | "
                  f"{statistics.median(part[2]):.0f} | {max(part[2])} | {min(part[3])} to {max(part[3])} | {max(part[4]):.0f} | "
                  f"{part[8][-1]} |")

    def faults(self, cache_bytes, most):
        """What has grown. `most`: connections of the clients, which come and go."""
        early, late = list(zip(*self.fifth(1))), list(zip(*self.fifth(4)))
        growth = statistics.median(late[1]) - statistics.median(early[1])
        if growth > MOST_GROWTH:
            yield f"memory grew by {growth / 1e6:.1f} MB"
        if statistics.median(late[2]) > statistics.median(early[2]) + 2 or max(late[2]) > max(early[2]) + most:
            yield "descriptors grew"
        if max(late[3]) > max(early[3]):
            yield "threads grew"
        largest = max(sample[4] for sample in self.samples)
        if largest > WRITERS * cache_bytes:
            yield f"caches had {largest:.0f} bytes, of {WRITERS} models with {cache_bytes} each"
        if not largest:
            yield "the caches were never used"


def at_the_end(watch):
    """What is left when every client has gone."""
    for _ in range(600):
        found = watch.metrics()
        if not sum(found["tfmc_rows_running"]) + sum(found["tfmc_waiting"]):
            break
        time.sleep(0.1)
    else:
        yield "rows still run or wait"
    watch.sample()
    if watch.samples[-1][2] > watch.samples[0][2] + 2:
        yield f"{watch.samples[-1][2]} descriptors are left of {watch.samples[0][2]} at the beginning"


def soak(arguments):
    requests = prepared(arguments.seed, arguments.kinds.split(","))
    server = Process(*map(place, MODELS), *LIMITS, f"--cache-bytes={arguments.cache_bytes}")
    clients = Clients(server, requests, time.monotonic() + 60 * arguments.minutes, arguments.seed)
    watch = Watch(server, clients)
    watch.sample()
    threads = [threading.Thread(target=clients.work, args=(number,)) for number in range(arguments.clients)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        next(thread for thread in threads if thread.is_alive()).join(arguments.every)
        watch.sample()
    faults = [*clients.faults, *at_the_end(watch), *watch.faults(arguments.cache_bytes, 2 * arguments.clients)]
    watch.table()
    counts = watch.metrics()["tfmc_tokens_total"]
    print(f"{watch.samples[-1][0] / 60:.1f} minutes, {dict(clients.counts)}, {sum(counts):.0f} tokens")
    server.signal()
    status = server.ended()
    server.close()
    if status:
        faults.append(f"the server ended with {status}")
    if not clients.counts["right"] or not clients.counts["refused"] or clients.counts["late"] > clients.counts["right"] / 100:
        faults.append("too few answers were compared")
    print("\n".join(faults) or "no answer differs, nothing grew")
    return bool(faults)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float, nargs="?", default=60)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--cache-bytes", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of requests: %(default)s")
    sys.exit(soak(parser.parse_args()))


if __name__ == "__main__":
    main()
