"""Journals in PostgreSQL: servers that go, answers that are lost, poolers, owners elsewhere."""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.killed import execute, killed, rows
from support.postgres import Postgres, free_port, needs_postgres
from support.sdks.formats import MAKES, request
from support.sdks.turn import FAST, end, quietly

import continuation
from continuation import Fenced, Journal, JournalError, LeaseHeld
from continuation.cli import doctor, main
from continuation.journal import postgres
from continuation.journal.store import JournalStore
from continuation.simulator import Scenario, Simulator
from continuation.stores import postgres as stores

pytestmark = [pytest.mark.slow, needs_postgres]
CALL = {"id": "c", "name": "Write", "input": {}}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres() as running:
        yield running


@pytest.fixture
def other() -> Iterator[Callable[[str], postgres.PostgresJournalStore]]:
    """Reaches a database as another process would."""
    with ExitStack() as stack:

        def reach(url: str) -> postgres.PostgresJournalStore:
            store = postgres.PostgresJournalStore(url)
            stack.callback(lambda: [each.close() for each in store._spare])
            return store

        yield reach


def written(journal: Journal) -> list[str]:
    """Return the calls that have a result, in the order of their records."""
    found = rows(journal, "SELECT key FROM records WHERE kind = 'result' ORDER BY number")
    return [str(key) for (key,) in found]


# --- servers that go --------------------------------------------------------------------------


def test_a_server_that_is_killed_loses_and_doubles_nothing(server: Postgres) -> None:
    """Again and again, while tools run: what was acknowledged is there once, and in its order."""
    journal, ran, done = Journal(server.database(), "s"), list[str](), list[str]()
    going = threading.Event()

    def crash() -> None:
        for _ in range(4):
            time.sleep(0.3)
            server.kill()
            server.start()
        going.set()

    crashing = threading.Thread(target=crash)
    crashing.start()
    while not going.is_set():
        called = f"c{len(ran)}"
        ran.append(called)
        with suppress(JournalError):  # refused: its intent could not be durable
            assert journal.call({**CALL, "id": called}, lambda _: "written") == "written"
            done.append(called)
    crashing.join()
    assert len(done) > 20
    assert journal.call({**CALL, "id": "last"}, lambda _: "written") == "written"
    told = written(journal)
    assert [called for called in told if called in done] == done
    assert len(told) == len(set(told))
    with killed(journal) as later:
        for called in done:
            assert later.call({**CALL, "id": called}, pytest.fail) == "written"


def test_a_server_that_is_gone_costs_no_answer_and_starts_no_tool(
    server: Postgres, sim: Simulator
) -> None:
    events, ran = list[Any](), list[Any]()
    sim.script([end("One."), end("Two."), end("Three.")])
    url = server.database()
    with Journal(url, "s") as journal:
        with MAKES["anthropic-messages"]().connect(sim.url, asynchronous=False) as bare:
            client: Any = continuation.wrap(
                bare, config=FAST, journal=journal, on_event=events.append
            )

            def ask(*more: Any) -> str:
                asked = request("anthropic-messages", 1000, {})
                asked["messages"] = [*asked["messages"], *more]
                with quietly(), client.messages.stream(**asked) as stream:
                    return str(stream.get_final_message().content[0].text)

            assert ask() == "One."
            said = [{"role": "assistant", "content": "One."}, {"role": "user", "content": "And?"}]
            server.kill()
            assert ask(*said) == "Two."
            assert [e for e in events if isinstance(e, continuation.NotDurable)]
            with pytest.raises(JournalError, match="so the tool is refused"):
                journal.call(CALL, ran.append)
            server.start()
            assert journal.call(CALL, lambda _: "written") == "written"
            said += [{"role": "assistant", "content": "Two."}, {"role": "user", "content": "And?"}]
            assert ask(*said) == "Three."
        told = journal.history()
    with Journal(url, "s") as later:
        assert later.history() == told
        assert [text in str(told) for text in ("One.", "Two.", "Three.")] == [True] * 3
    assert ran == []


def test_who_could_not_tell_that_it_has_closed_does_so_later(server: Postgres) -> None:
    """Its process lives on, and would own the session as long as it does."""
    url = server.database()
    journals = [Journal(url, name, lease=0.6) for name in "st"]

    def write(_: Any) -> str:
        server.kill()
        return "written"

    assert journals[1].call(CALL, write) == "written"
    for journal in journals:
        journal.close()
    server.start()
    with Journal(url, "s") as again:
        assert again.fencing_token == 2
    held = "SELECT count(*) FROM sessions WHERE owner IS NOT NULL"
    until = time.monotonic() + 60
    while execute(url, held) != [(0,)]:
        assert time.monotonic() < until, "nobody else may have it"
        time.sleep(0.05)
    with Journal(url, "t") as again:  # what it owed is written with it
        assert again.call(CALL, pytest.fail) == "written"


def test_who_has_closed_has_done_so_also_if_the_server_dies_then(server: Postgres) -> None:
    url = server.database()
    for number in range(4):
        with Journal(url, "s") as journal:
            assert journal.fencing_token == number + 1
        server.kill()
        server.start()


def test_who_could_not_open_a_session_owns_none(server: Postgres) -> None:
    """What is read behind the taking over may fail; the owner would be a process that lives."""
    url = server.database()
    Journal(url, "s").close()
    schema = url.rpartition("%3D")[2]
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute(b"DROP ROLE IF EXISTS agent")
        admin.execute(b"CREATE ROLE agent LOGIN")
        every = f"ON ALL TABLES IN SCHEMA {schema}"
        admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO agent".encode())
        admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE {every} TO agent".encode())
        admin.execute(f"REVOKE SELECT ON {schema}.continuation_records FROM agent".encode())
        agents = url.replace("tests@", "agent@")
        with pytest.raises(JournalError, match="permission denied for table"):
            Journal(agents, "s")
        admin.execute(f"GRANT SELECT {every} TO agent".encode())
    with Journal(agents, "s") as journal:
        assert journal.call(CALL, lambda _: "written") == "written"


def test_a_server_that_is_frozen_counts_as_gone(
    server: Postgres, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its system takes connections and what is sent; it says nothing, and nobody waits for ever."""
    monkeypatch.setattr(stores, "SILENT", 0.5)
    events, ran = list[Any](), list[Any]()
    sim.script([end("One line. " * 500)])
    url = server.database()
    with Journal(url, "s") as journal:
        with MAKES["anthropic-messages"]().connect(sim.url, asynchronous=False) as bare:
            client: Any = continuation.wrap(
                bare, config=FAST, journal=journal, on_event=events.append
            )
            asked = request("anthropic-messages", 1000, {})
            with quietly(), client.messages.stream(**asked) as stream:
                next(stream.text_stream)
                server.freeze()
                try:
                    assert stream.get_final_message().content[0].text == "One line. " * 500
                    assert [e for e in events if isinstance(e, continuation.NotDurable)]
                    with pytest.raises(JournalError, match="so the tool is refused"):
                        journal.call(CALL, ran.append)
                finally:
                    server.thaw()
        assert journal.call(CALL, lambda _: "written") == "written"
    with Journal(url, "s") as later:
        assert str(later.history()).count("One line.") == 500
    assert ran == []


def test_a_database_that_is_made_anew_gets_its_tables(databases: Callable[[], str]) -> None:
    """Without a restart of who has used the one before."""
    url = databases()
    with Journal(url, "s") as journal:
        schema = url.rpartition("%3D")[2]
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f"DROP SCHEMA {schema} CASCADE".encode())
            admin.execute(f"CREATE SCHEMA {schema}".encode())
        with pytest.raises(JournalError, match="does not exist"):
            Journal(url, "other")
        with Journal(url, "other") as other:
            assert other.call(CALL, lambda _: "written") == "written"
            with pytest.raises(Fenced):
                journal.call({**CALL, "id": "another"}, pytest.fail)
            assert len(rows(other, "SELECT * FROM records")) == 2


class Cut:
    """Stands before a server. When it is to answer for the nth time, the connection is cut, or goes
    silent: nothing of it arrives any more, as behind a router that has forgotten it.
    """

    def __init__(self, port: int, *, silent: bool) -> None:
        self._silent = silent
        self._port, self._socket = port, socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._answers = 0
        self.cut_at = 0
        self.cuts = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def arm(self, number: int) -> None:
        self._answers, self.cut_at = 0, number

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                lost = threading.Event()
                for ends in ((near, far, lost, False), (far, near, lost, True)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(
        self, source: socket.socket, sink: socket.socket, lost: threading.Event, answers: bool
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self._answers += answers
                if answers and self._answers == self.cut_at:
                    self.cuts += 1
                    if not self._silent:
                        break
                    lost.set()
                if not lost.is_set():
                    sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()


@pytest.mark.parametrize("silent", [False, True])
def test_an_answer_that_is_lost_is_found_again(
    silent: bool, databases: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the server has answered last: of opening, of an intent, a result, or closing."""
    monkeypatch.setattr(stores, "SILENT", 0.3)
    monkeypatch.setattr(stores, "RETRIED", 0.2)  # less than the silence
    url = databases()
    port = psycopg.conninfo.conninfo_to_dict(url)["port"]
    at, cuts = 0, -1
    with closing(Cut(int(str(port)), silent=silent)) as between:
        through = url.replace(f":{port}/", f":{between.port}/")
        Journal(through, "warm").close()
        while between.cuts > cuts:
            at, cuts = at + 1, between.cuts
            between.arm(at)
            with Journal(through, f"s{at}") as journal:
                ran = list[Any]()
                assert journal.call(CALL, ran.append) is None
                assert journal.call(CALL, pytest.fail) is None
                assert len(ran) == 1
            with Journal(url, f"s{at}", readonly=True) as later:
                query = f"SELECT kind FROM records WHERE session = {later.owner.session}"
                assert rows(later, f"{query} ORDER BY number") == [("intent",), ("result",)]
                assert later.owner.epoch == 1, "who opened it found itself again"
    assert at > 10, "there are more answers than these"


# --- owners elsewhere ---------------------------------------------------------------------------


def _elsewhere(journal: Journal, url: str) -> None:
    """Let the owner be one of another machine."""
    query = "SELECT owner FROM sessions WHERE name = ?"
    ((held,),) = execute(url, query, (journal.session,))
    told = json.dumps({**json.loads(str(held)), "machine": "another"})
    execute(url, "UPDATE sessions SET owner = ? WHERE name = ?", (told, journal.session))


def test_no_append_passes_by_a_takeover(
    databases: Callable[[], str], other: Callable[[str], postgres.PostgresJournalStore]
) -> None:
    """An owner that goes on appending while another takes over: nothing of it stands behind."""
    url = databases()
    for number in range(20):
        zombie, late = Journal(url, f"s{number}"), list[BaseException]()
        many = number % 2 + 1  # alone, and with others: the one that waits would keep the other off
        began = threading.Event()

        def append(
            zombie: Journal = zombie,
            late: list[BaseException] = late,
            many: int = many,
            began: threading.Event = began,
        ) -> None:
            for n in itertools.count():
                told = [("repair", f"{n}", None)] * many
                try:
                    with zombie._lock:
                        done = zombie._append(*told, durable=False)
                    done.result()
                    began.set()
                except Fenced as error:
                    late.append(error)
                    return

        appending = threading.Thread(target=append)
        appending.start()
        assert began.wait(20)
        with other(url).transaction() as db:
            session, epoch, *_ = db.execute(db.sql.owner, (zombie.session,)).fetchone()
            raised = "UPDATE continuation_sessions SET epoch = %s WHERE id = %s"
            db.execute(raised, (epoch + 1, session))
            query = "SELECT count(*) FROM continuation_records WHERE session = %s"
            found = db.execute(query, (session,)).fetchone()
            time.sleep(0.002)
        appending.join()
        assert late
        query = "SELECT count(*) FROM records WHERE session = ?"
        assert execute(url, query, (session,)) == [found], "it wrote behind its successor"


def test_who_freezes_in_a_transaction_holds_nobody_up(
    databases: Callable[[], str],
    other: Callable[[str], postgres.PostgresJournalStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "FROZEN", "300ms")
    url, took = databases(), list[float]()
    journal = Journal(url, "s")
    with suppress(JournalError), other(url).transaction() as db:
        db.execute(db.sql.owner, ("s",))
        began = time.monotonic()  # and from here on it does nothing
        waits = f"{url}%20-c%20lock_timeout%3D20s"
        execute(waits, "UPDATE sessions SET owner = NULL WHERE name = 's'")
        took.append(time.monotonic() - began)
    assert [0.2 < seconds < 20 for seconds in took] == [True]
    with pytest.raises(LeaseHeld), killed(journal) as later:
        Journal(url, "s")
    assert later.fencing_token == 2


def test_the_lease_runs_by_the_servers_clock(
    databases: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = databases()
    with Journal(url, "s", abandoned_after=60) as journal:
        journal.record("intent", "c", {"name": "Write"}).result()
        _elsewhere(journal, url)
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + 86_400)  # a clock that goes wrong...
        JournalStore.of(url).connect().close()  # ...and is compared again
        with pytest.raises(LeaseHeld):
            Journal(url, "s", lease=600)
        execute(url, "UPDATE sessions SET beat = beat - 3600")
        with Journal(url, "s", lease=600) as later:
            assert later.fencing_token == 2
            assert abs(later._store.time() - now()) < 60


def test_an_owner_that_was_killed_here_is_replaced_at_once(databases: Callable[[], str]) -> None:
    journal, took = Journal(databases(), "s"), list[float]()
    for _ in range(10):
        JournalStore.of(journal._target).flush()
        journal._store.release(journal.owner)
        began = time.perf_counter()
        journal = killed(journal)
        took.append(time.perf_counter() - began)
    assert min(took) < 0.1


# --- connections ----------------------------------------------------------------------------------


def test_a_process_has_two_connections_however_many_sessions() -> None:
    with Postgres() as server, ExitStack() as stack:
        url = server.database()
        with Simulator("A line.\n" * 2_000, Scenario(deltas=40, slow=0.0005)) as sim, quietly():
            journals = [stack.enter_context(Journal(url, f"s{n}")) for n in range(24)]

            def ask(journal: Journal) -> None:
                with MAKES["openai-chat"]().connect(sim.url, asynchronous=False) as bare:
                    client: Any = continuation.wrap(bare, config=FAST, journal=journal)
                    with client.chat.completions.create(
                        **request("openai-chat", 16_000, {}), stream=True
                    ) as stream:
                        for _ in stream:
                            pass
                journal.call({**CALL, "id": journal.session}, lambda _: "written")

            threads = [threading.Thread(target=ask, args=(each,)) for each in journals]
            for thread in threads:
                thread.start()
            most = 0
            while any(thread.is_alive() for thread in threads):
                most = max(most, server.connections())
            assert most == 2
        assert {str(each.history()).count("A line.") for each in journals} == {2_000}


@pytest.fixture
def pooled() -> Iterator[str]:
    """The URL of a database behind pgbouncer, which lends a connection for a transaction."""
    paths = f"{os.environ['PATH']}:/usr/sbin"
    if (pgbouncer := shutil.which("pgbouncer", path=paths)) is None:
        pytest.skip("pgbouncer is not installed")
    with Postgres() as server:
        port, folder = free_port(), server._folder
        (folder / "users").write_text('"tests" ""\n')
        (folder / "bouncer").write_text(
            f"""
[databases]
postgres = host=127.0.0.1 port={server.port} dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder / "users"}
pool_mode = transaction
default_pool_size = 3
server_idle_timeout = 1
"""
        )
        for name in ("users", "bouncer"):
            (folder / name).chmod(0o644)
        command = [pgbouncer, str(folder / "bouncer")]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        running = subprocess.Popen(command, **quiet, **server._more)  # type: ignore[call-overload]
        url = f"postgresql://tests@127.0.0.1:{port}/postgres"
        try:
            for _ in range(100):
                with suppress(psycopg.OperationalError), psycopg.connect(url):
                    break
                time.sleep(0.05)
            yield url
        finally:
            running.kill()
            running.wait()


def test_through_pgbouncer(pooled: str) -> None:
    """Transactions of many sessions on three connections, each the next one's a moment later."""
    text = "A line that goes through a pooler.\n" * 500
    with Simulator(text, Scenario(deltas=40, slow=0.0005)) as sim, quietly():
        journals = [Journal(pooled, f"s{n}", save_every=0.01) for n in range(6)]

        def ask(journal: Journal, stop_after: int) -> str:
            said = ""
            with MAKES["anthropic-messages"]().connect(sim.url, asynchronous=False) as bare:
                client: Any = continuation.wrap(bare, config=FAST, journal=journal)
                asked = request("anthropic-messages", 16_000, {})
                with client.messages.stream(**asked) as stream:
                    for number, piece in enumerate(stream.text_stream):
                        said += piece
                        if number == stop_after:
                            break
            return said

        def all_of(stop_after: int) -> list[str]:
            told = dict[str, str]()

            def one(journal: Journal) -> None:
                told[journal.session] = ask(journal, stop_after)

            threads = [threading.Thread(target=one, args=(each,)) for each in journals]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return [told[journal.session] for journal in journals]

        all_of(150)
        journals = [killed(journal) for journal in journals]
        assert {journal.resume().characters > 1_000 for journal in journals} == {True}
        time.sleep(1.5)  # a pooler closes what is idle for long
        assert all_of(-1) == [text] * 6
    for journal in journals:
        assert journal.call(CALL, lambda _: "written") == "written"
        with pytest.raises(LeaseHeld):
            Journal(pooled, journal.session)
        journal.close()
    with Journal(pooled, "s0") as later:
        assert later.call(CALL, pytest.fail) == "written"


# --- the URL --------------------------------------------------------------------------------------

SECRET = "hush-hush"


@contextmanager
def _guarded() -> Iterator[str]:
    """A server that wants a password, and encrypts."""
    with Postgres() as server:
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute(f"ALTER ROLE tests PASSWORD '{SECRET}'".encode())
        data = server._folder / "data"
        made = ["openssl", "req", "-new", "-x509", "-nodes", "-subj", "/CN=localhost", "-days", "9"]
        files = ["-keyout", str(data / "server.key"), "-out", str(data / "server.crt")]
        subprocess.run([*made, *files], check=True, capture_output=True)
        for name in ("server.key", "server.crt"):
            if server._more:
                os.chown(data / name, server._more["user"], server._more["group"])
            (data / name).chmod(0o600)
        shutil.copy(data / "server.crt", server._folder / "root.crt")
        rules = "hostssl all all all scram-sha-256\n"
        (data / "pg_hba.conf").write_text(rules)
        with (data / "postgresql.conf").open("a") as settings:
            settings.write("ssl = on\n")
        server.kill()
        server.start()
        root = server._folder / "root.crt"
        options = f"sslmode=verify-ca&sslrootcert={root}"
        yield f"postgresql://tests:{SECRET}@localhost:{server.port}/postgres?{options}"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_what_tls_wants_is_passed_on_and_no_password_is_shown(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    with _guarded() as url:
        shown = list[str]()
        with Journal(url, "s") as journal:
            assert journal.call(CALL, lambda _: "written") == "written"
            shown += [repr(journal), str(journal.target), repr(journal.__dict__["_store"])]
        wrong = [
            url.replace("verify-ca", "disable"),
            url.replace(f"sslrootcert={url.rpartition('=')[2]}", f"sslrootcert={tmp_path / 'no'}"),
            url.replace(f":{SECRET}@", f":{SECRET}x@"),
            f"postgresql://tests:a@{SECRET}@localhost/x",
            f"postgresql://tests:a@b:{SECRET}@localhost/x",
        ]
        for each in wrong:
            with pytest.raises((JournalError, ValueError)) as error:
                Journal(each, "s")
            shown.append("".join(traceback_of(error.value)))
            assert main(["sessions", "list", each]) == 2
            shown.append(str(doctor._server(each)))
        for verb in (["list", url], ["show", url, "s"], ["prune", url]):
            assert main(["sessions", *verb]) == 0
        captured = capsys.readouterr()
        shown += [captured.out, captured.err, caplog.text]
        assert not [text for text in shown if SECRET in text]


def traceback_of(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{error!r} {error}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("UPDATE continuation_journal SET version = 99", "its format 99 is newer"),
        ("DROP TABLE continuation_journal", "already exists"),
    ],
)
def test_tables_that_are_none_of_this_version_are_refused(
    change: str, text: str, databases: Callable[[], str]
) -> None:
    url = databases()
    Journal(url, "s").close()
    with psycopg.connect(url) as admin:
        admin.execute(change.encode())
    with pytest.raises(JournalError, match=text):
        postgres.PostgresJournalStore(url)


def test_a_url_that_cannot_be_one_is_told_so() -> None:
    with pytest.raises(ValueError, match=r"target = 'mysql://\.\.\.@h/d': only servers at"):
        Journal("mysql://me:hush@h/d", "s")
