"""Explains a provider's error to the user, in one line with the status and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, cast

from continuation import JournalError

_KEY = re.compile(r"\b(?:(?:sk|pk|key)-[\w-]{6,}|AIza[\w-]{20,})")
_KEY_NAMES = ("_API_KEY", "_AUTH_TOKEN")
"""Endings of the names of environment variables with keys, for any provider."""
_SHORTEST = 6
"""The fewest characters of a key. Hiding shorter values would garble the text."""
_LONGEST = 300
_REMEDIES = {
    400: "change the request",
    401: "check {key}",
    402: "check your account's billing",
    403: "this key has no permission; use another key or model",
    404: "check --model, --base-url and --dialect",
    408: "try again",
    409: "try again",
    413: "the prompt is too long; shorten it",
    429: "the rate limit is reached; wait, then try again",
    529: "the provider is overloaded; try again later",
}


def explain(error: Exception, host: str, key: str) -> str:
    """Return one line that explains an error from the server at `host`. It never contains a key.

    `key`: the environment variable that the user should check if the key is wrong.
    """
    if isinstance(error, JournalError):
        return hide_keys(str(error))
    # In google-genai, `code` is the HTTP status. In openai it is a text, so it is ignored.
    codes = (getattr(error, name, None) for name in ("status_code", "code"))
    status = next((value for value in codes if isinstance(value, int)), None)
    # The provider's error object; openai stores it without the outer `error` key.
    body = _mapping(getattr(error, "body", None)) or _mapping(getattr(error, "details", None))
    body = _mapping(body.get("error")) or body
    error_type = body.get("type") or body.get("status") or body.get("code")
    kind = f" {hide_keys(error_type)}" if isinstance(error_type, str) else ""
    if status is None or status == 200:
        if body:  # an error event in a stream that began with status 200
            return f"{host} ended the stream with an error{kind}: try again"
        # No connection, a timeout, or another protocol.
        cause = error.__cause__ or error
        detail = hide_keys(str(cause))
        named = f"{type(cause).__name__}{': ' if detail else ''}{detail}"
        return f"no usable answer from {host} ({named}); check the network and --base-url"

    seconds = getattr(getattr(error, "response", None), "headers", {}).get("retry-after")
    is_number = isinstance(seconds, str) and seconds.replace(".", "", 1).isdecimal()
    after = f" (retry after {seconds} s)" if is_number else ""
    remedy = _REMEDIES.get(status, "try again later" if status >= 500 else "change the request")
    # The provider's own text, except on errors about keys.
    words = body.get("message") if status not in (401, 403) else None
    own = f" ({shown})" if isinstance(words, str) and (shown := hide_keys(words)) else ""
    return f"{host} answered {status}{kind}{after}: {remedy.format(key=key)}{own}"


def sdk_error(error: Exception) -> str:
    """Return one line on why an SDK rejects a request. It never has the request's content."""
    if callable(listed := getattr(error, "errors", None)):  # pydantic's own text quotes the content
        errors = cast("list[dict[str, Any]]", listed(include_input=False, include_url=False))
        parts = [f"{'.'.join(map(str, each['loc']))}: {each['type']}" for each in errors]
        return hide_keys(", ".join(parts))
    return f"{type(error).__name__}: {hide_keys(str(error))}"


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def hide_keys(text: str) -> str:
    """Return `text` as one short line in which `***` replaces everything that may be a key."""
    for name, value in os.environ.items():
        if name.endswith(_KEY_NAMES) and len(value.strip()) >= _SHORTEST:
            text = text.replace(value.strip(), "***")
    line = "".join(c if c.isprintable() else " " for c in _KEY.sub("***", text))
    return " ".join(line.split())[:_LONGEST]
