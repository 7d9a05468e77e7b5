"""Every member of every route with every wrong type and beyond its ranges, from the table that requests are read by."""
import unittest

from servers import Case, Inside

from tfmc_serve import grammar
from tfmc_serve.app import POSTS
from tfmc_serve.errors import is_openai
from tfmc_serve.shapes import REQUIRED, SHAPES, Record

TYPES = {"boolean": True, "integer": 1, "number": 1.5, "string": "a", "array": [], "object": {"a": 1}}
GOOD = {
    "embed": {"inputs": ["a b", "c"]},
    "similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
    "rerank": {"query": "a", "texts": ["b", "c"]},
    "predict": {"inputs": "a"},
    "tokenize": {"inputs": "a"},
    "decode": {"ids": [5]},
    "translate": {"text": ["a b", "c"]},
    "embeddings": {"input": "a"},
    "v_rerank": {"query": "a", "documents": ["b", "c"]},
    "completions": {"prompt": "a b"},
    "chat": {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 4},
}
VALUES = {"prompt_name": "query", "dimensions": 3, "user": "me", "top_n": 1, "truncation_direction": "Left",
          "encoding_format": "base64", "max_tokens": 3, "n": 1, "best_of": 1, "temperature": 0.5, "top_p": 0.5, "top_k": 3,
          "seed": 1, "stop": ["a", "w9 w"], "repetition_penalty": 2, "no_repeat_ngram_size": 2, "min_tokens": 1,
          "logprobs": 2, "top_logprobs": 3, "response_format": {"type": "text"}, "chat_template_kwargs": {"brief": True},
          "max_completion_tokens": 4, "grammar": {"regex": "a+"},
          "target": "fr", "source": "fr", "num_beams": 2, "max_new_tokens": 4,
          "logit_bias": {"5": 1.5}, "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none",
          "presence_penalty": -1, "frequency_penalty": 0.5, "min_p": 0.2}
TOGETHER = {"top_logprobs": {"logprobs": True},  # members that mean nothing alone
            "tools": {"tool_choice": "none"}, "parallel_tool_calls": {"tool_choice": "none", "tools": [
                {"type": "function", "function": {"name": "f"}}]}}


def schemas(schema):
    return schema.get("oneOf", [schema])


def wrong_values(schema):
    """(value, a word of the message) that a member with this schema must refuse."""
    allowed = {part["type"] for part in schemas(schema)}
    for name, value in TYPES.items():
        if name not in allowed and not (name == "integer" and "number" in allowed):
            yield value, ""
    for part in schemas(schema):
        if "minimum" in part:
            yield part["minimum"] - 1, ""
        if "exclusiveMinimum" in part:
            yield part["exclusiveMinimum"], ""
        if "maxLength" in part:
            yield "", ""
            yield "a" * (part["maxLength"] + 1), ""
        if "maximum" in part:
            yield part["maximum"] + 1, ""
            yield 2 ** 70, ""
            yield -2 ** 70, ""
        if "enum" in part:
            yield "none of these", ""
        if part["type"] == "array":
            yield [], ""
            yield [None], ""
            yield [True], ""
            yield [1.5], ""
            yield [[[1]]], ""
            yield [{}], ""
            yield ["a", None], ""
            yield [-1], ""
            yield [2 ** 31], ""
            yield [1, "a"], ""
            yield [[1, None]], ""
            yield [[]], ""


class Shapes(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed", "rerank", "classify", "bytes", "translate"))

    def refused_member(self, post, body, name, value):
        answer = self.client.post(post.path, body)
        self.assertEqual(answer.status, 400 if is_openai(post.path) else 422, (post.path, name, value, answer))
        openai = is_openai(post.path)
        message = self.refused(answer, answer.status, openai=openai)
        self.assertIn(name, message, (post.path, value))
        if openai:
            self.assertTrue(answer.json["error"]["param"].startswith(name), answer)

    def test_what_is_right_is_answered(self):
        for post in POSTS:
            for model in ({}, {"model": None}):
                answer = self.client.post(post.path, {**GOOD[post.shape], **model})
                self.assertEqual(answer.status, 200, (post.path, answer))

    def test_every_member_alone_is_answered(self):
        for post in POSTS:
            for name, member in SHAPES[post.shape].items():
                if name in GOOD[post.shape] or name == "model" or (name == "grammar" and grammar.missing()):
                    continue
                value = VALUES.get(name, {} if isinstance(member.kind, Record) else not member.default)
                if post.shape == "chat" and name == "logprobs":
                    value = True
                for value in (value, None):
                    answer = self.client.post(post.path, {**GOOD[post.shape], **TOGETHER.get(name, {}), name: value})
                    self.assertEqual(answer.status, 200, (post.path, name, value, answer))

    def test_wrong_types_and_ranges(self):
        tried = 0
        for post in POSTS:
            for name, member in SHAPES[post.shape].items():
                for value, _ in wrong_values(member.kind.schema()):
                    self.refused_member(post, {**GOOD[post.shape], name: value}, name, value)
                    tried += 1
        self.assertGreater(tried, 300)

    def test_wrong_members_of_members(self):
        good = GOOD["similarity"]
        for place in ("inputs", "parameters"):
            for name, member in SHAPES["similarity"][place].kind.members.items():
                for value, _ in wrong_values(member.kind.schema()):
                    body = {**good, place: {**good.get(place, {}), name: value}}
                    self.refused_member(POSTS[1], body, f"{place}.{name}", value)
            self.refused_member(POSTS[1], {**good, place: {**good.get(place, {}), "other": 1}}, f"{place}.other", 1)
        self.refused_member(POSTS[1], {"inputs": {"sentences": ["a"]}}, "inputs.source_sentence", None)
        self.refused_member(POSTS[7], {"query": "a", "documents": [{"text": 1}]}, "documents[0].text", 1)
        self.refused_member(POSTS[7], {"query": "a", "documents": [{"text": "a", "id": 1}]}, "documents[0].id", 1)

    def test_what_is_missing(self):
        for post in POSTS:
            for name, member in SHAPES[post.shape].items():
                if member.default is REQUIRED:
                    for rest in ({}, {name: None}):
                        body = {**{k: v for k, v in GOOD[post.shape].items() if k != name}, **rest}
                        self.refused_member(post, body, name, None)

    def test_unknown_members_are_refused_by_name_unless_they_are_empty(self):
        for post in POSTS:
            for value in (True, 1, 0.5, "x", [0], {"a": 0}):
                self.refused_member(post, {**GOOD[post.shape], "nothing": value}, "nothing", value)
            for value in (None, False, 0, 0.0, "", [], {}):
                answer = self.client.post(post.path, {**GOOD[post.shape], "nothing": value})
                self.assertEqual(answer.status, 200, (post.path, value, answer))

    def test_bodies_that_are_no_objects(self):
        for post in POSTS:
            for body in ([], "a", 1, None, True):
                self.refused(self.client.post(post.path, body), 400 if is_openai(post.path) else 422, "an object",
                             openai=is_openai(post.path))


if __name__ == "__main__":
    unittest.main()
