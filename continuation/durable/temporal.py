"""A Temporal activity's journal. Its regular heartbeats report `Journal.pointer`: no text."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from threading import Event, Thread
from typing import Any

from temporalio import activity

from continuation.journal import Journal


@contextmanager
def journal(target: str | os.PathLike[str], **options: Any) -> Generator[Journal]:
    """Open the session that all attempts of this activity share; `options`: those of `Journal`."""
    me, over = activity.info(), Event()
    session = f"{me.workflow_id}/{me.workflow_run_id or me.activity_run_id}/{me.activity_id}"
    every = me.heartbeat_timeout.total_seconds() / 3 if me.heartbeat_timeout else 10.0
    schedule: Callable[..., object] = copy_context().run
    with suppress(RuntimeError):  # an async activity beats on its event loop
        schedule = asyncio.get_running_loop().call_soon_threadsafe

    def beat() -> None:
        while not over.wait(every):
            with suppress(Exception):  # if the worker is busy, the next one gets through
                schedule(activity.heartbeat, opened.pointer)

    with ExitStack() as ending:
        ending.callback(over.set)
        with activity.shield_thread_cancel_exception():
            opened = ending.enter_context(Journal(target, session, take_over=True, **options))
        Thread(target=copy_context().run, args=(beat,), daemon=True).start()
        yield opened
