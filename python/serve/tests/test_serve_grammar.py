"""Answers that follow a grammar: every one satisfies it, is the same with and without guesses and whatever company it
has, and what cannot be followed is refused in words."""
import importlib.util
import json
import os
import pathlib
import random
import re
import socket
import unittest

from servers import WAIT, Case, Inside, head, library
from test_serve_completions import LONG, events

SERVED = importlib.util.find_spec("jinja2") is not None and importlib.util.find_spec("llguidance") is not None
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 4}, "age": {"type": "integer", "maximum": 99,
          "minimum": 0}, "kind": {"enum": ["cat", "dog"]}}, "required": ["name", "age", "kind"], "additionalProperties": False}
LIST = {"type": "array", "items": {"type": "object", "properties": {"is": {"type": "boolean"}}, "required": ["is"],
                                   "additionalProperties": False}, "minItems": 2, "maxItems": 3}
REGEX = r"(ab|cd){3} [0-9]{2,5}"
LARK = 'start: "x" item+ "."\nitem: "one " | "two "'


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def named(schema, **more):
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, **more}}


def is_record(text):
    found = json.loads(text)
    return (list(found) == ["name", "age", "kind"] and len(found["name"]) <= 4 and 0 <= found["age"] <= 99
            and found["kind"] in ("cat", "dog") and text == json.dumps(found, ensure_ascii=False))


def is_list(text):
    found = json.loads(text)
    return 2 <= len(found) <= 3 and all(list(entry) == ["is"] and isinstance(entry["is"], bool) for entry in found)


ASKED = [({"response_format": named(SCHEMA)}, is_record), ({"response_format": named(LIST, strict=True)}, is_list),
         ({"response_format": {"type": "json_object", "value": LIST}}, is_list),
         ({"grammar": {"regex": REGEX}}, lambda text: re.fullmatch(REGEX, text)),
         ({"grammar": {"lark": LARK}}, lambda text: re.fullmatch(r"x((one|two) )+\.", text)),
         ({"grammar": {"json_schema": LIST}}, is_list)]


def user(text):
    return {"role": "user", "content": text}


@unittest.skipUnless(SERVED, "not run: the packages jinja2 and llguidance are missing")
class Structured(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("bytes", "chat", max_rows=6, speculate=8))
        cls.plain = cls.started(Inside("bytes", speculate=0, prefixes="off"))
        cls.alone = cls.plain.client()

    def post(self, client=None, **body):
        return (client or self.client).post("/v1/chat/completions", {
            "model": "bytes", "messages": [user("a b")], "max_tokens": 120, **body})

    def ask(self, client=None, **body):
        answer = self.post(client, **body)
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def check(self, made, fits):
        for choice in made["choices"]:
            text = choice["message"]["content"]
            if choice["finish_reason"] == "stop":
                self.assertTrue(fits(text), text)
            else:
                self.assertEqual(len(choice["token_ids"]), 120)

    def random(self, choose):
        more, fits = choose.choice(ASKED)
        messages = [user("".join(choose.choice('ab {"name": 1') for _ in range(choose.randint(1, 40))))
                    for _ in range(choose.randint(1, 2))]
        return {**more, "messages": messages, "seed": choose.randrange(999), "return_token_ids": True,
                "temperature": choose.choice((0, 0.7, 1.5)), "n": choose.choice((1, 1, 3))}, fits

    def test_answers_satisfy_their_grammars_with_and_without_guesses(self):
        choose, before = random.Random(4), self.guessed()
        ended = 0
        for _ in range(60):
            body, fits = self.random(choose)
            made, plain = self.ask(**body), self.ask(self.alone, **body)
            self.assertEqual(made["choices"], plain["choices"], body)
            self.check(made, fits)
            ended += sum(choice["finish_reason"] == "stop" for choice in made["choices"])
        self.assertGreater(ended, 60)
        guessed, right = (now - then for now, then in zip(self.guessed(), before))
        self.assertGreater(right, 100)
        self.assertGreater(right, guessed / 2)

    def guessed(self):
        text = self.client.get("/metrics").body.decode()
        return [float(re.search(rf'tfmc_tokens_total{{kind="{kind}"}} (\S+)', text)[1]) for kind in ("guessed", "right")]

    def test_what_a_grammar_forces_is_written_in_few_steps(self):
        text = '{"name": "bob", "kind": "cat", "age": 12}'
        body = {"grammar": {"json_schema": {"const": json.loads(text)}}, "temperature": 0}
        before = self.guessed()[1]
        made = self.ask(**body)
        self.assertEqual(made["choices"][0]["message"]["content"], text)
        self.assertEqual(made["choices"][0]["finish_reason"], "stop")
        self.assertGreater(self.guessed()[1] - before, 0.7 * made["usage"]["completion_tokens"])

    def test_streams_and_probabilities(self):
        body = {"response_format": named(SCHEMA), "seed": 3, "logprobs": True, "top_logprobs": 1}
        whole = self.ask(**body)["choices"][0]
        made, done = events(self.post(stream=True, **body))
        self.assertTrue(done)
        self.assertEqual("".join(event["choices"][0]["delta"].get("content", "") for event in made), whole["message"]["content"])
        self.assertTrue(is_record(whole["message"]["content"]))
        for token in whole["logprobs"]["content"]:  # of the model's own numbers: what is forced may be unlikely
            self.assertLessEqual(token["logprob"], token["top_logprobs"][0]["logprob"])

    def test_texts_are_continued_by_a_grammar(self):
        answer = self.client.post("/v1/completions", {"model": "bytes", "prompt": "ab", "max_tokens": 60, "grammar": {
            "regex": REGEX}, "echo": True})
        self.assertRegex(answer.json["choices"][0]["text"], "^ab" + REGEX + "$")
        self.refused(self.client.post("/v1/completions", {"prompt": "a", "response_format": {"type": "json_object"}}), 400,
                     "is not known here", openai=True)

    def test_any_object(self):
        for seed in range(4):
            made = self.ask(response_format={"type": "json_object"}, seed=seed, max_tokens=200)["choices"][0]
            self.assertTrue(made["message"]["content"].startswith("{"))
            if made["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(made["message"]["content"]), dict)

    def test_text_is_what_it_was(self):
        for more in ({}, {"response_format": {"type": "text"}}, {"grammar": None}):
            text = self.ask(temperature=0, **more)["choices"][0]["message"]["content"]
            self.assertEqual(text, library("bytes").chat([user("a b")], max_new_tokens=120))

    def vanish(self, body, choose):
        """A client that goes when it has read some bytes of a stream, or none."""
        content = json.dumps({"model": "bytes", "max_tokens": 120, "stream": True, **body}).encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
            connection.sendall(head("/v1/chat/completions", len(content)) + content)
            if choose.random() < 0.6:
                connection.recv(choose.randint(1, 900))

    def test_random_load(self):
        """Grammars, beginnings, guesses and clients that go, at the same time, against a server without any of it."""
        choose = random.Random(6)
        bodies = [self.random(choose) for _ in range(200 if LONG else 40)]
        wanted = [self.ask(self.alone, **body)["choices"] for body, _ in bodies]
        ask = self.ask

        def one(client, choose):
            number = choose.randrange(len(bodies))
            if choose.random() < 0.2:
                self.vanish(bodies[number][0], choose)
            else:
                self.assertEqual(ask(client, **bodies[number][0])["choices"], wanted[number])
        self.ask = one
        asked = self.ask_at_random(600 if LONG else 4)
        print(f"{asked} requests, guessed and right: {self.guessed()}")
        self.assertEqual(self.server.deaths, [])

    def test_refusals(self):
        def refuse(*words, **body):
            return self.refused(self.post(**body), 400, *words, openai=True)
        refuse("response_format.type", "json_schema", response_format={"type": "xml"})
        refuse("response_format.type", response_format={"type": 1})
        refuse("response_format.extra", "not known", response_format={"type": "json_object", "extra": 1})
        refuse("json_schema.other", "not known", response_format=named({}, other=1))
        refuse("schema is missing", response_format={"type": "json_schema", "json_schema": {"name": "a"}})
        refuse("an object is expected", response_format={"type": "json_schema"})
        refuse("a JSON schema is an object", response_format=named([1]))
        for value in [], 0, False, "":
            refuse("response_format.value: a JSON schema is an object", response_format={"type": "json_object", "value": value})
        refuse("uniqueItems", response_format=named({"type": "array", "uniqueItems": True}))
        refuse("minLength", response_format=named({"type": "string", "minLength": 5, "maxLength": 2}))
        refuse("nothing", response_format=named({"$ref": "#/nothing"}))
        refuse("no text satisfies it", response_format=named({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}))
        refuse("fetch", response_format=named({"$ref": "http://localhost/x"}))
        refuse("grammar.regex", "unclosed", grammar={"regex": "["})
        refuse("look-ahead", grammar={"regex": "(?=a)b"})
        refuse("unknown name", grammar={"lark": "start: a"})
        refuse("one of the members", grammar={"lark": "start: /a/", "regex": "a"})
        refuse("one of the members", grammar={"gbnf": "root ::= a"})
        refuse("a text is expected", grammar={"regex": 1})
        refuse("one of them", grammar={"regex": "a"}, response_format={"type": "json_object"})
        refuse("ignore_eos", grammar={"regex": "a"}, ignore_eos=True)
        refuse("65536", grammar={"regex": "a" * 70000})
        refuse("bytes of the model's tokens", model="chat", grammar={"regex": "a"}, max_tokens=4)

    def test_what_is_nested_too_deep_is_refused(self):
        deep = {}
        for _ in range(300):
            deep = {"items": deep}
        tool = {"type": "function", "function": {"name": "f", "parameters": deep}}
        for member in ({"response_format": named(deep)}, {"chat_template_kwargs": {"a": deep}}, {"tools": [tool]}):
            self.refused(self.post(**member), 400, "128 objects and lists inside one another", openai=True)

    def test_grammars_that_are_kept_are_small(self):
        self.ask(grammar={"regex": "[ab]"}, max_tokens=4)
        before = resident()
        for more in range(6):
            answer = self.post(max_tokens=4, grammar={"regex": "x{%d}" % (10 ** 9 - more)})
            self.refused(answer, 400, "too much work", openai=True)
        self.assertLess(resident() - before, 150e6)

    def test_absurd_grammars_end_their_own_request_alone(self):
        deep = {"type": "string"}
        for _ in range(12):
            deep = {"anyOf": [deep, {"type": "array", "items": deep}]}
        absurd = [{"grammar": {"regex": "(a{1000}){1000}"}}, {"grammar": {"regex": "(a|b)*a(a|b){200}"}},
                  {"response_format": named(deep)}, {"response_format": named({"$defs": {"a": {"$ref": "#/$defs/a"}},
                                                                              "$ref": "#/$defs/a"})},
                  {"response_format": named({"type": "object", "properties": {
                      f"p{i}": {"type": "string", "pattern": "^(x+x+)+y$"} for i in range(60)}})},
                  {"grammar": {"lark": "start: a\na: b a | b\nb: a a a | \"x\""}}]
        for body in absurd:
            answer = self.post(max_tokens=30, **body)
            self.assertIn(answer.status, (200, 400), answer)
            self.assertNotIn(b"<state>", answer.body)
            self.assertEqual(self.ask(max_tokens=4, temperature=0)["usage"]["completion_tokens"], 4)
        self.assertEqual(self.server.deaths, [])


class Absent(Case):
    def test_without_the_package_it_is_said(self):
        if not SERVED:
            server = self.started(Inside("write"))
            self.refused(server.client().post("/v1/completions", {"prompt": "a", "grammar": {"regex": "a"}}), 400,
                         "llguidance", openai=True)
            return
        from tfmc_serve import errors, grammar
        find = grammar.missing
        grammar.missing = lambda: True
        try:
            with self.assertRaisesRegex(errors.Fault, "grammar.regex: .* pip install llguidance"):
                grammar.read({"grammar": {"regex": "a"}, "ignore_eos": False})
        finally:
            grammar.missing = find


if __name__ == "__main__":
    unittest.main()
