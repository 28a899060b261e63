"""The quick look at `contents`; what it is for, `Grammar.fast_validate` says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from continuation.history.tree import HistoryContext
from continuation.history.wordings import LEAD, LEADS

SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/=_-]+\Z")


def plainly_valid(contents: list[Any], context: HistoryContext) -> bool:
    """Whether common shapes, all valid, are all there is."""
    waiting: list[str] = []
    role = contents[0]["role"]
    if role != "user":
        return False
    for content in contents:
        role = content["role"]
        if role == "model":
            if waiting or not _model(content["parts"], waiting):
                return False
        elif role != "user" or not _user(content["parts"], waiting):
            return False
    return role == "user" and _loop_signed(contents, context)


def _model(parts: Iterable[Any], waiting: list[str]) -> bool:
    says = ""
    for part in parts:
        if len(part) > 1:
            if part.get("thought") is True and len(part) == 2 and part["text"]:
                continue  # thinking nobody signed says nothing by itself, and is no fault
            if len(part) > 2 or not SIGNATURE.match(part["thoughtSignature"]):
                return False
        if "text" in part:
            says = part["text"]
            if not says or says.isspace():
                return False
        else:
            call = part["functionCall"]
            says = call.get("id") or call["name"]
            waiting.append(says)
    return says != ""


def _user(parts: Iterable[Any], waiting: list[str]) -> bool:
    kind, at = "", 0
    for part in parts:
        (kind,) = part
        if kind == "functionResponse":
            answer = part[kind]
            if waiting[at] != (answer.get("id") or answer["name"]):
                return False
            at += 1
        elif kind == "text":
            text = part[kind]
            if at != len(waiting) or not text or text[:LEAD] in LEADS:
                return False
    if at != len(waiting):
        return False
    waiting.clear()
    return kind != ""


def _loop_signed(contents: list[Any], context: HistoryContext) -> bool:
    """Whether the first calls in an open tool loop are signed; before Gemini 3 they need not be."""
    if not context.model or "gemini-2" in context.model:
        return True
    for content in reversed(contents):
        parts = content["parts"]
        if content["role"] == "user":
            if "functionResponse" not in parts[0]:
                return True
        else:
            first = next((part for part in parts if "functionCall" in part), None)
            if first is not None and "thoughtSignature" not in first:
                return False
    return True
