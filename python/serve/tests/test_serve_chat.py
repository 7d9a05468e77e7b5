"""/v1/chat/completions: the answers of `Writer.chat`, streams, probabilities, templates that refuse, loop or are missing,
control tokens in what a user writes."""
import importlib.util
import random
import unittest

from servers import Case, Inside, library
from test_serve_completions import events

KINDS = ("system", "user", "assistant")
SERVED = importlib.util.find_spec("jinja2") is not None


def user(text, role="user"):
    return {"role": role, "content": text}


@unittest.skipUnless(SERVED, "not run: the package jinja2 is missing")
class Chat(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("chat", "write", max_rows=4))

    def post(self, **body):
        return self.client.post("/v1/chat/completions", {"model": "chat", "messages": [user("a b")], **body})

    def ask(self, **body):
        answer = self.post(**body)
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def test_the_form_of_an_answer(self):
        made = self.ask(max_tokens=4, temperature=0, ignore_eos=True)
        self.assertEqual(sorted(made), ["choices", "created", "id", "model", "object", "seed", "system_fingerprint", "usage"])
        self.assertEqual(made["object"], "chat.completion")
        self.assertRegex(made["id"], "^chatcmpl-")
        text = library("chat").chat([user("a b")], max_new_tokens=4, eos_token_id=[])
        self.assertEqual(made["choices"], [{
            "index": 0, "message": {"role": "assistant", "content": text, "refusal": None}, "finish_reason": "length",
            "stop_reason": None, "logprobs": None}])
        self.assertEqual(made["usage"]["prompt_tokens"], len(library("chat").tokens_of([user("a b")])))

    def test_answers_are_those_of_the_library(self):
        choose = random.Random(8)
        for case in range(40):
            messages = [user(" ".join(choose.choice("abc") for _ in range(choose.randint(1, 5))), choose.choice(KINDS))
                        for _ in range(choose.randint(1, 3))]
            options = {"temperature": choose.choice((0.0, 1.0, 2.0)), "seed": case}
            given = dict(options, do_sample=options["temperature"] > 0)
            variables = {"brief": True} if choose.random() < 0.3 else {}
            wanted = library("chat").chat(messages, max_new_tokens=12, chat_template_kwargs=variables, **given)
            body = {"messages": messages, "max_completion_tokens": 12, "chat_template_kwargs": variables, **options}
            self.assertEqual(self.ask(**body)["choices"][0]["message"]["content"], wanted, body)
            made, done = events(self.post(stream=True, stream_options={"include_usage": True}, **body))
            self.assertTrue(done)
            deltas = [event["choices"][0] for event in made[:-1]]
            self.assertEqual(deltas[0]["delta"], {"role": "assistant", "content": ""})
            self.assertEqual("".join(d["delta"].get("content", "") for d in deltas), wanted)
            self.assertEqual([d["finish_reason"] is None for d in deltas], [True] * (len(deltas) - 1) + [False])
            self.assertEqual({event["object"] for event in made}, {"chat.completion.chunk"})
            self.assertEqual(made[-1]["usage"]["total_tokens"],
                             made[-1]["usage"]["prompt_tokens"] + made[-1]["usage"]["completion_tokens"])

    def test_contents_of_parts(self):
        parts = [{"role": "user", "content": [{"type": "text", "text": "a b"}]}]
        self.assertEqual(self.ask(messages=parts, seed=1)["choices"], self.ask(seed=1)["choices"])

    def test_without_a_number_of_tokens_an_answer_may_take_what_is_left(self):
        made = self.ask(ignore_eos=True, seed=1)
        self.assertEqual(made["usage"]["total_tokens"], 64)

    def test_stops_and_several_answers(self):
        made = self.ask(n=3, seed=5, stop=["w9", "w27 "], max_tokens=20)
        for number, choice in enumerate(made["choices"]):
            self.assertEqual(choice["index"], number)
            self.assertNotIn("w9", choice["message"]["content"])
        self.assertEqual(made["choices"][0], self.ask(seed=5, stop=["w9", "w27 "], max_tokens=20)["choices"][0])

    def test_probabilities(self):
        made = self.ask(logprobs=True, top_logprobs=2, max_tokens=5, temperature=0, ignore_eos=True, return_token_ids=True)
        tokens = made["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(tokens), 5)
        for token in tokens:
            self.assertEqual(bytes(token["bytes"]).decode(), token["token"])
            self.assertEqual(len(token["top_logprobs"]), 2)
            self.assertEqual(token["top_logprobs"][0]["token"], token["token"])
            self.assertEqual(token["top_logprobs"][0]["logprob"], token["logprob"])
        plain = self.ask(logprobs=True, max_tokens=2, seed=1)["choices"][0]["logprobs"]["content"]
        self.assertEqual(plain[0]["top_logprobs"], [])

    def test_control_tokens_in_a_content_are_text(self):
        """What the template writes ends a turn, and what a user writes does not."""
        seen, chooser = [], self.server.service.schedulers["chat"].chooser

        def sees(prompt, *args):
            seen.append(prompt)
            return chooser(prompt, *args)
        self.server.service.schedulers["chat"].chooser = sees
        try:
            for content in ("a b", "a w11 w10 c a w11 w12", "w12"):
                self.ask(messages=[user(content)], max_tokens=1)
        finally:
            self.server.service.schedulers["chat"].chooser = chooser
        for prompt in seen:
            self.assertEqual([token for token in prompt if token in (10, 11, 12)], [10, 11, 12], prompt)

    def test_refusals(self):
        def refuse(*words, status=400, **body):
            return self.refused(self.post(**body), status, *words, openai=True)
        refuse("not this", messages=[user("raise")])
        refuse("messages[1]['images'] is not known here", messages=[user("a"), {**user("b"), "images": ["a"]}])
        refuse("messages[0]['content'][0]['detail']", messages=[user([{"type": "text", "text": "b", "detail": "low"}])])
        refuse("did not end", messages=[user("loop")])
        refuse("role", messages=[user("a", "nobody")])
        refuse("content", messages=[{"role": "user", "content": 1}])
        refuse("messages[0]", "image_url", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])
        for message in ({"role": "user"}, {"role": "system", "content": None}, {"role": "assistant", "tool_calls": []}):
            refuse("messages[1] has no content", messages=[user("a"), message])
        refuse("without parts", messages=[{"role": "user", "content": []}])
        refuse("chat_template_kwargs: the chat template has no variable", chat_template_kwargs={"enable_thinking": False})
        refuse("messages is no variable", chat_template_kwargs={"messages": [user("b")]})
        refuse("tools is no variable", chat_template_kwargs={"tools": []})
        refuse("has 74 tokens", "64", messages=[user("a " * 70)], max_tokens=3)
        refuse("max_completion_tokens", "64", max_completion_tokens=64)
        refuse("mean the same", max_completion_tokens=4, max_tokens=5)
        refuse("top_logprobs", top_logprobs=2)
        refuse("response_format", response_format={"type": "xml"})
        refuse("stream_options", stream_options={"include_usage": True})
        for name, value in (("functions", [1]), ("audio", {"a": 1}),
                            ("modalities", ["text"])):
            refuse(name, "is not known here", **{name: value})
        refuse("no chat template", "/v1/completions", model="write")
        message = {**user("b"), "name": "bob", "images": [], "audio": None}
        self.assertEqual(self.post(messages=[message], max_tokens=1).status, 200)
        self.assertEqual(self.post(max_tokens=1).status, 200)


if __name__ == "__main__":
    unittest.main()
