"""Many requests, good and bad: memory, descriptors and threads do not grow. With TFM_LONG as many as to see small leaks."""
import os
import pathlib
import random
import socket
import unittest

from servers import Case, Process, head, place, raw

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


if __name__ == "__main__":
    unittest.main()
