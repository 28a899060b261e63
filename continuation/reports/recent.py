"""The reports of recent turns, to be found by the ids that the caller's objects carry."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from continuation.ledger import request_id_in

if TYPE_CHECKING:
    from continuation.reports.report import Report

MOST = 1024
"""So many reports are kept; the oldest goes first."""
_IDS = ("_request_id", "request_id")
_RESPONSES = ("response", "http_response", "sdk_http_response", "_response")

_ANSWER_IDS = ("response_id", "id")
"""Where an answer has an id of its own; a request's is looked for first."""
_ANSWERS = ("message", "response")
"""Where an event holds the answer that it is of."""

_reports: dict[str, Report] = {}
_kept: deque[tuple[Sequence[str], Report]] = deque()
_lock = threading.Lock()


def keep(ids: Sequence[str], report: Report) -> None:
    """Keep a report under the ids by which the caller may know the turn."""
    with _lock:
        _kept.append((ids, report))
        _reports.update(dict.fromkeys(ids, report))
        while len(_kept) > MOST:
            old, gone = _kept.popleft()
            for known in old:
                if _reports.get(known) is gone:
                    del _reports[known]


def find(thing: object) -> Report | None:
    """Return the report for an SDK object; raises `TypeError` for one that carries no id."""
    found = _id_of(thing)
    if found is None:
        message = (
            f"{type(thing).__name__} carries no id; give the message or raw response the "
            "SDK returned, its stream, its error, or the id itself, or use last_report()"
        )
        raise TypeError(message)
    with _lock:
        return _reports.get(found)


def _id_of(thing: object) -> str | None:
    if isinstance(thing, str):
        return thing
    for name in _IDS:
        if isinstance(found := getattr(thing, name, None), str):
            return found
    holders = [thing, *(getattr(thing, name, None) for name in _RESPONSES)]
    told = [_told(getattr(holder, "headers", None)) for holder in holders]
    answers = [thing, *(getattr(thing, name, None) for name in _ANSWERS)]
    own = [getattr(answer, name, None) for answer in answers for name in _ANSWER_IDS]
    return next((found for found in (*told, *own) if found and isinstance(found, str)), None)


def _told(headers: Any) -> str | None:
    if not isinstance(headers, Mapping):
        return None
    plain = {str(name).lower(): str(value) for name, value in headers.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any SDK's headers
    return request_id_in(plain)
