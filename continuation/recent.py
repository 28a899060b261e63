"""The reports of recent turns, to be found by the request id that the caller's objects carry."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from continuation.report import Report

MOST = 1024
"""So many reports are kept; the oldest goes first."""
_HEADERS = ("request-id", "x-request-id", "apim-request-id")
_IDS = ("_request_id", "request_id")
_RESPONSES = ("response", "http_response", "sdk_http_response")

_reports: OrderedDict[str, Report] = OrderedDict()
_lock = threading.Lock()


def request_id_in(headers: Mapping[str, str]) -> str | None:
    """Return the request id that a provider's response headers tell; names are lower-case."""
    return next((headers[name] for name in _HEADERS if headers.get(name)), None)


def keep(request_id: str, report: Report) -> None:
    """Keep a report under the id of the response that the caller got."""
    with _lock:
        _reports[request_id] = report
        _reports.move_to_end(request_id)
        while len(_reports) > MOST:
            _reports.popitem(last=False)


def find(thing: object) -> Report | None:
    """Return the report for an SDK object; raises `TypeError` for one that carries no id."""
    request_id = _id_of(thing)
    if request_id is None:
        message = (
            f"{type(thing).__name__} carries no request id; give the message or raw response the "
            "SDK returned, its stream, its error, or the id itself, or use last_report()"
        )
        raise TypeError(message)
    with _lock:
        return _reports.get(request_id)


def _id_of(thing: object) -> str | None:
    if isinstance(thing, str):
        return thing
    for name in _IDS:
        if isinstance(found := getattr(thing, name, None), str):
            return found
    holders = [thing, *(getattr(thing, name, None) for name in _RESPONSES)]
    found_ids = (_told(getattr(holder, "headers", None)) for holder in holders)
    return next(filter(None, found_ids), None)


def _told(headers: Any) -> str | None:
    if not isinstance(headers, Mapping):
        return None
    plain = {str(name).lower(): str(value) for name, value in headers.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any SDK's headers
    return request_id_in(plain)
