#!/usr/bin/env python3
"""What a server adds to the time of one text: a single client and tfmc.text.Embedder in this process, in turns.

usage: alone.py URL... --words FILE --offline FOLDER[=FILE.tfmm] [--requests N] [--threads N]

In: servers with POST /embed that run already. The client is a plain socket, and its time counts. Out: for each server the
median of its times, of those without it, and of the differences text by text. Refused: answers that are not 200.
"""
import argparse
import json
import socket
import statistics
import time
import urllib.parse

import tfmc
import tfmc.text

from load import texts_of

WARM = 20


def connect(url):
    parts = urllib.parse.urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port))


def ask(connection, body):
    connection.sendall(b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: "
                       b"%d\r\n\r\n" % len(body) + body)
    found, end = b"", 1 << 30
    while len(found) < end:
        found += connection.recv(1 << 16)
        head = found.find(b"\r\n\r\n")
        if head >= 0:
            at = found.index(b"content-length: ") + 16
            end = head + 4 + int(found[at:found.index(b"\r", at)])
    if found[9:12] != b"200":
        raise SystemExit(found[:300].decode())


def timed(work, *given):
    began = time.perf_counter()
    work(*given)
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--words", required=True)
    parser.add_argument("--offline", required=True)
    parser.add_argument("--lengths", default="3-64")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    texts = texts_of(arguments, arguments.requests + WARM)
    folder, _, file = arguments.offline.partition("=")
    pool = tfmc.Pool(arguments.threads)
    model = tfmc.load(file, pool=pool) if file else tfmc.from_pretrained(folder, task="embed", pool=pool)
    own = tfmc.text.Embedder(model, folder=folder)
    connections, times, alone = [connect(url) for url in arguments.urls], [[] for _ in arguments.urls], []
    for text in texts:
        body = json.dumps({"inputs": text, "truncate": True}).encode()
        for connection, found in zip(connections, times):
            found.append(timed(ask, connection, body))
        alone.append(timed(own.encode, text))
    for url, found in zip(arguments.urls, times):
        pairs = statistics.quantiles([a - b for a, b in zip(found[WARM:], alone[WARM:])], n=4)
        print(f"{url}: {1e3 * statistics.median(found[WARM:]):.2f} ms, alone {1e3 * statistics.median(alone[WARM:]):.2f}, "
              f"more {1e3 * pairs[1]:.2f} ({1e3 * pairs[0]:.2f} to {1e3 * pairs[2]:.2f})")


if __name__ == "__main__":
    main()
