"""A call at the limit counts as whole only if its declaration shows that it lacks nothing."""

from __future__ import annotations

from typing import Any

import pytest

from continuation.providers.gemini.declarations import is_whole
from continuation.types import Json

TEXT: dict[str, Any] = {"type": "STRING"}
FILE = {"type": "OBJECT", "properties": {"path": TEXT, "content": TEXT}, "required": ["path"]}
PATH, BOTH = {"path": "a"}, {"path": "a", "content": "b"}


def tools(schema: Any, key: str = "parameters", kind: str = "functionDeclarations") -> Any:
    return [{"googleSearch": {}}, {kind: [{"name": "other"}, {"name": "write", key: schema}]}]


def within(inner: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"at": inner}, **more}


SPELLINGS = {
    "camel": tools(FILE),
    "snake": tools(FILE, kind="function_declarations"),
    "JSON Schema": tools(FILE, "parametersJsonSchema"),
    "JSON Schema, snake": tools(FILE, "parameters_json_schema", "function_declarations"),
    "reference": tools({"$ref": "#/$defs/F", "$defs": {"F": FILE}}, "parametersJsonSchema"),
    "reference of OpenAPI": tools({"ref": "#/defs/F", "defs": {"F": FILE}}),
    "reference to itself": tools({**FILE, "anyOf": [{"$ref": "#"}]}, "parametersJsonSchema"),
    "all of": tools({"allOf": [{"properties": {"path": TEXT}}, FILE]}),
    "any of": tools({"any_of": [{"properties": {"path": TEXT}}, FILE]}),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_listed_property_has_to_be_there(spelling: str) -> None:
    assert is_whole({"name": "write", "args": BOTH}, SPELLINGS[spelling])
    assert not is_whole({"name": "write", "args": PATH}, SPELLINGS[spelling])
    assert not is_whole({"name": "write"}, SPELLINGS[spelling])
    assert not is_whole({"name": "unknown", "args": BOTH}, SPELLINGS[spelling])


NESTED: dict[str, tuple[Any, Any, bool]] = {
    "nested, all": (FILE, BOTH, True),
    "nested, not all": (FILE, PATH, False),
    "two deep, not all": (within(FILE), {"at": PATH}, False),
    "two deep, all": (within(FILE), {"at": BOTH}, True),
    "nullable": ({"anyOf": [FILE, {"type": "null"}]}, None, True),
    "nullable, not all": ({"anyOf": [FILE, {"type": "null"}]}, PATH, False),
    "one of two kinds": ({"oneOf": [{"properties": {"path": TEXT}}, FILE]}, PATH, False),
    "an array": ({"type": "ARRAY", "items": TEXT}, ["a"], False),
    "an empty array": ({"type": "ARRAY", "items": TEXT}, [], False),
    "free keys": ({"type": "OBJECT"}, {"a": 1}, False),
    "more free keys": ({**FILE, "additionalProperties": TEXT}, BOTH, False),
    "closed keys": ({**FILE, "additionalProperties": False}, BOTH, True),
    "an unknown reference": ({"$ref": "#/$defs/none"}, PATH, False),
    "a reference elsewhere": ({"$ref": "https://a.b/c", **FILE}, BOTH, False),
    "anything, a text": ({}, "a", True),
    "anything, an object": ({}, {"a": 1}, False),
    "no schema at all": (True, {"a": 1}, False),
    "a number": ({"type": "INTEGER"}, 0, True),
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("key", ["parameters", "parametersJsonSchema"])
def test_what_is_nested_counts_and_what_may_grow_proves_nothing(name: str, key: str) -> None:
    inner, value, whole = NESTED[name]
    call: Json = {"name": "write", "args": {"at": value}}
    assert is_whole(call, tools(within(inner), key)) is whole


@pytest.mark.parametrize("schema", [None, {}, {"type": "OBJECT"}, {"properties": {}}])
def test_a_function_without_parameters_lacks_none(schema: Any) -> None:
    assert is_whole({"name": "write"}, tools(schema))
    assert is_whole({"name": "write", "args": {}}, tools(schema))


@pytest.mark.parametrize("told", [None, [], {}, "x", [None], [{"functionDeclarations": {}}], [[1]]])
def test_without_a_declaration_nothing_is_proven(told: Any) -> None:
    assert not is_whole({"name": "write", "args": BOTH}, told)
    assert not is_whole({"name": ["a"], "args": [1]}, told)
