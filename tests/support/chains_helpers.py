"""Requests and entries of a chain of Responses, in a line of text (see `support.notation`)."""

from __future__ import annotations

from typing import Any

from continuation.chains.stores import KeptTurn
from support.notation import Json, read, write


def items(line: str) -> list[Any]:
    return list(write("openai-responses", line)["input"])


def request(line: str, anchor: str | None = "resp_1", **fields: Any) -> Json:
    named = {"previous_response_id": anchor} if anchor else {}
    return write("openai-responses", line, model="gpt-5.5", **named, **fields)


def said(body: Json) -> str:
    return read("openai-responses", body)


def turn(line: str, base: str | None = None) -> KeptTurn:
    return KeptTurn(base, items(line))
