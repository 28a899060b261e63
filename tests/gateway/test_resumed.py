"""Clients that come back with the same request: a half-written answer goes on, theirs alone."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.gateways import process, serving, toml, until
from support.gateways import request as wire
from support.killed import execute, let_go
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import quietly

from continuation.config import ConfigError, load
from continuation.journal.half import expire
from continuation.journal.store import JournalStore
from continuation.simulator import Scenario, Simulator

TEXT = "".join(f"{n}. A line that somebody reads until all ends.\n" for n in range(600))
UPSTREAMS = {"anthropic-messages": "anthropic", "gemini": "gemini"}
Place = Path | str


@pytest.fixture
def reciting() -> Iterator[Simulator]:
    with Simulator(TEXT, Scenario(deltas=40, slow=0.0005)) as running, quietly():
        yield running


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    let_go()


def table(store: Place, more: str = "") -> str:
    return f'\n[gateway]\njournal = "{store}"\n{more}[defaults]\nbackoff_seconds = 0.0\n'


def ask(url: str, dialect: str, stop_after: int = -1, then: Any = None) -> str:
    """Ask for the answer as any SDK does; after so many pieces leave, or let something happen."""
    ran = MAKES[dialect]()
    upstream = UPSTREAMS.get(dialect, "openai")
    with ran.connect(f"{url}/{upstream}", asynchronous=False) as bare, contextlib.ExitStack() as up:
        opened = ran.stream(bare, request(dialect, 16_000, {}))
        source = up.enter_context(opened) if hasattr(opened, "__enter__") else opened
        try:
            for piece in source:
                ran.pieces.append(piece)
                if len(ran.pieces) == stop_after:
                    if then is None:
                        source.close()
                        return ""
                    then()
        except Exception:  # each SDK has its own for a connection that breaks off
            assert then is not None
            return ""
        ran.answer = ran.ended(source)
    return str(ran.text)


def billed(sim: Simulator, since: int) -> float:
    """Return what part of the answer was sent since a request, by the provider."""
    return sum(post.sent for post in sim.posts[since:]) * 40 / len(TEXT)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", FORMATS)
def test_a_gateway_is_killed_in_mid_turn(
    dialect: str, store: Place, reciting: Simulator, tmp_path: Path
) -> None:
    """The client asks the other one the same, and pays for what it has not seen."""
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    text = toml(reciting.url, table(store))
    with process(folders[0], text) as (first, dead), process(folders[1], text) as (second, _):
        ask(first, dialect, 500, dead.kill)
        dead.wait()
        posts = len(reciting.posts)
        assert ask(second, dialect) == TEXT
        assert len(reciting.posts) == posts + 1
        assert billed(reciting, posts) < 0.9
    assert execute(store, "SELECT count(*) FROM running") == [(0,)]


@pytest.mark.parametrize("dialect", FORMATS)
def test_a_client_that_was_cut_off_comes_back(
    dialect: str, reciting: Simulator, tmp_path: Path
) -> None:
    store = tmp_path / "journal.db"
    with serving(tmp_path, reciting.url, table("journal.db")) as served:
        ask(served.url, dialect, 300)
        posts = len(reciting.posts)
        assert ask(served.url, dialect) == TEXT
        assert billed(reciting, posts) < 0.9
        posts = len(reciting.posts)
        assert ask(served.url, dialect) == TEXT, "what is over is asked for anew"
        assert billed(reciting, posts) > 0.99
    assert b"A line that somebody reads" not in rest(store)


def rest(store: Path) -> bytes:
    """Return all that is left in a journal's rows."""
    tables = ("records", "running", "sessions")
    return repr([execute(store, f"SELECT * FROM {each}") for each in tables]).encode()


def stream(
    url: str,
    key: str,
    body: dict[str, Any],
    pieces: int,
    *,
    seconds: float = 60.0,
    text: str = "",
) -> bytes:
    """Ask with a key of one's own, in the words of `text`; read so many pieces."""
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    with httpx2.stream(
        "POST",
        f"{url}/openai/v1/chat/completions",
        content=text or json.dumps(body),
        headers=headers,
        timeout=seconds,
    ) as r:
        assert r.status_code == 200
        data = b""
        for number, chunk in enumerate(r.iter_raw()):
            data += chunk
            if number == pieces:
                break
    return data


BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hush: go."}], "stream": True}


@pytest.mark.parametrize("dialect", FORMATS)
def test_a_client_that_was_cut_off_may_ask_for_a_body(
    dialect: str, reciting: Simulator, tmp_path: Path
) -> None:
    """As Claude Code does when a stream breaks off: it gets the rest, in its body."""
    with serving(tmp_path, reciting.url, table("journal.db")) as served:
        ask(served.url, dialect, 300)
        posts = len(reciting.posts)
        assert whole(served.url, dialect) == TEXT
        assert 0.1 < billed(reciting, posts) < 0.9
        posts = len(reciting.posts)
        assert whole(served.url, dialect) == TEXT, "what is over is asked for anew"
        assert len(reciting.posts) == posts + 1


def whole(url: str, dialect: str) -> str:
    """Ask for the answer as a body, in the words that the SDK used; return its text."""
    ran, upstream = MAKES[dialect](), UPSTREAMS.get(dialect, "openai")
    with ran.connect(f"{url}/{upstream}", asynchronous=False) as bare:
        ran.answer = ran.create(bare, request(dialect, 16_000, {}))
        return str(ran.text)


def test_who_does_not_wait_for_the_body_may_ask_for_a_stream(
    reciting: Simulator, tmp_path: Path
) -> None:
    body = json.dumps({**BODY, "stream": False}).encode()
    head = ["content-type: application/json", "authorization: Bearer k"]
    head.append(f"content-length: {len(body)}")
    with serving(tmp_path, reciting.url, table("journal.db")) as served:
        stream(served.url, "k", BODY, 100)
        host, _, port = served.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as line:
            line.sendall(wire("POST /openai/v1/chat/completions HTTP/1.1", *head, body=body))
            until(lambda: len(reciting.posts) == 2 and reciting.posts[1].sent > 40)
        until(lambda: served.gateway.streams == 0)
        assert stream(served.url, "k", BODY, -1).rstrip().endswith(b"[DONE]")
        assert len(reciting.posts) == 3
        assert billed(reciting, 2) < 0.9


def test_the_order_of_keys_is_no_difference(reciting: Simulator, tmp_path: Path) -> None:
    """Codex writes them in another order each time; spaces and escapes are none either."""
    words = {"role": "user", "content": "Fa\u00e7ade: go."}
    first = {"model": "gpt-4o", "messages": [words], "stream": True, "user": "u"}
    again = {"user": "u", "stream": True, "messages": [{**words}], "model": "gpt-4o"}
    again["messages"] = [dict(reversed([*words.items()]))]
    with serving(tmp_path, reciting.url, table("journal.db")) as served:
        stream(served.url, "k", first, 100, text=json.dumps(first))
        posts = len(reciting.posts)
        text = json.dumps(again, ensure_ascii=False, indent=1)
        assert stream(served.url, "k", again, -1, text=text).rstrip().endswith(b"[DONE]")
        assert billed(reciting, posts) < 0.9


def test_nobody_else_gets_it_and_nothing_that_was_asked_is_kept(
    reciting: Simulator, tmp_path: Path
) -> None:
    with serving(tmp_path, reciting.url, table("journal.db")) as served:
        stream(served.url, "sk-one", BODY, 100)
        for key, body in (("sk-two", BODY), ("sk-one", {**BODY, "temperature": 0.5})):
            posts = len(reciting.posts)
            stream(served.url, key, body, 20)
            (post,) = reciting.posts[posts:]
            assert len(post.body["messages"]) == 1, "it began anew"  # type: ignore[index]
        posts = len(reciting.posts)
        stream(served.url, "sk-one", BODY, 20)
        while len(reciting.posts) == posts:
            time.sleep(0.01)
        assert len(reciting.posts[posts].body["messages"]) > 1  # type: ignore[index]
    told = rest(tmp_path / "journal.db")
    assert b"A line that somebody reads" in told
    assert not [word for word in (b"Hush", b"sk-one", b"sk-two") if word in told]


def test_two_that_ask_the_same_at_once_are_two(reciting: Simulator, tmp_path: Path) -> None:
    with serving(tmp_path, reciting.url, table("journal.db")) as served:
        headers = {"authorization": "Bearer k"}
        url = f"{served.url}/openai/v1/chat/completions"
        with httpx2.stream("POST", url, json=BODY, headers=headers) as first:
            next(first.iter_raw())
            whole = stream(served.url, "k", BODY, -1)
            assert whole.rstrip().endswith(b"[DONE]")
            assert len(reciting.posts) == 2


def test_a_journal_that_cannot_be_had_costs_no_answer(
    reciting: Simulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "no-folder").write_text("a file, so that no folder can be created")
    with serving(tmp_path, reciting.url, table("no-folder/journal.db")) as served:
        for _ in range(2):
            assert stream(served.url, "k", BODY, -1).rstrip().endswith(b"[DONE]")
    assert caplog.text.count("gateway journal unavailable") == 1


@contextlib.contextmanager
def locked(store: Path) -> Iterator[None]:
    """Let nobody else write to a file."""
    with contextlib.closing(sqlite3.connect(store, timeout=10, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def test_a_journal_that_is_silent_costs_no_answer(
    reciting: Simulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "journal.db"
    with serving(tmp_path, reciting.url, table("journal.db")) as served:
        stream(served.url, "warm", BODY, -1)
        with locked(store), concurrent.futures.ThreadPoolExecutor(30) as pool:
            asked = [pool.submit(stream, served.url, f"k{n}", BODY, -1) for n in range(30)]
            assert all(one.result().rstrip().endswith(b"[DONE]") for one in asked)
    assert caplog.text.count("gateway journal unavailable") == 1


def test_who_leaves_while_the_journal_is_opened_owns_nothing(
    reciting: Simulator, tmp_path: Path
) -> None:
    """The session would be held as long as the gateway lives, and not be theirs who come back."""
    store, waits = tmp_path / "journal.db", "SELECT count(*), count(owner) FROM sessions"
    with serving(tmp_path, reciting.url, table("journal.db")) as served:
        stream(served.url, "warm", BODY, -1)
        while served.gateway.streams:
            time.sleep(0.01)
        with locked(store):
            for key in "abcd":
                with pytest.raises(httpx2.ReadTimeout):
                    stream(served.url, key, BODY, -1, seconds=0.2)
            while served.gateway.streams:
                time.sleep(0.01)
        until = time.monotonic() + 30
        while execute(store, waits) != [(5, 0)]:
            assert time.monotonic() < until, "somebody owns it"
            time.sleep(0.01)


def test_what_nobody_comes_back_for_goes(store: Place, reciting: Simulator, tmp_path: Path) -> None:
    with serving(tmp_path, reciting.url, table(store, "journal_seconds = 30\n")) as served:
        for key in "abcde":
            stream(served.url, key, BODY, 20)
        waits = "SELECT count(*) FROM sessions WHERE owner IS NOT NULL"
        while execute(store, waits) != [(0,)]:
            time.sleep(0.01)
        execute(store, "UPDATE sessions SET beat = beat - 60")
        expire(str(store), 3600, 3)
        names = execute(store, "SELECT count(DISTINCT session) FROM running")
        assert names == [(3,)]
        execute(store, "UPDATE records SET at = at - 60 WHERE kind = 'turn'")
        posts = len(reciting.posts)
        stream(served.url, "e", BODY, 20)
        assert len(reciting.posts[posts].body["messages"]) == 1  # type: ignore[index]
        execute(store, "UPDATE sessions SET owner = NULL, beat = beat - 60")
        expire(str(store), 30, 1000)
    assert execute(store, "SELECT count(*) FROM running") == [(0,)]
    assert execute(store, "SELECT count(*) FROM records") == [(0,)]
    JournalStore.of(store).flush()


def test_no_password_is_in_what_a_table_is_shown_as(tmp_path: Path) -> None:
    path = tmp_path / "continuation.toml"
    path.write_text("[gateway]\njournal = 'postgresql://me:hush@h/d'\n")
    assert "hush" not in repr(load(path).gateway)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("journal = 3", "must be a string"),
        ("journal = 'mysql://me:hush@h/d'", r"'mysql://\.\.\.@h/d': only servers at postgresql://"),
        ("journal_seconds = 1", "must be a number from 30 to"),
        ("journal_turns = 0", "must be a number from 1 to"),
    ],
)
def test_a_mistake_in_the_table_is_told(line: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "continuation.toml"
    path.write_text(f"[gateway]\n{line}\n")
    with pytest.raises((ConfigError, ValueError, TypeError), match=told):
        load(path)
