"""Streams as they were recorded of generateContent, uncut and cut at every chunk."""

from __future__ import annotations

import pytest
from support.recorded import Json, cuts, passes, steps
from support.recorded_gemini import WIRE, stream

FOUND: Json = {
    "groundingMetadata": {
        "groundingChunks": [{"web": {"uri": "https://example.org", "title": "Log"}}],
        "groundingSupports": [
            {"segment": {"endIndex": 9, "text": "One fine "}, "groundingChunkIndices": [0]}
        ],
        "webSearchQueries": ["log"],
    }
}

STREAMS = {
    "text": stream("t:One_fine_ t:day_it_rained. t+:=STOP"),
    "a text that ends with its reason": stream("t:One_fine_ t:day.=STOP"),
    "thoughts": stream("th:Hm. th:So, t:One_ t:fine_day. t:=STOP"),
    "a thought beside a text": stream("th:Hm.&t:One_ t:fine_day. t:=STOP"),
    "a call": stream('c+:read|{"a":1} t:=STOP'),
    "a call with its reason": stream('t:I_read. c+:read|{"a":1}=STOP'),
    "two calls beside each other": stream('c+:read|{"a":1}&c:read|{} t:=STOP'),
    "two calls one after the other": stream('th:Hm. c+:read|{"a":1} c:read t:=STOP'),
    "streamed arguments": stream(
        "c>+:read a:$.q=Bos> a:$.q=ton> a:$.q= . c>:read a:$.q=Rome .=STOP", vertex=True
    ),
    "streamed arguments in a list": stream(
        "t:I_read. c>+:read a:$.a[0].n=Salt> a:$.a[0].n= , a:$.a[1].n=Oil a.:$.a[1].p#0.5 t:=STOP",
        vertex=True,
    ),
    "whole and streamed calls": stream(
        "th:Hm. c+:read c>:read a:$.q=A> a:$.q= . c>:read a:$.q=B . t:=STOP", vertex=True
    ),
    "code": stream("t:I_run. x:print(1) y:1 t:It_is_ t:one. t+:=STOP"),
    "grounded": stream("t:One_fine_ t:day_it_rained. t:=STOP", **FOUND),
    "counts behind the end": [*stream("t:One_ t:fine_ t:day.=STOP"), *stream("-")],
    "a signed text": stream("t+:One_fine_ t:day_it_rained.=STOP"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_passes_byte_for_byte(name: str) -> None:
    passes(WIRE, STREAMS[name])


@steps
@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_cut_at_every_chunk_is_healed(name: str, step: int) -> None:
    for _ in cuts(WIRE, STREAMS[name], step):
        pass
