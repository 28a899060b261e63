"""generateContent answers, encoded beforehand, as Google writes them; see `answers`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import cycle, islice

from answers import MODEL, PIECES, TOKENS

CUT, END = "MAX_TOKENS", "STOP"
_PROMPT = 25


def _response(parts: list[object], said: int, reason: str | None = None) -> dict[str, object]:
    """Write one response; `said` is the running count of output tokens."""
    finish = {"finishReason": reason} if reason else {}
    counts = {
        "promptTokenCount": _PROMPT,
        "candidatesTokenCount": said,
        "totalTokenCount": _PROMPT + said,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": _PROMPT}],
    }
    return {
        "candidates": [{"content": {"parts": parts, "role": "model"}, **finish, "index": 0}],
        "usageMetadata": counts,
        "modelVersion": MODEL,
        "responseId": "bench0000000000000000",
    }


def _event(response: dict[str, object]) -> bytes:
    return f"data: {json.dumps(response, ensure_ascii=False)}\r\n\r\n".encode()


def _stream(parts: Sequence[object], reason: str) -> list[bytes]:
    """Write one response for each part, and one that tells the end."""
    most = len(parts)
    told = [_response([part], TOKENS * n // most) for n, part in enumerate(parts, 1)]
    return [*map(_event, told), _event(_response([{"text": ""}], TOKENS, reason))]


def ping() -> bytes:
    """Return a blank line, which is no event."""
    return b"\r\n"


def text_stream(texts: Sequence[str], reason: str = "STOP") -> list[bytes]:
    """Return a stream that says `texts`, one event each."""
    return _stream([{"text": text} for text in texts], reason)


def _call(**fields: object) -> object:
    return {"functionCall": fields}


def _said(texts: Iterable[str]) -> list[object]:
    content = [{"jsonPath": "$.content", "stringValue": t, "willContinue": True} for t in texts]
    return [_call(partialArgs=[piece], willContinue=True) for piece in content]


def call_stream(texts: Sequence[str]) -> list[bytes]:
    """Return a stream that is one call to write `texts` to a file, as Vertex streams arguments."""
    opening = _call(name="write", willContinue=True)
    last = _call(partialArgs=[{"jsonPath": "$.content", "stringValue": ""}], willContinue=True)
    return _stream([opening, *_said(texts), last, _call()], "STOP")


def of_events(number: int, *, call: bool = False) -> list[bytes]:
    """Return an uncut stream of `number` events."""
    texts = [f"{piece}{n}" for n, piece in enumerate(islice(cycle(PIECES), number))]
    return call_stream(texts[: number - 4]) if call else text_stream(texts[: number - 1])


def body(texts: Sequence[str], reason: str = "STOP") -> bytes:
    """Return the same answer as one JSON body."""
    response = _response([{"text": "".join(texts)}], TOKENS, reason)
    return json.dumps(response, ensure_ascii=False, indent=2).encode()
