"""Chat servers with manners of their own, played byte by byte: what each does to a turn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.drive import Attempt, Driven, body, drive, streams
from support.drive_chat import OPENING, asking, chunk, completed, shown, sse, texts
from support.sdks.turn import FAST

from continuation import Policy
from continuation.cli import main
from continuation.providers.openai_common import errors
from continuation.types import Outcome

TEXT = "The fox jumped over the lazy dog and went home to sleep, for it was ti"
REST = "red of all the jumping. So the story ends, with everyone asleep."
LIMITS = ("max_tokens", "max_completion_tokens")


def said(text: str) -> list[Any]:
    return texts(*(text[at : at + 12] for at in range(0, len(text), 12)))


def streamed(*chunks: Any, done: bool = True) -> bytes:
    return sse([*chunks, *(["[DONE]"] if done else [])])


CUT = streamed(OPENING, *said(TEXT), chunk({}, "length"))


def rest(text: str = REST) -> bytes:
    return streamed(OPENING, *said(text), chunk({}, "stop"))


def completion(text: str | None, reason: str, tokens: int = 4096, **message: Any) -> Any:
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}}
    usage = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens}
    whole = {**chunk({}), "object": "chat.completion", "usage": usage}
    return {**whole, "choices": [{**choice, "finish_reason": reason}]}


def unary(text: str | None, reason: str, tokens: int = 4096, **message: Any) -> Attempt:
    return body(completion(text, reason, tokens, **message))


def ask(
    *answers: Attempt,
    stream: bool = False,
    policy: Policy = FAST,
    server: str | dict[str, Any] = "openai",
    **more: Any,
) -> Driven:
    """Ask for what these answer; `server`: whose it is, or a whole profile."""
    asked = asking(**{"max_tokens": 16_384, "stream": stream or None, **more})
    profile = {"like": server} if isinstance(server, str) else server
    path = "/v1/chat/completions"
    return drive(streams(*answers), asked, policy, path=path, server=profile)


def told(driven: Driven) -> Any:
    """Return the one choice that the caller has, as a body has it."""
    raw = b"".join(driven.pieces)
    whole: Any = json.loads(raw) if raw.startswith(b"{") else completed(driven).to_dict()
    return whole["choices"][0]


def outcome(driven: Driven) -> Outcome:
    return driven.report.outcome


def limits(driven: Driven) -> list[dict[str, int]]:
    return [{key: body[key] for key in LIMITS if key in body} for body in driven.requests]


# --- a limit that the server does not read ------------------------------------------------------


@pytest.mark.parametrize("vendor", ["deepseek", "ollama", "lmstudio", "zhipu", "mistral"])
@pytest.mark.parametrize(
    "given", [{"max_completion_tokens": 1000}, {"max_completion_tokens": 900, "max_tokens": 1000}]
)
def test_later_attempts_carry_the_limit_that_the_server_reads(
    vendor: str, given: dict[str, Any]
) -> None:
    answers = unary(TEXT, "length"), rest(TEXT + REST)
    driven = ask(*answers, server=vendor, **{"max_tokens": None, **given})
    assert told(driven)["message"]["content"] == TEXT + REST
    assert limits(driven) == [given, {"max_tokens": 16_384}]


def test_the_profile_of_ones_own_server_may_say_that_it_reads_one_limit() -> None:
    own = {"like": "unknown", "limit": "max_completion_tokens", "limit_only": True}
    driven = ask(unary(TEXT, "length"), rest(TEXT + REST), server=own, max_tokens=1000)
    assert limits(driven) == [{"max_tokens": 1000}, {"max_completion_tokens": 16_384}]


def test_a_small_limit_is_a_budget_even_where_it_is_not_read() -> None:
    asked: Any = {"max_tokens": None, "max_completion_tokens": 100}
    driven = ask(unary(TEXT, "length"), server="deepseek", **asked)
    assert (outcome(driven), len(driven.requests)) == (Outcome.UNTOUCHED, 1)
    assert driven.report.reason == "limit 100 is below leave_limits_below 256"


def test_an_answer_longer_than_a_limit_that_is_not_read_is_not_doubted() -> None:
    asked: Any = {"max_tokens": None, "max_completion_tokens": 1000}
    driven = ask(unary("It ends in a word", "stop"), server="deepseek", **asked)
    assert (outcome(driven), len(driven.requests)) == (Outcome.COMPLETE, 1)


# Half a document that used up its limit was cut, whatever its label says.
@pytest.mark.parametrize("cut", ['{"a": "one", ', '{"a": "one", "b":'])
def test_half_a_document_that_used_up_its_limit_is_not_finished(cut: str) -> None:
    document = '{"a": "one", "b": "two"}'
    asked: Any = {"max_tokens": 1000, "response_format": {"type": "json_object"}}
    driven = ask(unary(cut, "stop", 1000), rest(document), **asked)
    assert told(driven)["message"]["content"] == document


# --- an error in place of an answer -------------------------------------------------------------


@pytest.mark.parametrize("vendor", ["unknown", "openai"])
@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        {"message": "no", "type": "invalid_request_error"},
        {"message": "no", "type": "BadRequestError", "code": 400},
        {"message": "no", "code": 402},
        {"message": "no", "code": "context_length_exceeded"},
    ],
)
def test_an_error_that_would_be_told_again_is_the_callers_after_one_request(
    vendor: str, done: bool, error: dict[str, Any]
) -> None:
    driven = ask(streamed({"error": error}, done=done), server=vendor, stream=True)
    assert {"error": error} in driven.told
    assert (outcome(driven), len(driven.requests)) == (Outcome.FAILED, 1)


def test_an_overload_in_place_of_an_answer_is_asked_again() -> None:
    error = {"error": {"message": "later", "type": "server_error", "code": 503}}
    driven = ask(streamed(error, done=False), rest(), stream=True)
    assert (shown(driven), len(driven.requests)) == (REST, 2)


@pytest.mark.parametrize(
    ("error", "lasts"),
    [
        ({"type": "overloaded_error"}, False),
        ({"code": "429", "type": "invalid_request_error"}, False),
        ({"code": None, "type": "authentication_error"}, True),
        ({"status": 404}, True),
        ({"code": "insufficient_quota"}, True),
        ({"code": [], "type": 5.5}, False),
        ({}, False),
    ],
)
def test_which_errors_would_be_told_again(error: dict[str, Any], lasts: bool) -> None:
    assert errors.lasting(error) is lasts


# --- chunks -------------------------------------------------------------------------------------


def test_azures_chunk_on_the_prompt_alone_is_no_answer_but_a_drop() -> None:
    filtered = {"id": "", "object": "", "created": 0, "model": "", "choices": []}
    preface = {**filtered, "prompt_filter_results": [{"prompt_index": 0}]}
    answers = streamed(preface, done=False), streamed(preface) + rest()
    driven = ask(*answers, server="azure", stream=True)
    assert (shown(driven), len(driven.requests)) == (REST, 2)
    assert ["prompt_filter_results" in told for told in driven.told[:2]] == [True, False]
    assert outcome(driven) is Outcome.HEALED


@pytest.mark.parametrize("last", [["length"], ["length", "stop"], ["stop", "length"]])
def test_a_gateway_that_adds_its_own_reason_does_not_hide_the_cut(last: list[str]) -> None:
    cut = streamed(OPENING, *said(TEXT), *(chunk({}, reason) for reason in last))
    driven = ask(cut, rest(), stream=True)
    assert shown(driven) == TEXT + REST
    assert told(driven)["finish_reason"] == "stop"


@pytest.mark.parametrize("unasked", [False, True])
def test_usage_that_a_server_tells_unasked_is_told_of_the_whole_answer(unasked: bool) -> None:
    used = {"prompt_tokens": 10, "completion_tokens": 40, "total_tokens": 50}
    counted = {**chunk({}), "choices": [], "usage": used}
    cut = streamed(OPENING, *said(TEXT), chunk({}, "length"), *([counted] if unasked else []))
    driven = ask(cut, streamed(OPENING, *said(REST), chunk({}, "stop"), counted), stream=True)
    tokens = [each["usage"]["completion_tokens"] for each in driven.told if each.get("usage")]
    assert tokens == ([80] if unasked else [])  # else it was us who asked
    assert [each["choices"] for each in driven.told].count([]) == len(tokens)


@pytest.mark.parametrize("stream", [False, True])
def test_a_reason_in_other_letters_is_the_same_reason(stream: bool) -> None:
    cut = streamed(OPENING, *said(TEXT), chunk({}, "LENGTH")) if stream else unary(TEXT, "LENGTH")
    whole = rest() if stream else unary(TEXT + REST, "stop")
    driven = ask(cut, whole, stream=stream, max_tokens=4000)
    assert told(driven)["message"]["content"] == TEXT + REST


def test_the_end_of_the_window_in_mistrals_word_is_no_ordinary_end() -> None:
    driven = ask(streamed(OPENING, *said(TEXT), chunk({}, "model_length")), stream=True)
    assert (outcome(driven), driven.report.reason) == (Outcome.TRUNCATED, "context window full")


def test_thoughts_in_the_text_of_a_recovery_are_not_its_text() -> None:
    """Of models that write them there, where no server parses them."""
    thought = "<think>\nIt was tired, I think.\n</think>\n\n"
    cut = streamed(OPENING, *said(thought + TEXT), chunk({}, "length"))
    driven = ask(cut, rest(thought + REST), stream=True)
    assert shown(driven) == thought + TEXT + REST


@pytest.mark.parametrize("none", ["", "null"])
def test_a_reason_that_is_none_does_not_hold_the_text_up(none: str) -> None:
    first = [chunk(piece["choices"][0]["delta"], none) for piece in said(TEXT)]
    cut = [sse([told]) for told in (*first, chunk({}, "length"), "[DONE]")]
    driven = ask(cut, rest(), stream=True)
    assert all(driven.pieces[: len(first)]), "shown before the answer was cut"
    assert shown(driven) == TEXT + REST


@pytest.mark.parametrize(
    "heads",
    [
        [{"id": "call_1", "function": {"name": "Wr"}}, {"function": {"name": "ite"}}],
        [
            {"id": "call_1", "function": {"name": "Wr"}},
            {"id": "call_1", "function": {"name": "ite"}},
        ],
        [{"id": "call_1", "function": {}}, {"function": {"name": "Write"}}],
        [{"id": "call_1", "function": {"name": "Write", "arguments": ""}}],
        [{"function": {"name": "Write"}}, {"id": "call_1", "function": {}}],
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_has_the_name_that_its_pieces_have(heads: list[Any], stream: bool) -> None:
    arguments = json.dumps({"path": "a.txt"})

    def called(given: str, reason: str) -> bytes:
        pieces = [*heads, *({"function": {"arguments": c}} for c in given)]
        calls = ({"index": 0, "type": "function", **piece} for piece in pieces)
        return streamed(*(chunk({"tool_calls": [call]}) for call in calls), chunk({}, reason))

    cut = {"id": "c", "type": "function", "function": {"name": "Write", "arguments": "{"}}
    first = called(arguments[:5], "length") if stream else unary(None, "length", tool_calls=[cut])
    driven = ask(first, called(arguments, "tool_calls"), stream=stream, max_tokens=1000)
    functions = [call["function"] for call in told(driven)["message"]["tool_calls"]]
    assert [(own["name"], own["arguments"]) for own in functions] == [("Write", arguments)]


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_that_nobody_asked_for_pass_as_they_came(stream: bool) -> None:
    def second(told: Any) -> Any:
        return {**told, "choices": [{**told["choices"][0], "index": 1}]}

    chunks = [*said(TEXT), chunk({}, "length")]
    whole = completion(TEXT, "length")
    whole["choices"] += second(whole)["choices"]
    both = (each for told in chunks for each in (told, second(told)))
    raw = streamed(*both) if stream else json.dumps(whole).encode()
    driven = ask(raw if stream else body(raw), stream=stream)
    assert (b"".join(driven.pieces), len(driven.requests)) == (raw, 1)


# --- what stands beside the text ----------------------------------------------------------------


def note(start: int, end: int) -> dict[str, Any]:
    return {"type": "url_citation", "url_citation": {"start_index": start, "end_index": end}}


@pytest.mark.parametrize("stream", [False, True])
def test_citations_point_to_the_words_they_stood_for(stream: bool) -> None:
    noted = chunk({"annotations": [note(4, 7)]})
    first = unary(TEXT, "length", annotations=[note(4, 7)])
    if stream:
        first = streamed(OPENING, *said(TEXT), noted, chunk({}, "length"))
    middle = streamed(OPENING, *said(REST[:24]), noted, chunk({}, "length"))
    last = streamed(OPENING, *said(REST[24:]), noted, chunk({}, "stop"))
    driven = ask(first, middle, last, stream=stream)
    if stream:
        deltas = [event["choices"][0]["delta"] for event in driven.told]
        found = [one for delta in deltas for one in delta.get("annotations") or []]
    else:
        assert told(driven)["message"]["content"] == TEXT + REST
        found = told(driven)["message"]["annotations"]
    places = [one["url_citation"]["start_index"] for one in found]
    assert places == [4, len(TEXT) + 4, len(TEXT) + 24 + 4]


@pytest.mark.parametrize("stream", [False, True])
def test_what_stands_beside_the_text_of_a_later_attempt_is_kept(stream: bool) -> None:
    sources = [{"url": "https://example.com"}]
    begun = chunk({"content": REST[:20]}, search_results=sources)
    later = streamed(begun, *said(REST[20:]), chunk({}, "stop"))
    driven = ask(CUT if stream else unary(TEXT, "length"), later, stream=stream)
    events = driven.told if stream else [json.loads(b"".join(driven.pieces))]
    kept = [event["search_results"] for event in events if event.get("search_results")]
    assert kept == [sources]


# --- a request that ends in an answer that was begun ---------------------------------------------

BEGUN = {"role": "assistant", "content": "It begins: "}


@pytest.mark.parametrize(
    ("vendor", "model", "flag", "more"),
    [
        ("deepseek", "deepseek-chat", {"prefix": True}, {}),
        ("moonshot", "kimi-k2", {"partial": True}, {}),
        ("vllm", "llama", {}, {"continue_final_message": True, "add_generation_prompt": False}),
        ("llamacpp", "llama", {}, {}),
    ],
)
@pytest.mark.parametrize("prefill", [True, False])
def test_an_answer_that_the_caller_began_is_gone_on_with_as_one_message(
    vendor: str, model: str, flag: dict[str, bool], more: dict[str, bool], prefill: bool
) -> None:
    go = {"role": "user", "content": "Go."}
    request = {"model": model, "messages": [go, {**BEGUN, **flag}], "max_tokens": 300_000, **more}
    policy = replace(FAST, prefill=prefill, models_endpoint=False)
    driven = ask(CUT, rest(), server=vendor, stream=True, policy=policy, **request)
    assert shown(driven) == TEXT + REST
    sent = driven.requests[1]
    last = {"role": "assistant", "content": BEGUN["content"] + TEXT}
    if prefill:
        assert sent["messages"] == [go, {**last, **flag}]
        assert {key: sent[key] for key in more} == more
    else:
        assert sent["messages"][:-1] == [go, last]
        assert sent["messages"][-1]["role"] == "user"
        assert set(more).isdisjoint(sent)


def test_an_answer_before_the_request_is_left_alone_where_it_is_a_turn_of_its_own() -> None:
    driven = ask(unary(TEXT, "length"), rest(), messages=[BEGUN])
    own = {"role": "assistant", "content": TEXT}
    assert driven.requests[1]["messages"][:-1] == [BEGUN, own]


# --- the configuration --------------------------------------------------------------------------


def test_config_check_names_each_mistake_of_a_vendors_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "continuation.toml"
    table = '[vendors.mine]\nbase_url = "10.0.0.1:8000"\nlike = "vllm"\n'
    path.write_text(f'{table}limit_onl = true\nprefil = "bare"\nterminal = "requird"\n')
    assert main(["config", "check"]) == 1
    shown = capsys.readouterr()
    where = "continuation.toml: [vendors.mine]"
    assert (shown.out + shown.err).splitlines() == [
        f"{where} limit_onl = True: unknown key 'limit_onl'; did you mean 'limit_only'?",
        f"{where} prefil = 'bare': unknown key 'prefil'; did you mean 'prefill'?",
        f"{where} terminal = 'requird': must be one of 'required', 'done', 'optional'",
    ]
    path.write_text(f"{table}limit_only = true\n")
    assert main(["config", "check"]) == 0
