"""/translate: translations of the library alone, greedy and of beams, under load, with clients that go; refusals."""
import json
import os
import random
import socket
import unittest

from servers import WAIT, Case, Inside, head, library

LONG = "TFM_LONG" in os.environ


class Translations(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("translate", "embed", max_rows=4))
        cls.library = library("translate")

    def ask(self, **body):
        answer = self.client.post("/translate", body)
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def random(self, choose):
        texts = [" ".join(choose.choice("abc") for _ in range(choose.randint(0, 10))) for _ in range(choose.choice((1, 1, 2, 7)))]
        body = {"text": texts, "num_beams": choose.choice((1, 1, 1, 3)), "max_new_tokens": choose.randint(1, 12)}
        for name in ("target", "source"):
            if choose.random() < 0.4:
                body[name] = choose.choice(("fr", "eng_Latn"))
        return body

    def wanted(self, body):
        return self.library.translate(body["text"], **{name: value for name, value in body.items() if name != "text"})

    def test_translations_are_those_of_the_library(self):
        choose, ended = random.Random(3), 0
        for _ in range(60):
            body = self.random(choose)
            made = self.ask(**body)
            self.assertEqual(made["translations"], self.wanted(body), body)
            self.assertEqual(sorted(made["usage"]), ["completion_tokens", "prompt_tokens", "total_tokens"])
            ended += made["usage"]["completion_tokens"] < body["max_new_tokens"] * len(body["text"])
        self.assertGreater(ended, 0)

    def test_what_is_left_out_is_as_in_the_folder(self):
        self.assertEqual(self.ask(text="a b")["translations"], [self.library.translate("a b")])
        self.assertEqual(self.client.post("/", {"text": "a b"}).json["translations"], [self.library.translate("a b")])

    def test_long_texts(self):
        most = self.library.max_length
        self.refused(self.client.post("/translate", {"text": ["a", "a " * most]}), 422, "text[1]", str(most), "truncate")
        self.assertEqual(self.ask(text="a " * most, truncate=True, max_new_tokens=3)["translations"],
                         [self.library.translate("a " * most, truncate=True, max_new_tokens=3)])

    def test_refusals(self):
        def refuse(*words, status=422, **body):
            self.refused(self.client.post("/translate", {"text": "a", **body}), status, *words)
        refuse("language", "xx", target="xx")
        refuse("language", "xx", source="xx")
        refuse("max_new_tokens", max_new_tokens=10 ** 6)
        refuse("num_beams", num_beams=17)
        refuse("num_beams", num_beams=0)
        refuse("do_sample", do_sample=True)
        refuse("embed", status=424, model="embed")
        self.refused(self.client.post("/v1/completions", {"prompt": "a", "model": "translate"}), 400, "/translate", openai=True)
        self.refused(self.client.post("/tokenize", {"inputs": "a", "model": "translate"}), 424, "/translate")

    def test_the_other_routes_know_the_model(self):
        entry = self.client.get("/v1/models/translate").json["tfmc"]
        self.assertEqual((entry["kind"], entry["num_beams"]), ("translate", 1))
        self.assertEqual(self.client.get("/info").json["model_type"], {"translation": {}})

    def test_random_load(self):
        """Sources that come and go while others are decoded; clients that vanish."""
        choose = random.Random(8)
        bodies = [self.random(choose) for _ in range(60)]
        wanted = [self.wanted(body) for body in bodies]

        def one(client, choose):
            number = choose.randrange(len(bodies))
            if choose.random() < 0.2:
                content = json.dumps(bodies[number]).encode()
                with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
                    connection.sendall(head("/translate", len(content)) + content)
                return
            answer = client.post("/translate", bodies[number])
            self.assertEqual(answer.status, 200, answer)
            self.assertEqual(answer.json["translations"], wanted[number], bodies[number])
        own, self.ask = self.ask, one
        print(f"{self.ask_at_random(300 if LONG else 3)} requests")
        self.ask = own
        scheduler = self.server.service.schedulers["translate"]
        self.server.until(lambda service: not scheduler.rows_running and not scheduler.rows_waiting)
        for _ in range(2 * scheduler._most_rows):  # every source was forgotten
            self.ask(text=["a"] * 7, max_new_tokens=2)
        self.assertEqual(self.server.deaths, [])

    def test_a_source_that_fails_ends_its_own_request(self):
        scheduler = self.server.service.schedulers["translate"]
        decoder = scheduler.decoder

        class Broken:
            def add_source(self, *inputs):
                import tfmc
                raise tfmc.InputError("broken on purpose")

            def __getattr__(self, name):
                return getattr(decoder, name)
        scheduler.decoder = Broken()
        try:
            self.refused(self.client.post("/translate", {"text": ["a", "b"], "num_beams": 1}), 500)
        finally:
            scheduler.decoder = decoder
        self.assertEqual(self.ask(text="a b")["translations"], [self.library.translate("a b")])


if __name__ == "__main__":
    unittest.main()
