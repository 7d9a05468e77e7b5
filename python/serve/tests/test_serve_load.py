"""Many requests, good and bad: memory, descriptors and threads do not grow, and every answer has the bits of its rows
alone. With TFM_LONG as many as to see small leaks, and ten minutes."""
import base64
import json
import os
import pathlib
import random
import socket
import unittest

import numpy as np

from servers import WAIT, Case, Process, f32, head, library, place, raw

LONG = "TFM_LONG" in os.environ
COUNT = 700 if LONG else 150  # for each of four clients, in each of four rounds


class Load(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Process(place("embed"), place("rerank"), "--max-waiting=64"))

    def used(self):
        folder = pathlib.Path("/proc") / str(self.server.process.pid)
        resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return resident, len(os.listdir(folder / "fd")), len(os.listdir(folder / "task"))

    def round(self, seed):
        def client(number):
            choose, own = random.Random(seed * 100 + number), self.server.client()
            for _ in range(COUNT):
                texts = [" ".join(choose.choice("abc") for _ in range(choose.randint(0, 17)))
                         for _ in range(choose.randint(1, 8))]
                kind = choose.randint(0, 9)
                if kind == 0:
                    self.assertEqual(own.post("/embed", {"inputs": texts, "nothing": 1}).status, 422)
                elif kind == 1:
                    self.assertEqual(own.get("/" + str(choose.random())).status, 404)
                elif kind == 2:
                    body = b'{"inputs": "a"}'
                    with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
                        connection.sendall(head("/embed", len(body)) + body[:choose.randint(0, len(body))])
                elif kind == 3:
                    raw(self.server.port, b"nothing\r\n\r\n")
                elif kind < 7:
                    self.assertEqual(own.post("/rerank", {"query": "a", "texts": texts, "truncate": True}).status, 200)
                else:
                    self.assertEqual(own.post("/v1/embeddings", {"input": texts}).status, 200)
            own.close()
        self.threads([lambda n=n: client(n) for n in range(4)])

    def test_nothing_grows(self):
        found = []
        for seed in range(4):
            self.round(seed)
            found.append(self.used())
        resident, descriptors, threads = zip(*found)
        self.assertLess(resident[-1] - resident[1], 8_000_000, found)
        self.assertLessEqual(max(descriptors), min(descriptors) + 8, found)
        self.assertEqual(threads[-1], threads[1], found)


class Bits(Case):
    """Random requests of all kinds, of clients that come, go and vanish, against what was computed alone before."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Process(place("embed"), place("rerank")))
        choose = random.Random(9)
        cls.texts = [" ".join(choose.choice("abc") for _ in range(choose.randint(0, 13))) for _ in range(300)]
        cls.vectors = [library("embed").encode(text) for text in cls.texts]
        cls.cut = [library("embed").encode(text, truncate_dim=5, normalize=True) for text in cls.texts]
        cls.scores = [library("rerank").predict(("a b", text)) for text in cls.texts]

    def same(self, found, wanted):
        self.assertEqual(f32(found).tobytes(), np.asarray(wanted, np.float32).tobytes())

    def ask(self, client, choose):
        numbers = [choose.randrange(300) for _ in range(choose.choice((1, 1, 2, 5, 30)))]
        texts, kind = [self.texts[i] for i in numbers], choose.randrange(5)
        if kind == 0:
            body = json.dumps({"inputs": texts}).encode()
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
                connection.sendall(head("/embed", len(body)) + body)
            return
        path, body = [("/embed", {"inputs": texts}), ("/v1/embeddings", {"input": texts, "encoding_format": "base64"}),
                      ("/rerank", {"query": "a b", "texts": texts}), ("/embed", {"inputs": texts, "dimensions": 5})][kind - 1]
        answer = client.post(path, body)
        self.assertEqual(answer.status, 200, answer)
        if kind == 1:
            self.same(answer.json, [self.vectors[i] for i in numbers])
        elif kind == 2:
            for i, entry in zip(numbers, answer.json["data"]):
                self.assertEqual(base64.b64decode(entry["embedding"]), self.vectors[i].tobytes())
        elif kind == 3:
            for hit in answer.json:
                self.same(hit["score"], self.scores[numbers[hit["index"]]])
        else:
            self.same(answer.json, [self.cut[i] for i in numbers])

    def test_every_answer_has_the_bits_of_its_rows_alone(self):
        print(f"{self.ask_at_random(600 if LONG else 3)} requests")


if __name__ == "__main__":
    unittest.main()
