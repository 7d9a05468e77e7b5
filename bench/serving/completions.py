#!/usr/bin/env python3
"""Load for servers of /v1/completions: tokens a second, time to the first token, time between tokens.

usage: completions.py URL... [--kind random|shared|json|long] [--clients 1,4,16] [--requests N] [--each N] [--prompt N]
                      [--tokens N] [--vocab N] [--rounds N] [--warm 0] [--compare N] [--key KEY] [--model NAME]
                      [--watch PID] [--seconds N]

In: servers that run already (tfmc-serve, or a peer with the same route). Each of so many clients reads a stream to its
end and asks again. Prompts are rows of ids below --vocab (kind random), ids of which three quarters are the same in all
(shared: what a cache of beginnings is for), or ids with a schema that the answer must follow (json: --grammar is
tfmc-serve's own, so peers are left out), or as random, while one more client has a prompt of 4,096 ids read (long: its
own time to the first token is not in the table). All is greedy and ends by its length alone, but for json; servers take
turns, after their answers to the first requests (--compare) were compared. --each: so many requests of each client.
--watch PID: memory, descriptors and threads of a process at the end of each round; with --seconds rounds go on so long.
Out: a table in the median of the rounds. Refused: answers that are not 200, streams that end without [DONE].
How many answers of two servers are the same is said.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import re
import statistics
import sys
import time
import urllib.parse

LONG_AFTER = 1.5  # seconds: then the others write
SCHEMA = {"type": "array", "minItems": 3, "maxItems": 3, "items": {
    "type": "object", "properties": {"name": {"enum": ["ann", "bob"]}, "is_old": {"type": "boolean"}},
    "required": ["name", "is_old"], "additionalProperties": False}}


def bodies_of(arguments):
    choose = random.Random(1)
    common = [choose.randrange(3, arguments.vocab) for _ in range(arguments.prompt * 3 // 4)]
    made = []
    for _ in range(arguments.requests):
        own = len(common) if arguments.kind == "shared" else 0
        prompt = common[:own] + [choose.randrange(3, arguments.vocab) for _ in range(arguments.prompt - own)]
        body = {"prompt": prompt, "max_tokens": arguments.tokens, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}}
        if arguments.model:
            body["model"] = arguments.model
        body.update({"grammar": {"json_schema": SCHEMA}} if arguments.kind == "json" else {"ignore_eos": True})
        made.append(json.dumps(body).encode())
    return made


def long_body(arguments):
    choose = random.Random(2)
    return json.dumps({"prompt": [choose.randrange(3, arguments.vocab) for _ in range(4096)], "max_tokens": 1, "temperature": 0,
                       "stream": True, "ignore_eos": True, **({"model": arguments.model} if arguments.model else {})}).encode()


class Server:
    def __init__(self, url, key):
        parts = urllib.parse.urlsplit(url)
        self.name, self.host, self.port = parts.netloc, parts.hostname, parts.port
        self.head = (f"POST /v1/completions HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n" +
                     (f"authorization: Bearer {key}\r\n" if key else "") +
                     "content-type: application/json\r\ncontent-length: ").encode()

    async def ask(self, body):
        """(text, tokens, seconds to the first text, seconds between events)"""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=2 ** 20)
        began = last = time.perf_counter()
        writer.write(self.head + b"%d\r\n\r\n" % len(body) + body)
        status = await reader.readline()
        if b" 200 " not in status:
            sys.exit(f"{self.name}: {status!r} {(await reader.read(2000))[-400:]!r}")
        text, first, between, tokens, is_done = "", None, [], 0, False
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                is_done = True
                break
            event, now = json.loads(line[6:]), time.perf_counter()
            if "error" in event:
                sys.exit(f"{self.name}: {event}")
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
            if event["choices"] and event["choices"][0]["text"]:
                text += event["choices"][0]["text"]
                if first is None:
                    first = now - began
                else:
                    between.append(now - last)
                last = now
        writer.close()
        if not is_done:
            sys.exit(f"{self.name}: a stream ended without [DONE]")
        return text, tokens, first if first is not None else time.perf_counter() - began, between


async def closed(server, bodies, clients, long=None):
    """(seconds, tokens, times to the first token, times between events). long: a request in the middle of the others"""
    left, firsts, between, tokens = iter(bodies), [], [], 0

    async def client():
        nonlocal tokens
        for body in left:
            _, count, first, gaps = await server.ask(body)
            tokens += count
            firsts.append(first)
            between.extend(gaps)

    async def reader():
        await asyncio.sleep(LONG_AFTER)
        await server.ask(long)
    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)), *([reader()] if long else []))
    return time.perf_counter() - began, tokens, firsts, between


def used(pid):
    folder = pathlib.Path("/proc") / str(pid)
    resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return f"{resident / 1e6:.1f} MB, {len(os.listdir(folder / 'fd'))} descriptors, {len(os.listdir(folder / 'task'))} threads"


async def compare(servers, bodies):
    found = [[(await server.ask(body))[0] for body in bodies] for server in servers]
    for server, texts in zip(servers[1:], found[1:]):
        same = sum(a == b for a, b in zip(found[0], texts))
        print(f"{server.name}: {same} of {len(bodies)} answers are those of {servers[0].name}")


def row(name, clients, rounds):
    rate = statistics.median(tokens / seconds for seconds, tokens, *_ in rounds)
    firsts = sorted(first for made in rounds for first in made[2])
    gaps = sorted(gap for made in rounds for gap in made[3]) or [0]
    quantile = lambda times, part: 1e3 * times[min(len(times) - 1, int(part * len(times)))]  # noqa: E731
    print(f"| {name} | {clients} | {rate:.1f} | {quantile(firsts, .5):.1f} | {quantile(firsts, .99):.1f} | "
          f"{quantile(gaps, .5):.1f} | {quantile(gaps, .99):.1f} |", flush=True)


async def measure(arguments):
    servers, bodies = [Server(url, arguments.key) for url in arguments.urls], bodies_of(arguments)
    await compare(servers, bodies[:arguments.compare])
    long = long_body(arguments) if arguments.kind == "long" else None
    found, until, number = {}, time.monotonic() + arguments.seconds, 1 - arguments.warm
    while number <= arguments.rounds or time.monotonic() < until:  # round 0 warms
        for clients in map(int, arguments.clients.split(",")):
            for server in servers if number % 2 else servers[::-1]:
                made = await closed(server, bodies[:clients * arguments.each] if arguments.each else bodies, clients, long)
                if number:
                    found.setdefault((server.name, clients), []).append(made)
        if arguments.watch:
            print(f"round {number}: {used(arguments.watch)}", flush=True)
        number += 1
    print("| server | clients | tokens a second | first token ms | 99 % | between events ms | 99 % |\n|---|---|---|---|---|---|---|")
    for (name, clients), rounds in found.items():
        row(name, clients, rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--kind", choices=("random", "shared", "json", "long"), default="random")
    parser.add_argument("--clients", default="1,4,16")
    for name, default in (("requests", 64), ("prompt", 128), ("tokens", 64), ("vocab", 256), ("rounds", 5), ("watch", 0),
                          ("seconds", 0), ("each", 0), ("warm", 1), ("compare", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--key")
    parser.add_argument("--model")
    arguments = parser.parse_args()
    if not all(re.fullmatch(r"\d+", part) for part in arguments.clients.split(",")):
        parser.error("--clients: numbers with commas between them")
    asyncio.run(measure(arguments))


if __name__ == "__main__":
    main()
