"""Tools in chat: the form of calls from templates, answers that must call, calls in texts, streams, refusals."""
import importlib.util
import json
import random
import socket
import unittest
from unittest import mock

from servers import WAIT, Case, Inside, head, library
from test_serve_completions import LONG, events
from test_serve_grammar import ASKED

SERVED = importlib.util.find_spec("jinja2") is not None and importlib.util.find_spec("llguidance") is not None
TURN = "{% for m in messages %}<s>{{ m.role }}: {{ m.content or '' }}{% if m.tool_calls %}CALLS{% endif %}</s>{% endfor %}" \
    "{% if tools %}{% endif %}{% if add_generation_prompt %}<s>assistant: {% endif %}"
EACH = "{% for c in m.tool_calls %}CALL{% endfor %}"
JSON = '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
FORMS = {  # what stands for CALLS, and the form that it has
    "marked": (EACH.replace("CALL", "{{ '\\n' }}<tool_call>\n" + JSON + "\n</tool_call>"),
               ("\n<tool_call>\n", '{"name": "', '", "arguments": ', "}", "\n</tool_call>\n<tool_call>\n",
                "\n</tool_call>")),
    "bare": ("{% if m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}" + EACH.replace(
        "CALL", JSON.replace("arguments\"", "parameters\"")), ("", '{"name": "', '", "parameters": ', "}", None, "")),
    "list": ("<|call|>[" + EACH.replace("CALL", "{% if not loop.first %}, {% endif %}" + JSON) + "]",
             ("<|call|>[", '{"name": "', '", "arguments": ', "}", ", ", "]")),
}
NO_FORMS = [EACH.replace("CALL", "<function={{ c.function.name }}>{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}"
                         "{% endfor %}</function>"), "",
            EACH.replace("CALL", "{{ c.function.name }}\n{{ c.function.arguments | tojson }}"),
            EACH.replace("CALL", JSON.replace("{{ c.function.arguments | tojson }}", "{{ c.function.arguments | string | tojson }}"))]
WEATHER = {"type": "function", "function": {"name": "weather", "description": "of a place", "parameters": {
    "type": "object", "properties": {"place": {"$ref": "#/$defs/place"}, "days": {"type": "integer", "maximum": 9, "minimum": 1}},
    "required": ["place", "days"], "additionalProperties": False, "$defs": {"place": {"enum": ["here", "th\"}{ere"]}}}}}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {
    "type": "object", "properties": {}, "additionalProperties": False}}}


def named(name):
    return {"type": "function", "function": {"name": name}}


def user(text):
    return {"role": "user", "content": text}


def fits(call):
    found = json.loads(call["function"]["arguments"])
    return found == {} if call["function"]["name"] == "clock" else (
        list(found) == ["place", "days"] and found["place"] in ("here", 'th"}{ere') and 1 <= found["days"] <= 9)


class Template:
    """A chat template without a folder."""

    def __init__(self, text):
        self.source = text

    def takes(self, name):
        return name in self.source

    def text(self, messages, given, variables=None, add_generation_prompt=True):
        import tfmc
        from tfmc.text import _template
        made = _template.answer({"template": self.source, "marks": "", "bytes": 10 ** 6, "variables": {
            "messages": messages, "tools": given, "add_generation_prompt": add_generation_prompt}}) \
            if "raise" not in self.source or len(messages) < 4 else {"error": "one"}
        if "error" in made:
            raise tfmc.UsageError(made["error"])
        return made["text"]


@unittest.skipUnless(SERVED, "not run: the packages jinja2 and llguidance are missing")
class Forms(Case):
    def test_a_form_is_what_the_template_writes(self):
        from tfmc_serve import tools
        for name, (calls, form) in FORMS.items():
            found = tools.find_form(Template(TURN.replace("CALLS", calls)), ["</s>"])
            self.assertEqual(tuple(found), form, name)
            self.assertEqual(found.keys, ("name", "parameters" if name == "bare" else "arguments"))

    def test_forms_that_are_not_read(self):
        from tfmc_serve import tools
        for calls in NO_FORMS:
            with self.assertRaisesRegex(ValueError, "a JSON object of a name and arguments"):
                tools.find_form(Template(TURN.replace("CALLS", calls)), ["</s>"])
        with self.assertRaisesRegex(ValueError, "knows no tools"):
            tools.find_form(Template("a"), ["</s>"])


def read_functions(*functions, choice="auto", parallel=True):
    from tfmc_serve import tools
    return tools.read({"tools": list(functions), "tool_choice": choice, "parallel_tool_calls": parallel})


def fold(parts):
    """(text, [(name, arguments)])"""
    text, calls = "", []
    for kind, part in parts:
        if kind == "text":
            text += part
        elif kind == "name":
            calls.append((part, ""))
        else:
            calls[-1] = calls[-1][0], calls[-1][1] + part
    return text, calls


ONE, TWO = ("weather", '{"place": "here", "days": 2}'), ("weather", '{"place": "th\\"}{ere", "days": 1}')


@unittest.skipUnless(SERVED, "not run: the packages jinja2 and llguidance are missing")
class Read(Case):
    def written(self, form, *calls):
        from tfmc_serve.tools import Form
        form = Form(*form)
        return form.begin + (form.separator or "").join(
            form.open + name + form.middle + arguments + form.close for name, arguments in calls) + form.end

    def check(self, reader, form, tools, text, wanted):
        """However it is cut: whole, letter by letter, at every place, and at random."""
        from tfmc_serve.tools import Form
        choose = random.Random(len(text))
        cuts = [[], list(range(1, len(text)))] + [[i] for i in range(1, len(text))] + [
            sorted(choose.sample(range(1, len(text)), min(5, len(text) - 1))) for _ in range(20)]
        for places in cuts:
            own, parts = reader(Form(*form), tools), []
            for first, last in zip([0, *places], [*places, len(text)]):
                parts += own.add(text[first:last], last == len(text))
            self.assertEqual(fold(parts), wanted, (text, places))

    def test_calls_of_a_grammar(self):
        from tfmc_serve.calls import Reader
        from tfmc_serve.tools import Form
        tools = read_functions(WEATHER, CLOCK, choice="required")
        for name, (_, form) in FORMS.items():
            self.check(Reader, form, tools, self.written(form, ONE), ("", [ONE]))
            own = Reader(Form(*form), tools)
            parts = [part for letter in self.written(form, ONE) for part in own.add(letter, False)]
            self.assertEqual(parts, [("name", "weather"), *(("arguments", letter) for letter in ONE[1])])
            if name != "bare":
                self.check(Reader, form, tools, self.written(form, ONE, TWO, ("clock", "{}")), ("", [ONE, TWO, ("clock", "{}")]))
            whole = self.written(form, TWO)
            cut = whole.index(', "days"')  # by the greatest length
            self.check(Reader, form, tools, whole[:cut], ("", [("weather", whole[whole.index('{"place'):cut])]))

    def test_calls_in_a_text(self):
        from tfmc_serve.calls import FreeReader
        tools = read_functions(WEATHER, CLOCK)
        for name, (_, form) in FORMS.items():
            one, both = self.written(form, ONE), self.written(form, ONE, TWO)
            texts = [(one, ("", [ONE])), ("nothing\n is { called", ("nothing\n is { called", [])), (" ", (" ", [])),
                     (one.replace("weather", "unknown"), (one.replace("weather", "unknown"), [])),
                     (one.replace('"days": 2', '"days": '), (one.replace('"days": 2', '"days": '), []))]
            if name == "bare":
                texts += [(one + " and", (one + " and", [])), ("so " + one, ("so " + one, [])), (both, (both, []))]
            else:
                first = form[0].split()[0]
                texts += [(both, ("", [ONE, TWO])), ("Let me see." + one, ("Let me see.", [ONE])),
                          ("a <tool <|ca" + one, ("a <tool <|ca", [ONE])), (one + one, ("", [ONE, ONE])),
                          (first + " is no call", (first + " is no call", [])), (f" {first} no " + one, (f" {first} no ", [ONE])),
                          (one + "\nDone.", ("\nDone.", [ONE])), (first, (first, []))]
            for text, wanted in texts:
                if name != "bare" and form[0].startswith("\n"):  # space before a call is no text
                    self.check(FreeReader, form, tools, text.lstrip("\n"), (wanted[0].lstrip("\n") if not wanted[1] else wanted[0],
                                                                            wanted[1]) if wanted[1] == [] else (
                        wanted[0] + ("\n" if wanted[0] and text.startswith(wanted[0]) else ""), wanted[1]))
                else:
                    self.check(FreeReader, form, tools, text, wanted)

    def test_without_parallel_calls_the_first_is_the_answers(self):
        from tfmc_serve.calls import FreeReader
        tools = read_functions(WEATHER, parallel=False)
        form = FORMS["marked"][1]
        self.check(FreeReader, form, tools, ("a" + self.written(form, ONE, TWO) + "b"), ("a\n", [ONE]))


@unittest.skipUnless(SERVED, "not run: the packages jinja2 and llguidance are missing")
class Served(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("tools", "bytes", "chat", max_rows=6, speculate=8))
        cls.plain = cls.started(Inside("tools", speculate=0, prefixes="off"))

    def post(self, client=None, **body):
        return (client or self.client).post("/v1/chat/completions", {
            "model": "tools", "messages": [user("a b")], "max_tokens": 300, **body})

    def ask(self, client=None, **body):
        answer = self.post(client, **body)
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def without_ids(self, made):
        for choice in made["choices"]:
            for call in choice["message"].get("tool_calls", []):
                self.assertRegex(call.pop("id"), "^[A-Za-z0-9]{9}$")
        return made["choices"]

    def streamed(self, **body):
        made, done = events(self.post(stream=True, **body))
        self.assertTrue(done)
        calls, text = [], ""
        for event in made:
            delta = event["choices"][0]["delta"]
            text += delta.get("content") or ""
            for part in delta.get("tool_calls", []):
                if "id" in part:
                    self.assertEqual(part["index"], len(calls))
                    calls.append({"type": part["type"], "function": dict(part["function"])})
                else:
                    self.assertEqual(part["index"], len(calls) - 1)
                    calls[-1]["function"]["arguments"] += part["function"]["arguments"]
        return text, calls, made[-1]["choices"][0]["finish_reason"], len(made)

    def test_an_answer_that_must_call_does_and_its_arguments_fit(self):
        several = 0
        for seed in range(12):
            for choice, names in (("required", ("weather", "clock")), (named("weather"), ("weather",))):
                body = {"tools": [WEATHER, CLOCK], "tool_choice": choice, "seed": seed, "temperature": 1.5}
                made, plain = self.ask(**body), self.ask(self.plain.client(), **body)
                (answer,), same = self.without_ids(made), self.without_ids(plain)
                self.assertEqual([answer], same)
                text, calls, finish, _ = self.streamed(**body)
                self.assertEqual((text, calls), ("", answer["message"]["tool_calls"]))
                self.assertEqual(finish, answer["finish_reason"])
                several += len(calls) > 1
                self.assertIsNone(answer["message"]["content"])
                for call in calls if finish == "tool_calls" else calls[:-1]:
                    self.assertIn(call["function"]["name"], names)
                    self.assertTrue(fits(call), call)
                self.assertIn(finish, ("tool_calls", "length"))
                if choice != "required":
                    self.assertEqual((len(calls), finish), (1, "tool_calls"))
        self.assertGreater(several, 0)
        made = self.ask(tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, temperature=2, n=9)
        self.assertEqual({len(choice["message"]["tool_calls"]) for choice in made["choices"]}, {1})

    def test_calls_that_a_model_writes_by_itself_are_read(self):
        """The grammar of an answer that must call, in an answer that may."""
        from tfmc_serve import tools
        make = tools.grammar_of
        with mock.patch.object(tools, "grammar_of", lambda given, *more: make(given._replace(choice="required"), *more)):
            for seed in range(6):
                body = {"tools": [WEATHER, CLOCK], "seed": seed}
                (answer,) = self.without_ids(self.ask(**body))
                text, calls, finish, _ = self.streamed(**body)
                self.assertEqual(calls, answer["message"].get("tool_calls", []))
                self.assertEqual((text or None) if calls else text, answer["message"]["content"])
                self.assertEqual(finish, answer["finish_reason"])
                if finish == "tool_calls":
                    self.assertTrue(all(map(fits, calls)))

    def test_calls_of_strict_tools_fit_and_texts_are_free(self):
        strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
        for given in (WEATHER, strict):
            made = self.ask(tools=[given], temperature=0, max_tokens=60)["choices"][0]["message"]
            self.assertNotIn("tool_calls", made)
            self.assertNotIn("<tool_call>", made["content"])
        tokens = library("tools").tokenizer
        body = {"tools": [strict], "grammar": None, "max_tokens": 80}
        from tfmc_serve import grammar, tools
        served = self.server.service.models["tools"]
        form, _ = served.form_of_calls()
        for text, good in (("hello", True), ('<tool_call>\n{"name": "weather", "arguments": {"place": "here", "days": 2}}\n'
                                             "</tool_call>", True), ("x <tool_call> no", False),
                           ('<tool_call>\n{"name": "weather", "arguments": {"place": "nowhere"', False)):
            found = tools.grammar_of(tools.read({**body, "tool_choice": None, "parallel_tool_calls": None}), form, tokens)
            matcher = served.grammars.compile(found, served.chat_ends).deep_copy()
            ids = tokens.encode(text, add_special_tokens=False).ids
            self.assertEqual(matcher.validate_tokens(ids) == len(ids), good, text)
        self.assertEqual(grammar.missing(), False)

    def test_marks_that_are_no_tokens(self):
        """A word that begins a call, and is no token of its own, is looked for in the text."""
        from tfmc_serve import tools
        served = self.server.service.models["bytes"]
        strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
        given = tools.read({"tools": [strict], "tool_choice": None, "parallel_tool_calls": None})
        call = '{"name": "weather", "arguments": {"place": "here", "days": 2}}'
        texts = {"marked": [("a\n<tool_call>\n" + call + "\n</tool_call>", True), ("a <tool_", True), ("a <tool_call> b", False)],
                 "list": [("a<|call|>[" + call + ", " + call + "]", True), ("[", True), ("<|call|>[a", False)],
                 "bare": [(call.replace("arguments", "parameters"), True), ("a {", True), ("", True), ("{a", False)]}
        for name, cases in texts.items():
            found = tools.grammar_of(given, tools.Form(*FORMS[name][1]), served.tokenizer)
            for text, good in cases:
                matcher = served.grammars.compile(found, served.chat_ends).deep_copy()
                ids = served.tokenizer.encode(text, add_special_tokens=False).ids
                self.assertEqual(matcher.validate_tokens(ids) == len(ids), good, (name, text))

    def test_calls_and_their_results_go_back_to_the_template(self):
        call = {"id": "a12345678", "type": "function", "function": {"name": "weather", "arguments": '{"place": "here"}'}}
        messages = [user("a"), {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "a12345678", "content": "b"}]
        own = [messages[0], {**messages[1], "tool_calls": [{**call, "function": {"name": "weather",
                                                                                "arguments": {"place": "here"}}}]}, messages[2]]
        shown = [{"type": "function", "function": {"description": "", **CLOCK["function"]}}]
        for more, tools in (({}, None), ({"tools": [CLOCK], "tool_choice": "none"}, None), ({"tools": [CLOCK]}, shown)):
            made = self.ask(messages=messages, temperature=0, max_tokens=9, **more)
            self.assertEqual(made["usage"]["prompt_tokens"], len(library("tools").tokens_of(own, tools=tools)))

    def random(self, choose):
        """A request with tools, a form, biases, or with probabilities of its prompt."""
        body = {"seed": choose.randrange(999), "temperature": choose.choice((0, 0.7, 1.5)), "n": choose.choice((1, 1, 3)),
                "max_tokens": choose.choice((20, 120, 300)), "return_token_ids": True}
        if choose.random() < 0.4:
            body["logit_bias"] = {str(choose.randrange(290)): choose.choice((-100, -2, 1.5, 4)) for _ in range(choose.randint(1, 30))}
        if choose.random() < 0.2:
            prompt = [choose.randrange(3, 290) for _ in range(choose.choice((2, 17, 40)))]
            return "/v1/completions", {**body, "prompt": prompt, "max_tokens": 20, "echo": True, "logprobs": 2}
        body["messages"] = [user("".join(choose.choice('ab {"name": 1') for _ in range(choose.randint(1, 40))))]
        kind = choose.randrange(4)
        if kind < 3:
            strict = {"type": "function", "function": {**WEATHER["function"], "strict": choose.random() < 0.5}}
            body["tools"] = [strict, CLOCK][:choose.randint(1, 2)]
            body["tool_choice"] = choose.choice(("auto", "required", "none", named("weather")))
            body["parallel_tool_calls"] = choose.random() < 0.7
        else:
            body.update(choose.choice(ASKED)[0])
        return "/v1/chat/completions", body

    def test_random_load(self):
        """Tools, forms, biases, prompts with probabilities, guesses, beginnings and clients that go, at the same time,
        against a server without any of it."""
        choose, alone = random.Random(12), self.plain.client()
        asked = [self.random(choose) for _ in range(200 if LONG else 40)]
        posted = [alone.post(path, {"model": "tools", **body}) for path, body in asked]
        self.assertEqual({answer.status for answer in posted}, {200})

        def choices(answer):
            return self.without_ids(answer.json) if "message" in answer.json["choices"][0] else answer.json["choices"]
        wanted = [choices(answer) for answer in posted]
        self.assertTrue(any("tool_calls" in choice.get("message", {}) for made in wanted for choice in made))

        def one(client, choose):
            number = choose.randrange(len(asked))
            path, body = asked[number]
            if choose.random() < 0.2:
                content = json.dumps({"model": "tools", **body, "stream": choose.random() < 0.7}).encode()
                with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
                    connection.sendall(head(path, len(content)) + content)
                    if choose.random() < 0.6:
                        connection.recv(choose.randint(1, 900))
                return
            answer = client.post(path, {"model": "tools", **body})
            self.assertEqual(answer.status, 200, answer)
            self.assertEqual(choices(answer), wanted[number], body)
        ask, self.ask = self.ask, one
        print(f"{self.ask_at_random(600 if LONG else 4)} requests")
        self.ask = ask
        self.assertEqual(self.server.deaths, [])

    def test_refusals(self):
        def refuse(*words, **body):
            return self.refused(self.post(**body), 400, *words, openai=True)
        function = {"name": "f"}
        for tool, word in (({}, "tools[0].type"), ({"type": "retrieval"}, "tools[0].type"), ({"type": "function"}, "function"),
                           ({"type": "function", "function": {}}, "name"),
                           ({"type": "function", "function": {"name": "a b"}}, "letters"),
                           ({"type": "function", "function": {"name": "a" * 65}}, "letters"),
                           ({"type": "function", "function": {**function, "parameters": []}}, "parameters"),
                           ({"type": "function", "function": {**function, "parameters": {"type": "array"}}}, "parameters"),
                           ({"type": "function", "function": {**function, "strict": 1}}, "strict"),
                           ({"type": "function", "function": {**function, "description": 1}}, "description"),
                           ({"type": "function", "function": {**function, "other": 1}}, "tools[0].function.other"),
                           ({"type": "function", "function": {**function, "other": 0}}, "tools[0].function.other"),
                           ({"type": "function", "function": function, "cache": False}, "tools[0].cache"),
                           ({"type": "function", "function": function, "cache": 1}, "tools[0].cache")):
            refuse(word, tools=[tool])
        refuse("the list is empty", tools=[])
        refuse("two tools", tools=[CLOCK, CLOCK])
        refuse("there are no tools", tool_choice="auto")
        refuse("there are no tools", parallel_tool_calls=False)
        for choice, word in (("any", "required"), ({"type": "function"}, "NAME"), (named("nothing"), "no tool 'nothing'"),
                             ({"type": "allowed_tools", "allowed_tools": {}}, "NAME")):
            refuse("tool_choice", word, tools=[CLOCK], tool_choice=choice)
        refuse("knows no tools", model="bytes", tools=[CLOCK], max_tokens=3)
        refuse("knows no tools", model="bytes", messages=[user("a"), {"role": "tool", "content": "b"}], max_tokens=3)
        refuse("another form", tools=[CLOCK], response_format={"type": "json_object"})
        refuse("another form", tools=[CLOCK], grammar={"regex": "a"})
        refuse("ignore_eos", tools=[CLOCK], tool_choice="required", ignore_eos=True)
        refuse("uniqueItems", tools=[{"type": "function", "function": {"name": "f", "parameters": {"properties": {
            "a": {"type": "array", "uniqueItems": True}}, "required": ["a"]}}}], tool_choice="required")
        for calls, word in ((1, "a list"), ([1], "function"), ([{"function": {}}], "function"),
                            ([{"type": "custom", "function": {"name": "f", "arguments": "{}"}}], "type: function"),
                            ([{"function": {"name": "f", "arguments": "{"}}], "arguments"),
                            ([{"function": {"name": "f", "arguments": "[]"}}], "arguments")):
            refuse("messages[1].tool_calls", word, messages=[user("a"), {"role": "assistant", "tool_calls": calls}])
        too_many = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)]
        self.refused(self.post(tools=too_many), 413, "129", openai=True)


if __name__ == "__main__":
    unittest.main()
