"""/v1/completions: answers, streams, stops, probabilities, refusals, clients that go, and the rows of `generate` alone
under random load. With TFM_LONG the load takes ten minutes."""
import http.client
import json
import os
import random
import socket
import threading
import unittest

import numpy as np
import tfmc

from servers import WAIT, Case, Client, Inside, Process, head, library, place

from tfmc_serve import limits, scheduler as scheduling

LONG = "TFM_LONG" in os.environ
VOCAB = 40


def alone(prompt, n=1, end=True, **options):
    """Rows of generate, without their prompts."""
    if not end:
        options["eos_token_id"] = []
    made = library("write").model.generate([prompt] * n, **options)
    return [row[len(prompt):].tolist() for row in made]


def words(ids, end=2):
    """The text that these ids add to a prompt; the token that ends a row has none."""
    texts = {5: "a", 6: "b", 7: "c"}
    return "".join(f" {texts.get(token, f'w{token}')}" for token in ids if token != end)


def events(answer):
    """The objects of a stream, and whether it ended as it should."""
    lines = [line for line in answer.body.decode().split("\n\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines), lines
    done = lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1] if done] if done else [json.loads(line[6:]) for line in lines], done


def options_of(body):
    """What generate gets for a request."""
    options = {"do_sample": body.get("temperature", 1) > 0, "temperature": body.get("temperature", 1.0),
               "top_p": body.get("top_p", 1.0), "seed": body["seed"], "max_new_tokens": body.get("max_tokens", 16)}
    for name, own in (("top_k", "top_k"), ("repetition_penalty", "repetition_penalty"),
                      ("no_repeat_ngram_size", "no_repeat_ngram_size"), ("min_tokens", "min_new_tokens"),
                      ("presence_penalty", "presence_penalty"), ("frequency_penalty", "frequency_penalty"), ("min_p", "min_p")):
        if name in body:
            options[own] = body[name]
    if "logit_bias" in body:
        options["logit_bias"] = {int(token): bias for token, bias in body["logit_bias"].items()}
    if body.get("ignore_eos"):
        options["eos_token_id"] = []
    return options


def random_request(choose, most=62):
    prompt = [choose.randrange(3, VOCAB) for _ in range(choose.choice((1, 3, 8, 20, 40)))]
    body = {"prompt": prompt, "max_tokens": choose.randint(1, min(most, 63 - len(prompt))), "seed": choose.randrange(1000),
            "temperature": choose.choice((0, 0.5, 1, 3)), "return_token_ids": True}
    if choose.random() < 0.4:
        body["top_p"] = choose.choice((0.5, 0.9))
    if choose.random() < 0.3:
        body["top_k"] = choose.choice((0, 1, 5))
    if choose.random() < 0.3:
        body["repetition_penalty"] = choose.choice((0.5, 1.5))
    if choose.random() < 0.2:
        body["no_repeat_ngram_size"] = choose.randint(1, 3)
    if choose.random() < 0.3:
        body["min_tokens"] = choose.randint(0, body["max_tokens"])
    for name, values in (("presence_penalty", (-1, 0, 1.5)), ("frequency_penalty", (-0.5, 0, 0.7)), ("min_p", (0, 0.1, 0.6))):
        if choose.random() < 0.2:
            body[name] = choose.choice(values)
    if choose.random() < 0.2:
        body["logit_bias"] = {str(choose.randrange(VOCAB)): choose.choice((-100, -1.5, 2, 100)) for _ in range(choose.randint(1, 6))}
    if choose.random() < 0.3:
        body["ignore_eos"] = True
    if choose.random() < 0.3:
        body["n"] = choose.randint(2, 4)
    return body


class Answers(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("write", "embed", max_rows=4))

    def ask(self, **body):
        answer = self.client.post("/v1/completions", body)
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def test_the_form_of_an_answer(self):
        made = self.ask(prompt="a b c", model="write", max_tokens=3, temperature=0, ignore_eos=True)
        self.assertEqual(sorted(made), ["choices", "created", "id", "model", "object", "seed", "system_fingerprint", "usage"])
        self.assertEqual((made["object"], made["model"]), ("text_completion", "write"))
        self.assertRegex(made["id"], "^cmpl-")
        row = alone([5, 6, 7], max_new_tokens=3, end=False)[0]
        self.assertEqual(made["choices"], [{"index": 0, "text": words(row, None), "finish_reason": "length", "stop_reason": None,
                                            "logprobs": None}])
        self.assertEqual(made["usage"], {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6,
                                         "prompt_tokens_details": {"cached_tokens": 0}})

    def test_biases_change_what_is_written_and_not_its_probabilities(self):
        plain = self.ask(prompt="a b c", max_tokens=6, temperature=0, ignore_eos=True, return_token_ids=True, logprobs=20)
        ids = plain["choices"][0]["token_ids"]
        forced = self.ask(prompt="a b c", max_tokens=6, temperature=0, ignore_eos=True, return_token_ids=True,
                          logit_bias={"9": 100}, logprobs=20)["choices"][0]
        self.assertEqual(forced["token_ids"], [9] * 6)
        self.assertEqual(forced["logprobs"]["top_logprobs"][0], plain["choices"][0]["logprobs"]["top_logprobs"][0])
        banned = self.ask(prompt="a b c", max_tokens=6, temperature=0, ignore_eos=True, return_token_ids=True,
                          logit_bias={str(ids[0]): -100})["choices"][0]
        self.assertNotIn(ids[0], banned["token_ids"])
        for biases, word in (({"40": 1}, "token 40"), ({"a": 1}, "no token's id"), ({"1": "2"}, "logit_bias.1"),
                             ({"1": 101}, "100"), ({"-1": 1}, "no token's id"), ({"3": 1, "03": 2}, "no token's id")):
            self.refused(self.client.post("/v1/completions", {"prompt": "a", "logit_bias": biases}), 400, "logit_bias", word,
                         openai=True)
        many = {str(i): 1 for i in range(1025)}
        self.refused(self.client.post("/v1/completions", {"prompt": "a", "logit_bias": many}), 413, "1025", openai=True)

    def test_rows_are_those_of_generate(self):
        choose = random.Random(5)
        for _ in range(60):
            body = random_request(choose)
            made = self.ask(**body)
            wanted = alone(body["prompt"], body.get("n", 1), **options_of(body))
            self.assertEqual([choice["token_ids"] for choice in made["choices"]], wanted, body)
            for choice, row in zip(made["choices"], wanted):
                ends = row[-1] == 2 and not body.get("ignore_eos")
                self.assertEqual(choice["finish_reason"], "stop" if ends else "length", body)
            self.assertEqual(made["usage"]["completion_tokens"], sum(map(len, wanted)))

    def test_several_prompts_and_answers(self):
        made = self.ask(prompt=["a b", [5, 6, 7, 8], "c"], n=2, seed=4, max_tokens=5, return_token_ids=True)
        self.assertEqual([choice["index"] for choice in made["choices"]], list(range(6)))
        wanted = [row for prompt in ([5, 6], [5, 6, 7, 8], [7])
                  for row in alone(prompt, 2, do_sample=True, seed=4, max_new_tokens=5)]
        self.assertEqual([choice["token_ids"] for choice in made["choices"]], wanted)
        self.assertEqual(made["usage"]["prompt_tokens"], 7)

    def test_a_seed_that_was_drawn_is_told(self):
        first = self.ask(prompt="a", max_tokens=20)
        again = self.ask(prompt="a", max_tokens=20, seed=first["seed"])
        self.assertEqual(first["choices"], again["choices"])
        self.assertNotEqual(self.ask(prompt="a", max_tokens=20)["seed"], first["seed"])
        self.assertEqual(self.ask(prompt="a", max_tokens=9, seed=-1, return_token_ids=True)["choices"][0]["token_ids"],
                         alone([5], do_sample=True, seed=2 ** 64 - 1, max_new_tokens=9)[0])

    def test_streams_are_the_same_answers(self):
        choose = random.Random(6)
        for _ in range(30):
            body = {**random_request(choose), "stop": choose.choice(["w9", " w27 w", ["b", "w1"]])}
            whole = self.ask(**body)
            made, done = events(self.client.post("/v1/completions", {**body, "stream": True,
                                                                     "stream_options": {"include_usage": True}}))
            self.assertTrue(done)
            self.assertEqual(made[-1]["choices"], [])
            self.assertEqual(made[-1]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
            for choice in whole["choices"]:
                own = [e["choices"][0] for e in made[:-1] if e["choices"][0]["index"] == choice["index"]]
                self.assertEqual("".join(e["text"] for e in own), choice["text"])
                self.assertEqual([t for e in own for t in e["token_ids"]], choice["token_ids"])
                self.assertEqual([e["finish_reason"] for e in own[:-1]], [None] * (len(own) - 1))
                self.assertEqual((own[-1]["finish_reason"], own[-1]["stop_reason"]),
                                 (choice["finish_reason"], choice["stop_reason"]))
            self.assertEqual({e["id"] for e in made}, {made[0]["id"]})
            self.assertEqual({e["seed"] for e in made}, {body["seed"]})

    def test_stops_end_the_text_before_them(self):
        row = alone([5, 6, 7], max_new_tokens=12, end=False)[0]
        text = words(row, None)
        for first in range(0, len(text), 3):
            for size in (1, 2, 5, 9):
                stop = text[first:first + size]
                made = self.ask(prompt="a b c", max_tokens=12, temperature=0, ignore_eos=True, stop=["never", stop],
                                return_token_ids=True)["choices"][0]
                self.assertEqual((made["text"], made["finish_reason"], made["stop_reason"]),
                                 (text[:text.find(stop)], "stop", stop))
                self.assertEqual(made["token_ids"], row[:len(made["token_ids"])])
                self.assertIn(stop, words(made["token_ids"], None))
                self.assertNotIn(stop, words(made["token_ids"][:-1], None))

    def test_probabilities_of_a_prompt(self):
        """Those of the model's logits; and what a model has written has the same ones, to the bit, when it is a prompt."""
        choose, model = random.Random(3), library("write").model
        for case in range(25):
            prompt = [choose.randrange(3, VOCAB) for _ in range(choose.choice((1, 2, 15, 16, 17, 18, 33, 40)))]
            wrote = self.ask(prompt=prompt, max_tokens=12, seed=case, ignore_eos=True, return_token_ids=True, logprobs=3)
            answer = wrote["choices"][0]
            row = prompt + answer["token_ids"]
            body = {"prompt": row, "echo": True, "logprobs": 3, "max_tokens": 4, "n": 2, "seed": 9, "return_token_ids": True}
            works = [lambda: self.server.client().post("/v1/completions", body).json["choices"] for _ in range(3)]
            alike = self.threads(works)
            self.assertEqual(alike[0], alike[1])
            self.assertEqual(alike[0], alike[2])
            for choice, rest in zip(alike[0], alone(row, 2, do_sample=True, seed=9, max_new_tokens=4)):
                found = choice["logprobs"]
                self.assertEqual(choice["token_ids"], rest)
                self.assertEqual(len(found["tokens"]), len(row) + len(rest))
                self.assertIsNone(found["token_logprobs"][0])
                self.assertIsNone(found["top_logprobs"][0])
                for name in ("tokens", "token_logprobs", "top_logprobs"):
                    self.assertEqual(found[name][len(prompt):len(row)], answer["logprobs"][name])
                logits = model([row])[0]
                for token, after, logprob in zip(row[1:], logits, found["token_logprobs"][1:]):
                    after = after.astype(np.float64)
                    self.assertAlmostEqual(logprob, after[token] - after.max() - np.log(np.exp(after - after.max()).sum()), 5)
            if len(row) > 1:
                only = self.ask(prompt=row, echo=True, logprobs=3, max_tokens=0)
                self.assertEqual(only["choices"][0]["logprobs"]["token_logprobs"], found["token_logprobs"][:len(row)])
                self.assertEqual((only["choices"][0]["finish_reason"], only["usage"]["completion_tokens"]), ("length", 0))
            made, done = events(self.client.post("/v1/completions", {**body, "stream": True}))
            self.assertTrue(done)
            for choice in alike[0]:
                own = [e["choices"][0]["logprobs"] for e in made if e["choices"][0]["index"] == choice["index"]]
                for name in ("tokens", "token_logprobs", "text_offset"):
                    self.assertEqual([entry for part in own for entry in part[name]], choice["logprobs"][name])

    def test_echo(self):
        made = self.ask(prompt=["a b", [8, 5]], echo=True, max_tokens=2, temperature=0, n=2)
        for i, (prompt, ids) in enumerate((("a b", [5, 6]), ("w8 a", [8, 5]))):
            for choice in made["choices"][2 * i:2 * i + 2]:
                self.assertEqual(choice["text"], prompt + words(alone(ids, max_new_tokens=2)[0]))
        made, _ = events(self.client.post("/v1/completions", {"prompt": "a b", "echo": True, "max_tokens": 3,
                                                              "temperature": 0, "stream": True}))
        self.assertEqual("".join(e["choices"][0]["text"] for e in made), "a b" + words(alone([5, 6], max_new_tokens=3)[0]))

    def test_probabilities_are_of_the_models_own_numbers(self):
        model = library("write").model
        for options in ({"temperature": 0}, {"temperature": 2, "seed": 3, "top_k": 4, "repetition_penalty": 2}):
            body = {"prompt": [5, 6, 7], "max_tokens": 8, "ignore_eos": True, "logprobs": 3, "return_token_ids": True, **options}
            made = self.ask(**body)["choices"][0]
            found, ids = made["logprobs"], made["token_ids"]
            self.assertEqual(found["tokens"], [words([t], None)[1:] for t in ids])
            logits = model([[5, 6, 7, *ids[:-1]]])[0, 2:]
            for place_, token, logprob, top in zip(logits, ids, found["token_logprobs"], found["top_logprobs"]):
                wide = place_.astype(float) - float(place_.max())
                wanted = wide - np.log(np.exp(wide).sum())
                self.assertAlmostEqual(logprob, wanted[token], places=4)
                self.assertEqual(len(top), 3)
                self.assertAlmostEqual(max(top.values()), wanted.max(), places=4)
                self.assertEqual(list(top.values()), sorted(top.values(), reverse=True))
            self.assertEqual(found["text_offset"], [sum(map(len, found["tokens"][:i])) for i in range(len(ids))])

    def test_refusals(self):
        def refuse(status, *said, **body):
            return self.refused(self.client.post("/v1/completions", {"prompt": "a", **body}), status, *said, openai=True)
        refuse(400, "max_tokens", "65", "64", "63 are left", max_tokens=65)
        refuse(400, "prompt has 64 tokens", "64", prompt=[5] * 64)
        refuse(400, "nothing to continue", prompt="")
        refuse(400, "no token's id", prompt=[VOCAB])
        refuse(400, "prompt[1]", prompt=["a", [VOCAB]])
        refuse(413, "65 answers", n=5, prompt=["a"] * 13)
        refuse(400, "best_of", best_of=3, n=2)
        refuse(400, "max_tokens", "echo", max_tokens=0)
        refuse(400, "max_tokens", "echo", max_tokens=0, echo=True)
        refuse(400, "max_tokens", "echo", max_tokens=0, echo=True, logprobs=1, n=2)
        refuse(400, "max_tokens", "one token", max_tokens=0, echo=True, logprobs=1, prompt="a")
        refuse(400, "stream_options", stream_options={"include_usage": True})
        refuse(400, "min_new_tokens", min_tokens=9, max_tokens=8)
        refuse(413, "17 stops; there may be 16", stop=["a"] * 17)
        found = self.client.post("/v1/completions", {"prompt": "a", "logit_bias": {str(VOCAB): 1}})
        self.assertEqual((found.status, found.json["error"]["param"]), (400, "logit_bias"))
        for name, value in (("suffix", "x"), ("num_beams", 2), ("tools", [1])):
            refuse(400, name, "is not known here", **{name: value})
        refuse(400, "/embed", model="embed")
        refuse(404, "no model", model="other")
        self.refused(self.client.post("/embed", {"inputs": "a", "model": "write"}), 424, "/v1/completions")
        for path, word in (("/v1/responses", "/v1/chat/completions"), ("/generate", "/v1/completions")):
            self.refused(self.client.post(path, {}), 404, word, openai=path.startswith("/v1"))

    def test_every_token_that_is_forbidden_is_the_requests_own_fault(self):
        scheduler = self.server.service.schedulers["write"]
        before = scheduler.served.settings_of_folder
        try:
            scheduler.served.settings_of_folder = {**before, "suppress_tokens": list(range(VOCAB))}
            self.refused(self.client.post("/v1/completions", {"prompt": "a"}), 400, "every token is forbidden", openai=True)
            made, done = events(self.client.post("/v1/completions", {"prompt": "a", "stream": True}))
            self.assertFalse(done)
            self.assertIn("forbidden", made[-1]["error"]["message"])
        finally:
            scheduler.served.settings_of_folder = before
        self.ask(prompt="a")

    def test_the_other_routes_know_the_model(self):
        self.assertEqual(self.client.get("/v1/models/write").json["tfmc"]["kind"], "write")
        self.assertEqual(self.client.post("/tokenize", {"inputs": "a b", "model": "write"}).json[0][1]["id"], 6)
        self.assertEqual(self.client.post("/decode", {"ids": [5, 6], "model": "write"}).json, ["a b"])
        self.assertEqual(self.client.post("/", {"prompt": "a", "model": "write"}).json["object"], "text_completion")
        text = self.client.get("/metrics").body.decode()
        for name in ("tfmc_first_token_seconds_count", "tfmc_token_seconds_count", "tfmc_cache_bytes", "tfmc_rows_kept",
                     'tfmc_tokens_total{kind="written"}', 'tfmc_phase_seconds_count{phase="write"}'):
            self.assertIn(name, text)


class Slow:
    """In place of a decoder: steps wait until they are let go. `steps`: rows of each."""

    def __init__(self, decoder):
        self.decoder, self.go, self.entered, self.steps = decoder, threading.Event(), threading.Semaphore(0), []
        self.broken = 0  # calls that fail as a whole

    def __getattr__(self, name):
        return getattr(self.decoder, name)

    def write(self, rows):
        self.steps.append([(row, chooser.length, n) for row, chooser, n, *_ in rows])
        self.entered.release()
        if not self.go.wait(WAIT):
            raise TimeoutError("nobody let it go")
        if self.broken and len(rows) >= self.broken:
            raise tfmc.InternalError("broken on purpose")
        return self.decoder.write(rows)


class Steps(Case):
    """What the scheduler does, seen from its decoder."""

    def setUp(self):
        self.server = Inside("write", max_rows=2, cache_bytes=10 ** 6)
        self.addCleanup(self.server.close)
        self.scheduler = self.server.service.schedulers["write"]
        self.slow = self.scheduler.decoder = Slow(self.scheduler.decoder)
        self.addCleanup(self.slow.go.set)
        super().setUp()

    def send(self, key="", **body):
        """A connection that has sent a request."""
        data = json.dumps({"prompt": "a", "ignore_eos": True, **body}).encode()
        connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT)
        self.addCleanup(connection.close)
        more = f"authorization: Bearer {key}\r\n".encode() if key else b""
        connection.sendall(head("/v1/completions", len(data), more) + data)
        return connection

    def read_until(self, connection, word):
        found = b""
        while word not in found:
            part = connection.recv(65536)
            self.assertTrue(part, found[-300:])
            found += part

    def idle(self):
        self.server.until(lambda service: not self.scheduler.rows_running and not self.scheduler.rows_waiting
                          and not service.inside)

    def test_clients_that_go_take_their_rows_with_them(self):
        writing = self.send(max_tokens=60, stream=True)
        self.slow.entered.acquire(timeout=WAIT)
        reading = self.send(prompt=[5] * 60, max_tokens=3, n=2)
        waiting = [self.send(max_tokens=60) for _ in range(3)]
        self.server.until(lambda service: self.scheduler.rows_waiting == 5)
        for connection in (writing, reading, *waiting):
            connection.close()
        self.server.until(lambda service: not service.inside)
        self.slow.go.set()
        self.idle()
        self.assertLess(len(self.slow.steps), 4)
        self.assertEqual(self.client.post("/v1/completions", {"prompt": "a"}).status, 200)

    def test_a_client_that_reads_nothing_ends(self):
        before, scheduling.MOST_PIECES = scheduling.MOST_PIECES, 5
        self.addCleanup(setattr, scheduling, "MOST_PIECES", before)
        job = scheduling.Job("")
        job.deliver([scheduling.Piece(0, "a", [1], None, None)] * 6, None)
        self.assertTrue(job.cancelled)
        self.assertIn("does not read", job.fault.message)

    def test_prompts_are_read_in_pieces_beside_rows_that_write(self):
        self.scheduler._token_seconds, self.scheduler._step_seconds = 1.0, 20.0
        self.scheduler._measure = lambda *args: None
        first = self.send(max_tokens=40, stream=True)
        self.slow.entered.acquire(timeout=WAIT)
        second = self.send(prompt=[5] * 50, max_tokens=5)
        self.server.until(lambda service: self.scheduler.rows_waiting == 1)
        self.slow.go.set()
        self.idle()
        self.read_until(first, b"[DONE]")
        self.read_until(second, b'"length"')
        pieces = [n for step in self.slow.steps for _, length, n in step if n > 1 and length == 50]
        self.assertGreater(len(pieces), 1)
        self.assertLessEqual(max(pieces), 20)
        self.assertTrue(all(len(step) == 2 for step in self.slow.steps if any(n > 1 for _, _, n in step)))

    def test_answers_to_one_prompt_read_it_once(self):
        self.slow.go.set()
        made = self.client.post("/v1/completions", {"prompt": [9] * 40, "n": 2, "max_tokens": 3, "seed": 1,
                                                    "return_token_ids": True, "ignore_eos": True}).json
        self.assertEqual(sum(n for step in self.slow.steps for _, _, n in step if n > 1), 40)
        self.assertEqual([choice["token_ids"] for choice in made["choices"]],
                         alone([9] * 40, 2, do_sample=True, seed=1, max_new_tokens=3, end=False))

    def test_a_step_that_fails_is_repeated_row_by_row(self):
        self.slow.go.set()
        self.slow.broken = 2
        self.server.until(lambda service: True)
        rows = self.threads([lambda i=i: self.client_of(i) for i in range(4)])
        self.assertEqual([row.status for row in rows], [200] * 4)
        self.slow.broken = 1
        answer = self.client.post("/v1/completions", {"prompt": "a"})
        self.refused(answer, 500, openai=True)
        made, done = events(self.client.post("/v1/completions", {"prompt": "a", "stream": True}))
        self.assertEqual((made[-1]["error"]["type"], done), ("server_error", False))
        self.slow.broken = 0
        self.assertEqual(self.client.post("/v1/completions", {"prompt": "a"}).status, 200)

    def client_of(self, seed):
        client = self.server.client()
        try:
            return client.post("/v1/completions", {"prompt": "a", "max_tokens": 10, "seed": seed})
        finally:
            client.close()

    def test_a_key_has_half_of_the_rows_while_others_wait(self):
        class Keys:
            def name_of(self, key):
                return key
        self.server.service.keys = Keys()
        many = [self.send(max_tokens=30, key="many")]
        self.slow.entered.acquire(timeout=WAIT)  # its first step is held
        many += [self.send(max_tokens=30, key="many") for _ in range(3)]
        self.server.until(lambda service: self.scheduler.rows_waiting == 3)
        other = self.send(prompt=[5] * 9, max_tokens=3, key="other")
        self.server.until(lambda service: self.scheduler.rows_waiting + self.scheduler.rows_running == 5)
        self.slow.go.set()
        for connection in (other, *many):
            self.read_until(connection, b"200 OK")
        self.idle()
        self.assertEqual(sorted(length for _, length, _ in self.slow.steps[1]), [2, 9], "the other came last, and passed")

    def test_no_more_rows_than_there_may_be(self):
        held = [self.send(max_tokens=20) for _ in range(6)]
        self.server.until(lambda service: self.scheduler.rows_waiting + self.scheduler.rows_running >= 6)
        self.slow.go.set()
        self.idle()
        self.assertLessEqual(max(map(len, self.slow.steps)), 2)
        for connection in held:
            self.read_until(connection, b"200 OK")


class Reading(Case):
    def test_a_client_that_reads_nothing_of_a_stream_is_cut_off(self):
        class Impatient(limits.LimitedProtocol):
            unread_seconds = 0.2
        server = Inside("write", protocol=Impatient)
        self.addCleanup(server.close)
        server.until(lambda service: server.server.servers)
        for listening in server.server.servers[0].sockets:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        data = json.dumps({"prompt": "a", "n": 64, "max_tokens": 62, "ignore_eos": True, "stream": True, "logprobs": 20}).encode()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(head("/v1/completions", len(data)) + data)
            scheduler = server.service.schedulers["write"]
            server.until(lambda service: scheduler.rows_running)
            server.until(lambda service: not scheduler.rows_running and not scheduler.rows_waiting and not service.inside)
        client = server.client()
        self.assertEqual(client.post("/v1/completions", {"prompt": "a"}).status, 200)
        client.close()


class Beginnings(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("write", max_rows=4))

    def cached(self, prompt, **more):
        made = self.client.post("/v1/completions", {"prompt": prompt, "max_tokens": 2, "seed": 1, "return_token_ids": True,
                                                    "ignore_eos": True, **more}).json
        self.assertEqual(made["choices"][0]["token_ids"],
                         alone(prompt, do_sample=True, seed=1, max_new_tokens=2, end=False)[0])
        return made["usage"]["prompt_tokens_details"]["cached_tokens"]

    def test_what_was_read_before_is_not_read_again(self):
        prompt = [8 + i % 30 for i in range(50)]
        self.assertEqual(self.cached(prompt), 0)
        self.assertEqual(self.cached(prompt), 48)
        self.assertEqual(self.cached(prompt[:48]), 47)
        self.assertEqual(self.cached(prompt[:20] + [7] * 20), 16)
        self.assertEqual(self.cached([7] + prompt), 0)
        for i in range(20):  # the oldest make room
            self.cached([3 + i] * 40)
        self.assertEqual(self.cached(prompt), 0)
        self.assertLessEqual(self.server.service.schedulers["write"].rows_kept, 4)

    def test_beginnings_are_one_keys_own(self):
        scheduler, prompt = self.server.service.schedulers["write"], [9 + i % 20 for i in range(40)]
        keys = ["one", "two"]

        class Keys:
            def name_of(self, key):
                return key if key in keys else None
        self.server.service.keys = Keys()
        try:
            found = []
            for key in ("one", "two", "one", "two"):
                client = Client(self.server.port, key)
                made = client.post("/v1/completions", {"prompt": prompt, "max_tokens": 1}).json
                found.append(made["usage"]["prompt_tokens_details"]["cached_tokens"])
                client.close()
        finally:
            self.server.service.keys = None
        self.assertEqual(found, [0, 0, 32, 32])
        self.assertGreater(scheduler.rows_kept, 0)


class Guesses(Case):
    def test_repetitions_are_guessed_and_change_nothing(self):
        """Greedy rows of a small model repeat themselves."""
        answers, counts = [], []
        for guesses in (0, 15):
            server = Inside("write", speculate=guesses)
            try:
                client = server.client()
                answers.append([client.post("/v1/completions", {
                    "prompt": [5, 6, 7 + i], "max_tokens": 50, "temperature": temperature, "seed": i, "ignore_eos": True,
                    "return_token_ids": True}).json["choices"] for i in range(4) for temperature in (0, 0.2)])
                text = client.get("/metrics").body.decode()
                counts.append([float(line.split()[-1]) for line in text.splitlines()
                               if line.startswith(('tfmc_tokens_total{kind="guessed"', 'tfmc_tokens_total{kind="right"'))])
                client.close()
            finally:
                server.close()
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(counts[0], [0, 0])
        self.assertGreater(counts[1][1], 20, counts)
        self.assertGreater(counts[1][0], counts[1][1])


class Ending(Case):
    def test_a_stream_ends_with_an_error_when_the_server_does(self):
        server = Process(place("write"), "--grace=0", "--max-rows=1")
        self.addCleanup(server.close)
        started = threading.Event()

        def ask():
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
            connection.request("POST", "/v1/completions", json.dumps({
                "prompt": "a", "n": 60, "max_tokens": 62, "ignore_eos": True, "stream": True}),
                {"content-type": "application/json"})
            response = connection.getresponse()
            data = response.read(10)
            started.set()
            data += response.read()
            connection.close()
            return data
        answers = self.threads([ask, lambda: (started.wait(WAIT), server.signal())])
        self.assertEqual(server.ended(), 0)
        self.assertTrue(b"[DONE]" in answers[0] or b"the server is ending" in answers[0], answers[0][-300:])


class Bits(Case):
    """Random requests of clients that come, go and vanish: every answer is that of its row alone."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Process(place("write"), "--max-rows=6", "--cache-bytes=300000", "--step-ms=1", "--speculate=4"))
        choose = random.Random(31)
        cls.requests = [random_request(choose, 30) for _ in range(60)]
        begin = [choose.randrange(3, VOCAB) for _ in range(30)]
        for body in cls.requests[::3]:  # with a common beginning
            body["prompt"] = begin[:choose.randint(1, 30)] + body["prompt"][:3]
        for body in cls.requests:
            body["max_tokens"] = min(body["max_tokens"], 63 - len(body["prompt"]))
            body["min_tokens"] = min(body.get("min_tokens", 0), body["max_tokens"])
        cls.rows = [alone(body["prompt"], body.get("n", 1), **options_of(body)) for body in cls.requests]

    def ask(self, client, choose):
        number = choose.randrange(len(self.requests))
        body, kind = self.requests[number], choose.randrange(5)
        if kind == 0:  # goes after a part of the answer
            data = json.dumps({**body, "stream": choose.random() < 0.5}).encode()
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
                connection.sendall(head("/v1/completions", len(data)) + data)
                connection.settimeout(choose.choice((0.001, 0.02, 0.1)))
                try:
                    connection.recv(choose.choice((1, 300)))
                except TimeoutError:
                    pass
            return
        answer = client.post("/v1/completions", {**body, "stream": kind == 1})
        self.assertEqual(answer.status, 200, answer)
        if kind == 1:
            made, done = events(answer)
            self.assertTrue(done, answer)
            found = [[] for _ in self.rows[number]]
            for event in made:
                for choice in event["choices"]:
                    found[choice["index"]] += choice["token_ids"]
        else:
            found = [choice["token_ids"] for choice in answer.json["choices"]]
        self.assertEqual(found, self.rows[number], body)

    def test_every_answer_is_that_of_its_row_alone(self):
        asked = self.ask_at_random(600 if LONG else 5)
        own = self.server.client()
        text = own.get("/metrics").body.decode()
        own.close()
        counts = {line.split('"')[1]: float(line.split()[-1]) for line in text.splitlines()
                  if line.startswith("tfmc_tokens_total")}
        print(f"{asked} requests, {counts}")
        self.assertGreater(counts["cached"], 0)
        self.assertGreater(counts["guessed"], counts["right"])
        self.assertGreater(counts["right"], 0)


if __name__ == "__main__":
    unittest.main()
