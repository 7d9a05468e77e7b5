"""/openapi.json, from the table of shapes."""
from __future__ import annotations

from typing import Any

from .errors import KINDS, is_openai
from .shapes import schema, SHAPES

NUMBERS = {"type": "array", "items": {"type": "number"}}
SCORES = {"type": "array", "items": {"type": "object"}}
ANSWERS: dict[str, dict[str, Any]] = {
    "embed": {"type": "array", "items": NUMBERS},
    "similarity": NUMBERS,
    "rerank": SCORES,
    "predict": {"type": "array"},
    "translate": {"type": "object", "required": ["translations", "usage"]},
    "tokenize": {"type": "array", "items": SCORES},
    "decode": {"type": "array", "items": {"type": "string"}},
    "embeddings": {"type": "object", "required": ["object", "model", "data", "usage"]},
    "v_rerank": {"type": "object", "required": ["id", "model", "results", "usage"]},
    "completions": {"type": "object", "required": ["id", "object", "created", "model", "choices", "usage"]},
    "chat": {"type": "object", "required": ["id", "object", "created", "model", "choices", "usage"]},
    "": {},
}
TEI_ERROR = {"type": "object", "required": ["error", "error_type"], "properties": {
    "error": {"type": "string"}, "error_type": {"type": "string", "enum": sorted({k.error_type for k in KINDS.values()})}}}
OPENAI_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {
    "type": "object", "required": ["message", "type", "param", "code"], "properties": {
        "message": {"type": "string"}, "type": {"type": "string", "enum": sorted({k.type for k in KINDS.values()})},
        "param": {"type": ["string", "null"]}, "code": {"type": "string", "enum": sorted(KINDS)}}}}}


def json(content: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {kind: {"schema": content}}


def operation(path: str, about: str, answer: dict[str, Any], shape: str | None,
              kind: str = "application/json") -> dict[str, Any]:
    found: dict[str, Any] = {"summary": about, "responses": {
        "200": {"description": "the answer", "content": json(answer, kind)},
        "default": {"description": "an error", "content": json({"$ref": "#/components/schemas/" + (
            "OpenAIError" if is_openai(path) else "Error")})}}}
    if shape is not None:
        content = {"$ref": f"#/components/schemas/{shape}"} if shape else {"type": "object"}
        found["requestBody"] = {"required": True, "content": json(content)}
    if "{" in path:
        found["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    return found


def document(posts: list[tuple[str, str, str]], gets: list[tuple[str, str, str]], version: str,
             without_key: tuple[str, ...] | None) -> dict[str, Any]:
    """posts: (path, shape, what it does); gets: (path, what it does, the type of the answer); without_key: paths that need
    none, where the others do; None: there are no keys."""
    paths: dict[str, dict[str, Any]] = {}
    for path, shape, about in posts:
        paths.setdefault(path, {})["post"] = operation(path, about, ANSWERS[shape], shape)
    for path, about, kind in gets:
        paths.setdefault(path, {})["get"] = operation(path, about, {}, None, kind)
    schemas = {name: schema(shape) for name, shape in SHAPES.items()}
    made: dict[str, Any] = {
        "openapi": "3.1.0", "info": {"title": "tfmc-serve", "version": version}, "paths": paths,
        "components": {"schemas": {**schemas, "Error": TEI_ERROR, "OpenAIError": OPENAI_ERROR}}}
    if without_key is not None:
        for path in without_key:
            paths[path]["get"]["security"] = []
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": []}]
    return made
