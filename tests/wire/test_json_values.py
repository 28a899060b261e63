"""Whether a text is JSON that breaks off: every prefix is, and nothing that is whole or foreign."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from continuation.wire import json_values
from continuation.wire.json_values import breaks_off, dumps, dumps_in_pieces

VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=examples(200))
@given(st.dictionaries(st.text(), VALUE, min_size=1, max_size=3), st.booleans())
def test_every_beginning_of_an_object_breaks_off_and_the_object_does_not(
    value: dict[str, object], ascii_only: bool
) -> None:
    whole = json.dumps(value, ensure_ascii=ascii_only)
    assert not breaks_off(whole)
    assert not breaks_off(f"\n {whole}\n")
    for end in range(1, len(whole)):
        assert breaks_off(whole[:end]), whole[:end]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "12",
        "let me write",
        '{"a": 1,}',
        "{'a': 1}",
        '{"a": 1}{"b": 2}',
        '{"a": "one\ntwo\tthree"}',
        r'{"path": "C:\Users\me"}',
        '{"path": "C:\\dir\\"}',
        json.dumps(json.dumps({"a": 1})),
    ],
)
def test_what_a_model_meant_to_say_does_not_break_off(text: str) -> None:
    assert not breaks_off(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "one\ntwo',
        r'{"path": "C:\Users\me", "text": "x',
        '{"a": "x\\',
        '{"a": "\\u12',
        '{"a": "\\ud83d\\',
        '"{\\"a\\": 1',
        "{",
        '{"a": tru',
        '{"a": ' + "[" * 10_000,
    ],
)
def test_what_is_cut_breaks_off_however_loosely_it_is_written(text: str) -> None:
    assert breaks_off(text)


@given(VALUE, st.text(min_size=40))
@settings(max_examples=examples(200))
def test_a_long_text_is_encoded_in_pieces_to_the_same_bytes(value: object, text: str) -> None:
    long = f'{text}\u00e9"\\\U0001f642'
    blocks = [{"type": "text", "text": long}, value]
    body = {"messages": [{"role": "user", "content": blocks}, {"content": long}], "x": long}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "_LONG", 7)
        assert dumps_in_pieces(body) == dumps(body)


def test_no_piece_of_a_body_is_long() -> None:
    long = "word, " * 1_000_000
    body = {"messages": [{"content": [{"type": "text", "text": long}]}, {"content": long}]}
    pieces = list(json_values._pieces(body))  # pyright: ignore[reportPrivateUsage]
    assert max(map(len, pieces)) <= json_values._LONG  # pyright: ignore[reportPrivateUsage]
