"""A turn that was half written goes on where it stopped, in four formats and either shell."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from support.agents import calls_of
from support.killed import killed, rows
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import FAST, STREAMS, How, Turn, end, quietly

import continuation
from continuation import Journal, Report
from continuation.registry import shapes
from continuation.simulator import Reply, Scenario, Simulator, Text, ToolUse

TEXT = "".join(f"{n}. A line of an answer that is long enough to be stopped.\n" for n in range(300))
TURNS = {"gemini": "contents", "openai-responses": "input"}
Store = Path | str

every_format = pytest.mark.parametrize("dialect", FORMATS)
either = pytest.mark.parametrize("how", STREAMS)


@pytest.fixture
def reciting() -> Any:
    with Simulator(TEXT, Scenario(deltas=40, slow=0.0002)) as running:
        yield running


def ask(
    sim: Simulator,
    journal: Journal,
    dialect: str,
    how: How,
    *,
    stop_after: int | None = None,
    turns: Any = None,
    **more: Any,
) -> tuple[Turn, Report | None]:
    """Ask for an answer in a session; `stop_after`: read so many pieces and no more."""
    ran = MAKES[dialect]()
    asked = request(dialect, 16_000, more)
    if turns:
        asked[TURNS.get(dialect, "messages")] = turns
    bare = ran.connect(sim.url, asynchronous=how.startswith("async"))
    client: Any = continuation.wrap(bare, config=FAST, journal=journal)

    async def read() -> None:
        async with getattr(bare, "aio", bare):
            opened = ran.stream(getattr(client, "aio", client), asked)
            opened = await opened if hasattr(opened, "__await__") else opened
            source = await opened.__aenter__() if hasattr(opened, "__aenter__") else opened
            async for piece in source:
                ran.pieces.append(piece)
                if len(ran.pieces) == stop_after:
                    await (getattr(source, "close", None) or source.aclose)()
                    return
            ran.answer = ran.ended(source)
            ran.report = continuation.last_report()

    with quietly():
        if how.startswith("async"):
            asyncio.run(read())
            return ran, ran.report
        with bare:
            opened = ran.stream(client, asked)
            source = opened.__enter__() if hasattr(opened, "__enter__") else opened
            for piece in source:
                ran.pieces.append(piece)
                if len(ran.pieces) == stop_after:
                    source.close()
                    return ran, None
            ran.answer = ran.ended(source)
            ran.report = continuation.last_report()
    return ran, ran.report


@every_format
@either
def test_a_half_written_turn_goes_on(
    dialect: str, how: How, reciting: Simulator, store: Store
) -> None:
    journal = Journal(store, "s")
    ask(reciting, journal, dialect, how, stop_after=60)
    first = len(reciting.posts)
    with killed(journal) as later:
        waiting = later.resume()
        assert (waiting.kind, waiting.resumable, waiting.attempts) == ("turn", True, 1)
        assert waiting.characters > 1_000
        ran, report = ask(reciting, later, dialect, how, turns=later.history())
        assert ran.text == TEXT
        assert report is not None
        assert report.outcome == "healed", (str(report), [p.body for p in reciting.posts[-2:]])
        assert report.attempts[0].saved
        assert (report.saved.output or 0) > 100
        assert report.billed.output == report.attempts[1].usage.output  # type: ignore[union-attr]
        assert len(reciting.posts) == first + 1
        assert later.resume().kind == "nothing"
        said = later.history()
    with Journal(store, "s", readonly=True) as again:
        assert again.history() == said
        assert str(said).count("299. A line") == 1
    assert rows(journal, "SELECT * FROM running") == []


@every_format
@pytest.mark.parametrize("first", STREAMS)
def test_a_finished_answer_is_given_again_to_who_was_killed_behind_it(
    dialect: str, first: How, reciting: Simulator, store: Store
) -> None:
    """A program that begins with the history asks so; what it is given is not paid again."""
    journal = Journal(store, "s")
    ask(reciting, journal, dialect, first)
    posts, numbers = len(reciting.posts), rows(journal, "SELECT number, kind FROM records")
    for _ in range(2):
        with killed(journal) as later:
            turns = later.history()
            ran, report = ask(reciting, later, dialect, "sync-stream", turns=turns)
            assert ran.text == TEXT
            assert report is not None
            assert (report.outcome, report.attempts[0].saved) == ("complete", True), str(report)
            assert report.billed.output in (None, 0)
            assert (report.saved.output or 0) > 100 or dialect == "openai-chat", "no count came"
            assert (later.resume().kind, later.history()) == ("nothing", turns)
    assert len(reciting.posts) == posts
    assert rows(journal, "SELECT number, kind FROM records") == numbers
    with killed(journal) as later:
        more = [*later.history(), later.history()[0]]
        _, report = ask(reciting, later, dialect, "sync-stream", turns=more)
        assert report is not None
        assert not report.attempts[0].saved
    assert len(reciting.posts) == posts + 1


@every_format
def test_an_attempt_that_was_killed_behind_its_answer_is_given_it_again(
    dialect: str, sim: Simulator, store: Store
) -> None:
    """It asks the same, as an engine's step does; any other program that asks so wants another."""
    sim.script([Reply([Text("Now."), ToolUse("Write", {"path": "a"})], stop="tool_use")] * 3)
    first, _ = ask(sim, Journal(store, "s", take_over=True), dialect, "sync-stream")
    with Journal(store, "s", take_over=True) as later:
        again, report = ask(sim, later, dialect, "async-stream")
        assert (again.text, calls_of(again)) == (first.text, calls_of(first))
        assert report is not None
        assert report.attempts[0].saved
        assert later.resume().kind == "calls"
        assert len(sim.posts) == 1
        ask(sim, later, dialect, "sync-stream")
        assert len(sim.posts) == 2, "only once"
    ask(sim, Journal(store, "s"), dialect, "sync-stream")
    assert len(sim.posts) == 3


def test_what_is_kept_beside_an_answer_is_no_content() -> None:
    """No codec encodes it, and some bodies repeat the instructions they were asked with."""
    body: dict[str, object] = {"id": "r", "status": "completed", "instructions": "of mine"}
    said: list[dict[str, object]] = [{"type": "message", "role": "assistant", "content": []}]
    shape = shapes()["openai-responses"]
    turns, around = shape.split_answer({**body, "output": said, "user": "me"})
    assert (turns, around) == (said, {"id": "r", "status": "completed"})


@every_format
def test_a_session_goes_on_with_what_its_sdk_sends_back(
    dialect: str, reciting: Simulator, store: Store
) -> None:
    """The SDK's own form of an answer is known again: only what is new is appended."""
    with Journal(store, "s") as journal:
        ran, _ = ask(reciting, journal, dialect, "sync-stream")
        asked = request(dialect, 16_000, {})
        following = ran.following(asked)[TURNS.get(dialect, "messages")]
        ask(reciting, journal, dialect, "sync-stream", turns=following)
        kinds = [row[0] for row in rows(journal, "SELECT kind FROM records ORDER BY number")]
        assert kinds == ["message", "turn", "answer", "end"] * 2


@either
def test_a_turn_that_was_left_goes_on_in_the_same_process(
    how: How, reciting: Simulator, store: Store
) -> None:
    with Journal(store, "s", save_every=60) as journal:
        ask(reciting, journal, "openai-chat", how, stop_after=60)
        ran, report = ask(reciting, journal, "openai-chat", how)
        assert ran.text == TEXT
        assert report is not None
        assert report.attempts[0].saved
        assert str(journal.history()).count("299. A line") == 1
    assert rows(journal, "SELECT * FROM running") == []


def test_a_task_that_is_cancelled_before_its_answer_leaves_its_turn(
    sim: Simulator, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """While the journal takes its time; the next request is not one beside it."""

    class Slow:
        def __init__(self) -> None:
            self.asked, self.go = threading.Event(), threading.Event()

        def encode(self, data: bytes) -> bytes:
            self.asked.set()
            assert self.go.wait(60)
            return data

        def decode(self, data: bytes) -> bytes:
            return data

    sim.script([end("One.")])
    codec = Slow()

    async def go(journal: Journal) -> None:
        async with MAKES["anthropic-messages"]().connect(sim.url, asynchronous=True) as bare:
            client: Any = continuation.wrap(bare, config=FAST, journal=journal)

            def asking() -> Any:
                return client.messages.create(**request("anthropic-messages", 1000, {}))

            task = asyncio.create_task(asking())
            await asyncio.to_thread(codec.asked.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            codec.go.set()
            assert (await asking()).content[0].text == "One."

    with Journal(store, "s", codec=codec) as journal:
        asyncio.run(go(journal))
        assert str(journal.history()).count("One.") == 1
    assert "another turn of this session" not in caplog.text


@pytest.mark.parametrize("interrupted", ["keep", "drop"])
def test_another_request_closes_the_open_turn(
    interrupted: Any, reciting: Simulator, store: Store
) -> None:
    journal = Journal(store, "s", interrupted=interrupted)
    ask(reciting, journal, "anthropic-messages", "sync-stream", stop_after=60)
    with killed(journal) as later:
        turns = [*later.history(), {"role": "user", "content": "Something else."}]
        ask(reciting, later, "anthropic-messages", "sync-stream", turns=turns)
        roles = [turn["role"] for turn in later.history()]
    kept = ["user", "assistant", "user", "assistant"]
    assert roles == (kept if interrupted == "keep" else ["user", "user", "assistant"])


def test_a_turn_killed_many_times_is_paid_once(reciting: Simulator, store: Store) -> None:
    journal = Journal(store, "s")
    before, sizes = 0, list[int]()
    for stop in (40, 60, 80, 100):
        ask(reciting, journal, "anthropic-messages", "sync-stream", stop_after=stop)
        journal = killed(journal)
        waiting = journal.resume()
        assert waiting.characters >= before
        before = waiting.characters
        sizes.append(sum(len(str(row)) for row in rows(journal, "SELECT content FROM running")))
    ran, report = ask(reciting, journal, "anthropic-messages", "sync-stream")
    assert ran.text == TEXT
    assert report is not None
    assert waiting.attempts == 4
    assert sizes[-1] < 1.5 * before + 2_000  # what was saved once is not saved again
    journal.close()


def test_a_body_has_nothing_to_go_on_from(reciting: Simulator, store: Store) -> None:
    journal = Journal(store, "s")
    ask(reciting, journal, "openai-chat", "sync-stream", stop_after=60)
    with killed(journal) as later:
        chat = MAKES["openai-chat"]()
        bare = chat.connect(reciting.url, asynchronous=False)
        client = continuation.wrap(bare, config=FAST, journal=later)
        with bare:
            answer = chat.create(client, request("openai-chat", 16_000, {}))
        assert answer.choices[0].message.content == TEXT
        assert later.history()[-1]["content"] == TEXT
        assert rows(later, "SELECT * FROM running") == []


def contents(journal: Journal) -> bytes:
    """Return all that a store has, but for who owns what."""
    if isinstance(journal.target, Path):
        found = journal.target.parent.glob(f"{journal.target.name}*")
        return b"".join(path.read_bytes() for path in found)
    tables = [rows(journal, f"SELECT * FROM {table}") for table in ("records", "running")]
    return repr(tables).encode()


def test_without_content_states_are_kept(reciting: Simulator, store: Store) -> None:
    journal = Journal(store, "s", content="none")
    ask(reciting, journal, "anthropic-messages", "sync-stream", stop_after=60)
    assert not journal.resume().resumable
    with pytest.raises(continuation.JournalError, match="content = 'none'"):
        journal.history()
    assert b"A line of an answer" not in contents(journal)
    journal.close()


def test_content_is_encoded_by_the_codec(sim: Simulator, store: Store) -> None:
    class Turned:
        def encode(self, data: bytes) -> bytes:
            return data[::-1]

        decode = encode

    sim.script([end(Text("a line that nobody else reads"))])
    with Journal(store, "s", codec=Turned()) as journal:
        ask(sim, journal, "anthropic-messages", "sync-stream")
        assert "nobody else" in str(journal.history())
    assert b"nobody else" not in contents(journal)
    if isinstance(store, Path):
        assert store.stat().st_mode & 0o777 == 0o600
