"""The configuration file: what it may say, what it is told when wrong, what holds for whom."""

from __future__ import annotations

import itertools
import json
import logging
import re
from fnmatch import fnmatchcase
from pathlib import Path

import anthropic
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.sdks.messages import NEW, ask, limits

import continuation
from continuation import Policy
from continuation.cli import main
from continuation.config import (
    ENVIRONMENT,
    Config,
    ConfigError,
    Layer,
    VendorTable,
    doubts,
    load,
)
from continuation.config.doubts import about_glob
from continuation.policy import KEYS
from continuation.simulator import Reply, Simulator, Text

CUT = Reply([Text("One, ")], stop="max_tokens")
REST = Reply([Text("two.")])


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.chdir(tmp_path)


def write(tmp_path: Path, text: str | bytes, name: str = "continuation.toml") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def mistake(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path)
    return str(caught.value)


# --- which layer wins -----------------------------------------------------------------------


def test_without_a_file_the_defaults_hold() -> None:
    assert load(None).policy_for("any") == Policy()


@pytest.mark.parametrize("turned", [False, True])
def test_the_most_specific_glob_wins_wherever_it_stands(tmp_path: Path, turned: bool) -> None:
    tables = [
        "[defaults]\nmax_recoveries = 0\nescalate = false\n",
        '[models."*"]\nmax_recoveries = 1\nprefill = false\n',
        '[models."claude-*"]\nmax_recoveries = 2\nmax_retries = 1\n',
        '[models."claude-opus-*"]\nmax_recoveries = 4\n',
        '[models."claude-opus-5"]\nmax_recoveries = 5\n',
    ]
    config = load(write(tmp_path, "".join(reversed(tables) if turned else tables)))
    found = [
        config.policy_for(model).max_recoveries
        for model in ("gpt-6", "claude-haiku-5", "claude-opus-4-8", "claude-opus-5")
    ]
    assert found == [1, 2, 4, 5]
    opus = config.policy_for("claude-opus-5")
    wider = (opus.prefill, opus.max_retries, opus.escalate)
    assert wider == (False, 1, False), "other keys come from wider globs and the defaults"


@pytest.mark.parametrize(
    "model",
    [
        "claude-opus-5",
        "CLAUDE-OPUS-5",
        "us.anthropic.claude-opus-5-v1:0",
        "anthropic/claude-opus-5",
    ],
)
def test_a_glob_speaks_of_every_spelling_of_a_model(tmp_path: Path, model: str) -> None:
    config = load(write(tmp_path, '[models."claude-opus-5"]\nmax_recoveries = 0\n'))
    assert config.policy_for(model).max_recoveries == 0


def test_a_glob_may_name_the_id_as_the_caller_writes_it(tmp_path: Path) -> None:
    config = load(write(tmp_path, '[models."us.anthropic.*"]\nmax_recoveries = 0\n'))
    assert config.policy_for("us.anthropic.claude-opus-5-v1:0").max_recoveries == 0
    assert config.policy_for("claude-opus-5").max_recoveries == 3


def test_every_value_tells_where_it_comes_from(tmp_path: Path) -> None:
    path = write(tmp_path, '[defaults]\nmax_retries = 1\n[models."claude-*"]\nprefill = false\n')
    told = load(path).but("the caller", usage="billed").explain("claude-opus-5")
    assert list(told) == list(KEYS)
    assert told["max_retries"] == (1, f"{path} [defaults]")
    assert told["prefill"] == (False, f'{path} [models."claude-*"]')
    assert told["usage"] == ("billed", "the caller")
    assert told["escalate"] == (True, "built-in default")


def test_a_policy_given_in_the_program_says_so() -> None:
    told = load(Policy(max_recoveries=0)).explain("any")
    assert told["max_recoveries"] == (0, "the Policy given in the program")
    assert load(Policy(max_recoveries=0)).policy_for("any") == Policy(max_recoveries=0)


def test_many_models_do_not_make_it_grow_without_end() -> None:
    config = Config((Layer("here", {"max_recoveries": 1}, "m*"),))
    for number in range(3000):
        assert config.policy_for(f"m{number}").max_recoveries == 1
    assert len(config._policies) <= 1024


# --- mistakes -------------------------------------------------------------------------------

WRONG: list[tuple[str | bytes, list[str]]] = [
    ("[defaults]\nmax_recoverys = 3\n", ["[defaults]", "max_recoverys = 3", "'max_recoveries'"]),
    ("[defaults]\nmax_recoveries = 99\n", ["max_recoveries = 99", "from 0 to 10"]),
    ("[defaults]\nmax_recoveries = true\n", ["max_recoveries = True", "int", "from 0 to 10"]),
    ('[defaults]\nmax_retries = "many"\n', ["max_retries = 'many'", "int", "from 0 to 10"]),
    ("[defaults]\nmax_turn_seconds = nan\n", ["max_turn_seconds = nan", "from 1 to 86400"]),
    (
        '[defaults]\ntruncated_tool_call = "explian"\n',
        ["truncated_tool_call = 'explian'", "'explain', 'drop'"],
    ),
    (
        '[models."gpt-*"]\ncielling = 9\n',
        ['[models."gpt-*"]', "'model_max_output_tokens'"],
    ),
    ('[defaults]\nsession_recovery = "on"\n', ["session_recovery = ", "must be true or false"]),
    ("[defaults]\nsession_recovery = [1]\n", ["session_recovery = ", "must be true or false"]),
    ("[defaults]\nsession_recovery = 1\n", ["session_recovery = ", "must be true or false"]),
    ("[models.gpt-4.1]\nmodel_max_output_tokens = 9\n", ['[models."gpt-4.1"]', "quote"]),
    ("[models]\nmax_recoveries = 1\n", ["max_recoveries", '[models."claude-*"]']),
    ('[models." "]\nmax_recoveries = 1\n', ["empty", "[defaults]"]),
    ('[models."a*"]\nlearned_file = "x"\n', ["learned_file = 'x'", "[defaults]"]),
    ("[default]\nmax_recoveries = 1\n", ["default = ", "'defaults'"]),
    ("max_recoveries = 1\n", ["max_recoveries = 1", "[defaults]"]),
    ("defaults = 3\n", ["defaults = 3", "table"]),
    ("models = []\n", ["models = []", "table"]),
    ("[defaults\n", ["not valid TOML", "line 1"]),
    (b"[defaults]\n# \xff\n", ["not UTF-8"]),
    ('[vendors.x]\nprefill = "bare"\n', ["[vendors.x]", "base_url is missing"]),
    ('[vendors.x]\nbase_urls = "a"\n', ["base_url is missing", "'base_urls'"]),
    ("[vendors.x]\nbase_url = 3\n", ["base_url = 3", "string"]),
    ("[vendors.x]\nbase_url = []\n", ["base_url = ''"]),
    ('[vendors.x]\nbase_url = "*"\n', ["base_url = '*'", "glob"]),
    ('[vendors.x]\nbase_url = ["ok.com", "a b"]\n', ["base_url = 'a b'", "glob"]),
    ('[vendors."a b"]\nbase_url = "a.com"\n', ["[vendors.a b]", "name"]),
    ('[vendors.x]\nbase_url = "a.com"\nwhen = 2026-01-01\n', ["when = 2026-01-01", "string"]),
    ('[vendors.x]\nbase_url = "a.com"\nLimit = 1\n', ["Limit = 1", "small letters"]),
    ("[vendors]\nx = 1\n", ["[vendors.x]", "table"]),
]


@pytest.mark.parametrize(("text", "parts"), WRONG, ids=[str(text) for text, _ in WRONG])
def test_a_mistake_names_file_key_value_and_remedy(
    tmp_path: Path, text: str | bytes, parts: list[str]
) -> None:
    path = write(tmp_path, text)
    said = mistake(path)
    for part in (str(path), *parts):
        assert part in said, said


def test_a_mistake_never_shows_a_secret(tmp_path: Path) -> None:
    said = mistake(write(tmp_path, '[defaults]\napi_key = "sk-ant-secret"\n'))
    assert "api_key" in said
    assert "sk-ant-secret" not in said


def test_a_wrong_type_is_a_type_error_too(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="max_retries = 'many'"):
        load(write(tmp_path, '[defaults]\nmax_retries = "many"\n'))
    with pytest.raises(TypeError, match="not dict"):
        load({"max_retries": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("named_by", ["the program", "the environment"])
def test_a_missing_file_is_told_at_once_with_who_named_it(
    named_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "no.toml"
    if named_by == "the environment":
        monkeypatch.setenv(ENVIRONMENT, str(missing))
    with pytest.raises(FileNotFoundError, match=r"no\.toml") as caught:
        continuation.http_client(config=missing if named_by == "the program" else None)
    notes = getattr(caught.value, "__notes__", [])
    assert any(ENVIRONMENT in note for note in notes) is (named_by == "the environment")


@given(st.dictionaries(st.sampled_from([*KEYS, "zz"]), st.integers() | st.text() | st.booleans()))
def test_what_a_layer_accepts_makes_a_policy(values: dict[str, object]) -> None:
    try:
        config = Config().but("here", **values)
    except (ValueError, TypeError) as error:
        said = str(error)
    else:
        assert all(getattr(config.policy_for("m"), key) == value for key, value in values.items())
        return
    assert any(f"{key} = " in said for key in values)


# --- vendors --------------------------------------------------------------------------------


def test_vendors_are_found_by_the_longest_pattern(tmp_path: Path) -> None:
    config = load(
        write(
            tmp_path,
            '[vendors.mine]\nbase_url = ["https://LLM.example.com/v1", "10.0.0.*"]\nlike = "vllm"\n'
            '[vendors.other]\nbase_url = "*.example.com"\n[vendors.other.ceilings]\n"a*" = 9\n',
        )
    )
    names = {
        "https://llm.example.com/v1/chat/completions": "mine",
        "http://10.0.0.7:8000/v1": "mine",
        "https://user@llm.example.com/v2": "other",
        "https://a.example.com:8443/v1/": "other",
        "https://llm.example.com/v10": "other",
        "https://api.openai.com/v1": None,
        "https://example.com.evil.org": None,
    }
    found = {url: vendor.name if (vendor := config.vendor(url)) else None for url in names}
    assert found == names
    assert [vendor.settings for vendor in config.vendors] == [
        {"like": "vllm"},
        {"ceilings": {"a*": 9}},
    ]


# --- where it is looked for -----------------------------------------------------------------


def turn(sim: Simulator, config: continuation.config.Source = None, model: str = NEW) -> list[int]:
    sim.script([CUT, REST])
    with anthropic.Anthropic(base_url=sim.url, api_key="k", max_retries=0) as bare:
        continuation.wrap(bare, config=config).messages.create(**ask(model=model))
    return limits(sim)


def test_wrap_applies_what_the_file_says_of_the_model(tmp_path: Path, sim: Simulator) -> None:
    new = f'[models."{NEW}"]\nmodel_max_output_tokens = 5000\n'
    path = write(tmp_path, f'{new}[models."claude-haiku*"]\nescalate = false\n')
    assert turn(sim, path) == [1000, 5000]
    sim.reset()
    assert turn(sim, str(path), "claude-haiku-4-5") == [1000, 64_000]
    assert continuation.last_report() is not None


def test_wrap_never_reads_the_working_directory(tmp_path: Path, sim: Simulator) -> None:
    write(tmp_path, "[defaults]\nenabled = false\n")
    assert turn(sim) == [1000, 128_000]


def test_wrap_reads_the_file_the_environment_names(
    tmp_path: Path, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "[defaults]\nenabled = false\n", "elsewhere.toml")
    monkeypatch.setenv(ENVIRONMENT, str(path))
    assert turn(sim) == [1000]
    sim.reset()
    assert turn(sim, Policy()) == [1000, 128_000], "what is given goes before it"


def test_what_a_vendor_cannot_be_is_told_when_a_client_is_wrapped(tmp_path: Path) -> None:
    tables = '[vendors.{}]\nbase_url = "llm.local"\n{}\n'
    path = write(tmp_path, tables.format("a", "limit = 3") + tables.format("b", "prefil = 1"))
    with anthropic.Anthropic(api_key="k") as bare, pytest.raises(ConfigError) as caught:
        continuation.wrap(bare, config=path)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{path}: [vendors.a] limit = 3: must be one of 'max_tokens', ")
    asked = "unknown key 'prefil'; did you mean 'prefill'?"
    assert second == f"{path}: [vendors.b] prefil = 1: {asked}"
    made = Config(vendors=(VendorTable("c", ("llm.local",), {"terminal": "never"}),))
    with pytest.raises(ConfigError, match=r"^\[vendors\.c\] terminal = 'never'"):
        continuation.http_client(config=made)


def test_an_http_client_applies_it_too(tmp_path: Path, sim: Simulator) -> None:
    path = write(tmp_path, "[defaults]\nmodel_max_output_tokens = 3000\n")
    sim.script([CUT, REST])
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    with continuation.http_client(config=path) as client:
        client.post(f"{sim.url}/v1/messages", json=ask(), headers=headers)
    assert limits(sim) == [1000, 3000]
    assert isinstance(client, httpx2.Client)


# --- the command line -----------------------------------------------------------------------


def test_check_accepts_a_right_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bom = "\ufeff"  # as some editors of Windows write it
    path = write(tmp_path, f'{bom}[defaults]\nmax_retries = 1\n[vendors.x]\nbase_url = "x.com"\n')
    assert load(path).policy_for("").max_retries == 1
    assert main(["config", "check"]) == 0
    assert "in the working directory): 1 key, 1 vendor, no mistakes" in capsys.readouterr().out
    write(tmp_path, '[upstreams.openai]\nbase_url = "http://h"\n')
    assert main(["config", "check"]) == 0
    assert "0 keys, 0 vendors, 1 upstream, no mistakes" in capsys.readouterr().out


def test_check_shows_what_holds_for_the_gateway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path,
        "[gateway]\nmax_waiting = 7\njournal = 'postgresql://me:hush@h/d'\n",
    )
    assert main(["config", "check", str(path)]) == 0
    told = capsys.readouterr().out
    assert "[gateway] max_waiting = 7\n" in told
    for key, value in (
        ("overrides", '"lower"'),
        ("max_json_values", 1_000_000),
        ("max_event_bytes", 33_554_432),
        ("max_body_bytes", 268_435_456),
        ("max_held_bytes", 2_147_483_648),
        ("body_seconds", 60),
        ("max_streams", 2000),
    ):
        assert f"[gateway] {key} = {value} (default)\n" in told
    assert "hush" not in told


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("overrides = 'all'", "choose one of 'lower', 'any'"),
        ("max_waiting = 0", "must be a number from 1 to"),
        ("max_json_values = 10", "must be a number from 1000 to"),
        ("max_event_bytes = 10", "must be a number from 1024 to"),
        ("max_body_bytes = '1 MB'", "must be a number from 1024 to"),
        ("max_held_bytes = true", "must be a number from 1048576 to"),
        ("body_seconds = 0", "must be a number from 0.1 to"),
    ],
)
def test_a_limit_of_the_gateway_has_a_range(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, TypeError), match=said):
        load(write(tmp_path, f"[gateway]\n{line}\n"))


def test_check_tells_every_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "[defaults]\nmax_retrys = 1\nusage = 1\n[models.x]\nprefil = true\n"
        '[vendors.x]\nbase_url = "x.com"\nstream_above = -1\n'
        '[vendors.y]\nhost = "y.com"\nlike = "vlm"\nWhen = 1\n'
        '[gateway]\nping = 10\ndrain_seconds = "10"\nhosts = [1]\n'
        '[upstreams.x]\nurl = "http://x"\ndialect = "chat"\nvendor = "no"\nheaders = { a = 1 }\n'
        '[upstreams.readyz]\nbase_url = "x:80"\ndialect = 3\n'
    )
    path = write(tmp_path, text, "x.toml")
    assert main(["config", "check", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.count(str(path)) for line in lines] == [1] * len(lines)
    told = [line.removeprefix(f"{path}: ") for line in lines]
    for place, count in (("vendors.y", 3), ("gateway", 3), ("upstreams.x", 5)):
        assert sum(line.startswith(f"[{place}] ") for line in told) == count, told
    for said in ("'host'", "like = 'vlm'", "When = 1", "'ping_seconds'", "drain_seconds = '10'"):
        assert sum(said in line for line in told) == 1, said
    assert "[upstreams.x] headers: a = 1: must be a string" in told
    assert "[upstreams.x] base_url is missing; name the server" in " ".join(told)
    (name, *rest) = [line for line in told if line.startswith("[upstreams.readyz] ")]
    assert "(continuation, livez, metrics, readyz, t)" in name
    assert len(rest) == 2
    assert "did you mean 'max_retries'?" in lines[0]
    assert "usage = 1" in lines[1]
    assert lines[3].startswith(f"{path}: [vendors.x] stream_above = -1: must be a whole number")
    assert main(["config", "show", "gpt-5.5", "--config", str(path)]) == 2


def test_check_of_no_file_or_a_missing_one_is_wrong_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, why in (([], "name a FILE"), (["no.toml"], "no.toml")):
        assert main(["config", "check", *arguments]) == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "key", "value"),
    [
        ("session_recovery = false", "repair", "off"),
        ("session_recovery = true", "repair", "on_error"),
        ("quiet_mode = true", "log_repairs", False),
    ],
)
def test_the_names_of_other_tools_hold_in_a_file(
    tmp_path: Path, said: str, key: str, value: object
) -> None:
    config = load(write(tmp_path, f"[defaults]\n{said}\n"))
    assert getattr(config.policy_for("claude-opus-5"), key) == value
    assert set(config.explain("claude-opus-5")) == set(KEYS)


def test_show_tells_each_value_and_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, '[models."claude-*"]\nmax_retries = 1\ntruncated_tool_call = "retry_smaller"\n')
    show = ["config", "show", "claude-opus-5", "--set", "max_attempts=7"]
    assert main([*show, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    layer = 'continuation.toml [models."claude-*"]'
    assert found["max_retries"] == {"value": 1, "from": layer}
    assert found["truncated_tool_call"] == {"value": "retry_smaller", "from": layer}
    assert found["prefill"] == {"value": True, "from": "built-in default"}
    assert found["max_attempts"] == {"value": 7, "from": "--set"}
    assert set(found) == set(KEYS)
    assert main(show) == 0
    told = capsys.readouterr()
    assert max(map(len, told.out.splitlines())) <= 60
    assert re.search(r'^  truncated_tool_call +"retry_smaller" ', told.out, re.MULTILINE)
    assert "policies from continuation.toml (in the working directory)" in told.err


def test_run_reads_the_working_directory_and_says_so(
    tmp_path: Path,
    sim: Simulator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path, "[defaults]\nenabled = false\n")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    sim.script([CUT, REST])
    status = main(["run", "Go.", "--model", NEW, "--max-tokens", "1000", "--base-url", sim.url])
    told = capsys.readouterr()
    assert (status, told.out) == (1, "One, ")
    assert "policies from continuation.toml (in the working directory)" in told.err


# --- what is misspelled -------------------------------------------------------------------------

MISSPELLED: list[tuple[str, str]] = [
    ('[defaults]\nchain_store = "memroy"', "did you mean 'memory'? It must be 'memory', 'off'"),
    ('[defaults]\nchain_store = "OFF"', "did you mean 'off'?"),
    ('[defaults]\nchain_store = "chains"', "with a folder or a suffix: ./NAME, NAME.db"),
    ('[defaults]\nchain_store = "postgres:/h/d"', "is not a URL; write postgresql://"),
    ('[defaults]\nchain_store = "postgresql//h/d"', "is not a URL; write postgresql://"),
    ('[defaults]\nlearned_file = "off"', "learned_file = 'off': must be a postgresql:// URL or"),
    ('[gateway]\njournal = "jornal"', "journal = 'jornal': must be a postgresql:// URL or"),
    ("[defaults]\nclamp_limit = true", "did you mean 'clamp'?"),
    ("[defaults]\nrecoveries = 2", "did you mean 'max_recoveries'?"),
    ('[models."gpt-5"]\nclampp = true', "did you mean 'clamp'?"),
    ('[vendors.x]\nbase_uri = "a.example.com"', "base_url is missing (not 'base_uri')"),
    ('[vendors.x]\nbase_url = "a.b"\nbase_uri = "c.d"', "did you mean 'base_url'?"),
    ('[vendors.x]\nbase_url = "a.b"\nlik = "vllm"', "did you mean 'like'?"),
    ('[upstreams.x]\nbase_uri = "https://a"', "did you mean 'base_url'?"),
    ('[upstreams.x.headrs]\na = "b"', "did you mean 'headers'?"),
    ("[gateway]\nmax_stream = 3", "did you mean 'max_streams'?"),
    ('[model."claude-*"]\nclamp = true', "did you mean 'models'?"),
    ("[gatway]\nmax_streams = 3", "did you mean 'gateway'?"),
    ("[gateway]\nmax_turn_seconds = 3", "does not belong here; put it under [defaults]"),
    ("[defaults]\nmax_streams = 3", "does not belong here; put it under [gateway]"),
    ('[defaults]\nbase_url = "x"', "put it under [upstreams.NAME], or under [vendors.NAME]"),
    ('[gateway]\nbase_url = "x"', "put it under [upstreams.NAME], or under [vendors.NAME]"),
    ("max_streams = 3", "put it under [gateway]"),
]


@pytest.mark.parametrize(("text", "part"), MISSPELLED)
def test_what_is_misspelled_is_answered_with_what_is_meant(
    tmp_path: Path, text: str, part: str
) -> None:
    assert part in mistake(write(tmp_path, text))


@pytest.mark.parametrize(
    "name", ["memory", "off", "chains.db", "./chains", "data/chains", "~/chains", "C:\\chains"]
)
def test_a_store_is_a_word_or_a_path(name: str) -> None:
    assert Policy(chain_store=name).chain_store == name


@pytest.mark.parametrize(
    ("glob", "near"),
    [
        ("claud-*", "claude*"),
        ("Claud-*", "claude*"),
        ("claude-oppus-*", "claude-opus*"),
        ("gtp-5*", "gpt-5*"),
        ("gpt5*", "gpt-5*"),
        ("gemni-*", "gemini*"),
    ],
)
def test_a_glob_that_is_nearly_a_known_models_is_logged(
    glob: str, near: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, f'[models."{glob}"]\nclamp = true\n')
    for _ in range(2):  # once in a process
        assert load(path).policy_for(glob).clamp
    [record] = [each for each in caplog.records if glob in each.getMessage()]
    assert record.levelno == logging.WARNING
    assert f"no known model matches; did you mean {near!r}?" in record.getMessage()


@pytest.mark.parametrize(
    "glob",
    ["*", "claude-*", "Claude-*", "us.anthropic.claude-*", "anthropic/*", "gpt-4o-mini", "*opus*",
     "ft:gpt-4o:acme", "openrouter/anthropic/claude-*", "o[13]*"],
)  # fmt: skip
def test_a_glob_of_known_models_is_no_doubt(glob: str) -> None:
    assert [*about_glob("t", glob)] == []


@pytest.mark.parametrize("glob", ["my-model", "gpt-9*", "claude-opus-11*", "llama-9*", "zephyr*"])
def test_a_glob_of_unknown_models_is_no_warning(
    glob: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, f'[models."{glob}"]\nclamp = true\n')
    with caplog.at_level(logging.INFO, logger="continuation"):
        assert load(path).policy_for(glob).clamp
    [record] = [each for each in caplog.records if glob in each.getMessage()]
    assert record.levelno == logging.INFO


@settings(max_examples=examples(300))
@given(st.text("ab*?", max_size=4), st.text("ab*?", max_size=4))
def test_two_globs_overlap_if_a_name_fits_both(one: str, other: str) -> None:
    names = ("".join(each) for size in range(7) for each in itertools.product("ab", repeat=size))
    fits = any(fnmatchcase(name, one) and fnmatchcase(name, other) for name in names)
    assert doubts._overlap(one, other) == fits == doubts._overlap(other, one)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CONTINUATION_CONFG", "did you mean CONTINUATION_CONFIG?"),
        ("CONTINUATION_CONFIG_FILE", "did you mean CONTINUATION_CONFIG?"),
        ("CONTINUATON_CONFIG", "did you mean CONTINUATION_CONFIG?"),
        ("CONTINUATION_TOKN", "did you mean CONTINUATION_TOKEN?"),
        ("CONTINUATION_MAX_RECOVERIES", "write max_recoveries into the file"),
        ("CONTINUATION_DATABASE_URL", ""),
        ("OTHER_CONFIG", ""),
    ],
)
def test_a_misspelled_environment_variable_is_logged(
    name: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "secret")
    told = [text for text, _ in doubts.about_environment() if name in text]
    assert [meant in text for text in told] == [True] * bool(meant)
    assert "secret" not in str(told)


def test_check_tells_doubts_and_is_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, '[models."claud-*"]\nclamp = true\n')
    assert main(["config", "check", str(path)]) == 0
    assert "note: " in (out := capsys.readouterr().out)
    assert "did you mean 'claude*'?" in out
    assert main(["config", "check", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["mistakes"], len(told["doubts"])) == ([], 1)
