"""What the requests of all formats have in common."""

from __future__ import annotations

from continuation.types import Json, Request, Untouched
from continuation.wire.json_values import as_json, loads


def read_body(request: Request) -> Json:
    """Return the request's body. Raises `Untouched` when it is not one we can read and change."""
    if request.headers.get("authorization", "").startswith("AWS4-"):
        message = "the request is signed over its body"
        raise Untouched(message)
    try:
        parsed = loads(request.body)
    except ValueError as error:
        message = "the request body is not JSON"
        raise Untouched(message) from error
    if not isinstance(parsed, dict):
        message = "the request body is not a JSON object"
        raise Untouched(message)
    return as_json(parsed)
