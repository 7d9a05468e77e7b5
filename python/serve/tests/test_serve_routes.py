"""Routes: answers have the numbers of the library, to the bit, in the forms that clients expect."""
import base64
import json
import random
import socket
import threading
import time
import unittest

import numpy as np

from servers import Case, Inside, f32, head, library, made, read_answer

from tfmc_serve import app
from tfmc_serve.shapes import SHAPES

TEXTS = ["a b c", "c", "b b b b a c", "", "a c b a"]
PAIRS = [("a b", "c c b"), ("a b", "a"), ("a b", ""), ("a b", "b b b b")]
IDS = [1, 5, 6, 2]


class Routes(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed", "rerank", "classify"))

    def ok(self, path, content):
        answer = self.client.post(path, content)
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(answer.headers["content-type"], "application/json")
        return answer.json

    def same(self, found, wanted):
        """JSON carries the bits of f32."""
        self.assertEqual(f32(found).tobytes(), np.asarray(wanted, np.float32).tobytes())

    # ---- embeddings ----

    def test_embed_gives_the_librarys_bits(self):
        self.same(self.ok("/embed", {"inputs": TEXTS}), library("embed").encode(TEXTS))
        for text in TEXTS:
            self.same(self.ok("/embed", {"inputs": text}), library("embed").encode([text]))

    def test_requests_that_come_at_once_are_not_alone(self):
        service, bits = self.server.service, library("embed").encode("a b").tobytes()
        for _ in range(20):  # in the end the event loop computes them
            self.assertEqual(f32(self.client.post("/embed", {"inputs": "a b"}).json[0]).tobytes(), bits)
        self.assertGreaterEqual(service.batcher.alone, 1)
        service.batcher.alone = 10 ** 6
        opened = self.server.server.server_state.connections
        before, go = len(opened), threading.Event()
        connections = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(4)]
        self.server.until(lambda service: len(opened) >= before + 4)
        self.server.loop.call_soon_threadsafe(go.wait)
        for connection in connections:
            connection.sendall(head("/embed", 17) + b'{"inputs": "a b"}')
        time.sleep(0.1)  # until all are there: a loop that is held sees them together
        go.set()
        for connection in connections:
            self.assertIn(b" 200 ", read_answer(connection)[:20])
            connection.close()
        self.assertEqual(service.batcher.alone, 0)

    def test_embed_takes_ids(self):
        wanted = library("embed").encode(["a b"])
        self.same(self.ok("/embed", {"inputs": IDS}), wanted)
        self.same(self.ok("/embed", {"inputs": [IDS]}), wanted)
        self.same(self.ok("/embed", {"inputs": ["a b", IDS]}), [wanted[0], wanted[0]])

    def test_dimensions_and_normalize(self):
        whole = library("embed").encode(TEXTS)
        self.same(self.ok("/embed", {"inputs": TEXTS, "dimensions": 7, "normalize": False}), whole[:, :7])
        cut = library("embed").encode(TEXTS, truncate_dim=7, normalize=True)
        self.same(self.ok("/embed", {"inputs": TEXTS, "dimensions": 7}), cut)
        self.same(self.ok("/embed", {"inputs": TEXTS, "dimensions": 24}), whole)
        self.same([entry["embedding"] for entry in self.ok("/v1/embeddings", {"input": TEXTS, "dimensions": 7})["data"]], cut)
        self.refused(self.client.post("/embed", {"inputs": "a", "dimensions": 25}), 422, "dimensions", "24", "25")

    def test_prompts_are_those_of_the_folder(self):
        self.same(self.ok("/embed", {"inputs": "a", "prompt_name": "query"}), library("embed").encode_query(["a"]))
        self.refused(self.client.post("/embed", {"inputs": "a", "prompt_name": "no"}), 422, "prompt_name", "document", "query")
        self.refused(self.client.post("/embed", {"inputs": IDS, "prompt_name": "query"}), 422, "prompt_name", "ids")

    def test_similarity_is_the_cosine(self):
        vectors = library("embed").encode(TEXTS)
        found = self.ok("/similarity", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}})
        self.same(found, (vectors[1:] * vectors[0]).sum(axis=1))
        np.testing.assert_allclose(found, vectors[1:] @ vectors[0], atol=1e-6)

    def test_embeddings_of_openai(self):
        made = self.ok("/v1/embeddings", {"model": "embed", "input": TEXTS, "user": "me"})
        self.assertEqual((made["object"], made["model"]), ("list", "embed"))
        self.assertEqual([(entry["object"], entry["index"]) for entry in made["data"]],
                         [("embedding", i) for i in range(len(TEXTS))])
        self.same([entry["embedding"] for entry in made["data"]], library("embed").encode(TEXTS))
        tokens = sum(map(len, library("embed").tokens(TEXTS)))
        self.assertEqual(made["usage"], {"prompt_tokens": tokens, "total_tokens": tokens, "truncated_tokens": 0})
        coded = self.ok("/v1/embeddings", {"input": "a b c", "encoding_format": "base64"})["data"][0]["embedding"]
        self.assertEqual(base64.b64decode(coded), library("embed").encode("a b c").astype("<f4").tobytes())

    # ---- scores ----

    def scores(self, pairs=PAIRS):
        return np.atleast_1d(library("rerank").predict(pairs))

    def test_rerank_is_sorted_and_has_the_librarys_bits(self):
        wanted = self.scores()
        order = np.argsort(-wanted, kind="stable").tolist()
        found = self.ok("/rerank", {"query": "a b", "texts": [b for _, b in PAIRS]})
        self.assertEqual([hit["index"] for hit in found], order)
        self.same([hit["score"] for hit in found], wanted[order])
        self.assertEqual({tuple(hit) for hit in found}, {("index", "score")})
        found = self.ok("/rerank", {"query": "a b", "texts": ["a", "b", "a"], "return_text": True, "raw_scores": True})
        equal = [hit["index"] for hit in found if hit["text"] == "a"]
        self.assertEqual(equal, [0, 2])
        self.same([hit["score"] for hit in found if hit["index"] == 1],
                  library("rerank").predict([("a b", "b")], activation_fn=lambda x: x))

    def test_rerank_of_jina_and_cohere(self):
        wanted = self.scores()
        order = np.argsort(-wanted, kind="stable").tolist()[:2]
        for path in ("/v1/rerank", "/v2/rerank"):
            found = self.ok(path, {"model": "rerank", "query": "a b", "top_n": 2, "return_documents": True,
                                   "documents": [PAIRS[0][1], {"text": PAIRS[1][1]}, PAIRS[2][1], PAIRS[3][1]]})
            self.assertEqual([hit["index"] for hit in found["results"]], order)
            self.same([hit["relevance_score"] for hit in found["results"]], wanted[order])
            self.assertEqual([hit["document"]["text"] for hit in found["results"]], [PAIRS[i][1] for i in order])
            self.assertEqual(found["usage"]["total_tokens"], sum(3 + len(a.split()) + len(b.split()) for a, b in PAIRS))

    def test_predict_gives_labels_of_texts_and_pairs(self):
        logits = library("classify").predict([("a b", "c")], activation_fn=lambda x: x)
        found = self.ok("/predict", {"inputs": ["a b", "c"], "raw_scores": True})
        self.assertEqual([hit["label"] for hit in found], [f"LABEL_{i}" for i in np.argsort(-logits[0])])
        self.same([hit["score"] for hit in found], -np.sort(-logits[0]))
        soft = self.ok("/predict", {"inputs": ["a b", "c"]})
        self.assertAlmostEqual(sum(hit["score"] for hit in soft), 1, places=6)
        many = self.ok("/predict", {"inputs": [["a b", "c"], ["a"], ["a b", "c"]]})
        self.assertEqual(many[0], soft)
        self.assertEqual(many[2], soft)
        self.assertEqual(many[1], self.ok("/predict", {"inputs": "a"}))
        self.assertEqual(many[1], self.ok("/predict", {"inputs": [["a"]]})[0])
        one = self.ok("/predict", {"inputs": ["a b", "c"], "model": "rerank"})
        self.same([one[0]["score"]], self.scores([("a b", "c")]))

    # ---- tokens ----

    def test_tokenize_and_decode(self):
        found = self.ok("/tokenize", {"inputs": ["a  b", "c"]})
        self.assertEqual(found[0], [
            {"id": 1, "text": "w1", "special": True, "start": None, "stop": None},
            {"id": 5, "text": "a", "special": False, "start": 0, "stop": 1},
            {"id": 6, "text": "b", "special": False, "start": 3, "stop": 4},
            {"id": 2, "text": "w2", "special": True, "start": None, "stop": None}])
        plain = self.ok("/tokenize", {"inputs": "a b", "add_special_tokens": False})
        self.assertEqual([token["id"] for token in plain[0]], [5, 6])
        self.assertEqual(self.ok("/decode", {"ids": [5, 6]}), ["a b"])
        self.assertEqual(self.ok("/decode", {"ids": [[5, 6], [7]]}), ["a b", "c"])
        self.refused(self.client.post("/decode", {"ids": [40]}), 422, "ids", "40")

    # ---- the server itself ----

    def test_the_root_is_the_first_models_route(self):
        self.assertEqual(self.ok("/", {"inputs": TEXTS}), self.ok("/embed", {"inputs": TEXTS}))
        asked = {"inputs": {"source_sentence": "a", "sentences": ["b", "c"]}, "parameters": {}}
        self.assertEqual(self.ok("/", asked), self.ok("/similarity", asked))
        self.assertEqual(self.ok("/", {"inputs": "a", "model": "classify", "parameters": {}}),
                         self.ok("/predict", {"inputs": "a", "model": "classify"}))

    def test_models_and_info(self):
        listed = self.client.get("/v1/models").json
        self.assertEqual([entry["id"] for entry in listed["data"]], ["embed", "rerank", "classify"])
        entry = self.client.get("/v1/models/embed").json
        self.assertEqual(entry, listed["data"][0])
        self.assertEqual((entry["tfmc"]["kind"], entry["tfmc"]["max_length"], entry["tfmc"]["dimension"],
                          entry["tfmc"]["vocab"]), ("embed", 20, 24, 40))
        self.refused(self.client.get("/v1/models/no"), 404, "no", openai=True)
        info = self.client.get("/info").json
        self.assertEqual((info["model_id"], info["max_input_length"], info["auto_truncate"]), ("embed", 20, False))
        self.assertEqual(info["model_type"], {"embedding": {"pooling": "mean"}})
        self.assertEqual([model["name"] for model in info["models"]], ["embed", "rerank", "classify"])

    def test_health_ready_and_metrics(self):
        for path in ("/health", "/ready"):
            self.assertEqual(self.client.get(path).status, 200)
        before = self.metrics()
        self.ok("/embed", {"inputs": ["a b", "c"]})
        after = self.metrics()
        self.assertEqual(after['tfmc_tokens_total{kind="prompt"}'] - before['tfmc_tokens_total{kind="prompt"}'], 7)
        name = 'tfmc_requests_total{code="200",model="embed",route="/embed"}'
        self.assertEqual(after[name] - before.get(name, 0), 1)
        self.client.get("/" + "x" * 50)
        self.assertNotIn("xxx", self.client.get("/metrics").body.decode())

    def metrics(self):
        lines = self.client.get("/metrics").body.decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def test_openapi_has_all_routes_and_shapes(self):
        document = self.client.get("/openapi.json").json
        found = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
        endpoints = app.Routes(self.server.service).endpoints
        wanted = {(path, method) for path, methods in endpoints.items() for method in methods}
        self.assertEqual(found, wanted)
        for name, shape in SHAPES.items():
            self.assertEqual(list(document["components"]["schemas"][name]["properties"]), list(shape))

    def test_ids_of_requests(self):
        self.assertEqual(self.client.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"], "mine-1")
        for bad in ("", "a b", "x" * 129, "\xe9"):
            found = self.client.get("/health", headers={"x-request-id": bad}).headers["x-request-id"]
            self.assertRegex(found, "^[0-9a-f]{32}$")

    def test_the_page_takes_nothing_from_elsewhere(self):
        page = self.client.get("/")
        self.assertEqual(page.headers["content-security-policy"], "default-src 'self'")
        for part in ("page.js", "page.css", "icon.svg"):
            self.assertIn(f"/page/{part}", page.body.decode())
            self.assertEqual(self.client.get(f"/page/{part}").status, 200)
        for other in ("/page/index.html", "/page/..%2fapp.py", "/page/../app.py"):
            self.assertEqual(self.client.get(other).status, 404)
        self.assertNotRegex(page.body.decode() + self.client.get("/page/page.js").body.decode(), "https?://")

    # ---- under load ----

    def test_answers_under_load_are_those_alone(self):
        """Random requests of all kinds at once: each row has the bits that it has alone."""
        choose = random.Random(5)
        text = lambda: " ".join(choose.choice("abc") for _ in range(choose.randint(0, 14)))  # noqa: E731

        def request(number):
            if number % 3 == 0:
                texts = [text() for _ in range(choose.randint(1, 12))]
                return "/embed", {"inputs": texts}, library("embed").encode(texts)
            query, texts = "a b", [text()[:16] for _ in range(choose.randint(1, 6))]
            if number % 3 == 1:
                scores = np.atleast_1d(library("rerank").predict([(query, text) for text in texts]))
                return "/v1/rerank", {"query": query, "documents": texts}, scores
            return "/v1/embeddings", {"input": texts}, library("embed").encode(texts)
        asked = [[request(number) for number in range(choose.randint(3, 9))] for _ in range(12)]

        def client(requests):
            own = self.server.client()
            answers = [own.post(path, content) for path, content, _ in requests]
            own.close()
            return answers
        for requests, answers in zip(asked, self.threads([lambda r=r: client(r) for r in asked])):
            for (path, _, wanted), answer in zip(requests, answers):
                self.assertEqual(answer.status, 200, answer)
                if path == "/embed":
                    self.same(answer.json, wanted)
                elif path == "/v1/embeddings":
                    self.same([entry["embedding"] for entry in answer.json["data"]], wanted)
                else:
                    hits = sorted(answer.json["results"], key=lambda hit: hit["index"])
                    self.same([hit["relevance_score"] for hit in hits], wanted)


class Origins(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed", origin="https://example.org"))

    def test_pages_of_one_origin_may_ask(self):
        ask = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
        ours = self.client.request("OPTIONS", "/embed", headers={"origin": "https://example.org", **ask})
        self.assertEqual((ours.status, ours.headers["access-control-allow-origin"]), (200, "https://example.org"))
        others = self.client.request("OPTIONS", "/embed", headers={"origin": "https://example.com", **ask})
        self.assertIsNone(others.headers["access-control-allow-origin"])


if __name__ == "__main__":
    unittest.main()
