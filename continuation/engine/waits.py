"""How long to wait before a request is sent again."""

from __future__ import annotations

import email.utils
import random
from collections.abc import Mapping

from continuation.policy import Policy

LONGEST_BACKOFF = 8.0
"""Seconds; the SDKs use the same."""


def pause(
    policy: Policy,
    headers: Mapping[str, str],
    tries: int,
    named: float | None = None,
    wall: float | None = None,
) -> float | None:
    """Return the seconds to wait before try `tries + 1`; `None`: do not try again.

    The server's `retry-after-ms` or `retry-after`, or else the seconds `named` in its body, are
    obeyed up to `max_wait_seconds`. A longer wait, or `x-should-retry: false`, means not to try
    again. Otherwise the wait doubles each time, less up to a quarter at random.
    """
    if headers.get("x-should-retry") == "false":
        return None
    stated = retry_after(headers, wall)
    seconds = named if stated is None else stated
    if seconds is None:
        doubled = min(policy.backoff_seconds * 2.0**tries, LONGEST_BACKOFF)
        seconds = doubled * (1 - 0.25 * random.random())
    elif seconds > policy.max_wait_seconds:
        return None
    return capped(seconds)


_longest: float | None = None


def cap_waits(seconds: float | None) -> float | None:
    """Cap all waits in the process at so many seconds (`None`: no cap); return the cap before."""
    global _longest
    before, _longest = _longest, seconds
    return before


def capped(seconds: float) -> float:
    """Return `seconds`, or the cap of this process if that is smaller."""
    return seconds if _longest is None else min(seconds, _longest)


def retry_after(headers: Mapping[str, str], wall: float | None = None) -> float | None:
    """Return the seconds in `retry-after-ms`, else `retry-after` (seconds or a date), or `None`.

    `wall`: the time in seconds since 1970; without it a date is ignored.
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * scale)
        except (KeyError, ValueError):
            continue
    try:
        parsed = email.utils.parsedate_tz(headers.get("retry-after"))
        return max(0.0, email.utils.mktime_tz(parsed) - wall) if parsed and wall else None
    except (ValueError, OverflowError):  # not a valid date
        return None
