"""The gateway's own errors, in the form of the caller's wire format."""

from __future__ import annotations

import json

from continuation.providers.contract import Shape, plain_error
from continuation.registry import shapes, upstreams
from continuation.types import Json


class GatewayError(Exception):
    """Sent instead of the upstream's answer. The message says what is wrong, and the remedy."""

    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        """Headers to send in addition to those of the body."""


def error_body(dialect: str, error: GatewayError) -> bytes:
    """Return an error as JSON, in the form that the SDKs of a dialect read.

    `dialect`: its name, or that of an upstream's dialect. An unknown one gets a plain form.
    """
    return json.dumps(_document(_shape(dialect), error)).encode()


def error_event(dialect: str, error: GatewayError) -> bytes:
    """Return an error as an event, in the form for which the SDKs of a dialect raise."""
    shape = shapes()[dialect]
    return shape.error_event(_document(shape, error))


def _shape(dialect: str) -> Shape | None:
    return shapes().get(dialect) or upstreams().get(dialect)


def _document(shape: Shape | None, error: GatewayError) -> Json:
    make = plain_error if shape is None else shape.error
    return make(error.status, f"continuation gateway: {error}")
