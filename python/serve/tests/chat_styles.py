"""Chat templates in the styles that published models have, in words of this project: what stands around turns, tools, calls
and results is theirs. Each with its control tokens, the end of its turns, and what it writes of one conversation."""
from __future__ import annotations

import json
import pathlib
from typing import NamedTuple


class Style(NamedTuple):
    template: str
    tokens: tuple[str, ...]  # of the tokenizer, beside <s> and </s>
    end: str                 # of a turn
    plain: str               # what it writes of CONVERSATION, up to the answer
    called: str | None       # and of CALLED with the tool; None: it knows no tools
    has_system: bool = True


CONVERSATION = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
SYSTEM = {"role": "system", "content": "be brief"}
TOOL = {"type": "function", "function": {"name": "clock", "description": "of a place", "parameters": {
    "type": "object", "properties": {"place": {"enum": ["here", "there"]}}, "required": ["place"], "additionalProperties": False}}}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "clock", "arguments": {"place": "here"}}}
CALLED = [{"role": "user", "content": "one"}, {"role": "assistant", "tool_calls": [CALL]},
          {"role": "tool", "tool_call_id": "abcdefghi", "name": "clock", "content": "noon"}]

CHATML = """{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- if system or tools %}{{ '<|im_start|>system\\n' + system }}
{%- if tools %}{{ '\\nFunctions:\\n<tools>' }}{% for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}{{ '\\n</tools>' }}{% endif %}
{{- '<|im_end|>\\n' }}{% endif %}
{%- for m in messages if m.role != 'system' %}
{%- if m.role == 'tool' %}
{%- if loop.first or messages[messages.index(m) - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- else %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
{%- for call in m.tool_calls or [] %}
{%- if m.content or not loop.first %}{{ '\\n' }}{% endif %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA = """{{- bos_token }}
{%- macro begin(role) %}{{ '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' }}{% endmacro %}
{%- if messages[0].role == 'system' %}{% set system, turns = messages[0].content | trim, messages[1:] %}
{%- else %}{% set system, turns = '', messages %}{% endif %}
{%- if system or tools %}{{ begin('system') }}{% if tools %}{{ 'Environment: ipython\\n' }}{% endif %}{{ system + '<|eot_id|>' }}{% endif %}
{%- for m in turns %}
{%- if m.tool_calls %}
{%- if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
{%- set call = m.tool_calls[0].function %}
{{- begin('assistant') + '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}<|eot_id|>' }}
{%- elif m.role in ('tool', 'ipython') %}{{ begin('ipython') + (m.content | tojson) + '<|eot_id|>' }}
{%- else %}{{ begin(m.role) }}
{%- if tools and loop.first %}{{ 'Functions:\\n' }}{% for tool in tools %}{{ (tool | tojson(indent=None)) + '\\n' }}{% endfor %}{% endif %}
{{- (m.content | trim) + '<|eot_id|>' }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}{{ begin('assistant') }}{% endif %}"""

MISTRAL = """{%- if messages[0].role == 'system' %}{% set system, turns = messages[0].content, messages[1:] %}
{%- else %}{% set system, turns = '', messages %}{% endif %}
{%- set users = turns | selectattr('role', 'equalto', 'user') | list %}
{{- bos_token }}
{%- for m in turns %}
{%- if m.role == 'user' %}
{%- if tools and m == users[-1] %}{{ '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
{{- '[INST] ' + (system + '\\n\\n' if system and loop.last else '') + m.content + '[/INST]' }}
{%- elif m.tool_calls %}{{ '[TOOL_CALLS] [' }}
{%- for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception('names of calls have nine letters') }}{% endif %}
{{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + ', "id": "' + call.id + '"}' }}
{{- ']' + eos_token if loop.last else ', ' }}
{%- endfor %}
{%- elif m.role == 'assistant' %}{{ ' ' + (m.content | trim) + eos_token }}
{%- elif m.role == 'tool' %}{{ '[TOOL_RESULTS] {"content": ' + (m.content | tojson) + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- else %}{{ raise_exception('roles are user, assistant and tool') }}{% endif %}
{%- endfor %}"""

GEMMA = """{{- bos_token }}
{%- for m in messages %}
{%- if m.role not in ('user', 'assistant') %}{{ raise_exception('roles are user and assistant') }}{% endif %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('user and assistant take turns') }}{% endif %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + (m.content | trim) + '<end_of_turn>\\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

PHI = """{%- for m in messages %}
{%- if m.role == 'system' and tools %}{{ '<|system|>' + m.content + '<|tool|>' + (tools | tojson) + '<|/tool|><|end|>' }}
{%- elif m.role == 'tool' %}{{ '<|tool_response|>' + m.content + '<|end|>' }}
{%- else %}
{%- if loop.first and tools %}{{ '<|system|><|tool|>' + (tools | tojson) + '<|/tool|><|end|>' }}{% endif %}
{{- '<|' + m.role + '|>' + (m.content or '') }}
{%- if m.tool_calls %}{{ '<|tool_call|>[' }}
{%- for call in m.tool_calls %}
{{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}' + ('' if loop.last else ', ') }}
{%- endfor %}{{ ']<|/tool_call|>' }}{% endif %}{{ '<|end|>' }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""

SHOWN = json.dumps(TOOL)
STYLES = {
    "chatml": Style(
        CHATML, ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"), "<|im_end|>",
        "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n"
        "<|im_start|>assistant\n",
        f"<|im_start|>system\n\nFunctions:\n<tools>\n{SHOWN}\n</tools><|im_end|>\n<|im_start|>user\none<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "clock", "arguments": {"place": "here"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nnoon\n</tool_response><|im_end|>\n<|im_start|>assistant\n"),
    "llama3": Style(
        LLAMA, ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>"), "<|eot_id|>",
        "<s><|start_header_id|>user<|end_header_id|>\n\none<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\ntwo<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nthree<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        "<s><|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\n<|eot_id|>"
        f"<|start_header_id|>user<|end_header_id|>\n\nFunctions:\n{SHOWN}\none<|eot_id|>"
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "clock", "parameters": {"place": "here"}}<|eot_id|>'
        '<|start_header_id|>ipython<|end_header_id|>\n\n"noon"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n'),
    "mistral": Style(
        MISTRAL, ("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]",
                  "[/TOOL_RESULTS]"), "</s>",
        "<s>[INST] one[/INST] two</s>[INST] three[/INST]",
        f"<s>[AVAILABLE_TOOLS] [{SHOWN}][/AVAILABLE_TOOLS][INST] one[/INST]"
        '[TOOL_CALLS] [{"name": "clock", "arguments": {"place": "here"}, "id": "abcdefghi"}]</s>'
        '[TOOL_RESULTS] {"content": "noon", "call_id": "abcdefghi"}[/TOOL_RESULTS]'),
    "gemma": Style(
        GEMMA, ("<start_of_turn>", "<end_of_turn>"), "<end_of_turn>",
        "<s><start_of_turn>user\none<end_of_turn>\n<start_of_turn>model\ntwo<end_of_turn>\n<start_of_turn>user\nthree<end_of_turn>\n"
        "<start_of_turn>model\n", None, has_system=False),
    "phi": Style(
        PHI, ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|tool|>", "<|/tool|>", "<|tool_call|>", "<|/tool_call|>",
              "<|tool_response|>"), "<|end|>",
        "<|user|>one<|end|><|assistant|>two<|end|><|user|>three<|end|><|assistant|>",
        f"<|system|><|tool|>[{SHOWN}]<|/tool|><|end|><|user|>one<|end|><|assistant|><|tool_call|>"
        '[{"name": "clock", "arguments": {"place": "here"}}]<|/tool_call|><|end|><|tool_response|>noon<|end|><|assistant|>'),
}


def write_style(folder: pathlib.Path, name: str, tokenizer: object) -> None:
    """What makes a folder with tokens of bytes one of this style."""
    style = STYLES[name]
    tokenizer.add_special_tokens(list(style.tokens))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(style.template)
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": style.end}))
