"""Requests that are broken, too large, too long or for another model; texts that are unusual."""
import json
import random
import socket
import unittest

from servers import Case, Inside, f32, head, library, raw, read_answer

from tfmc_serve.app import POSTS
from tfmc_serve.errors import is_openai

GOOD = json.dumps({"inputs": "a b"}).encode()


class Requests(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed", "rerank", "classify", max_body=2000, max_inputs=5))

    def still_serves(self):
        self.assertEqual(self.client.post("/embed", {"inputs": "a"}).status, 200)

    # ---- bodies ----

    def test_bodies_that_are_no_json(self):
        bodies = [b"", b" ", b"{", b"{}x", b'{"inputs": NaN}', b'{"inputs": 1e400}', b'{"inputs": -Infinity}',
                  b'{"inputs": ' + b"9" * 1500 + b"}", b'{"inputs": "\\ud800"}', b'{"inputs": "\\udc00\\ud800"}',
                  b"\xef\xbb\xbf" + GOOD, b'{"inputs": "\xff"}', b'{"inputs": "\xed\xa0\x80"}', GOOD.decode().encode("utf-16"),
                  b'{"inputs": ' + b"[" * 33 + b"]" * 33 + b"}", b'{"inputs": ' + b"[" * 900 + b"]" * 900 + b"}",
                  b"[" * 1900, b'{"inputs": "a" "b": 1}', b"{'inputs': 'a'}", b"\0"]
        for post in POSTS[:1] + POSTS[6:7]:
            for body in bodies:
                answer = self.client.post(post.path, body)
                self.refused(answer, 400 if is_openai(post.path) else 422, openai=is_openai(post.path))
        self.still_serves()

    def test_members_that_stand_twice(self):
        for body in (b'{"inputs": "a", "inputs": "b"}', b'{"inputs": "a", "in\u0070uts": "a:"}',
                     b'{"inputs": "a:", "normalize": true, "inputs": "a:"}'):
            self.refused(self.client.post("/embed", body), 422, "'inputs' stands twice")
        answer = self.client.post("/v1/rerank", b'{"query": "a", "documents": [{"text": "b", "text": "c"}]}')
        self.refused(answer, 400, "'text' stands twice", openai=True)
        self.assertEqual(self.client.post("/embed", b'{"inputs": ["a: b", ": \\": "]}').status, 200)

    def test_a_wish_for_another_protocol_is_passed_over(self):
        """Java's client sends it with its first request, and then the body."""
        wish = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAB\r\n"
        request = head("/embed", len(GOOD)).replace(b"\r\n\r\n", b"\r\n" + wish + b"\r\n", 1) + GOOD
        for cuts in ((), (len(request) - len(GOOD),), (40, 90, len(request) - 3), range(1, len(request))):
            with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
                for part in [request[a:b] for a, b in zip((0, *cuts), (*cuts, len(request)))]:
                    connection.sendall(part)
                answer = read_answer(connection)
                self.assertIn(b" 200 ", answer[:20])
                connection.sendall(head("/embed", len(GOOD)) + GOOD)  # the connection goes on
                self.assertEqual(read_answer(connection).partition(b"\r\n\r\n")[2], answer.partition(b"\r\n\r\n")[2])
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.sendall(request + request.replace(b"connection: upgrade,", b"connection: close, upgrade,"))
            self.assertEqual(b"".join(iter(lambda: connection.recv(65536), b"")).count(b" 200 OK"), 2)
        self.assertIn(b" 400 ", raw(self.server.port, b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n")[:20])

    def test_whole_numbers_of_more_than_64_bits(self):
        for number in (2 ** 64, -2 ** 64, 10 ** 30):
            answer = self.client.post("/embed", b'{"inputs": "a", "dimensions": %d}' % number)
            self.refused(answer, 422, "dimensions", "is not between 1 and 65536")

    def test_other_encodings_of_a_transfer(self):
        request = b"POST /embed HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n" \
            b"transfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        self.assertIn(b" 415 ", raw(self.server.port, request)[:20])
        self.still_serves()

    def test_half_a_body_and_a_client_that_goes(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.sendall(head("/embed", len(GOOD)) + GOOD[:5])
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.sendall(b"POST /embed HTT")
        self.server.until(lambda service: service.inside == 0)
        self.still_serves()

    def test_bodies_beyond_the_limit(self):
        large = json.dumps({"inputs": "a " * 2000}).encode()
        self.refused(self.client.post("/embed", large), 413, "2000")
        self.refused(self.client.post("/v1/embeddings", large), 413, "2000", openai=True)
        chunked = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        piece = b"400\r\n" + b" " * 1024 + b"\r\n"
        self.assertIn(b" 413 ", raw(self.server.port, chunked + piece * 40 + b"0\r\n\r\n")[:20])
        self.still_serves()

    def test_a_body_in_pieces(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            connection.sendall(head("/embed", len(GOOD)))
            for byte in GOOD:
                connection.sendall(bytes([byte]))
            self.assertIn(b" 200 ", read_answer(connection)[:20])

    def test_lengths_that_contradict(self):
        for more in (b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n"):
            self.assertIn(b" 400 ", raw(self.server.port, head("/embed", len(GOOD), more) + GOOD)[:20])
        for length in (b"-1", b"1e3", b"x", b"99999999999999999999999"):
            found = raw(self.server.port, b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-length: " + length + b"\r\n\r\n")
            self.assertIn(b" 400 ", found[:20], length)
        self.still_serves()

    def test_what_is_no_http(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\nx\r\n\r\n",
                     b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", b"CONNECT x:1 HTTP/1.1\r\n\r\n",
                     b"GET * HTTP/1.1\r\nhost: x\r\n\r\n", b"GET http://[ HTTP/1.1\r\nhost: x\r\n\r\n"):
            found = raw(self.server.port, data)
            self.assertRegex(found[:13], rb"^HTTP/1.1 4\d\d", (data, found))
        self.still_serves()

    def test_encodings(self):
        for headers in ({"content-type": "text/plain"}, {"content-type": ""}, {"content-encoding": "gzip"},
                        {"content-type": "application/json; charset=latin-1"},
                        {"content-type": "application/x-www-form-urlencoded"}, {"content-type": "multipart/form-data"}):
            self.refused(self.client.post("/embed", GOOD, headers), 415, "content-")
        for kind in ("application/json; charset=utf-8", "Application/JSON"):
            self.assertEqual(self.client.post("/embed", GOOD, {"content-type": kind}).status, 200)
        self.refused(self.client.request("POST", "/embed", GOOD), 415, "content-type")

    def test_routes_and_methods(self):
        self.refused(self.client.get("/nothing"), 404, "/openapi.json")
        self.refused(self.client.get("/v1/nothing"), 404, openai=True)
        self.refused(self.client.post("/embed/", {"inputs": "a"}), 404)
        self.refused(self.client.get("/embed"), 405, "POST")
        self.refused(self.client.post("/health", {}), 405, "GET")
        self.refused(self.client.request("DELETE", "/v1/embeddings"), 405, "POST", openai=True)
        for path, allowed in (("/", "GET, HEAD, POST"), ("/embed", "POST"), ("/v1/models/x", "GET, HEAD")):
            self.assertEqual(self.client.request("DELETE", path).headers["allow"], allowed)

    # ---- numbers of inputs, lengths ----

    def test_too_many_inputs(self):
        many = ["a"] * 6
        for path, body in (("/embed", {"inputs": many}), ("/rerank", {"query": "a", "texts": many}),
                           ("/predict", {"inputs": [["a"]] * 6}), ("/tokenize", {"inputs": many}), ("/decode", {"ids": [[5]] * 6}),
                           ("/similarity", {"inputs": {"source_sentence": "a", "sentences": many}}),
                           ("/v1/embeddings", {"input": many}), ("/v1/embeddings", {"input": [[5]] * 6}),
                           ("/v1/rerank", {"query": "a", "documents": many})):
            self.refused(self.client.post(path, body), 413, "6", "5", openai=is_openai(path))
        self.assertEqual(self.client.post("/embed", {"inputs": ["a"] * 5}).status, 200)
        self.assertEqual(self.client.post("/embed", {"inputs": [5] * 6}).status, 200)

    def test_texts_that_are_too_long(self):
        text = "a b c a " * 5 + "b"
        for path, body in (("/embed", {"inputs": ["a", text]}), ("/rerank", {"query": "a", "texts": ["a", text]}),
                           ("/predict", {"inputs": [["a"], [text]]}), ("/embed", {"inputs": ["a", [5] * 23]}),
                           ("/v1/embeddings", {"input": ["a", text]}), ("/v1/rerank", {"query": "a", "documents": ["a", text]})):
            answer = self.client.post(path, body)
            self.refused(answer, 400 if is_openai(path) else 422, "[1]", "20", "truncate", openai=is_openai(path))
            self.assertRegex(answer.body.decode(), "has 2[2-5] tokens")
            self.assertEqual(self.client.post(path, {**body, "truncate": True}).status, 200)

    def test_texts_are_cut_on_both_sides(self):
        words = ("a b c a " * 5 + "b").split()
        for side, rest in (("right", words[:18]), ("left", words[-18:]), ("Right", words[:18])):
            found = self.client.post("/embed", {"inputs": " ".join(words), "truncate": True, "truncation_direction": side})
            self.assertEqual(f32(found.json[0]).tobytes(), library("embed").encode(" ".join(rest)).tobytes())
        found = self.client.post("/embed", {"inputs": list(range(5, 8)) * 9, "truncate": True, "truncation_direction": "left"})
        self.assertEqual(found.json, self.client.post("/embed", {"inputs": (list(range(5, 8)) * 9)[-20:]}).json)

    def test_usage_says_what_was_cut(self):
        found = self.client.post("/v1/embeddings", {"input": ["a", "a b c a " * 5, [5] * 23], "truncate": True}).json
        self.assertEqual(found["usage"], {"prompt_tokens": 43, "total_tokens": 43, "truncated_tokens": 5})

    def test_what_is_empty(self):
        for path, body in (("/embed", {"inputs": []}), ("/embed", {"inputs": [[]]}), ("/v1/embeddings", {"input": []}),
                           ("/rerank", {"query": "a", "texts": []}), ("/v1/rerank", {"query": "a", "documents": []}),
                           ("/predict", {"inputs": []}), ("/predict", {"inputs": [[]]}), ("/decode", {"ids": []})):
            self.refused(self.client.post(path, body), 400 if is_openai(path) else 422, openai=is_openai(path))
        empty = self.client.post("/embed", {"inputs": ["", " ", "\t"]}).json
        self.assertEqual(f32(empty).tobytes(), library("embed").encode(["", " ", "\t"]).tobytes())
        self.assertEqual(len(self.client.post("/rerank", {"query": "", "texts": [""]}).json), 1)

    # ---- models ----

    def test_models_that_are_not_there_or_of_another_kind(self):
        for post in POSTS:
            openai = is_openai(post.path)
            body = BODIES[post.shape]
            found = self.client.post(post.path, {**body, "model": "nothing"})
            self.refused(found, 404, "nothing", openai=openai)
            if openai:
                self.assertEqual(found.json["error"]["code"], "model_not_found")
            if len(post.kinds) == 1:
                self.refused(self.client.post(post.path, {**body, "model": "classify"}), 400 if openai else 424, "classify",
                             "/predict", openai=openai)
        self.refused(self.client.post("/predict", {"inputs": "a", "model": "embed"}), 424, "/embed")


BODIES = {"embed": {"inputs": "a"}, "similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
          "rerank": {"query": "a", "texts": ["b"]}, "predict": {"inputs": "a"}, "tokenize": {"inputs": "a"},
          "decode": {"ids": [5]}, "embeddings": {"input": "a"}, "v_rerank": {"query": "a", "documents": ["b"]},
          "translate": {"text": "a"}, "completions": {"prompt": "a"}, "chat": {"messages": [{"role": "user", "content": "a"}]}}


class Kinds(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("classify"))

    def test_without_a_model_of_the_kind(self):
        self.refused(self.client.post("/embed", {"inputs": "a"}), 424, "embed")
        self.refused(self.client.post("/v1/embeddings", {"input": "a"}), 400, "embed", openai=True)
        self.assertEqual(self.client.post("/", {"inputs": "a"}).status, 200)


class UnusualTexts(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed"))

    def vector(self, text):
        answer = self.client.post("/embed", {"inputs": text, "truncate": True})
        self.assertEqual(answer.status, 200, answer)
        return f32(answer.json[0])

    def test_unusual_texts(self):
        for text in ("a\0b", "\0", "x" * 10 ** 6, "e" + "\u0301" * 300_000, "\U0001f468\u200d\U0001f469" * 1000, "\u202e abc",
                     "a " * 900_000, "\u3042" * 100_000):
            self.assertEqual(self.vector(text).tobytes(), library("embed").encode(text).tobytes(), text[:10])

    def test_the_beginning_of_a_long_text_is_cut_as_the_whole(self):
        choose = random.Random(3)
        served = next(iter(self.server.service.models.values()))
        for _ in range(20):
            text = "".join(choose.choice(["a", "b", "c", " ", "  ", "\t", "\n", "ab"]) for _ in range(20_000))
            prefix = served._prefix(text)
            self.assertLess(len(prefix), len(text) // 2)
            self.assertTrue(text.startswith(prefix))
            self.assertEqual(served.encode([text], "inputs", True).rows[0].ids, library("embed").tokens([text])[0])
        words = "x" * 100_000
        self.assertEqual(served._prefix(words), words)


if __name__ == "__main__":
    unittest.main()
