#!/usr/bin/env python3
"""Load for a server of embeddings, of reranking or of translations, and what the same rows take without one.

usage: load.py URL... --words FILE [--route embed|openai|rerank|translate] [--clients 1,8,64] [--rates 50,100]
               [--shares 50,80,95] [--requests N] [--texts N] [--lengths 3-64] [--tokens N] [--rounds N]
               [--offline FOLDER[=FILE.tfmm]] [--threads N] [--key KEY]

In: servers that run already (tfmc-serve, or a peer with the same route), and a file of words, of which texts are made
(vocab.txt of a BERT, or any text). Closed load: each of so many clients asks again when it is answered. Open load: so
many requests a second, at random moments, whatever is answered; --shares are percents of what the last server answers
in a closed load of the most clients, while the first round warms. --tokens: of a translation at most. Servers take turns in every round, after their answers
to the same texts were compared. --offline: all texts of a closed load by tfmc.text in one call, in the same rounds: the
floor that a server is measured by.
Out: a table of requests and rows a second and of the times of requests, in the median of the rounds. Refused: answers
that are not 200, and servers whose answers differ by more than 1e-3; how many translations are the same is said.
"""
import argparse
import asyncio
import json
import pathlib
import random
import re
import statistics
import sys
import time
import urllib.parse


def texts_of(arguments, count):
    """Texts with so many words that they have about the lengths asked for, the same in every run."""
    words = [word for word in pathlib.Path(arguments.words).read_text(encoding="utf-8").split() if re.fullmatch("[a-z]{3,}", word)]
    if not words:
        sys.exit(f"{arguments.words}: there are no words in it")
    least, most = map(int, arguments.lengths.split("-"))
    choose = random.Random(1)
    return [" ".join(choose.choice(words) for _ in range(max(1, choose.randint(least, most) - 2))) for _ in range(count)]


def requests_of(arguments):
    texts = texts_of(arguments, arguments.requests * arguments.texts)
    groups = [texts[i:i + arguments.texts] for i in range(0, len(texts), arguments.texts)]
    if arguments.route == "rerank":
        return groups, [{"query": groups[0][0], "texts": group, "truncate": True} for group in groups]
    if arguments.route == "translate":
        return groups, [{"text": group, "num_beams": 1, "max_new_tokens": arguments.tokens} for group in groups]
    member = "input" if arguments.route == "openai" else "inputs"
    return groups, [{member: group, "truncate": True} for group in groups]


PATHS = {"embed": "/embed", "openai": "/v1/embeddings", "rerank": "/rerank", "translate": "/translate"}


class Server:
    def __init__(self, url, route, key):
        parts = urllib.parse.urlsplit(url)
        self.name, self.host, self.port = parts.netloc, parts.hostname, parts.port
        self.head = (f"POST {PATHS[route]} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n" +
                     (f"authorization: Bearer {key}\r\n" if key else "") + "content-length: ").encode()

    async def ask(self, connection, body):
        reader, writer = connection
        writer.write(self.head + b"%d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.I)
        answer = await reader.readexactly(int(length[1])) if length else b""
        if b" 200 " not in head[:20]:
            sys.exit(f"{self.name}: {head[:40]!r} {answer[:300]!r}")
        return answer

    async def connect(self):
        return await asyncio.open_connection(self.host, self.port, limit=2 ** 24)


async def closed(server, bodies, clients):
    """(seconds, times of requests)"""
    left, times = iter(bodies), []

    async def client():
        connection = await server.connect()
        for body in left:
            began = time.perf_counter()
            await server.ask(connection, body)
            times.append(time.perf_counter() - began)
        connection[1].close()
    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - began, times


async def opened(server, bodies, rate):
    """The same; a request's time begins when it was due."""
    choose, times, free = random.Random(2), [], []

    async def request(body, due):
        connection = free.pop() if free else await server.connect()
        await server.ask(connection, body)
        times.append(time.perf_counter() - due)
        free.append(connection)
    began = due = time.perf_counter()
    tasks = []
    for body in bodies:
        due += choose.expovariate(rate)
        await asyncio.sleep(max(0, due - time.perf_counter()))
        tasks.append(asyncio.ensure_future(request(body, due)))
    await asyncio.gather(*tasks)
    for connection in free:
        connection[1].close()
    return time.perf_counter() - began, times


def numbers(answer, route):
    content = json.loads(answer)
    if route == "translate":
        return content["translations"]
    if route == "rerank":
        return [hit["score"] for hit in sorted(content, key=lambda hit: hit["index"])]
    vectors = content if route == "embed" else [entry["embedding"] for entry in content["data"]]
    return [number for vector in vectors for number in vector]


async def compare(servers, body, route):
    """The largest difference of answers from the first server's."""
    found = []
    for server in servers:
        connection = await server.connect()
        found.append(numbers(await server.ask(connection, body), route))
        connection[1].close()
    for server, other in zip(servers[1:], found[1:]):
        if route == "translate":
            same = sum(a == b for a, b in zip(found[0], other))
            print(f"{server.name}: {same} of {len(other)} translations are those of {servers[0].name}")
            continue
        far = max(abs(a - b) for a, b in zip(found[0], other))
        print(f"{server.name}: answers differ from {servers[0].name}'s by at most {far:.1e}")
        if far > 1e-3 or len(other) != len(found[0]):
            sys.exit("these are not the same model")


def offline(arguments, groups):
    """A function that computes all texts in one call, and takes no part in anything else."""
    import tfmc
    import tfmc.text
    folder, _, file = arguments.offline.partition("=")
    pool = tfmc.Pool(arguments.threads)
    model = tfmc.load(file, pool=pool) if file else tfmc.from_pretrained(folder, pool=pool)
    texts = [text for group in groups for text in group]
    if arguments.route == "rerank":
        made = tfmc.text.Reranker(model, folder=folder)
        return lambda: made.predict([(groups[0][0], text) for text in texts])
    if arguments.route == "translate":
        made = tfmc.text.Translator(model, folder=folder)
        return lambda: made.translate(texts, num_beams=1, max_new_tokens=arguments.tokens)
    made = tfmc.text.Embedder(model, folder=folder)
    return lambda: made.encode(texts)


def row(name, load, rounds, arguments):
    seconds = statistics.median(seconds for seconds, _ in rounds)
    times = sorted(time for _, times in rounds for time in times) or [seconds]
    rate = arguments.requests / seconds
    quantile = lambda part: 1e3 * times[min(len(times) - 1, int(part * len(times)))]  # noqa: E731
    print(f"| {name} | {load} | {rate:.0f} | {rate * arguments.texts:.0f} | {quantile(.5):.1f} | {quantile(.95):.1f} | "
          f"{quantile(.99):.1f} |", flush=True)


async def measure(arguments, groups, bodies):
    servers = [Server(url, arguments.route, arguments.key) for url in arguments.urls]
    await compare(servers, bodies[0], arguments.route)
    loads = [("clients", int(n), closed) for n in arguments.clients.split(",") if n]
    loads += [("a second", float(n), opened) for n in arguments.rates.split(",") if n]
    alone = offline(arguments, groups) if arguments.offline else None
    print("| server | load | requests a second | rows a second | median ms | 95 % | 99 % |\n|---|---|---|---|---|---|---|")
    found, floor = {}, []
    if arguments.shares:
        clients = max(int(n) for n in arguments.clients.split(",") if n)
        await closed(servers[-1], bodies, clients)
        most = len(bodies) / (await closed(servers[-1], bodies, clients))[0]
        loads += [("a second", round(float(share) / 100 * most, 1), opened) for share in arguments.shares.split(",")]
    for number in range(arguments.rounds + 1):  # the first warms
        for word, size, load in loads:
            for server in servers if number % 2 else servers[::-1]:
                made = await load(server, bodies, size)
                if number:
                    found.setdefault((server.name, f"{size:g} {word}"), []).append(made)
        if alone is not None:
            began = time.perf_counter()
            alone()
            if number:
                floor.append((time.perf_counter() - began, []))
    for (name, load), rounds in found.items():
        row(name, load, rounds, arguments)
    if floor:
        row("tfmc.text, one call", "-", floor, arguments)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--words", required=True)
    parser.add_argument("--route", choices=PATHS, default="embed")
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--rates", default="")
    parser.add_argument("--shares", default="")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--texts", type=int, default=1)
    parser.add_argument("--lengths", default="3-64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--offline")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--key")
    arguments = parser.parse_args()
    groups, made = requests_of(arguments)
    asyncio.run(measure(arguments, groups, [json.dumps(body).encode() for body in made]))


if __name__ == "__main__":
    main()
