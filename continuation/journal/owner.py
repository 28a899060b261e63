"""Who owns a session: one process, until it closes the session, dies, or is silent too long.

On the same machine, the kernel reports whether the owner is alive. So another process can take over
a session at once after a kill. Four values identify a process: its pid, its start time, the boot id
of its machine and its PID namespace. Containers on one machine have the same boot id and can have
the same pids, so the namespace is needed. Where these values cannot be read (macOS, Windows), and
from another machine, only the time since the owner's last beat decides, by the store's clock.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from continuation.journal.errors import LeaseHeld
from continuation.journal.store import JournalStore, Ownership


def this_process() -> dict[str, Any]:
    """Return what identifies this process: `host`, `pid` and, on Linux, what /proc has."""
    process: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid()}
    with suppress(OSError):
        process["machine"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        if Path("/proc/self").readlink() == Path(str(os.getpid())):  # this namespace's /proc
            process["space"] = str(Path("/proc/self/ns/pid").readlink())
            process["began"] = _began(os.getpid())
    return process


def _began(pid: int) -> str:
    """Return a process's start time, in clock ticks since boot. Raises `OSError` if it is gone."""
    status = Path(f"/proc/{pid}/stat").read_text()
    fields = status.rpartition(")")[2].split()
    if fields[0] in "ZX":  # it is dead; its parent has not read its status yet
        raise ProcessLookupError
    return fields[19]


def is_dead(owner: dict[str, Any]) -> bool | None:
    """Whether an owner's process is gone; `None`: this machine cannot find out."""
    own = this_process()
    if "began" not in own or any(owner.get(key) != own[key] for key in ("machine", "space")):
        return None
    try:
        return _began(int(owner["pid"])) != owner.get("began")
    except (OSError, ValueError, KeyError):
        return True


def acquire(store: JournalStore, name: str, lease: float, *, by_force: bool = False) -> Ownership:
    """Take ownership of a session, and create the session if there is none. `lease`: in seconds.

    Raises `LeaseHeld` if another process owns it. With `by_force`, that process loses it instead.
    """
    opening, ownership = uuid.uuid4().hex, None
    try:
        while ownership is None:
            ownership = store.retry(lambda: _try(store, name, opening, lease, by_force=by_force))
    except LeaseHeld:
        raise
    except BaseException:
        store.closed_openings.add(opening)  # the store may have recorded it despite the error
        raise
    return ownership


def _try(
    store: JournalStore, name: str, opening: str, lease: float, *, by_force: bool
) -> Ownership | None:
    """Try once to take ownership; `None`: the session was removed in the meantime."""
    process = json.dumps({**this_process(), "opening": opening})
    with store.transaction() as db:
        db.execute(store.sql.create, (name,))
        row = db.execute(store.sql.owner, (name,)).fetchone()
        if row is None:
            return None
        session, epoch, owner, since, beat, now = row
        if owner == process:  # a try before this one succeeded, but its reply was lost
            return Ownership(int(session), int(epoch), opening)
        if owner is not None and not by_force:
            holder = json.loads(owner)
            dead = holder.get("opening") in store.closed_openings or is_dead(holder)
            # If the beat is in the future, the clock was set back: the owner may be gone.
            silent = abs(now - beat) > lease
            if dead is False or (dead is None and not silent):
                who = f"process {holder.get('pid')} on {holder.get('host')}"
                when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
                message = f"session {name!r} has been owned by {who} since {when}; "
                raise LeaseHeld(message + "wait, stop that process, or open with readonly=True")
        db.execute(store.sql.own, (epoch + 1, process, now, now, session))
    return Ownership(int(session), int(epoch) + 1, opening)
