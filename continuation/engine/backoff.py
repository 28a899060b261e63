"""How long to wait before a later attempt is tried again: a pure function."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping

from continuation.policy import Policy
from continuation.types import Head

LONGEST_BACKOFF = 8.0
"""Seconds; what the SDKs use as well."""


def pause(
    reply: object, tries: int, policy: Policy, chance: float, told: float | None = None
) -> float | None:
    """Return the seconds to wait before try `tries + 1`, or `None`: do not try again.

    The server's `retry-after-ms` or `retry-after` is obeyed up to `max_wait_seconds`, and so is
    what its body `told`; a longer one, or `x-should-retry: false`, means that trying again is
    pointless. `chance` (0..1) is the jitter: it takes up to a quarter off.
    """
    headers = reply.headers if isinstance(reply, Head) else dict[str, str]()
    if headers.get("x-should-retry") == "false":
        return None
    asked = retry_after(headers)
    asked = told if asked is None else asked
    if asked is not None:
        return asked if asked <= policy.max_wait_seconds else None
    return min(policy.backoff_seconds * 2.0**tries, LONGEST_BACKOFF) * (1 - 0.25 * chance)


_longest: float | None = None


def cap_waits(seconds: float | None) -> float | None:
    """Let no wait be longer than this, in the whole process; return what held before."""
    global _longest
    before, _longest = _longest, seconds
    return before


def capped(seconds: float) -> float:
    """Return a wait, or the longest one that a test suite allows."""
    return seconds if _longest is None else min(seconds, _longest)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `retry-after-ms`, or `retry-after` (seconds or a date), asks for."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * scale)
        except (KeyError, ValueError):
            continue
    try:
        parsed = email.utils.parsedate_tz(headers.get("retry-after"))
        return max(0.0, email.utils.mktime_tz(parsed) - time.time()) if parsed else None
    except (ValueError, OverflowError):  # a date that no calendar has
        return None
