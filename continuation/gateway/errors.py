"""The gateway's own errors, in the shape of the caller's wire format."""

from __future__ import annotations

import json
from typing import Any

_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    504: "timeout_error",
}
_GEMINI = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GatewayError(Exception):
    """Sent in place of the upstream's answer; the message states what is wrong, and the remedy."""

    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        """Headers to send besides those of the body."""


def error_body(dialect: str, error: GatewayError) -> bytes:
    """Return an error as JSON, in the form that the SDKs of a dialect read."""
    status, message = error.status, f"continuation gateway: {error}"
    document: dict[str, Any]
    if dialect == "anthropic":
        kind = _ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
        document = {"type": "error", "error": {"type": kind, "message": message}}
    elif dialect == "gemini":
        status_name = _GEMINI.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")
        document = {"error": {"code": status, "message": message, "status": status_name}}
    else:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        document = {"error": {"message": message, "type": kind, "param": None, "code": None}}
    return json.dumps(document).encode()


def error_event(dialect: str, error: GatewayError) -> bytes:
    """Return an error as an event, in the form at which the SDKs of a dialect raise."""
    data = error_body(dialect, error)
    if dialect == "gemini":
        return b"data: %b\r\n\r\n" % data
    if dialect == "openai-responses":
        own = json.loads(data)["error"]
        data = json.dumps({"type": "error", **own, "error": own}).encode()
    name = b"" if dialect == "openai-chat" else b"event: error\n"
    return b"%bdata: %b\n\n" % (name, data)
