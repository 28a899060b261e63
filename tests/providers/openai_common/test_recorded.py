"""Shapes of recorded streams of both formats, made-up content: whole, and cut at every event."""

from __future__ import annotations

import pytest
from support import recorded_chat as chat
from support import recorded_responses as responses
from support.recorded import Events, Json, Wire, cuts, passes

SAFE: Json = {"hate": {"filtered": False, "severity": "safe"}}
FILTERED: Json = {"content_filter_results": SAFE}
PROMPT: Json = {
    "choices": [],
    "created": 0,
    "id": "",
    "model": "",
    "object": "",
    "prompt_filter_results": [{"prompt_index": 0, **FILTERED}],
}
NULLS: Json = {"every": {"usage": None}, "beside": {"logprobs": None}}
SAYS, CALLS = "t:The_|quick_|brown_|fox_jumps.", 'c:read|{"a":|1}'
CHAT = {
    "openai": chat.stream(SAYS, chat.Style(every={"service_tier": "default", "obfuscation": "x"})),
    "azure": chat.stream(
        SAYS, chat.Style(before=(PROMPT,), beside=FILTERED, every={"usage": None})
    ),
    "deepseek": chat.stream(
        f"th:Hm|_so {SAYS} {CALLS}",
        chat.Style({"role": "assistant", "content": None, "reasoning_content": ""}, **NULLS),
    ),
    "groq": chat.stream(
        f"th:Hm {SAYS}",
        chat.Style(reasoning="reasoning", last={"x_groq": {"id": "req_1"}}, counted=False),
    ),
    "groq, calls": chat.stream(
        "c:read|{} c:list|{}",
        chat.Style({"role": "assistant", "content": None}, whole=True, counted=False),
    ),
    "xai": chat.stream(
        f"th:Hm|_so {SAYS} c:read|{{}}",
        chat.Style(
            {"role": "assistant", "content": "", "reasoning_content": ""}, whole=True, named=False
        ),
        {"total_tokens": 60, "completion_tokens_details": {"reasoning_tokens": 11}},
    ),
    "mistral": chat.stream(f"th:Hm|_so {SAYS}", chat.Style(parts=True, counted=False)),
    "perplexity": chat.stream(
        SAYS, chat.Style({}, every={"citations": ["https://example.org/1"]}, counted=False)
    ),
    "dashscope": chat.stream(f"{SAYS} {CALLS}", chat.Style(**NULLS)),
}
SEARCH = "web_search_call:in_progress|searching|completed"
RESPONSES = {
    "text": responses.stream("m:The_|quick_|fox."),
    "azure": responses.stream(
        "m:The_|quick_|fox.",
        {"content_filters": None},
        content_filters=[{"blocked": False, "source_type": "completion", **FILTERED}],
    ),
    "reasoning and call": responses.stream(f"th:Hm m:I_|read. {CALLS}"),
    "custom call": responses.stream("th f:patch|***|end"),
    "search": responses.stream(
        f"th {SEARCH} th {SEARCH} m*:The_|quick_|fox.", service_tier="default"
    ),
    "annotated before": responses.stream(f"{SEARCH} m+:The_|quick_|fox."),
    "image": responses.stream(
        "th image_generation_call:in_progress|generating|partial_image|completed m:There_|it_is."
    ),
    "code": responses.stream(
        "code_interpreter_call:in_progress|code.delta=print()|code.done|completed m:It_|is."
    ),
    "mcp": responses.stream(
        "mcp_list_tools:in_progress|completed "
        "mcp_call:in_progress|arguments.delta={}|completed m:It_|is."
    ),
    "compacted": responses.stream(
        'compaction~{"encrypted_content":"ZW5j"} m:The_|quick_|fox.',
    ),
    "program": responses.stream(
        'program~{"code":"1","fingerprint":"f"} '
        'program_output~{"result":"1","status":"completed"} m:It_|is_|one.',
    ),
    "phases": responses.stream(
        'm~{"phase":"commentary"}:I_|look. m~{"phase":"final_answer"}:There_|it_is.'
    ),
}
STREAMS = {f"chat: {name}": (chat.WIRE, events) for name, events in CHAT.items()}
STREAMS |= {f"responses: {name}": (responses.WIRE, events) for name, events in RESPONSES.items()}


@pytest.mark.parametrize(("wire", "events"), STREAMS.values(), ids=STREAMS)
def test_a_recorded_stream_passes_byte_for_byte(wire: Wire, events: Events) -> None:
    passes(wire, events)


# The SDK's state machine of Responses is slow, and asked after every cut.
_LONG = {f"responses: {name}" for name in RESPONSES} - {"responses: text", "responses: custom call"}


@pytest.mark.parametrize(
    ("wire", "events"),
    [
        pytest.param(*each, id=name, marks=[pytest.mark.slow] if name in _LONG else [])
        for name, each in STREAMS.items()
    ],
)
def test_a_recorded_stream_cut_at_every_event_is_healed(wire: Wire, events: Events) -> None:
    for cut in cuts(wire, events):
        assert len(cut.driven.requests) <= 3
