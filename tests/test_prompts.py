"""Tests of what we say to a model: short, exact about the anchor, safe in what it quotes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from continuation.config import parse
from continuation.history.wordings import quoted_anchor
from continuation.policy import Policy, check
from continuation.prompts import (
    Cause,
    cut_call_guidance,
    cut_call_note,
    looks_like_recovery_prompt,
    recovery_prompt,
)

CODE = "Here it is:\n\n```python\ndef f(x):\n    retu"


@given(st.text(max_size=60), st.sampled_from(Cause))
@example("a text that says <anchor>x</anchor> itself", Cause.LENGTH)
@example("</anchor-2> and <anchor>", Cause.DROP)
def test_the_anchor_is_quoted_to_the_character_whatever_it_holds(text: str, cause: Cause) -> None:
    prompt = recovery_prompt("Text. " + text, text, cause)
    assert quoted_anchor(prompt) == (text or None)


def test_a_dropped_stream_is_not_blamed_on_the_output_limit() -> None:
    length, drop, loop = (recovery_prompt(CODE, "    retu", cause) for cause in Cause)
    assert "output limit" in length
    assert "output limit" not in drop + loop
    assert "connection" in drop
    assert "over and over" in loop


@pytest.mark.parametrize(
    ("before", "state"),
    [
        (CODE, "inside an open python code block, in the middle of a line"),
        ("```\nls\n", "inside an open code block, after a whole line"),
        ('{\n  "a": "hal', "inside a string of a JSON document"),
        ('{\n  "a": 1,\n', "inside a JSON document, after a whole line"),
        ("Rows:\n\n| a | b |\n| - | - |\n| 1 | 2", "inside a table, in the middle of a line"),
        ("Steps:\n\n1. one\n2. two\n", "inside a list, after a whole line"),
        ("id,name,city\n1,a,b\n2,c,d\n3,e,f\n", "comma-separated values"),
    ],
)
def test_the_prompt_says_what_is_open(before: str, state: str) -> None:
    assert state in recovery_prompt(before, before[-8:], Cause.LENGTH)


def test_without_an_anchor_nothing_is_asked_to_be_repeated() -> None:
    prompt = recovery_prompt("ok", None, Cause.LENGTH)
    assert "repeat" not in prompt
    assert "anchor" not in prompt


def test_the_prompt_is_short() -> None:
    assert len(recovery_prompt(CODE, "    retu", Cause.LENGTH)) < 700


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("anchor", [None, "    retu"])
def test_our_own_prompts_are_recognised(cause: Cause, anchor: str | None) -> None:
    assert looks_like_recovery_prompt(recovery_prompt(CODE, anchor, cause))


@pytest.mark.parametrize(
    "text",
    ["", "Please continue.", "Go on exactly where it stopped.", "Your answer above is good."],
)
def test_what_a_user_says_is_not_taken_for_ours(text: str) -> None:
    assert not looks_like_recovery_prompt(text)


def test_a_template_replaces_the_wording() -> None:
    filled = recovery_prompt(CODE, "retu", Cause.DROP, "Resume {{now}} after {anchor}. {state}")
    assert filled.startswith("Resume {now} after <anchor>retu</anchor>. It stopped inside")
    assert recovery_prompt("ok.", None, Cause.DROP, "More{anchor}{state}") == "More"


@pytest.mark.parametrize(
    ("template", "part"),
    [
        ("Go on after {tail}", "{tail}"),
        ("Go on {}", "{}"),
        ("Go on {0}", "{0}"),
        ("Go on {anchor.upper}", "{anchor.upper}"),
        ("Go on {anchor", "{anchor"),
        ("Go on {anchor:{width}}", "width"),
        ("Go on {anchor:>900000000}", "{anchor:>900000000}"),
        ("Go on {anchor!r}", "{anchor!r}"),
        ("Go on {state:{anchor}}", "{state:{anchor}}"),
        ("Go on {anchor:}", "{anchor:}"),
        ("Go on }", "}"),
    ],
)
def test_a_bad_template_is_refused_with_the_placeholder_named(template: str, part: str) -> None:
    with pytest.raises(ValueError, match="recovery prompt") as caught:
        recovery_prompt(CODE, "retu", Cause.LENGTH, template)
    assert part in str(caught.value)
    with pytest.raises(ValueError, match="write other braces twice"):
        Policy(recovery_prompt=template)
    with pytest.raises(ValueError, match="write other braces twice"):
        parse(f"recovery_prompt={template}")


@pytest.mark.parametrize("key", ["recovery_prompt", "resume_text"])
def test_a_prompt_has_a_bounded_length(key: str) -> None:
    assert check({key: "x" * 10_000})
    with pytest.raises(ValueError, match=r"has 10,001 characters; write at most 10,000"):
        check({key: "x" * 10_001})


def test_the_notes_on_a_cut_call_name_it_and_its_size() -> None:
    for text in (cut_call_note("write_file", 12345), cut_call_guidance("write_file", 12345)):
        assert "`write_file`" in text
        assert "12,345 characters" in text
        assert "smaller" in text
    assert "not run" in cut_call_note("f", 1)
    assert "1 character of" in cut_call_note("f", 1)
