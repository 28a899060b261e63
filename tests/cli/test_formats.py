"""The command line in every wire format: the same demo, the same run, the same log."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.cli_helpers import KEY, KEYS, TEXT, interrupt, start

from continuation import registry
from continuation.cli import Exit, formats, main
from continuation.cli.formats import (
    Sdk,
    choose,
    is_local,
    offered,
    sdks,
)
from continuation.providers.sdk import OnDelta, Prompt, SdkDriver, SdkFacts
from continuation.registry import BUILT_IN
from continuation.simulator import Reply, Simulator, Text
from continuation.testing import set_testing

Capture = pytest.CaptureFixture[str]
EVERY = [pytest.param(one, id=one.name) for one in offered()]
EVERY_SDK = [pytest.param(sdk, id=sdk.name) for sdk in sdks()]
CUT = {"openai-chat": "length", "openai-responses": "incomplete: max_output_tokens"}
CUT |= {"anthropic": "max_tokens", "gemini": "MAX_TOKENS"}


def go(one: SdkDriver, sim: Simulator, *more: str) -> int:
    url = sim.url + one.sdk.path
    return main(
        ["run", "go", "--model", one.model, "--dialect", one.name, "--base-url", url, *more]
    )


# -- which format --------------------------------------------------------------------------------


def test_every_dialect_of_ours_can_be_spoken() -> None:
    assert {one.name for one in offered()} == set(BUILT_IN)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("claude-sonnet-5", "anthropic"),
        ("anthropic/claude-opus-5", "anthropic"),
        ("gpt-6.1", "openai-responses"),
        ("o3", "openai-responses"),
        ("gemini-3.1-pro", "gemini"),
        ("models/gemini-4-argon", "gemini"),
        ("llama", None),
    ],
)
def test_a_models_name_tells_its_format(model: str, name: str | None) -> None:
    found = choose(None, model)
    assert (found and found.name) == name


def test_a_format_without_a_dialect_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(BUILT_IN, "openai-responses")
    monkeypatch.setattr(registry, "dialects", registry.dialects.__wrapped__)
    monkeypatch.setattr(formats, "dialects", registry.dialects)
    found = choose(None, "gpt-6.1")
    assert found is not None
    assert found.name == "openai-chat"
    with pytest.raises(SystemExit) as end:
        main(["demo", "--dialect", "openai-responses"])
    assert end.value.code == Exit.USAGE


@pytest.mark.parametrize("one", EVERY)
@pytest.mark.parametrize("command", ["demo", "run"])
def test_a_missing_sdk_is_named_with_the_extra_that_installs_it(
    command: str, one: SdkDriver, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, one.sdk.module, None)
    prompt = ["go", "--model", "any"] if command == "run" else []
    assert main([command, *prompt, "--dialect", one.name]) == Exit.MISSING
    err = capsys.readouterr().err
    assert f"needs the {one.sdk.name} SDK" in err
    assert f"pip install 'continuation-engine[{one.sdk.extra}]'" in err


# -- demo ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", EVERY)
def test_the_demo_proves_equality_in_every_format(
    one: SdkDriver, answer: Path, capsys: Capture
) -> None:
    assert main(["demo", "--file", str(answer), "--dialect", one.name]) == Exit.WHOLE
    out = capsys.readouterr().out
    assert out.count(hashlib.sha256(TEXT.encode()).hexdigest()) == 2
    assert f"{one.sdk.name} {Sdk(one.sdk).version}; {one.model} simulated" in out
    assert f"{one.stop_name} {CUT[one.name]!r}: the rest is lost" in out
    assert len(re.findall(r"attempt \d was truncated after", out)) == 3
    # No endpoint of OpenAI's tells a ceiling: the raised limit is refused, and the next one right.
    refused = re.findall(r"attempt 2 was refused; attempt 3 has limit [\d,]+\n", out)
    assert len(refused) == out.count("was refused") == one.name.startswith("openai")


LOOKS_COMPLETE = "looks complete: its input in the SDK's message has the keys path\n"
NO_JSON = "its arguments in the SDK's answer are not valid JSON"


@pytest.mark.parametrize("one", EVERY)
def test_the_tool_demo_shows_half_a_call_and_proves_a_whole_one_in_every_format(
    one: SdkDriver, answer: Path, capsys: Capture
) -> None:
    assert main(["demo", "--tool", "--file", str(answer), "--dialect", one.name]) == Exit.WHOLE
    out = capsys.readouterr().out
    assert out.count(hashlib.sha256(TEXT.encode()).hexdigest()) == 2
    found = re.search(r"the call (?:did not arrive|holds ([\d,]+) of ([\d,]+) characters)", out)
    assert found is not None
    assert (found[1] is None) == (one.name == "gemini")  # there a call comes whole or not at all
    if found[1] is not None:
        arrived, whole = (int(number.replace(",", "")) for number in found.groups())
        assert whole == len(TEXT)
        assert whole / 3 <= arrived < whole * 2 / 3
        assert (NO_JSON if one.name.startswith("openai") else LOOKS_COMPLETE) in out
    assert f"one call, {one.stop_name} {one.called!r}" in out


@pytest.mark.parametrize("one", [one for one in EVERY if one.id != "gemini"])
def test_the_huge_demo_writes_a_file_larger_than_the_ceiling_through_one_call(
    one: SdkDriver, answer: Path, capsys: Capture
) -> None:
    arguments = ["demo", "--tool", "--huge", "--file", str(answer), "--dialect", one.name]
    assert main(arguments) == Exit.WHOLE
    out = capsys.readouterr().out
    assert out.count(hashlib.sha256(TEXT.encode()).hexdigest()) == 2
    assert out.count("continue the call's argument") >= 2
    assert f"one call, {one.stop_name} {one.called!r}" in out


def test_a_refusal_that_was_got_over_is_not_told_as_the_reason(
    answer: Path, capsys: Capture
) -> None:
    arguments = ["demo", "--file", str(answer), "--dialect", "openai-chat", "--manner", "empty"]
    assert main(arguments) == Exit.NOT_WHOLE
    assert "finished: partial (recovery was empty), 3 attempts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "told"),
    [("gpt-4.1", "openai.OpenAI().responses"), ("claude-haiku-4-5", "anthropic.Anthropic()")],
)
def test_the_demo_takes_the_format_of_the_model(
    model: str, told: str, answer: Path, capsys: Capture
) -> None:
    assert main(["demo", "--file", str(answer), "--model", model]) == Exit.WHOLE
    assert f"1. {told}, unwrapped" in capsys.readouterr().out


@pytest.mark.parametrize("one", EVERY)
def test_the_demo_has_no_part_in_what_the_environment_says(
    one: SdkDriver, answer: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv(one.sdk.base_url, "http://127.0.0.1:9")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    assert main(["demo", "--file", str(answer), "--dialect", one.name]) == Exit.WHOLE
    assert KEY not in capsys.readouterr().out


def test_a_wrong_file_of_the_environment_ends_the_demo_with_2(
    answer: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    answer.with_name("x.toml").write_text("[defaults]\nmax_recoverys = 1\n")
    monkeypatch.setenv("CONTINUATION_CONFIG", str(answer.with_name("x.toml")))
    assert main(["demo", "--file", str(answer)]) == Exit.USAGE
    assert "did you mean 'max_recoveries'" in capsys.readouterr().err


def test_a_missing_file_of_the_environment_is_told_with_who_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("CONTINUATION_CONFIG", str(tmp_path / "none.toml"))
    for command in (["config", "check"], ["config", "show", "claude-opus-5"], ["limits", "m"]):
        assert main(command) == Exit.USAGE
        told = capsys.readouterr().err
        assert "none.toml: No such file or directory (named by CONTINUATION_CONFIG)" in told


# -- run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", EVERY)
def test_a_run_is_whole_in_every_format(one: SdkDriver, sim: Simulator, capsys: Capture) -> None:
    assert go(one, sim, "--max-tokens", "1000", "--system", "Be long.") == Exit.WHOLE
    out, err = capsys.readouterr()
    assert out == TEXT
    assert "healed" in err
    assert "Be long." in str(sim.posts[0].body)


@pytest.mark.parametrize("one", EVERY)
def test_a_cut_answer_ends_with_1_and_the_formats_own_word(
    one: SdkDriver, sim: Simulator, capsys: Capture
) -> None:
    assert go(one, sim, "--max-tokens", "100") == Exit.NOT_WHOLE
    assert f"is incomplete: {one.stop_name} {CUT[one.name]}" in capsys.readouterr().err


def test_what_became_of_an_answer_is_told_once(
    sim: Simulator, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    sim.script([Reply([Text("One, two, ")], stop="max_tokens"), *[Reply(status=400)] * 3])
    assert go(offered()[0], sim, "--max-tokens", "1000") == Exit.NOT_WHOLE
    assert capsys.readouterr().err.count("partial (recovery failed; error ") == 1
    assert caplog.messages == []


REMEDIES = {
    400: "change the request",
    401: "check {key}",
    403: "another key or model",
    404: "check --model, --base-url and --dialect",
    413: "shorten it",
    429: "rate limit",
    500: "try again later",
    529: "overloaded",
}


@pytest.mark.parametrize("one", EVERY)
@pytest.mark.parametrize("status", REMEDIES)
def test_a_providers_error_is_one_line_with_status_and_remedy_and_without_a_key(
    status: int, one: SdkDriver, sim: Simulator, capsys: Capture
) -> None:
    told, now = ("some_error", f"no,\n{KEY} it is"), {"retry-after-ms": "1"}
    sim.script([Reply(status=status, error=told, headers=now)] * 8)
    assert go(one, sim, "--max-tokens", "1000") == Exit.PROVIDER
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert re.search(rf"127\.0\.0\.1 answered {status} \w+: ", err)
    assert REMEDIES[status].format(key=one.sdk.keys[0]) in err
    assert "sk-ant" not in err
    assert ("no, *** it is" in err) == (status not in (401, 403))


@pytest.mark.parametrize("one", EVERY)
def test_an_error_in_the_stream_before_any_text_ends_with_4_in_every_format(
    one: SdkDriver, sim: Simulator, capsys: Capture
) -> None:
    sim.scenario = sim.scenario.but("error_event=1:0+2:0+3:0+4:0+5:0")
    with set_testing():  # no waiting before it is tried again
        assert go(one, sim, "--max-tokens", "1000") == Exit.PROVIDER
    err = capsys.readouterr().err
    kind = " overloaded_error" if one.name == "anthropic" else ""
    assert f"ended the stream with an error{kind}" in err or "answered 503" in err


@pytest.mark.parametrize("one", EVERY)
def test_a_server_that_speaks_something_else_ends_with_4_in_every_format(
    one: SdkDriver, sim: Simulator, capsys: Capture
) -> None:
    sim.script([Reply(raw_body="<html>hello</html>", headers={"content-type": "text/html"})])
    assert go(one, sim, "--max-tokens", "1000") == Exit.PROVIDER
    err = capsys.readouterr().err
    assert "no usable answer" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("sdk", EVERY_SDK)
@pytest.mark.parametrize("key", [None, "sk-ant-with\nnewline", "sk-ant-mit-ü"])
def test_a_key_that_is_missing_or_broken_is_named_in_every_sdk_and_not_shown(
    key: str | None, sdk: SdkFacts, sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:  # fmt: skip
    for name in KEYS:
        monkeypatch.delenv(name)
    if key is not None:
        monkeypatch.setenv(sdk.keys[0], key)
    one = next(one for one in offered() if one.sdk is sdk)
    elsewhere = ["--base-url", "https://llm.example.com"] if key is None else []
    out = ["--out", str(tmp_path / "out.txt")]
    assert go(one, sim, *out, *elsewhere) == Exit.MISSING
    err = capsys.readouterr().err
    assert sdk.keys[0] in err
    assert "sk-ant" not in err
    assert sim.requests == []
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("sdk", EVERY_SDK)
def test_a_server_on_this_machine_needs_no_key(
    sdk: SdkFacts, sim: Simulator, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    one = next(one for one in offered() if one.sdk is sdk)
    assert go(one, sim, "--max-tokens", "1000") == Exit.WHOLE
    assert capsys.readouterr().out == TEXT


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:11434/v1", True),
        ("http://[::1]:8000", True),
        ("http://192.168.1.7/v1", True),
        ("http://host.docker.internal:1234", True),
        ("https://api.openai.com/v1", False),
        ("https://localhost.example.com", False),
        ("https://8.8.8.8", False),
    ],
)
def test_what_is_a_server_of_ones_own(url: str, local: bool) -> None:
    assert is_local(url) is local


def test_the_limit_has_the_name_that_the_server_knows(sim: Simulator) -> None:
    asked: list[Any] = []
    chat = choose("openai-chat", "")
    assert chat is not None
    for model in ("gpt-5.5", "deepseek-chat"):
        with Sdk(chat.sdk).simulated(sim.url) as client:
            chat.stream(client, Prompt(model, "go", 300), OnDelta(lambda _: None))
        asked.append({name for name in sim.posts[-1].body or {} if name.startswith("max_")})
    assert asked == [{"max_completion_tokens"}, {"max_tokens"}]


SECRET = {"role": "user", "content": "a secret"}
HEADERS = {"x-api-key": "any", "anthropic-version": "2026-10-21"}

# -- simulate ------------------------------------------------------------------------------------


def test_the_simulator_introduces_every_sdk_and_tells_each_request_without_its_content(
    answer: Path,
) -> None:
    command = ["simulate", "--port", "0", "--file", str(answer), "--scenario", "ceiling=500"]
    with start(*command) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().decode()]
        while "x-simulate" not in lines[-1]:
            lines.append(process.stdout.readline().decode())
        head = "".join(lines)
        found = re.search(r"http://127\.0\.0\.1:\d+", head)
        assert found is not None
        told: list[str] = []
        for one in offered():
            with Sdk(one.sdk).simulated(found[0]) as client:
                one.stream(client, Prompt(one.model, "a secret", 300), OnDelta(lambda _: None))
            told.append(process.stdout.readline().decode().strip())
        for limit in (300, 501):
            body = {"model": "claude-opus-5", "max_tokens": limit, "messages": [SECRET]}
            httpx2.post(f"{found[0]}/v1/messages", headers=HEADERS, json=body)
            told.append(process.stdout.readline().decode().strip())
        rest, err = interrupt(process)
    assert f"export OPENAI_BASE_URL={found[0]}/v1 OPENAI_API_KEY=any" in head
    assert f"export GOOGLE_GEMINI_BASE_URL={found[0]} GEMINI_API_KEY=any" in head
    assert f'openai.OpenAI(base_url="{found[0]}/v1", api_key="any")' in head
    assert told == [
        "POST  /v1/messages  200  out 300  max_tokens",
        "POST  /v1/responses  200  out 300  max_tokens",
        "POST  /v1/chat/completions  200  out 300  max_tokens",
        "POST  /v1/models/gemini-3.1-pro:streamGenerateContent  200  out 300  max_tokens",
        "POST  /v1/messages  200  out 300  max_tokens",
        "POST  /v1/messages  400",
    ]
    assert (process.returncode, rest, err) == (Exit.WHOLE, b"stopped\n", b"")


def test_a_scenario_is_played_by_name_and_its_attempts_are_counted_anew_on_demand() -> None:
    body = {"model": "claude-opus-5", "max_tokens": 4096, "messages": [SECRET]}
    stops = list[str]()
    with start("simulate", "--port", "0", "--scenario", "cut-text, mislabel=refusal") as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found is not None
        while "x-simulate" not in line:
            line = process.stdout.readline().decode()
        for again in (False, False, True):
            if again:
                assert httpx2.post(f"{found[0]}/reset").status_code == 200
            told = httpx2.post(f"{found[0]}/v1/messages", headers=HEADERS, json=body).json()
            stops.append(told["stop_reason"])
        interrupt(process)
    assert stops == ["refusal", "end_turn", "refusal"]


@pytest.mark.parametrize("sdk", EVERY_SDK)
def test_the_introduced_client_is_one_that_works(sdk: SdkFacts, sim: Simulator) -> None:
    module = __import__(sdk.module)
    sim.script([Reply([Text("yes")])])
    one = next(one for one in offered() if one.sdk is sdk)
    heard: list[str] = []
    with eval(Sdk(sdk).sample(sim.url), {module.__name__: module}) as client:
        one.stream(client, Prompt(one.model, "go", 300), OnDelta(heard.append))
    assert heard == ["yes"]
