"""What a provider's error means for the user: one line with the status and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, cast

_KEY = re.compile(r"\b(?:(?:sk|pk|key)-[\w-]{6,}|AIza[\w-]{20,})")
_KEY_NAMES = ("_API_KEY", "_AUTH_TOKEN")
"""How the environment variables end that hold keys, whosever they are."""
_SHORTEST = 6
"""Characters of a key; what is shorter is none, and hiding it would spoil the text."""
_LONGEST = 300
_REMEDIES = {
    400: "change the request",
    401: "check {key}",
    402: "check the account's billing",
    403: "this key may not do that; use another key or model",
    404: "check --model, --base-url and --dialect",
    408: "try again",
    409: "try again",
    413: "the prompt is too long; shorten it",
    429: "rate limit; wait, then try again",
    529: "the provider is overloaded; try again later",
}


def explain(error: Exception, host: str, key: str) -> str:
    """Say in one line what `error` from the server at `host` means; never shows a key.

    `key`: the environment variable to look at when it is the key that is wrong.
    """
    status = _status(error)
    if status is None or status == 200:
        return _within(error, host) if _error_body(error) else _unreachable(error, host)
    remedy = _REMEDIES.get(status, "try again later" if status >= 500 else "change the request")
    remedy = remedy.format(key=key)
    said = _said(error)
    return f"{host} answered {status}{_kind(error)}{_after(error)}: {remedy}" + (
        f" ({said})" if said else ""
    )


def _status(error: Exception) -> int | None:
    """Return the HTTP status; google-genai calls it `code`, and openai something else."""
    found = (getattr(error, name, None) for name in ("status_code", "code"))
    return next((status for status in found if isinstance(status, int)), None)


def _within(error: Exception, host: str) -> str:
    """Explain an error event in a stream that had begun well."""
    return f"{host} ended the stream with an error{_kind(error)}: try again"


def _unreachable(error: Exception, host: str) -> str:
    """Explain an error without a status: no connection, no time, or no such protocol."""
    cause = error.__cause__ or error
    detail = hide_keys(str(cause))
    named = f"{type(cause).__name__}{': ' if detail else ''}{detail}"
    return f"no usable answer from {host} ({named}); check the network and --base-url"


def _kind(error: Exception) -> str:
    body = _error_body(error)
    kind = body.get("type") or body.get("status") or body.get("code")
    return f" {hide_keys(kind)}" if isinstance(kind, str) else ""


def _said(error: Exception) -> str:
    """Return the provider's own words, except about keys."""
    text = _error_body(error).get("message")
    wanted = isinstance(text, str) and _status(error) not in (401, 403)
    return hide_keys(str(text)) if wanted else ""


def _error_body(error: Exception) -> Mapping[str, Any]:
    """Return what the provider said of the error; openai keeps that without its envelope."""
    body = _mapping(getattr(error, "body", None)) or _mapping(getattr(error, "details", None))
    return _mapping(body.get("error")) or body


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _after(error: Exception) -> str:
    headers = getattr(getattr(error, "response", None), "headers", {})
    seconds = headers.get("retry-after")
    known = isinstance(seconds, str) and seconds.replace(".", "", 1).isdecimal()
    return f" (retry after {seconds} s)" if known else ""


def hide_keys(text: str) -> str:
    """Return `text` on one line, shortened, with everything that may be a key taken out."""
    for name, value in os.environ.items():
        if name.endswith(_KEY_NAMES) and len(value.strip()) >= _SHORTEST:
            text = text.replace(value.strip(), "***")
    line = "".join(c if c.isprintable() else " " for c in _KEY.sub("***", text))
    return " ".join(line.split())[:_LONGEST]
