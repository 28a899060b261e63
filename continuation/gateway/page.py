"""The page at `/`, and the state that it requests every second.

The page is one file without a build step. It loads nothing from elsewhere: its content security
policy names the hashes of its only script and its only style. It polls, because an endless stream
would delay a gateway that drains. It draws the turns itself, because running ones grow from poll to
poll.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from time import time
from typing import Any

from continuation.gateway.caller import Caller, Headers
from continuation.gateway.turns import GOOD, Ended, Turns
from continuation.ledger import Attempt
from continuation.reports.account import summary, why
from continuation.reports.report import SeamReport
from continuation.reports.timeline import rows

_HTML = files("continuation.gateway").joinpath("page.html").read_bytes()


def _hash(tag: bytes) -> str:
    """Return the content security policy's source for the page's only element with this tag."""
    (content,) = re.findall(rb"<%s>(.*?)</%s>" % (tag, tag), _HTML, re.DOTALL)
    return f"'sha256-{b64encode(sha256(content).digest()).decode()}'"


_POLICY = (
    f"default-src 'none'; script-src {_hash(b'script')}; style-src {_hash(b'style')}; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Headers = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


async def show_page(caller: Caller) -> None:
    """Answer `GET /`."""
    await caller.answer(200, _HTML, *_HEADERS, kind=b"text/html; charset=utf-8")


async def show_state(caller: Caller, turns: Turns) -> None:
    """Answer `GET /continuation/live`."""
    data, headers = json.dumps(state(turns), separators=(",", ":")).encode(), _HEADERS
    if b"gzip" in caller.named.get(b"accept-encoding", b""):
        data, headers = gzip.compress(data, 1), [*headers, (b"content-encoding", b"gzip")]
    await caller.answer(200, data, *headers)


def state(turns: Turns) -> dict[str, Any]:
    """Return what the page shows: running turns, the last ended turns, and the last hour."""
    live = [
        {
            **_timeline(name, upstream, recorder.ledger.so_far, recorder.seams),
            "model": recorder.model,
            "seconds": round(recorder.ledger.seconds, 3),
            "waits": recorder.ledger.live is None,
            "held": recorder.ledger.held,
        }
        for name, (upstream, recorder) in turns.live.items()
    ]
    for turn in live:
        if turn["id"] in turns.texts:
            turn["text"] = turns.texts[turn["id"]]()
    counts = turns.hour
    return {
        "live": live,
        "ended": [_ended(turn) for turn in reversed(turns.ended)],
        "failures": [
            {
                "ago": round(time() - turn.at),
                "count": count,
                "id": turn.name,
                "model": turn.report.model,
                "outcome": turn.report.outcome,
                "reason": why(turn.report),
                "message": turns.messages.get(turn.name),
                "ending": turn.report.ending,
                "remedy": turn.report.remedy,
            }
            for count, turn in reversed(turns.failures.values())
        ],
        "outcomes": {name: n for name, n in counts.items() if " " not in name},
        "tokens": {name: n for name, n in counts.items() if " " in name},
    }


def _ended(turn: Ended) -> dict[str, Any]:
    report = turn.report
    return {
        **_timeline(turn.name, turn.upstream, report.attempts, report.seams),
        "model": report.model,
        "seconds": round(report.seconds, 3),
        "good": report.outcome in GOOD,
        "summary": summary(report),
    }


def _timeline(
    name: str,
    upstream: str,
    attempts: list[Attempt] | tuple[Attempt, ...],
    seams: list[SeamReport] | tuple[SeamReport, ...],
) -> dict[str, Any]:
    drawn_rows = [
        {
            "name": row.name,
            "at": [round(at, 3) for at in (row.waited, row.begun, row.shown, row.ended)],
            "kind": row.kind,
            "what": row.what,
            "fate": row.fate,
            "seam": row.seam,
        }
        for row in rows(attempts, seams)
    ]
    return {"id": name, "upstream": upstream, "rows": drawn_rows}
