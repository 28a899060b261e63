"""Thought signatures, which tell a changed part and a part of another Google service.

A signature carries a digest of its part (text, or name and arguments of a call) and the service
that made it: the Gemini API and Vertex refuse each other's. Models before Gemini 3 neither make nor
check any. Source: Google's page on thought signatures, and the error texts of public issues.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from continuation.simulator.anthropic.body import Json
from continuation.simulator.gemini.body import call_of, digest, placed_parts, signature_of, text_of

STAND_IN = "skip_thought_signature_validator"
"""Documented by Google for parts whose signature is lost."""
CORRUPTED = "Corrupted thought signature."
INVALID = "Invalid thought signature."
INVALID_VERTEX = "Unable to submit request because Thought signature is not valid."
_MARK = {False: b"SIMG", True: b"SIMV"}


def sign(part: Json, *, vertex: bool) -> str:
    """Return the signature of a part as `vertex` or the Gemini API makes it, in Base64."""
    return base64.b64encode(_MARK[vertex] + _digest(part)).decode()


def errors(body: Json, *, vertex: bool, strict: bool) -> Iterator[str]:
    """Yield what is wrong with the signatures of a request; `strict` refuses those made elsewhere.

    What is no Base64 at all is told by the rules of the history.
    """
    for _, _, part in placed_parts(body):
        signature = signature_of(part)
        if signature is None or signature == STAND_IN:
            continue
        raw = decoded(signature) or b""
        mark, told = raw[:4], raw[4:]
        known = mark in _MARK.values()
        if known and told != _digest(part):
            yield CORRUPTED
        elif mark != _MARK[vertex] and (known or strict):
            yield INVALID_VERTEX if vertex else INVALID


def decoded(text: str) -> bytes | None:
    """Decode Base64 in either of its alphabets, padded or not; None if it is none."""
    plain = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error:
        return None


def _digest(part: Json) -> bytes:
    call = call_of(part)
    return digest([text_of(part), call.get("name"), call.get("args") or {}])
