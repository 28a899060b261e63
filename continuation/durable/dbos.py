"""A DBOS step's journal: a step that is recovered or retried continues its session."""

from __future__ import annotations

import os
from typing import Any

from dbos import DBOS

from continuation.journal import Journal, JournalError


def journal(target: str | os.PathLike[str], **options: Any) -> Journal:
    """Open the session of this step, sync or async, with the `options` of `Journal`.

    A step that is recovered or retried gets the same one. Raises `JournalError` outside of a step.
    """
    if DBOS.step_id is None:
        message = "durable.dbos.journal: open it in a DBOS step that a workflow calls"
        raise JournalError(message)
    session = f"{DBOS.workflow_id}/{DBOS.step_id}"
    return Journal(target, session, take_over=True, **options)
