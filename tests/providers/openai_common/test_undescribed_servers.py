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
from support import drive
from support.drive import body, streams
from support.drive_chat import OPENING, asking, call, chat, chunk, closing, sse, texts
from support.sdks.turn import FAST
from support.servers import Answer, Asked, Canned, Handler, Local

import continuation
from continuation.engine.waits import retry_after
from continuation.types import Outcome

GO: list[Any] = [{"role": "user", "content": "Go."}]
WILD = "[" * 3000
"""A call of a model that runs wild: the arguments are brackets and nothing else."""


# --- arguments nested beyond all sense ---------------------------------------------------------


@pytest.mark.parametrize("reason", ["length", "tool_calls"])
def test_a_chat_call_of_nothing_but_brackets_is_no_call(reason: str) -> None:
    called = call([WILD[n : n + 100] for n in range(0, len(WILD), 100)])
    wild = sse([OPENING, *called, *closing(reason)])
    driven = chat(streams(*[wild] * 9), asking(model="m"), FAST)
    assert b'tool_calls":' not in b"".join(driven.pieces)
    assert driven.report.outcome is Outcome.TRUNCATED


@pytest.mark.parametrize("structured", [False, True])
def test_a_message_of_nothing_but_brackets_ends_as_cut(structured: bool) -> None:
    text = '{"a":' + WILD
    block = drive.text_block(0, [text]) if structured else drive.call_block(0, [text])
    wild = drive.sse([drive.opening(), *block, *drive.closing("max_tokens", 1000)])
    form = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    asked = {"model": "claude-opus-5", "max_tokens": 1000, "messages": GO, "stream": True}
    more = {"output_config": form} if structured else {}
    driven = drive.drive(streams(*[wild] * 9), {**asked, **more}, FAST)
    assert driven.told[-1]["type"] == "message_stop"
    assert b"tool_use" not in b"".join(driven.pieces)
    assert driven.report.outcome is (Outcome.STALLED if structured else Outcome.TRUNCATED)


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
    last = continuation.last_report()
    assert last is not None
    assert last.outcome is Outcome.FAILED


def completion(text: str, reason: str = "stop") -> dict[str, Any]:
    choice = {
        "index": 0,
        "finish_reason": reason,
        "message": {"role": "assistant", "content": text},
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 10, "total_tokens": 11}
    head = {"id": "chatcmpl-body", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": [choice], "usage": usage}


def test_a_content_type_means_the_same_in_any_case() -> None:
    shouting = {"content-type": "Application/JSON; Charset=UTF-8"}
    told = [completion("One, ", "length"), completion("One, two.")]
    answers: Any = ((200, shouting, [json.dumps(body).encode()], None) for body in told)
    driven = chat(streams(*answers), asking(stream=None), FAST)
    whole = json.loads(b"".join(driven.pieces))
    assert whole["choices"][0]["message"]["content"] == "One, two."


@pytest.mark.parametrize("kind", ["", "text/plain; charset=utf-8", "application/octet-stream"])
@pytest.mark.parametrize("stream", [True, None])
def test_a_stream_of_no_type_is_what_was_asked_for(kind: str, stream: bool | None) -> None:
    """The SDKs look at no type either; what was asked for as a body is gone on with as a stream."""

    def said(text: str, end: str) -> drive.Attempt:
        return 200, {"content-type": kind}, [sse([*texts(text), *closing(end)])], None

    if stream:
        answers = said("One, ", "length"), said("two.", "stop")
    else:
        answers = body(completion("One, ", "length")), said("One, two.", "stop")
    driven = chat(streams(*answers), asking(stream=stream), FAST)
    assert b"two." in b"".join(driven.pieces)
    assert driven.report.outcome is Outcome.HEALED


@pytest.mark.parametrize(
    "date", ["Fri, 31 Dec 99999 23:59:59 GMT", "Fri, 99 Foo 2026 99:99:99", "-", "soon"]
)
def test_a_date_that_no_calendar_has_asks_for_nothing(date: str) -> None:
    assert retry_after({"retry-after": date}, wall=1_700_000_000.0) is None


def test_a_refusal_of_something_else_switches_no_usage_off() -> None:
    """Nobody knows the words of an unknown server; what does not help was not what it meant."""

    def rule(asked: Asked) -> Answer:
        if len(asked.body["messages"]) > 1:
            return Answer({"error": {"message": "not today", "type": "odd"}}, status=400)
        return Answer(events=[*texts("One, two"), *closing("length")])

    with (
        Canned(rule) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as bare,
    ):
        client = continuation.wrap(bare, config=FAST)
        for _ in range(2):
            list(
                client.chat.completions.create(model="m", max_tokens=1000, messages=GO, stream=True)
            )
    told = [asked.body.get("stream_options") for asked in server.asked]
    # Without it once more at that limit, then at smaller ones.
    assert told == [None, {"include_usage": True}, *[None] * 4] * 2


# --- what a report may say ---------------------------------------------------------------------

SECRET = "could not parse 'my secret prompt'"


def test_an_error_inside_a_stream_is_told_by_the_providers_own_word() -> None:
    broken = {"error": {"type": "overloaded_error", "message": SECRET}}
    first = sse([*texts("One, two, three, four"), broken])
    last = sse([chunk({"content": " and five."}, "stop"), "[DONE]"])
    driven = chat(streams(first, last), asking(), FAST)
    assert driven.report.attempts[0].error == "overloaded_error"
    assert SECRET not in json.dumps(driven.report.as_dict())


def test_a_report_names_the_row_of_an_uncut_answer_too() -> None:
    driven = chat(drive.bodies(completion("One.")), asking(stream=None))
    assert driven.report.rows == ("ended normally",)


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
    return Answer(completion("One."))


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
