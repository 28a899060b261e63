"""What servers and models do that no format describes, and what it must not cost the caller."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types
from support.sdks.turn import FAST
from support.servers import Answer, Asked, Canned, Handler, Local

import continuation
from continuation import Policy
from continuation.engine.attempts import retry_after
from continuation.types import Outcome
from continuation.wire.request import label_of

GO: list[Any] = [{"role": "user", "content": "Go."}]
WILD = "[" * 3000
"""A call of a model that runs wild: the arguments are brackets and nothing else."""


def sse(*events: dict[str, Any]) -> list[str]:
    return [json.dumps(event) for event in events]


def told() -> continuation.Report:
    report = continuation.last_report()
    assert report is not None
    return report


# --- arguments nested beyond all sense ---------------------------------------------------------


def chat_chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [choice]}


def calls(arguments: str, **first: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, **first, "function": {"arguments": arguments}}]}


WRITE = {"id": "t", "type": "function"}


@pytest.mark.parametrize("reason", ["length", "tool_calls"])
def test_a_chat_call_of_nothing_but_brackets_is_no_call(reason: str) -> None:
    begun = calls("", **WRITE)
    begun["tool_calls"][0]["function"]["name"] = "Write"
    events = sse(
        chat_chunk(begun),
        *(chat_chunk(calls(WILD[n : n + 100])) for n in range(0, len(WILD), 100)),
        chat_chunk({}, reason),
    )
    with (
        Canned(lambda _: Answer(events=[*events, "[DONE]"])) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=FAST)
        stream = client.chat.completions.create(
            model="m", max_tokens=1000, messages=GO, stream=True
        )
        choices = [choice for chunk in stream for choice in chunk.choices]
        assert not any(choice.delta.tool_calls for choice in choices)
        assert told().outcome is Outcome.TRUNCATED


@pytest.mark.parametrize("structured", [False, True])
def test_a_message_of_nothing_but_brackets_ends_as_cut(structured: bool) -> None:
    call = {"type": "tool_use", "id": "t", "name": "Write", "input": dict[str, Any]()}
    block = {"type": "text", "text": ""} if structured else call
    kind = "text_delta" if structured else "input_json_delta"
    key = "text" if structured else "partial_json"
    start = {"type": "message", "role": "assistant", "content": [], "model": "m", "id": "msg"}
    usage = {"input_tokens": 1, "output_tokens": 1000}
    events = sse(
        {"type": "message_start", "message": {**start, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": kind, key: '{"a":' + WILD}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": usage},
        {"type": "message_stop"},
    )
    form: Any = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    more: Any = {"output_config": form} if structured else {}
    with (
        Canned(lambda _: Answer(events=events)) as server,
        anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=FAST)
        raw = client.messages.with_raw_response.create(
            model="claude-opus-5", max_tokens=1000, messages=GO, stream=True, **more
        )
        assert "message_stop" in raw.http_response.read().decode()
        assert "tool_use" not in raw.http_response.text
        assert told().outcome is (Outcome.STALLED if structured else Outcome.TRUNCATED)


# --- heads and bodies --------------------------------------------------------------------------


class Breaking(Handler):
    """Answers with an error whose body breaks off."""

    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        self.sent()
        self.send_response(400)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "500")
        self.end_headers()
        self.wfile.write(b'{"error": {"mess')
        self.close_connection = True

    do_POST = _answer  # noqa: N815 - the base's name


def test_an_error_whose_body_breaks_off_is_the_callers_error_as_it_is() -> None:
    ask = {"model": "m", "messages": GO, "max_tokens": 1000}
    with Local(Breaking) as server, httpx2.Client() as bare:
        for client in (bare, continuation.http_client(bare)):
            with pytest.raises(httpx2.RemoteProtocolError):
                client.post(f"{server.url}/v1/chat/completions", json=ask)
    assert told().outcome is Outcome.FAILED


def completion(text: str, reason: str, name: str = "chatcmpl-77") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": name,
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": reason, "message": message}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 10, "total_tokens": 11},
    }


class Shouting(Local):
    """Writes its content types as no one else does."""

    def __init__(self) -> None:
        super().__init__(_Shouting)
        self.bodies = [completion("One, ", "length"), completion("One, two.", "stop")]


class _Shouting(Handler):
    def _answer(self) -> None:
        self.sent()
        body = json.dumps(self.owner.bodies.pop(0)).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", "Application/JSON; Charset=UTF-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = _answer  # noqa: N815 - the base's name


def test_a_content_type_means_the_same_in_any_case() -> None:
    with (
        Shouting() as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=Policy(model_max_output_tokens=2000))
        answer = client.chat.completions.create(model="m", max_tokens=1000, messages=GO)
        assert answer.choices[0].message.content == "One, two."


@pytest.mark.parametrize(
    "date", ["Fri, 31 Dec 99999 23:59:59 GMT", "Fri, 99 Foo 2026 99:99:99", "-", "soon"]
)
def test_a_date_that_no_calendar_has_asks_for_nothing(date: str) -> None:
    assert retry_after({"retry-after": date}, wall=1_700_000_000.0) is None


def test_a_refusal_of_something_else_switches_no_usage_off() -> None:
    """Nobody knows the words of an unknown server; what does not help was not what it meant."""
    turns: list[list[Any]] = []

    def rule(asked: Asked) -> Answer:
        options = asked.body.get("stream_options")
        if len(asked.body["messages"]) > 1:
            turns[-1].append(options)
            return Answer({"error": {"message": "not today", "type": "odd"}}, status=400)
        turns.append([options])
        cut = sse(chat_chunk({"content": "One, two"}), chat_chunk({}, "length"))
        return Answer(events=[*cut, "[DONE]"])

    with (
        Canned(rule) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=FAST)
        for _ in range(2):
            list(
                client.chat.completions.create(
                    model="m", max_tokens=1000, messages=GO, stream=True
                )
            )  # fmt: skip
    assert turns == [[None, {"include_usage": True}, None]] * 2


# --- what a report may say ---------------------------------------------------------------------

SECRET = "could not parse 'my secret prompt'"


@pytest.mark.parametrize(
    ("body", "label"),
    [
        ({"error": {"type": "overloaded_error", "message": SECRET}}, "503 overloaded_error"),
        ({"type": "error", "error": {"type": SECRET}}, "503 error"),
        ({"error": {"type": SECRET}}, "503"),
        ([{"error": {"code": 503, "status": "UNAVAILABLE", "message": SECRET}}], "503 UNAVAILABLE"),
        ({"error": {"code": "rate_limit", "type": SECRET}}, "503 rate_limit"),
        ({"error": SECRET}, "503"),
        (SECRET, "503"),
        ([], "503"),
    ],
)
def test_a_label_is_a_word_of_the_servers_and_never_its_message(body: Any, label: str) -> None:
    assert label_of(503, json.dumps(body).encode()) == label


def test_an_error_inside_a_stream_is_told_by_the_providers_own_word() -> None:
    chunk = chat_chunk({"content": "One, two, three, four"})
    broken = {"error": {"type": "overloaded_error", "message": SECRET}}
    answers = [
        Answer(events=sse(chunk, broken)),
        Answer(events=[*sse(chat_chunk({"content": " and five."}, "stop")), "[DONE]"]),
    ]
    with (
        Canned(lambda _: answers.pop(0)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=FAST)
        list(client.chat.completions.create(model="m", max_tokens=1000, messages=GO, stream=True))
    assert told().attempts[0].error == "overloaded_error"
    assert SECRET not in json.dumps(told().as_dict())


def test_a_report_names_the_row_of_an_uncut_answer_too() -> None:
    with (
        Canned(lambda _: Answer(completion("One.", "stop"))) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare)
        client.chat.completions.create(model="m", max_tokens=1000, messages=GO)
    assert told().rows == ("ended normally",)


# --- reports by the answer's own id ------------------------------------------------------------


def answer_to(asked: Asked) -> Answer:
    if asked.path.endswith("/messages"):
        usage = {"input_tokens": 1, "output_tokens": 1}
        said = [{"type": "text", "text": 'An "id": "no" of its own.'}]
        end = {"stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
        head = {"id": "msg_body", "type": "message", "role": "assistant", "model": "m"}
        return Answer({**head, "content": said, **end})
    if asked.path.endswith("/responses"):
        text = {"type": "output_text", "text": "One.", "annotations": []}
        item = {"type": "message", "id": "msg_9", "role": "assistant", "status": "completed"}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        whole: Any = {"object": "response", "id": "resp_body", "status": "completed"}
        more = {"model": "m", "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
        whole |= {"created_at": 1, **more}
        return Answer({**whole, "output": [{**item, "content": [text]}], "usage": usage})
    if ":generateContent" in asked.path:
        content = {"role": "model", "parts": [{"text": "One."}]}
        candidates = [{"content": content, "finishReason": "STOP", "index": 0}]
        return Answer({"candidates": candidates, "responseId": "gemini_body"})
    return Answer(completion("One.", "stop", "chatcmpl-body"))


def test_a_report_is_found_by_the_id_of_a_whole_body() -> None:
    """Of a server that names no request: vLLM, Ollama, many gateways."""
    with (
        Canned(answer_to) as server,
        anthropic.Anthropic(base_url=server.url, api_key="k") as claude,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="k") as gpt,
        genai.Client(
            api_key="k", http_options=types.HttpOptions(base_url=server.url)
        ) as google,
    ):  # fmt: skip
        continuation.wrap(google)
        openai_client = continuation.wrap(gpt)
        answers: list[Any] = [
            continuation.wrap(claude).messages.create(model="m", max_tokens=1000, messages=GO),
            openai_client.chat.completions.create(model="m", max_tokens=1000, messages=GO),
            openai_client.responses.create(model="m", max_output_tokens=1000, input="Go."),
            google.models.generate_content(model="m", contents="Go."),
        ]
        reports = [continuation.report(answer) for answer in answers]
    dialects = [report.dialect for report in reports if report is not None]
    assert dialects == ["anthropic", "openai-chat", "openai-responses", "gemini"]
