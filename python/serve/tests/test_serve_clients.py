"""Clients that others have written, unchanged; left out, with a word, where they are not installed."""
import importlib.util
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest
from typing import Literal

import numpy as np

from servers import Case, Inside, library

TEXTS = ["a b c", "c"]
PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "serving.md"


def missing(name):
    return importlib.util.find_spec(name) is None


class Clients(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed", "classify", "rerank"))
        cls.url = f"http://127.0.0.1:{cls.server.port}"

    @unittest.skipIf(missing("openai"), "not run: the package openai is missing")
    def test_openai(self):
        import openai
        with openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0) as client:
            for more in ({}, {"encoding_format": "float"}, {"dimensions": 7}):
                made = client.embeddings.create(model="embed", input=TEXTS, **more)
                wanted = library("embed").encode(TEXTS) if "dimensions" not in more else \
                    library("embed").encode(TEXTS, truncate_dim=7, normalize=True)
                for entry, vector in zip(made.data, wanted):
                    self.assertEqual(np.array(entry.embedding, np.float32).tobytes(), vector.tobytes())
            self.assertEqual(made.usage.total_tokens, 8)
            self.assertEqual([model.id for model in client.models.list()], ["embed", "classify", "rerank"])
            self.assertEqual(client.models.retrieve("rerank").owned_by, "tfmc")
            with self.assertRaises(openai.NotFoundError) as caught:
                client.embeddings.create(model="nothing", input="a")
            self.assertEqual(caught.exception.code, "model_not_found")
            with self.assertRaises(openai.BadRequestError) as caught:
                client.embeddings.create(model="embed", input="a " * 30)
            self.assertEqual(caught.exception.param, "input")

    @unittest.skipIf(missing("huggingface_hub"), "not run: the package huggingface_hub is missing")
    def test_huggingface_hub(self):
        os.environ.pop("HF_HUB_OFFLINE", None)  # it forbids requests to this machine too
        from huggingface_hub import InferenceClient
        client = InferenceClient(model=self.url)
        vector = client.feature_extraction("a b c")
        self.assertEqual(np.asarray(vector, np.float32).tobytes(), library("embed").encode(["a b c"]).tobytes())
        more = {"dimensions": 7} if "dimensions" in inspect.signature(client.feature_extraction).parameters else {}
        vector = client.feature_extraction("a b c " * 9, normalize=True, truncate=True, truncation_direction="Left", **more)
        self.assertEqual(vector.shape, (1, more.get("dimensions", 24)))
        scores = client.sentence_similarity("a b", other_sentences=TEXTS)
        self.assertEqual(len(scores), 2)
        labels = InferenceClient(model=self.url + "/predict").text_classification("a b")
        self.assertTrue(labels)

    @unittest.skipIf(not shutil.which("curl"), "not run: there is no curl")
    @unittest.skipIf(not PAGE.exists(), "not run: the page is not beside the wheel")
    def test_commands_of_the_page(self):
        commands = next(text for text in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S) if "curl" in text)
        commands = commands.replace("localhost:8080", f"127.0.0.1:{self.server.port}")
        done = subprocess.run(["bash", "-c", "set -e\n" + commands.replace("\ncurl", "\necho\ncurl")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        vectors, ranks = map(json.loads, done.stdout.splitlines())
        self.assertEqual([len(vector) for vector in vectors], [24, 24])
        self.assertEqual(sorted(rank["index"] for rank in ranks), [0, 1])


    @unittest.skipIf(missing("langchain_openai"), "not run: the package langchain-openai is missing")
    def test_langchain_openai(self):
        from langchain_openai import OpenAIEmbeddings
        made = OpenAIEmbeddings(base_url=self.url + "/v1", api_key="none", model="embed", check_embedding_ctx_length=False)
        for vector, wanted in zip(made.embed_documents(TEXTS), library("embed").encode(TEXTS)):
            self.assertEqual(np.array(vector, np.float32).tobytes(), wanted.tobytes())


MESSAGES = [{"role": "system", "content": "b"}, {"role": "user", "content": "a b"}]


class Writers(Case):
    """Texts and answers, whole and as streams."""

    @classmethod
    def setUpClass(cls):
        if missing("jinja2"):
            raise unittest.SkipTest("not run: the package jinja2 is missing")
        cls.server = cls.started(Inside("chat"))
        cls.url = f"http://127.0.0.1:{cls.server.port}"
        cls.answer = library("chat").chat(MESSAGES, max_new_tokens=8, do_sample=True, seed=3)

    @unittest.skipIf(missing("openai"), "not run: the package openai is missing")
    def test_openai(self):
        import openai
        with openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0) as client:
            text = {"model": "chat", "prompt": "a b c", "max_tokens": 8, "seed": 3, "temperature": 0.7}
            made = client.completions.create(**text, logprobs=2)
            self.assertEqual(len(made.choices[0].logprobs.tokens), made.usage.completion_tokens)
            self.assertEqual("".join(event.choices[0].text for event in client.completions.create(**text, stream=True)),
                             made.choices[0].text)
            chat = {"model": "chat", "messages": MESSAGES, "max_completion_tokens": 8, "seed": 3}
            made = client.chat.completions.create(**chat, logprobs=True, top_logprobs=2, n=2)
            self.assertEqual([choice.index for choice in made.choices], [0, 1])
            self.assertEqual(made.choices[0].message.content, self.answer)
            self.assertEqual(len(made.choices[0].logprobs.content[0].top_logprobs), 2)
            events = list(client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}))
            self.assertEqual("".join(e.choices[0].delta.content or "" for e in events if e.choices), self.answer)
            self.assertEqual(events[-1].usage.prompt_tokens, made.usage.prompt_tokens)
            with self.assertRaises(openai.BadRequestError) as caught:
                client.chat.completions.create(**chat, tools=[{"type": "function", "function": {"name": "f"}}])
            self.assertEqual(caught.exception.param, "tools")

    @unittest.skipIf(missing("huggingface_hub"), "not run: the package huggingface_hub is missing")
    def test_huggingface_hub(self):
        os.environ.pop("HF_HUB_OFFLINE", None)  # it forbids requests to this machine too
        from huggingface_hub import InferenceClient
        client = InferenceClient(base_url=self.url)
        given = {"model": "chat", "max_tokens": 8, "seed": 3}
        self.assertEqual(client.chat_completion(MESSAGES, **given).choices[0].message.content, self.answer)
        events = client.chat_completion(MESSAGES, stream=True, **given)
        self.assertEqual("".join(event.choices[0].delta.content or "" for event in events), self.answer)

    @unittest.skipIf(missing("langchain_openai"), "not run: the package langchain-openai is missing")
    def test_langchain_openai(self):
        from langchain_openai import ChatOpenAI
        made = ChatOpenAI(base_url=self.url + "/v1", api_key="none", model="chat", max_tokens=8, seed=3, temperature=1)
        given = [("system", "b"), ("user", "a b")]
        self.assertEqual(made.invoke(given).content, self.answer)
        self.assertEqual("".join(str(part.content) for part in made.stream(given)), self.answer)


@unittest.skipIf(missing("jinja2") or missing("llguidance"), "not run: the packages jinja2 and llguidance are missing")
class Forms(Case):
    """Answers that are objects of a class."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("bytes", "tools"))
        cls.url = f"http://127.0.0.1:{cls.server.port}"
        cls.tool = {"type": "function", "function": {"name": "pet", "description": "a pet", "parameters": {
            "type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"],
            "additionalProperties": False}}}

    @unittest.skipIf(missing("openai"), "not run: the package openai is missing")
    def test_openai(self):
        import openai
        import pydantic
        kind = pydantic.create_model("Pet", kind=(Literal["cat", "dog"], ...), is_old=(bool, ...))
        with openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0) as client:
            made = client.chat.completions.parse(model="bytes", messages=MESSAGES, response_format=kind, seed=1, max_tokens=99)
            self.assertIn(made.choices[0].message.parsed.kind, ("cat", "dog"))
            asked = {"model": "tools", "messages": MESSAGES, "tools": [openai.pydantic_function_tool(kind)], "max_tokens": 200,
                     "seed": 3, "tool_choice": "required", "parallel_tool_calls": False}
            choice = client.chat.completions.parse(**asked).choices[0]
            self.assertEqual(choice.finish_reason, "tool_calls")
            self.assertIn(choice.message.tool_calls[0].function.parsed_arguments.kind, ("cat", "dog"))
            with client.chat.completions.stream(**asked) as stream:
                found = stream.get_final_completion().choices[0].message
            self.assertEqual(found.tool_calls[0].function.arguments, choice.message.tool_calls[0].function.arguments)
            asked["messages"] = [*MESSAGES, found.model_dump(), {"role": "tool", "content": "c",
                                                                 "tool_call_id": found.tool_calls[0].id}]
            self.assertTrue(client.chat.completions.create(**{**asked, "tool_choice": "none"}).choices[0].message.content)

    @unittest.skipIf(missing("langchain_openai"), "not run: the package langchain-openai is missing")
    def test_langchain_openai(self):
        import pydantic
        from langchain_openai import ChatOpenAI
        kind = pydantic.create_model("Pet", kind=(Literal["cat", "dog"], ...), is_old=(bool, ...))
        made = ChatOpenAI(base_url=self.url + "/v1", api_key="none", model="bytes", max_tokens=99, seed=1)
        found = made.with_structured_output(kind, method="json_schema").invoke([("user", "a b")])
        self.assertIn(found.kind, ("cat", "dog"))
        made = ChatOpenAI(base_url=self.url + "/v1", api_key="none", model="tools", max_tokens=200, seed=1)
        calls = made.bind_tools([self.tool], tool_choice="pet").invoke([("user", "a b")]).tool_calls
        self.assertEqual([call["name"] for call in calls], ["pet"])
        self.assertIn(calls[0]["args"]["kind"], ("cat", "dog"))
        found = made.with_structured_output(kind, method="function_calling", strict=True).invoke([("user", "a b")])
        self.assertIn(found.kind, ("cat", "dog"))

    @unittest.skipIf(missing("huggingface_hub"), "not run: the package huggingface_hub is missing")
    def test_huggingface_hub(self):
        os.environ.pop("HF_HUB_OFFLINE", None)  # it forbids requests to this machine too
        from huggingface_hub import InferenceClient
        schema = {"type": "object", "properties": {"is_old": {"type": "boolean"}}, "required": ["is_old"],
                  "additionalProperties": False}
        for form in ({"type": "json_object", "value": schema},
                     {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema, "strict": True}}):
            made = InferenceClient(base_url=self.url).chat_completion(MESSAGES, model="bytes", max_tokens=60, seed=3,
                                                                      response_format=form)
            self.assertIsInstance(json.loads(made.choices[0].message.content)["is_old"], bool)
        client = InferenceClient(base_url=self.url)
        for choice in ("required", {"function": {"name": "pet"}}):
            made = client.chat_completion(MESSAGES, model="tools", max_tokens=200, seed=3, tools=[self.tool], tool_choice=choice)
            self.assertIn(json.loads(made.choices[0].message.tool_calls[0].function.arguments)["kind"], ("cat", "dog"))


if __name__ == "__main__":
    unittest.main()
