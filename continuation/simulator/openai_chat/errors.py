"""A refusal, and how each kind of Chat server writes it down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from continuation.simulator.openai_chat.vendors import VENDORS, Vendor

_STATUSES = {  # Gemini's, which are gRPC's
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


@dataclass(frozen=True)
class Refusal:
    """Why a request is refused; without `kind` and `code` the vendor's usual ones are told.

    `message` stands where a vendor's message is no text; `more` goes into the error itself.
    """

    text: str
    status: int = 400
    kind: str | None = None
    code: str | None = None
    param: str | None = None
    message: Any = None
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])


def error_body(refusal: Refusal, vendor: Vendor = VENDORS["openai"]) -> Any:
    """Write a refusal in the vendor's shape."""
    error = {**_error(refusal, vendor), **refusal.more}
    match vendor.shape:
        case "nested":
            return {"error": error}
        case "flat":
            return {"object": "error", **error}
        case "string":
            return {"code": error["code"], "error": error["message"]}
        case "list":
            return [{"error": error}]


def _error(refusal: Refusal, vendor: Vendor) -> dict[str, Any]:
    code: Any = refusal.code or vendor.code
    known = {
        "message": refusal.text if refusal.message is None else refusal.message,
        "type": refusal.kind or vendor.kind,
        "param": refusal.param,
        "code": refusal.status if code == "status" or vendor.shape == "list" else code,
        "status": _STATUSES.get(refusal.status, "UNKNOWN"),
    }
    return {name: known[name] for name in vendor.fields}
