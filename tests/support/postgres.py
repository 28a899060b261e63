"""A PostgreSQL server of the tests' own: in a temporary folder, on a free port, run by nobody much.

`databases` gives room for tables on one server for the whole test run, `store` is such room or a
file, in turn; who has to freeze or kill a server makes one of their own, `with Postgres() as
server`. Where PostgreSQL is not installed the tests that want one are skipped.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
BINARIES = Path(shutil.which("initdb") or (_FOUND[-1] if _FOUND else "initdb")).parent
needs_postgres = pytest.mark.skipif(
    not (BINARIES / "pg_ctl").exists(), reason="PostgreSQL is not installed"
)
_SETTINGS = {
    "fsync": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "logging_collector": "off",
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _stat(pid: int) -> list[str]:
    """Return the state of a process, its parent, and more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _runs(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


class Postgres:
    """One server. It does not run as root, which PostgreSQL refuses."""

    def __init__(self, **settings: str) -> None:
        self.port = free_port()
        self._settings = {**_SETTINGS, **settings}
        self._names = itertools.count()
        self._more: dict[str, Any] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="continuation-pg-"))
        if os.geteuid() == 0:
            users = {user.pw_name: user for user in pwd.getpwall()}
            who = users.get("postgres") or users["nobody"]
            os.chown(self._folder, who.pw_uid, who.pw_gid)
            self._more = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}

    def __enter__(self) -> Postgres:
        self._run("initdb", "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = {**self._settings, "port": self.port, "unix_socket_directories": self._folder}
        told = " ".join(f"-c {name}={value}" for name, value in options.items())
        self._run("pg_ctl", "start", "-w", "-s", "-l", str(self._folder / "log"), "-o", told)

    def _run(self, program: str, *options: str) -> None:
        command = [str(BINARIES / program), "-D", str(self._folder / "data"), *options]
        made = subprocess.run(
            command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            check=False,
            **self._more,
        )
        assert made.returncode == 0, f"{program}: {made.stderr!r}"

    @property
    def pids(self) -> list[int]:
        """Ids of the server's process and of those it has started."""
        try:
            pid = (self._folder / "data" / "postmaster.pid").read_text().split()[0]
        except OSError:
            return []
        running = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
        return [int(pid), *(one for one in running if _stat(one)[1:2] == [pid])]

    def _signal(self, number: int) -> list[int]:
        pids = self.pids
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def freeze(self) -> None:
        """Suspend all its processes: connections are accepted, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        pids = self._signal(signal.SIGKILL)
        until = time.monotonic() + 10
        while any(map(_runs, pids)) and time.monotonic() < until:
            time.sleep(0.01)
        # Killed processes that are not reaped at once would count as running.
        for lock in (self._folder / "data" / "postmaster.pid", *self._folder.glob(".s.PGSQL*")):
            lock.unlink(missing_ok=True)

    def url(self) -> str:
        return f"postgresql://tests@127.0.0.1:{self.port}/postgres"

    def database(self) -> str:
        """Create a schema and return its URL; not a database, which takes 7 MB."""
        import psycopg

        name = f"d{next(self._names)}"
        with psycopg.connect(self.url(), autocommit=True) as admin:
            admin.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self.url()}?options=-csearch_path%3D{name}"

    def connections(self, application: str = "continuation") -> int:
        """Return how many connections with this application name are open."""
        import psycopg

        with psycopg.connect(self.url()) as admin:
            statement = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
            row = admin.execute(statement, (application,)).fetchone()
        return row[0] if row else 0


@pytest.fixture(scope="session")
def databases() -> Iterator[Callable[[], str]]:
    """A function that creates a schema, and returns its URL."""
    if not (BINARIES / "pg_ctl").exists():
        pytest.skip("PostgreSQL is not installed")
    with Postgres() as server:
        yield server.database


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs_postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """The target of a journal: a file's path, or the URL of a database."""
    if request.param == "sqlite":
        return tmp_path / "agent.db"
    url: str = request.getfixturevalue("databases")()
    return url
