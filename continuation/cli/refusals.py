"""What a provider's error means for the user: one line with the status and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_KEY = re.compile(r"\b(?:sk|pk|key)-[\w-]{6,}")
_LONGEST = 300
_REMEDIES = {
    400: "change the request",
    401: "check ANTHROPIC_API_KEY",
    402: "check the account's billing",
    403: "this key may not do that; use another key or model",
    404: "check --model and --base-url",
    408: "try again",
    409: "try again",
    413: "the prompt is too long; shorten it",
    429: "rate limit; wait, then try again",
    529: "the provider is overloaded; try again later",
}


def explain(error: Exception, host: str) -> str:
    """Say in one line what `error` from the server at `host` means; never shows a key."""
    status = getattr(error, "status_code", None)
    if status is None or status == 200:
        return _within(error, host) if status else _unreachable(error, host)
    remedy = _REMEDIES.get(status, "try again later" if status >= 500 else "change the request")
    said = _said(error)
    return f"{host} answered {status}{_kind(error)}{_after(error)}: {remedy}" + (
        f" ({said})" if said else ""
    )


def _within(error: Exception, host: str) -> str:
    """Explain an error event in a stream whose status was 200."""
    return f"{host} ended the stream with an error{_kind(error)}: try again"


def _unreachable(error: Exception, host: str) -> str:
    """Explain an error without a status: no connection, no time, or no such protocol."""
    cause = error.__cause__ or error
    detail = hide_keys(str(cause))
    named = f"{type(cause).__name__}{': ' if detail else ''}{detail}"
    return f"no usable answer from {host} ({named}); check the network and --base-url"


def _kind(error: Exception) -> str:
    kind = _error_body(error).get("type")
    return f" {hide_keys(kind)}" if isinstance(kind, str) else ""


def _said(error: Exception) -> str:
    """Return the provider's own words, except about keys."""
    text = _error_body(error).get("message")
    wanted = isinstance(text, str) and getattr(error, "status_code", None) not in (401, 403)
    return hide_keys(str(text)) if wanted else ""


def _error_body(error: Exception) -> Mapping[str, Any]:
    body = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - any JSON
    return inner if isinstance(inner, dict) else {}  # pyright: ignore[reportUnknownVariableType] - any JSON


def _after(error: Exception) -> str:
    response = getattr(error, "response", None)
    seconds = response.headers.get("retry-after") if response is not None else None
    known = isinstance(seconds, str) and seconds.replace(".", "", 1).isdecimal()
    return f" (retry after {seconds} s)" if known else ""


def hide_keys(text: str) -> str:
    """Return `text` on one line, shortened, with everything that may be a key taken out."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        if value := os.environ.get(name, "").strip():
            text = text.replace(value, "***")
    line = "".join(c if c.isprintable() else " " for c in _KEY.sub("***", text))
    return " ".join(line.split())[:_LONGEST]
