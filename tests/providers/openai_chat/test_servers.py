"""Chat servers with manners of their own, played byte by byte: what each does to a turn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from support.sdks.chat import playing, whole
from support.sdks.turn import FAST
from support.servers import Answer, Canned

import continuation
from continuation.cli import main
from continuation.providers.openai_common import errors
from continuation.types import Outcome

TEXT = "The fox jumped over the lazy dog and went home to sleep, for it was ti"
REST = "red of all the jumping. So the story ends, with everyone asleep."
ROLE: dict[str, Any] = {"role": "assistant", "content": ""}
LIMITS = ("max_tokens", "max_completion_tokens")


def chunk(delta: Any = None, reason: str | None = None, /, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        **more,
    }


def said(text: str, reason: str | None = None) -> list[Any]:
    return [chunk({"content": text[n : n + 12]}, reason) for n in range(0, len(text), 12)]


def streamed(*chunks: Any, done: bool = True) -> Answer:
    return Answer(events=[*chunks, *(["[DONE]"] if done else [])])


def rest(text: str = REST) -> Answer:
    return streamed(chunk(ROLE), *said(text), chunk({}, "stop"))


def body(text: str | None, reason: str, /, **message: Any) -> Answer:
    said = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "message": said, "finish_reason": reason}
    usage = {"prompt_tokens": 10, "completion_tokens": 4096, "total_tokens": 4106}
    return Answer(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }
    )


def serving(*answers: Answer) -> Canned:
    """Return a server that gives these answers in turn, and the last one from then on."""
    left = [*answers]
    return Canned(lambda _: left.pop(0) if len(left) > 1 else left[0])


def ask(server: Canned, like: str = "openai", **more: Any) -> Any:
    """Ask once; a stream is returned as the list of its chunks."""
    request: dict[str, Any] = {"model": "gpt-4o", "max_tokens": 16_384, "messages": [], **more}
    request = {name: value for name, value in request.items() if value is not None}
    with openai.OpenAI(base_url=server.url + "/v1", api_key="k", max_retries=2) as bare:
        client = continuation.wrap(bare, config=playing(like=like))
        answer: Any = client.chat.completions.create(**request)
        return [*answer] if more.get("stream") else answer


def told() -> continuation.Report:
    report = continuation.last_report()
    assert report is not None
    return report


def text_of(chunks: list[Any]) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def limits(server: Canned) -> list[dict[str, int]]:
    return [{k: a.body[k] for k in LIMITS if k in a.body} for a in server.asked]


# --- a limit that the server does not read ------------------------------------------------------


@pytest.mark.parametrize("vendor", ["deepseek", "ollama", "lmstudio", "zhipu", "mistral"])
@pytest.mark.parametrize(
    "given", [{"max_completion_tokens": 1000}, {"max_completion_tokens": 900, "max_tokens": 1000}]
)
def test_later_attempts_carry_the_limit_that_the_server_reads(
    vendor: str, given: dict[str, int]
) -> None:
    with serving(body(TEXT, "length"), rest(TEXT + REST)) as server:
        answer = ask(server, vendor, **{"max_tokens": None, **given})
    assert answer.choices[0].message.content == TEXT + REST
    assert limits(server) == [given, {"max_tokens": 16_384}]


def test_the_profile_of_ones_own_server_may_say_that_it_reads_one_limit() -> None:
    with (
        serving(body(TEXT, "length"), rest(TEXT + REST)) as server,
        openai.OpenAI(base_url=server.url, api_key="k") as bare,
    ):
        config = playing(like="unknown", limit="max_completion_tokens", limit_only=True)
        client = continuation.wrap(bare, config=config)
        client.chat.completions.create(model="gpt-4o", max_tokens=1000, messages=[])
    assert limits(server) == [{"max_tokens": 1000}, {"max_completion_tokens": 16_384}]


def test_a_small_limit_is_a_budget_even_where_it_is_not_read() -> None:
    with serving(body(TEXT, "length")) as server:
        ask(server, "deepseek", max_tokens=None, max_completion_tokens=100)
    assert len(server.asked) == 1
    assert (told().outcome, told().reason) == (
        Outcome.UNTOUCHED,
        "limit 100 is below leave_limits_below 256",
    )


def test_an_answer_longer_than_a_limit_that_is_not_read_is_not_doubted() -> None:
    with serving(body("It ends in a word", "stop")) as server:
        ask(server, "deepseek", max_tokens=None, max_completion_tokens=1000)
    assert len(server.asked) == 1
    assert told().outcome is Outcome.COMPLETE


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
    with (
        serving(streamed({"error": error}, done=done)) as server,
        pytest.raises(openai.APIError, match="no"),
    ):
        ask(server, vendor, stream=True)
    assert len(server.asked) == 1
    assert told().outcome is Outcome.FAILED


def test_an_overload_in_place_of_an_answer_is_asked_again() -> None:
    error = {"error": {"message": "later", "type": "server_error", "code": 503}}
    with serving(streamed(error, done=False), rest()) as server:
        chunks = ask(server, stream=True)
    assert text_of(chunks) == REST
    assert len(server.asked) == 2


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
    preface = {
        "id": "",
        "object": "",
        "created": 0,
        "model": "",
        "choices": [],
        "prompt_filter_results": [{"prompt_index": 0}],
    }
    with serving(streamed(preface, done=False), streamed(preface, *rest().events)) as server:
        chunks = ask(server, "azure", stream=True)
    assert text_of(chunks) == REST
    assert len(server.asked) == 2
    assert [bool(getattr(c, "prompt_filter_results", None)) for c in chunks[:2]] == [True, False]
    assert told().outcome is Outcome.HEALED


@pytest.mark.parametrize("last", [["length"], ["length", "stop"], ["stop", "length"]])
def test_a_gateway_that_adds_its_own_reason_does_not_hide_the_cut(last: list[str]) -> None:
    cut = streamed(chunk(ROLE), *said(TEXT), *(chunk({}, reason) for reason in last))
    with serving(cut, rest()) as server:
        chunks = ask(server, stream=True)
    assert text_of(chunks) == TEXT + REST
    assert whole(chunks).choices[0].finish_reason == "stop"


@pytest.mark.parametrize("none", ["", "null"])
def test_a_reason_that_is_none_does_not_hold_the_text_up(none: str) -> None:
    """The server says the rest only when the caller has read the beginning."""
    first = streamed(*said(TEXT, none), chunk({}, "length"))
    with (
        serving(replace(first, gap=0.02), rest()) as server,
        openai.OpenAI(base_url=server.url, api_key="k") as bare,
    ):
        client = continuation.wrap(bare, config=playing())
        stream = client.chat.completions.create(
            model="gpt-4o", max_tokens=16_384, messages=[], stream=True
        )
        early = next(stream)
        assert len(server.asked) == 1, "shown before the answer was cut"
        assert text_of([early, *stream]) == TEXT + REST


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
def test_a_call_has_the_name_that_its_pieces_have(heads: list[Any]) -> None:
    arguments = json.dumps({"path": "a.txt"})

    def piece(said: Any) -> Any:
        return chunk({"tool_calls": [{"index": 0, "type": "function", **said}]})

    def called(given: str, reason: str) -> Answer:
        pieces = [*heads, *({"function": {"arguments": c}} for c in given)]
        return streamed(*map(piece, pieces), chunk({}, reason))

    with serving(called(arguments[:5], "length"), called(arguments, "tool_calls")) as server:
        chunks = ask(server, max_tokens=1000, stream=True)
    calls: Any = whole(chunks).choices[0].message.tool_calls
    assert [(c.function.name, c.function.arguments) for c in calls] == [("Write", arguments)]

    cut = {"id": "c", "type": "function", "function": {"name": "Write", "arguments": "{"}}
    with serving(body(None, "length", tool_calls=[cut]), called(arguments, "tool_calls")) as server:
        answer = ask(server, max_tokens=1000)
    calls = answer.choices[0].message.tool_calls
    assert [(c.function.name, c.function.arguments) for c in calls] == [("Write", arguments)]


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_that_nobody_asked_for_pass_as_they_came(stream: bool) -> None:
    one, two = said(TEXT), said(TEXT)
    for other in two:
        other["choices"][0]["index"] = 1
    both = [c for pair in zip(one, two, strict=True) for c in pair]
    last = chunk({}, "length")
    first = streamed(*both, last, {**last, "choices": [{**last["choices"][0], "index": 1}]})
    if not stream:
        first = body(TEXT, "length")
        first.body["choices"].append({**first.body["choices"][0], "index": 1})
    with serving(first, rest()) as server:
        answer = ask(server, stream=stream)
    assert len(server.asked) == 1
    if stream:
        texts = ["", ""]
        for c in answer:
            texts[c.choices[0].index] += c.choices[0].delta.content or ""
    else:
        texts = [choice.message.content for choice in answer.choices]
    assert texts == [TEXT, TEXT]


# --- what stands beside the text ----------------------------------------------------------------


def note(start: int, end: int) -> dict[str, Any]:
    return {"type": "url_citation", "url_citation": {"start_index": start, "end_index": end}}


@pytest.mark.parametrize("stream", [False, True])
def test_citations_point_to_the_words_they_stood_for(stream: bool) -> None:
    noted = [chunk({"annotations": [note(4, 7)]})]
    first = streamed(chunk(ROLE), *said(TEXT), *noted, chunk({}, "length"))
    if not stream:
        first = body(TEXT, "length", annotations=[note(4, 7)])
    middle = streamed(chunk(ROLE), *said(REST[:24]), *noted, chunk({}, "length"))
    last = streamed(chunk(ROLE), *said(REST[24:]), *noted, chunk({}, "stop"))
    with serving(first, middle, last) as server:
        answer = ask(server, stream=stream)
    if stream:
        found = [
            one for c in answer for one in (getattr(c.choices[0].delta, "annotations", None) or [])
        ]
        places = [(one["url_citation"]["start_index"]) for one in found]
    else:
        assert answer.choices[0].message.content == TEXT + REST
        places = [one.url_citation.start_index for one in answer.choices[0].message.annotations]
    assert places == [4, len(TEXT) + 4, len(TEXT) + 24 + 4]


@pytest.mark.parametrize("stream", [False, True])
def test_what_stands_beside_the_text_of_a_later_attempt_is_kept(stream: bool) -> None:
    first = streamed(*said(TEXT), chunk({}, "length")) if stream else body(TEXT, "length")
    sources = [{"url": "https://example.com"}]
    later = streamed(
        chunk({"content": REST[:20]}, search_results=sources),
        *said(REST[20:]),
        chunk({}, "stop"),
    )
    with serving(first, later) as server:
        answer = ask(server, stream=stream)
    kept = [getattr(c, "search_results", None) for c in (answer if stream else [answer])]
    assert [one for one in kept if one] == [sources]


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
    with (
        serving(streamed(chunk(ROLE), *said(TEXT), chunk({}, "length")), rest()) as server,
        openai.OpenAI(base_url=server.url + "/v1", api_key="k") as bare,
    ):
        policy = replace(FAST, prefill=prefill, models_endpoint=False)
        client = continuation.wrap(bare, config=playing(policy, vendor))
        request: Any = {"model": model, "messages": [go, {**BEGUN, **flag}], "max_tokens": 300_000}
        chunks = [*client.chat.completions.create(**request, stream=True, extra_body=more)]
    assert text_of(chunks) == TEXT + REST
    sent = server.asked[1].body
    last = {"role": "assistant", "content": BEGUN["content"] + TEXT}
    if prefill:
        assert sent["messages"] == [go, {**last, **flag}]
        assert {key: sent[key] for key in more} == more
    else:
        assert sent["messages"][:-1] == [go, last]
        assert sent["messages"][-1]["role"] == "user"
        assert set(more).isdisjoint(sent)


def test_an_answer_before_the_request_is_left_alone_where_it_is_a_turn_of_its_own() -> None:
    with serving(body(TEXT, "length"), rest()) as server:
        ask(server, messages=[BEGUN])
    own = {"role": "assistant", "content": TEXT}
    assert server.asked[1].body["messages"][:-1] == [BEGUN, own]


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
        f"{where} terminal = 'requird': must be one of 'required', 'optional'",
    ]
    path.write_text(f"{table}limit_only = true\n")
    assert main(["config", "check"]) == 0


# Half a document that used up its limit was cut, whatever its label says.
@pytest.mark.parametrize("cut", ['{"a": "one", ', '{"a": "one", "b":'])
def test_half_a_document_that_used_up_its_limit_is_not_finished(cut: str) -> None:
    document = '{"a": "one", "b": "two"}'
    first = body(cut, "stop")
    first.body["usage"]["completion_tokens"] = 1000
    with serving(first, rest(document)) as server:
        answer = ask(server, max_tokens=1000, response_format={"type": "json_object"})
    assert answer.choices[0].message.content == document
