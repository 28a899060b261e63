"""The functions that a request declares, and whether a call has all that its declaration lists.

At the output limit the server parses the part of a call that the model has written, and drops the
rest. So the call looks complete (googleapis/python-aiplatform#4472: the long argument is missing).
Only the function's declaration shows whether something may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from continuation.types import Json
from continuation.wire.json_values import as_json, as_list, as_text


def either_case(given: Json, key: str) -> object:
    """Return the value of a key that may be in camelCase or snake_case, as the server allows."""
    return given.get(key, given.get(snake(key)))


def snake(name: str) -> str:
    """Return a name of camelCase in snake_case."""
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def declared(tools: object) -> Iterator[tuple[str, Json]]:
    """Yield the name and the declaration of each function in a request's `tools`."""
    for tool in map(as_json, as_list(tools)):
        for one in map(as_json, as_list(either_case(tool, "functionDeclarations"))):
            yield as_text(one.get("name")), one


def declaration(tools: object, name: str) -> Json | None:
    """Return the declaration of a function in a request's `tools`, or `None`."""
    return next((one for named, one in declared(tools) if named == name), None)


def parameters(declared: Json) -> Json:
    """Return the JSON Schema of a declared function's parameters; `{}`: it has none."""
    given = as_json(either_case(declared, "parametersJsonSchema"))
    return given or as_json(in_json_schema(declared.get("parameters")))


def in_json_schema(shape: object) -> object:
    """Convert a schema of Gemini's own kind, with types in capitals, to JSON Schema."""
    if isinstance(shape, dict):
        schema = {key: in_json_schema(value) for key, value in as_json(shape).items()}
        kind = schema.get("type")
        return {**schema, "type": kind.lower()} if isinstance(kind, str) else schema
    return [in_json_schema(one) for one in as_list(shape)] if isinstance(shape, list) else shape


def is_whole(call: Json, tools: object) -> bool:
    """Whether a call certainly has everything that its declaration lists, at every depth.

    An array, or an object with free keys, could always have one more member, so the result is false
    for a call with one. A function without parameters is complete.
    """
    declared = declaration(tools, as_text(call.get("name")))
    if declared is None:
        return False
    schema: Json = {"properties": {}, **parameters(declared)}
    return _has_all(as_json(call.get("args")), schema, schema)


def _has_all(value: object, schema: object, root: Json) -> bool:
    if not isinstance(value, dict | list):
        return True
    shapes, listed = _shapes(schema, root), dict[str, list[Any]]()
    for shape in shapes:
        if either_case(shape, "additionalProperties") or either_case(shape, "patternProperties"):
            return False
        required: Json = {str(name): {} for name in as_list(shape.get("required"))}
        for name, inner in {**required, **as_json(shape.get("properties"))}.items():
            listed.setdefault(name, []).append(inner)
    found = as_json(value)
    closed = isinstance(value, dict) and any("properties" in shape for shape in shapes)
    return (
        closed
        and found.keys() >= listed.keys()
        and all(_has_all(found[name], {"anyOf": inner}, root) for name, inner in listed.items())
    )


def _shapes(schema: object, root: Json) -> list[Json]:
    """Return a schema, the schemas that it refers to, and those that it combines.

    A value may have to match any of them. A reference that is not found becomes a schema with free
    keys.
    """
    found, queue = list[Json](), [as_json(schema)]
    for shape in queue:
        if shape in found:
            continue
        found.append(shape)
        for key in ("anyOf", "oneOf", "allOf"):
            queue += map(as_json, as_list(either_case(shape, key)))
        if path := as_text(shape.get("$ref")) or as_text(shape.get("ref")):
            queue.append(_at(path, root) or {"additionalProperties": True})
    return found


def _at(path: str, root: Json) -> Json:
    """Return the part of a schema to which a reference points, or `{}`."""
    start, *steps = path.split("/")
    place: Json = root if start == "#" else {}
    for step in steps:
        place = as_json(place.get(step.replace("~1", "/").replace("~0", "~")))
    return place
