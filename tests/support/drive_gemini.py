"""Drives a turn of generateContent without sockets, over a provider in small."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from continuation import Policy, Report
from support.drive import Answered, Attempt, Driven, body, drive, streams

Chunk = dict[str, Any]
FAST = Policy(backoff_seconds=0.0, models_endpoint=False)
BEFORE = "A captain of the line wrote his log by lamplight, and then the quick brown fo"
ECHO = "and then the quick brown fo"
"""What a recovery repeats of the text: all that the prompt asks to repeat."""
ASK: Chunk = {
    "contents": [{"role": "user", "parts": [{"text": "Go."}]}],
    "generationConfig": {"maxOutputTokens": 1000},
}
NEW = "gemini-3.6-flash"
LONG = "gemini-4-argon"
SIGNATURE = "c2lnbmVk"


def chunk(*parts: Chunk, reason: str | None = None, said: int = 7, **candidate: Any) -> Chunk:
    """Return one response of a stream; without parts its candidate has no content."""
    content = {"content": {"parts": list(parts), "role": "model"}} if parts else {}
    finish = {"finishReason": reason} if reason else {}
    counts = {"promptTokenCount": 10, "candidatesTokenCount": said, "totalTokenCount": 10 + said}
    return {
        "candidates": [{**content, **finish, "index": 0, **candidate}],
        "usageMetadata": counts,
        "modelVersion": NEW,
        "responseId": "r1",
    }


def text(said: str, **fields: Any) -> Chunk:
    return {"text": said, **fields}


def call(name: str = "Write", **args: Any) -> Chunk:
    return {"functionCall": {"name": name, "args": args}, "thoughtSignature": SIGNATURE}


OPENED: Chunk = {"functionCall": {"name": "Write", "willContinue": True}}
"""Half a call, which only exists if its arguments are streamed."""


def sse(chunks: Iterable[Chunk], newline: str = "\r\n") -> bytes:
    """Encode chunks as Google does, a space behind each colon and comma."""
    return b"".join(
        f"data: {json.dumps(c, ensure_ascii=False)}{newline}{newline}".encode() for c in chunks
    )


def ask(
    attempts: Sequence[Attempt | Exception],
    *,
    model: str = NEW,
    verb: str = "streamGenerateContent",
    policy: Policy = FAST,
    broken: Exception | None = None,
    **changes: Any,
) -> Driven:
    """Run a turn; an attempt may be the error that it is refused with.

    `broken`: what the connection breaks off with behind each body.
    """
    told = [refusal(one) if isinstance(one, Exception) else one for one in attempts]
    provider = streams(*told, broken=broken)
    return drive(provider, {**ASK, **changes}, policy, path=f"/v1/models/{model}:{verb}")


def unary(first: Any, *later: Attempt | Exception, **more: Any) -> Driven:
    """Run a turn that is not streamed; its first attempt is given as the body."""
    return ask([body(first), *later], verb="generateContent", **more)


def refusal(error: Exception) -> Answered:
    told = {"code": 400, "message": str(error), "status": "INVALID_ARGUMENT"}
    return body({"error": told}, status=400)


def report(driven: Driven) -> Report:
    return driven.report


def said(driven: Driven) -> str:
    """Return all visible text."""
    return "".join(p.get("text", "") for p in parts(driven) if not p.get("thought"))


def parts(driven: Driven) -> list[Chunk]:
    return [part for c in candidates(driven) for part in c.get("content", {}).get("parts", [])]


def candidates(driven: Driven) -> list[Chunk]:
    return [c for told in responses(driven) for c in told.get("candidates", [])]


def responses(driven: Driven) -> list[Chunk]:
    """Return the responses of a stream, or those of a body."""
    whole = b"".join(driven.pieces)
    if not whole.lstrip().startswith((b"{", b"[")):
        return driven.told
    body = json.loads(whole)
    return body if isinstance(body, list) else [body]


def reasons(driven: Driven) -> list[str]:
    return [c["finishReason"] for c in candidates(driven) if "finishReason" in c]
