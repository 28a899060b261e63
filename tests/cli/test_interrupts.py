"""Ctrl-C that arrives where C code ignores exceptions still ends the command."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from continuation.cli.interrupts import caught, repeat_ignored_interrupts


class Ignored:
    """Raises where Python cannot hand the exception on to anybody."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __del__(self) -> None:
        raise self.error


def test_an_ignored_interrupt_is_raised_again() -> None:
    def read_on() -> None:
        with repeat_ignored_interrupts():
            Ignored(KeyboardInterrupt())
            time.sleep(10)  # as a read that waits for a server

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        read_on()
    assert time.monotonic() - started < 9


def test_other_ignored_errors_are_reported_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Any]()
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(unraisable.exc_type))
    with repeat_ignored_interrupts():
        Ignored(ValueError("x"))
    Ignored(ValueError("y"))
    assert seen == [ValueError, ValueError]


def test_an_interrupt_is_not_raised_again_after_the_work_ended() -> None:
    with repeat_ignored_interrupts():
        Ignored(KeyboardInterrupt())
    time.sleep(0.2)  # it would be raised here

    with repeat_ignored_interrupts():
        Ignored(KeyboardInterrupt())
        caught()
        time.sleep(0.2)
