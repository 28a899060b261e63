"""What was learned of limits, kept in a file if asked for; and the command that tells limits."""

from __future__ import annotations

import json
import logging
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sdks.messages import NEW, OLD, ask, limits
from support.sdks.turn import quietly

import continuation
from continuation import Policy
from continuation.cli import main
from continuation.config import ENVIRONMENT
from continuation.limits import Learned, ModelLimits
from continuation.limits.learned_file import MOST, LearnedFileSync, read
from continuation.simulator import Reply, Simulator, Text

CUT = Reply([Text("One, ")], stop="max_tokens")
REST = Reply([Text("two.")])
TOO_LARGE = "max_tokens: 128000 > 9000, which is the maximum allowed number of output tokens for m"
REFUSED = Reply(status=400, error=("invalid_request_error", TOO_LARGE))
NO_PREFILL = Reply(
    status=400,
    error=("invalid_request_error", "This model does not support assistant message prefill."),
)
KEY = "sk-ant-secret"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "learned.json"


def turn(sim: Simulator, path: Path, *replies: Reply, key: str = KEY, **changes: Any) -> list[int]:
    """Run one turn in what might be another process: a new client."""
    sim.reset()
    sim.script(replies)
    policy = Policy(learned_file=str(path), backoff_seconds=0)
    with quietly(), anthropic.Anthropic(base_url=sim.url, api_key=key, max_retries=0) as bare:
        client = continuation.wrap(bare, config=policy)
        with client.messages.stream(**ask(**changes)) as stream:
            stream.until_done()
    return limits(sim)


def test_a_ceiling_learned_in_one_process_is_known_in_the_next(sim: Simulator, path: Path) -> None:
    assert turn(sim, path, CUT, REFUSED, REST) == [1000, 128_000, 9000]
    assert turn(sim, path, REST) == [9000]


def test_a_refused_prefill_is_known_in_the_next_process(sim: Simulator, path: Path) -> None:
    turn(sim, path, CUT, NO_PREFILL, REST, model=OLD)
    assert len(turn(sim, path, CUT, REST, model=OLD)) == 2


def test_a_raised_limit_is_known_until_it_is_forgotten(sim: Simulator, path: Path) -> None:
    thinking = Reply([], stop="max_tokens")
    turn(sim, path, thinking, REST)
    assert turn(sim, path, REST) == [128_000]
    busy = Reply(status=429, error=("rate_limit_error", "slow down"))
    assert turn(sim, path, busy, REST) == [128_000, 1000]
    assert turn(sim, path, REST) == [1000]


@pytest.mark.parametrize("other", [{"key": "another"}, {"model": "claude-sonnet-5"}, {}])
def test_another_credential_model_or_upstream_learns_for_itself(
    sim: Simulator, path: Path, other: dict[str, Any]
) -> None:
    turn(sim, path, CUT, REFUSED, REST)
    with Simulator() as elsewhere:
        assert turn(sim if other else elsewhere, path, CUT, REST, **other) == [1000, 128_000]


def test_the_file_holds_no_key_and_only_its_owner_reads_it(sim: Simulator, path: Path) -> None:
    turn(sim, path, CUT, REFUSED, REST)
    text = path.read_text()
    assert KEY not in text
    assert path.stat().st_mode & 0o077 == 0
    (lesson,) = json.loads(text)["lessons"]
    assert (lesson["model"], lesson["ceiling"]) == (NEW, 9000)
    assert re.fullmatch(r"[0-9a-f]{32}", lesson["credential"])
    assert lesson["upstream"] == sim.url.removeprefix("http://")
    assert [p.name for p in path.parent.iterdir()] == ["learned.json"], "nothing is left behind"


def test_two_files_tell_the_same_key_differently(sim: Simulator, path: Path) -> None:
    other = path.with_name("other.json")
    for file in (path, other):
        turn(sim, file, CUT, REFUSED, REST)
    digests = {json.loads(file.read_text())["lessons"][0]["credential"] for file in (path, other)}
    assert len(digests) == 2


def test_by_default_nothing_is_written(sim: Simulator, path: Path) -> None:
    sim.script([CUT, REST])
    with anthropic.Anthropic(base_url=sim.url, api_key=KEY) as bare:
        continuation.wrap(bare).messages.create(**ask())
    assert list(path.parent.iterdir()) == []


def test_the_name_in_a_configuration_file_is_beside_it(sim: Simulator, path: Path) -> None:
    folder = path.parent / "settings"
    folder.mkdir()
    config = folder / "c.toml"
    config.write_text('[defaults]\nlearned_file = "kept.json"\n')
    sim.script([CUT, REST])
    with anthropic.Anthropic(base_url=sim.url, api_key=KEY) as bare:
        continuation.wrap(bare, config=config).messages.create(**ask())
    assert (folder / "kept.json").is_file()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "# my notes",
        '{"continuation-learned": 2, "salt": "00", "lessons": []}',
        '{"continuation-learned": 1, "salt": "zz", "lessons": []}',
        '{"continuation-learned": 1, "salt": "00", "lessons": 7}',
        '{"continuation-learned": 1, "salt": "00"}',
        "x" * 2_000_000,
    ],
    ids=range(10),
)
def test_a_damaged_or_foreign_file_is_left_alone_with_a_warning(
    sim: Simulator, path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path.write_text(text)
    with caplog.at_level(logging.WARNING, "continuation"):
        assert turn(sim, path, CUT, REFUSED, REST) == [1000, 128_000, 9000]
    assert path.read_text() == text
    assert f"learned file unavailable: path={path}" in caplog.text


def test_a_single_lesson_that_makes_no_sense_is_passed_over(path: Path) -> None:
    good = {"upstream": "h", "credential": "c", "model": "m", "ceiling": 9}
    bad: list[Any] = [
        7,
        {},
        {**good, "model": "a", "ceiling": -1},
        {**good, "model": "b", "ceiling": True},
        {**good, "model": "c", "ceiling": "many"},
        {**good, "model": "d", "ceiling": 10**12},
    ]
    path.write_text(json.dumps({"continuation-learned": 1, "salt": "00", "lessons": [*bad, good]}))
    assert read(path).lessons == {("h", "c", "m"): {"ceiling": 9}}


def attached(path: Path) -> Learned:
    learned = Learned()
    LearnedFileSync(path, learned).attach()
    return learned


def test_two_processes_add_to_each_other(path: Path) -> None:
    one, two = attached(path), attached(path)
    one.learn(("h", "c", "one"), ceiling=1)
    two.learn(("h", "c", "two"), ceiling=2)
    one.learn(("h", "c", "three"), ceiling=3)
    assert {key[2] for key in read(path).lessons} == {"one", "two", "three"}


def test_many_threads_write_a_whole_file(path: Path) -> None:
    learned = attached(path)

    def learn(thread: int) -> None:
        for number in range(20):
            learned.learn(("h", str(thread), str(number)), ceiling=number + 1)

    threads = [threading.Thread(target=learn, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read(path).lessons) == 80


def test_the_file_is_bounded(path: Path) -> None:
    learned = attached(path)
    save, learned.on_change = learned.on_change, None
    for number in range(MOST + 50):
        learned.learn(("h", "c", str(number)), ceiling=5)
    assert save is not None
    save()
    kept = [key[2] for key in read(path).lessons]
    assert (len(kept), kept[-1]) == (MOST, str(MOST + 49))


def test_a_name_without_end_is_not_kept_and_costs_nothing_else(path: Path) -> None:
    learned = attached(path)
    for number in range(40):
        for width in (300, 100_000):
            learned.learn(("h", "c", f"{number:*>{width}}"), ceiling=5)
    assert len(read(path).lessons) == 40


def test_a_missing_folder_is_created_for_its_owner_alone(sim: Simulator, path: Path) -> None:
    kept = path.parent / ".cache" / "ours" / "learned.json"
    turn(sim, kept, CUT, REST)
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert turn(sim, kept, REST) == [128_000]


@pytest.mark.parametrize(
    "name", ["file/learned.json", "~nobody-of-that-name/learned.json", "~/learned.json"]
)
def test_a_folder_that_is_not_there_is_a_warning(
    name: str, sim: Simulator, path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def nobody(*_: object) -> None:
        raise KeyError

    Path("file").write_text("no folder")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert turn(sim, Path(name), CUT, REST) == [1000, 128_000]
    assert f"learned file unavailable: path={name}" in caplog.text
    assert not list(Path.cwd().glob("~*"))


def test_a_file_made_anew_by_somebody_else_is_not_mixed_with(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learned = attached(path)
    path.unlink()
    attached(path)
    learned.learn(("h", "c", "m"), ceiling=9)
    assert "another process replaced it" in caplog.text
    assert read(path).lessons == {}


def test_what_was_forgotten_is_not_in_the_file(path: Path) -> None:
    learned = attached(path)
    learned.learn(("h", "c", "m"), needed=9)
    learned.learn(("h", "c", "m"), needed=None)
    assert read(path).lessons == {}
    assert attached(path).get(("h", "c", "m")).needed is None


def test_a_fact_that_is_no_news_is_not_written(path: Path) -> None:
    learned = attached(path)
    learned.learn(("h", "c", "m"), ceiling=9)
    path.unlink()
    learned.learn(("h", "c", "m"), ceiling=9)
    assert not path.exists()


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_no_bytes_make_reading_fail_in_another_way(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="delete it to start again"):
        read(path)


def asked_for(sim: Simulator, policy: Policy) -> list[str | int]:
    """Run one cut turn; return its limits, and GET where the models endpoint was asked."""
    sim.reset()
    sim.script([CUT, REST])
    with anthropic.Anthropic(base_url=sim.url, api_key=KEY, max_retries=0) as bare:
        continuation.wrap(bare, config=policy).messages.create(**ask(), timeout=600)
    return [r.body["max_tokens"] if r.body else r.method for r in sim.requests]


def test_configuration_goes_before_lessons_before_the_endpoint_before_the_table(
    path: Path,
) -> None:
    kept = Policy(learned_file=str(path), remember_limit=False)
    with Simulator(models={NEW: ModelLimits(50_000)}) as sim:
        # The table is wrong here, and the refusal says so; the endpoint would have known.
        assert asked_for(sim, Policy(models_endpoint=False)) == [1000, 128_000, 50_000]
        assert asked_for(sim, kept) == [1000, "GET", 50_000]
        assert asked_for(sim, kept) == [1000, 50_000], "learned: no need to ask"
        assert asked_for(sim, replace(kept, model_max_output_tokens=3000)) == [1000, 3000]


# --- the command --------------------------------------------------------------------------------


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, tuple[int | str, str]]:
    assert main(["limits", "--json", *arguments]) == 0
    rows = json.loads(capsys.readouterr().out)
    return {row["of"]: (row["value"], row["from"]) for row in rows}


def test_limits_tells_each_value_of_a_model_and_its_source(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = told(capsys, "us.anthropic.claude-haiku-4-5-20251001-v1:0")
    known = {"ceiling": 64_000, "window": 200_000, "prefill": "yes", "thinking": "manual"}
    source = "table: claude-haiku-4-5* (anthropic, 2026-08-21)"
    assert {key: rows[key] for key in known} == {k: (value, source) for k, value in known.items()}
    unknown = told(capsys, "my-own-model")
    assert unknown["ceiling"] == (64_000, "default: no row in the table")
    assert unknown["window"] == ("unknown", "default: no row in the table")


def test_limits_tells_what_the_configuration_says(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = path.with_name("continuation.toml")
    config.write_text('[models."claude-*"]\nmodel_max_output_tokens = 5000\nprefill = false\n')
    rows = told(capsys, OLD)
    source = 'continuation.toml [models."claude-*"]'
    assert rows["ceiling"] == (5_000, source)
    assert rows["prefill"] == ("no", source)


def test_limits_tells_what_was_learned(
    sim: Simulator, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turn(sim, path, CUT, REFUSED, REST)
    config = path.with_name("continuation.toml")
    config.write_text('[defaults]\nlearned_file = "learned.json"\n')
    place = sim.url.removeprefix("http://")
    assert told(capsys, NEW)["ceiling"] == (9_000, f"learned at {place}")


def test_limits_without_a_model_tells_the_table(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["limits"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line.split() for line in lines if line.split()[0] == "claude-haiku-4-5*")
    assert row[1:] == ["64,000", "200,000", "yes", "manual"]
    assert len(lines) > 100
