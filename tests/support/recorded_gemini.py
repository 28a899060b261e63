"""Recorded streams of generateContent in a line of text each: its chunks, parts joined by `&`.

    t:One_|            a text; `_` is a space
    th:Hm              a thought
    c:read|{"a":1}     a call, whole; of `c>:read` the arguments follow, piece by piece:
    a:$.q=Bos>         a text, which goes on where a `>` stands behind it
    a:$.n#2            a number; `a.:$.n#2` is the last of its call
    .                  the end of a call, where it stands alone; `,` says that it goes on
    x:1 y:1            code that the provider ran, and what came of it
    -                  counts alone, without a candidate
    =STOP              the last chunk says so

A `+` behind its letter puts a part under a signature.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from google.genai import types

from support.drive_gemini import NEW, SIGNATURE, sse
from support.recorded import LIMIT, Events, Gist, Json, Wire, behind

_PART = re.compile(r"(?P<kind>th|[tcaxy.,])(?P<flags>[+>.]*)(?::(?P<said>.*))?")
_ARGUMENT = re.compile(r"(?P<path>[^=#]+)(?P<sign>[=#])(?P<value>.*?)(?P<open>>?)")


def stream(line: str, *, vertex: bool = False, **last: Any) -> Events:
    """Return the chunks of a line as the Gemini API, or Vertex, writes them.

    `last` is laid over the last candidate.
    """
    chunks: list[Json] = []
    for number, told in enumerate(line.removesuffix("=STOP").split(), 1):
        parts = [] if told == "-" else [_part(part) for part in told.split("&")]
        chunks.append(_chunk(parts, 4 * number, vertex=vertex))
    if "candidates" in chunks[-1]:
        chunks[-1]["candidates"][0] |= {"finishReason": "STOP", **last}
    chunks[-1]["usageMetadata"] |= _counts(4 * len(chunks))
    return chunks


def _chunk(parts: list[Json], said: int, *, vertex: bool = False) -> Json:
    content = {"content": {"role": "model", "parts": parts}}
    counts = {"trafficType": "ON_DEMAND"} if vertex else _counts(said)
    return {
        **({"candidates": [content if vertex else {**content, "index": 0}]} if parts else {}),
        "usageMetadata": counts,
        "modelVersion": NEW,
        **({"createTime": "2026-05-04T20:01:02.264968Z"} if vertex else {}),
        "responseId": "r1",
    }


def _counts(said: int) -> Json:
    listed = [{"modality": "TEXT", "tokenCount": 7}]
    counts = {"promptTokenCount": 7, "candidatesTokenCount": said, "thoughtsTokenCount": 9}
    tier = {"promptTokensDetails": listed, "serviceTier": "standard"}
    return {**counts, "totalTokenCount": 16 + said, **tier}


def _part(told: str) -> Json:
    found = _PART.fullmatch(told)
    assert found is not None, told
    said, flags = (found["said"] or "").replace("_", " "), found["flags"]
    match found["kind"]:
        case "t":
            part: Json = {"text": said}
        case "th":
            part = {"text": said, "thought": True}
        case "x":
            part = {"executableCode": {"language": "PYTHON", "code": said}}
        case "y":
            part = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": said}}
        case "c":
            name, _, args = said.partition("|")
            more = (
                {"willContinue": True}
                if ">" in flags
                else json.loads(f'{{"args":{args}}}' if args else "{}")
            )
            part = {"functionCall": {"name": name, **more}}
        case "a":
            argument = _ARGUMENT.fullmatch(said)
            assert argument is not None, said
            typed = {"stringValue": argument["value"]}
            if argument["sign"] == "#":
                typed = {"numberValue": float(argument["value"])}
            goes_on = {"willContinue": True} if argument["open"] else {}
            piece = {"jsonPath": argument["path"], **typed, **goes_on}
            more = {} if "." in flags else {"willContinue": True}
            part = {"functionCall": {"partialArgs": [piece], **more}}
        case sign:
            part = {"functionCall": {} if sign == "." else {"willContinue": True}}
    return {**part, "thoughtSignature": SIGNATURE} if "+" in flags else part


# --- what a stream amounts to -----------------------------------------------------------------


def _parts(events: Events) -> list[types.Part]:
    """Return the parts as the SDK reads them."""
    read = types.GenerateContentResponse._from_response  # the SDK drops unknown fields
    told = [read(response=copy.deepcopy(event), kwargs={}) for event in events]
    candidates = [response.candidates[0] for response in told if response.candidates]
    contents = [candidate.content for candidate in candidates if candidate.content]
    return [part for content in contents for part in content.parts or []]


def gist(events: Events) -> Gist:
    """A call whose end did not come is none of the recorded ones."""
    text, calls, kept, args = "", list[str](), list[str](), dict[str, Any]()
    name: str | None = None
    for part in _parts(events):
        call = part.function_call
        if call is None:
            if part.text and not part.thought:
                text += part.text
            elif part.text is None:
                kept.append(part.model_dump_json(exclude_none=True))
            continue
        if call.name:
            calls += [] if name is None else [f"half of {name}"]
            name, args = call.name, dict(call.args or {})
        for piece in call.partial_args or []:
            value = piece.number_value if piece.string_value is None else piece.string_value
            path = piece.json_path or ""
            args[path] = args[path] + value if path in args else value
        if not call.will_continue:
            calls.append(json.dumps([name, args]))
            name = None
    calls += [] if name is None else [f"half of {name}"]
    return Gist(text, calls, kept)


def limited(events: Events, at: int) -> Events:
    """Return the first `at` events, and the finish reason in a chunk of its own."""
    vertex = "createTime" in events[0]
    end = _chunk([{"text": ""}], 0, vertex=vertex)
    end["candidates"][0]["finishReason"] = "MAX_TOKENS"
    end["usageMetadata"] |= _counts(LIMIT - 9)
    before = [
        {**e, "candidates": [_unended(c) for c in e["candidates"]]}
        for e in events[:at]
        if "candidates" in e
    ]
    return [*before, end]


def _unended(candidate: Json) -> Json:
    return {key: value for key, value in candidate.items() if key != "finishReason"}


def again(events: Events, asked: Json) -> Events:
    """Answer a later request: with all, or with what follows the content that it contains."""
    said = [p for c in asked["contents"] if c["role"] == "model" for p in c["parts"]]
    if not said:
        return events
    text = "".join(part["text"] for part in said if "text" in part and not part.get("thought"))
    skip = behind(gist(events).text, text)
    told: list[Json] = []
    for event in events:
        candidate = (event.get("candidates") or [{}])[0]
        left: list[Json] = []
        for part in candidate.get("content", {}).get("parts", []):
            if "text" in part and not part.get("thought"):
                skipped = min(skip, len(part["text"]))
                skip -= skipped
                if part["text"] and skipped == len(part["text"]):
                    continue
                left.append({**part, "text": part["text"][skipped:]} if skipped else part)
            elif part not in said:
                left.append(part)
        if left or "finishReason" in candidate:
            content = {"content": {"role": "model", "parts": left}} if left else {}
            bare = {key: value for key, value in candidate.items() if key != "content"}
            told.append({**event, "candidates": [{**content, **bare}]})
    return told


WIRE = Wire(
    path=f"/v1beta/models/{NEW}:streamGenerateContent",
    history="gemini",
    request={
        "contents": [{"role": "user", "parts": [{"text": "Go."}]}],
        "generationConfig": {"maxOutputTokens": LIMIT},
    },
    encode=sse,
    gist=gist,
    limited=limited,
    again=again,
)
