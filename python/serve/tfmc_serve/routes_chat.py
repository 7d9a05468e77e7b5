"""OpenAI's /v1/chat/completions: messages become tokens by the chat template of the model's folder, whose control tokens no
content can write; the answer is that of `tfmc.text.Writer.chat` with the same seed and options. Calls of tools are read
from what the model writes (calls.py).
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tfmc

from . import grammar, tools
from .calls import FreeReader, Reader
from .errors import Fault
from .pieces import Piece
from .routes_completions import Asked, Choice, answer, check_stream, finite
from .service import Answer, Call
from .texts import LONG

MEMBERS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "reasoning_content", "reasoning",
                     "thinking"})
PART_MEMBERS = frozenset({"type", "text"})


class ChatAsked(Asked):
    prefix, object, piece_object = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def __init__(self, call: Call, prompts: list[list[int]]) -> None:
        super().__init__(call, prompts)
        self.ends = () if call.asked["ignore_eos"] else self.served.chat_ends

        self.tools = tools.read(call.asked)
        self.form: tools.Form | None = None
        if self.tools is not None:
            self.form, self.shown = self.served.form_of_calls()

    def grammar(self) -> grammar.Grammar | None:
        """Calls that must fit are a grammar of their own."""
        found = super().grammar()
        if self.tools is None or self.form is None:
            return found
        if found is not None:
            raise Fault("invalid", f"tools: {found.where.partition('.')[0]} asks for another form; one of them", "tools")
        found = tools.grammar_of(self.tools, self.form, self.served.tokenizer)
        return None if found is None else grammar.checked(found, self.call.asked)

    def reader(self) -> Reader | None:
        """Of the calls of one answer."""
        if self.tools is None or self.form is None:
            return None
        return (Reader if self.tools.must_call else FreeReader)(self.form, self.tools)

    def before(self, prompt: list[int]) -> list[int]:
        """A message begins anew."""
        return []

    def limit(self, prompt: list[int], number: int) -> int:
        asked = self.call.asked
        member = "max_tokens" if asked["max_completion_tokens"] is None else "max_completion_tokens"
        return self.limit_of(prompt, asked[member], self.served.max_length, "the conversation", member)


class ChatChoice(Choice):
    """The answer of an assistant."""
    has_begun = False

    def __init__(self, asked: ChatAsked, index: int) -> None:
        super().__init__(asked, index)
        self.reader, self.calls = asked.reader(), 0

    def parts(self, pieces: list[Piece]) -> tuple[str, list[dict[str, Any]]]:
        """Text, and what was gained of calls: each entry begins one, or goes on with the arguments of the last."""
        text = self.text(pieces)
        if self.reader is None:
            return text, []
        said, gained = "", []
        for kind, part in self.reader.add(text, pieces[-1].finish is not None):
            if kind == "text":
                said += part
            elif kind == "name":
                gained.append({"index": self.calls, "id": tools.call_id(), "type": "function",
                               "function": {"name": part, "arguments": ""}})
                self.calls += 1
            else:
                gained.append({"index": self.calls - 1, "function": {"arguments": part}})
        return said, gained

    def entry(self, pieces: list[Piece]) -> dict[str, Any]:
        text, gained = self.parts(pieces)
        calls: list[dict[str, Any]] = []
        for part in gained:
            if "id" in part:
                calls.append({name: value for name, value in part.items() if name != "index"})
            else:
                calls[-1]["function"]["arguments"] += part["function"]["arguments"]
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
        if calls:
            message["tool_calls"] = calls
        return self.finished({"index": self.index, "message": message}, pieces)

    def events(self, pieces: list[Piece]) -> Iterator[dict[str, Any]]:
        if not self.has_begun:
            self.has_begun = True
            yield {"index": self.index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None, "logprobs": None}
        text, gained = self.parts(pieces)
        if text or gained or pieces[-1].finish or self.has_logprobs or self.has_ids:
            delta: dict[str, Any] = {"content": text} if text else {}
            if gained:
                delta["tool_calls"] = gained
            yield self.finished({"index": self.index, "delta": delta}, pieces)

    def finished(self, made: dict[str, Any], pieces: list[Piece]) -> dict[str, Any]:
        finish = pieces[-1].finish
        made.update(finish_reason="tool_calls" if finish == "stop" and self.calls else finish, stop_reason=pieces[-1].stop,
                    logprobs=None)
        if self.has_logprobs:
            tokens = [token for piece in pieces for token in piece.tokens]
            made["logprobs"] = {"content": [self.told(*token) for token in tokens], "refusal": None}
        return self.add_ids(made, pieces)

    def told(self, token: int, logprob: float, top: tuple[tuple[int, float], ...]) -> dict[str, Any]:
        return {**self.one(token, logprob), "top_logprobs": [self.one(*likely) for likely in top]}

    def one(self, token: int, logprob: float) -> dict[str, Any]:
        text = self.text_of(token)
        return {"token": text, "bytes": list(text.encode("utf-8", "replace")), "logprob": finite(logprob)}


async def chat_completions(call: Call) -> Answer:
    asked, served = call.asked, call.served
    check_chat(asked)
    if served.chat is None:
        raise Fault("invalid", f"messages: {served.chat_missing}; POST /v1/completions continues texts", "messages")

    wanted = tools.read(asked)
    messages, place = tools.with_calls(asked["messages"])

    def work() -> list[int]:
        if wanted is not None:
            served.form_of_calls()
        elif place is not None and not served.chat.takes("tools"):
            raise Fault("invalid", f"{place}: the chat template of this model knows no tools", "messages")
        try:
            ids: list[int] = served.chat.tokens(messages, wanted and wanted.shown, asked["chat_template_kwargs"])
        except tfmc.Error as error:
            said = str(error).removeprefix(f"{served.folder}: ")
            member = "chat_template_kwargs" if "no variable" in said else "messages"
            raise Fault("invalid", said if said.startswith("messages[") else f"{member}: {said}", member) from None
        bare, unread = without_unknown(messages, "".join(served.chat.templates.values()))
        if unread is not None and served.chat.tokens(bare, wanted and wanted.shown, asked["chat_template_kwargs"]) == ids:
            raise Fault("invalid", f"{unread} is not known here, and the chat template does not read it", "messages")
        served.check(ids, "messages")
        return ids
    prompt = await call.tokenizing(work, LONG + 1)  # a template may take a while: never on the event loop
    return await answer(ChatAsked(call, [prompt]), (asked["top_logprobs"] or 0) if asked["logprobs"] else None, ChatChoice)


def without_unknown(messages: list[dict[str, Any]], template: str) -> tuple[list[dict[str, Any]], str | None]:
    """The messages without members that neither OpenAI's API has nor the template names, and the first of those. A template
    may write whole messages: only its text tells whether it reads them."""
    unknown: list[str] = []

    def known(value: dict[str, Any], members: frozenset[str], where: str) -> dict[str, Any]:
        left = {name: member for name, member in value.items() if name in members or not member or name in template}
        unknown.extend(f"{where}[{name[:100]!r}]" for name in value if name not in left)
        return left
    made = []
    for i, message in enumerate(messages):
        bare, content = known(message, MEMBERS, f"messages[{i}]"), message.get("content")
        if isinstance(content, list):
            where = f"messages[{i}]['content']"
            bare["content"] = [known(part, PART_MEMBERS, f"{where}[{j}]") if isinstance(part, dict) else part
                               for j, part in enumerate(content)]
        made.append(bare)
    return made, unknown[0] if unknown else None


def check_chat(asked: dict[str, Any]) -> None:
    if asked["top_logprobs"] and not asked["logprobs"]:
        raise Fault("invalid", "top_logprobs: they come with \"logprobs\": true", "top_logprobs")
    if asked["max_tokens"] is not None and asked["max_completion_tokens"] not in (None, asked["max_tokens"]):
        raise Fault("invalid", "max_completion_tokens: max_tokens is another number; they mean the same", "max_completion_tokens")
    check_stream(asked)
