"""`continuation doctor` says what is there, and ends with 1 when something is wrong."""

from __future__ import annotations

import re
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

import continuation
from continuation.cli import doctor, main
from continuation.cli.formats import names
from continuation.config import ENVIRONMENT
from continuation.stores import sqlite

ANSWERS, CLOUDS = doctor._TESTS, doctor._CLOUDS
"""All that the self-test heals, in each format: one test looks at all of it, two at one."""


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.setattr(doctor, "_TESTS", ())
    monkeypatch.setattr(doctor, "_CLOUDS", ())
    monkeypatch.chdir(tmp_path)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[list[str]]]:
    status = main(["doctor", *arguments])
    out = capsys.readouterr().out
    return status, [re.split(r"\s{2,}", line, maxsplit=2) for line in out.splitlines()]


def rows(lines: list[list[str]], about: str) -> list[tuple[str, str]]:
    return [(line[0], line[2]) for line in lines if len(line) == 3 and line[1] == about]


@pytest.mark.slow
def test_all_is_well_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_TESTS", ANSWERS)
    monkeypatch.setattr(doctor, "_CLOUDS", CLOUDS)
    status, lines = told(capsys)
    assert (status, lines[-1]) == (0, ["no problem found"])
    assert rows(lines, "continuation") == [("ok", continuation.__version__)]
    assert re.match(r"2\.\d+", rows(lines, "httpx2")[0][1])
    assert ("ok", "anthropic.Anthropic can be wrapped") in rows(lines, "wrap")
    assert rows(lines, "configuration") == [("ok", "no file; the built-in defaults apply")]
    assert rows(lines, "self-test") == [
        ("ok", f"{name}: {', '.join(ANSWERS)}: completed") for name in names()
    ]
    clouds = [f"{cloud[0]}.{cloud[1]} (signs with {cloud[3]}): completed" for cloud in CLOUDS]
    assert rows(lines, "cloud") == [("ok", line) for line in clouds]
    assert rows(lines, "vocabulary")[0][0] in {"ok", "note"}


def test_the_configuration_in_force_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Path(tmp_path, "continuation.toml").write_text("[defaults]\nenabled = false\n")
    status, lines = told(capsys)
    assert status == 0, "healing switched off is a choice, not a fault"
    assert rows(lines, "configuration") == [
        ("ok", "continuation.toml (in the working directory): 1 key, 0 vendors")
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[defaults]\nmax_retrys = 1\n", "did you mean"),
        ("[defaults\n", "x.toml"),
        (
            '[vendors.mine]\nbase_url = "llm.local"\nprefill = "always"\n',
            "x.toml: [vendors.mine] prefill = 'always': must be one of 'none', 'bare'",
        ),
        (None, "No such file"),
    ],
)
@pytest.mark.parametrize("named_by", ["--config", ENVIRONMENT])
def test_a_mistake_in_the_configuration_is_a_problem(
    text: str | None, why: str, named_by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = Path(tmp_path, "x.toml")
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv(ENVIRONMENT, str(path) if named_by == ENVIRONMENT else "")
    status, lines = told(capsys, *(["--config", str(path)] if named_by == "--config" else []))
    assert (status, lines[-1]) == (1, ["1 problem found"])
    ((mark, what),) = rows(lines, "configuration")
    assert mark == "FAIL"
    assert str(path) in what
    assert why in what


def test_an_engine_that_does_not_heal_or_heals_wrongly_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_TESTS", ANSWERS[:1])
    for place, name, value, why in (
        (
            doctor,
            "_answer_text",
            lambda *_: "something else",
            "the text differs from the simulated answer",
        ),
        (
            doctor,
            "_DEFAULTS",
            {**doctor._DEFAULTS, "enabled": False},
            "untouched (switched off by policy)",
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            status, lines = told(capsys)
        assert (status, lines[-1]) == (1, [f"{len(names())} problems found"])
        assert rows(lines, "self-test")[0] == ("FAIL", f"anthropic: cut-text: {why}")


def test_only_formats_whose_sdk_is_installed_are_tested(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_TESTS", ANSWERS[:1])
    monkeypatch.setitem(sys.modules, "openai", None)
    status, lines = told(capsys)
    assert status == 0
    assert rows(lines, "self-test") == [
        ("ok", f"{name}: cut-text: completed") for name in names() if not name.startswith("openai")
    ]
    for module in ("anthropic", "google.genai"):
        monkeypatch.setitem(sys.modules, module, None)
    status, lines = told(capsys)
    assert status == 0
    ((mark, what),) = rows(lines, "self-test")
    assert (mark, what) == (
        "note",
        "not run, because no SDK is installed; install one of anthropic, openai, google-genai",
    )


def test_a_client_that_cannot_be_wrapped_is_told_with_its_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: Any = (("openai", "_ModuleClient", {"api_key": "x"}),)
    monkeypatch.setattr(doctor, "_CLIENTS", (*clients, ("no_such_sdk", "Client", {})))
    status, lines = told(capsys)
    assert status == 0
    mark, what = rows(lines, "wrap")[0]
    assert (mark, what.split(":")[0]) == ("note", "openai._ModuleClient")


def test_what_a_cloud_signs_with_may_be_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_CLOUDS", (CLOUDS[0], CLOUDS[3]))
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    status, lines = told(capsys)
    assert status == 0
    missing, healed = rows(lines, "cloud")
    assert (missing[0], missing[1].split(":")[0]) == ("note", "anthropic.AnthropicBedrock")
    assert (healed[0], healed[1].split(": ")[1]) == ("ok", "completed")


def test_a_missing_dependency_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_NEEDED", ("httpx2", "no-such-package"))
    status, lines = told(capsys)
    assert status == 1
    assert rows(lines, "no-such-package") == [
        ("FAIL", "missing; install continuation-engine again")
    ]


def test_a_journal_that_keeps_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = told(capsys, "--journal", ":memory:")
    ((good, why),) = rows(lines, "journal")
    assert (status, good) == (1, "FAIL")
    assert "name a file" in why


@pytest.mark.parametrize(("named", "mark"), [(True, "FAIL"), (False, "note")])
def test_what_a_journal_stands_on_is_told(
    named: bool, mark: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    arguments = ["--journal", str(tmp_path / "j.db")] if named else []
    status, lines = told(capsys, *arguments)
    assert status == 0
    ((good, where),) = rows(lines, "journal")
    assert (good, where.startswith(arguments[-1] if named else "agent.db on ")) == ("ok", True)
    ((known, version),) = rows(lines, "sqlite")
    mended = sqlite3.sqlite_version_info >= (3, 51, 3)
    assert (known, "3.51.3" in version) == (("ok", False) if mended else ("note", True))
    monkeypatch.setattr(sqlite, "file_system", lambda _: "nfs4")
    status, lines = told(capsys, *arguments)
    assert (status, rows(lines, "journal")[0][0]) == (int(named), mark)
    assert not (tmp_path / "j.db").exists()
