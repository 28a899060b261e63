"""How the simulated model begins when it is asked to go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anthropic
import pytest
from support.simulator_helpers import ANSWER, GO, OLD, PROMPT, connect, create, said, text_of

from continuation.simulator import Scenario, Simulator


def second(client: anthropic.Anthropic, manner: str, limit: int = 20, prompt: Any = PROMPT) -> str:
    """Return how a recovery begins in a manner, after `limit` tokens of the answer."""
    how = {"extra_headers": {"x-simulate": f"manner={manner}"}}
    first = create(client, limit, **how)
    return text_of(create(client, limit, GO, said(first), prompt, **how))


# -- manners

SHOWN = ANSWER[:80]
REST = ANSWER[80:160]


@pytest.mark.parametrize(
    ("manner", "begins"),
    [
        ("exact", REST),
        ("echo:10", SHOWN[-10:] + REST),
        ("echo-word", SHOWN[SHOWN.rindex(" ") + 1 :] + REST),
        ("echo-line", SHOWN[SHOWN.rindex("\n") + 1 :] + REST),
        ("preamble", "Continuing from where I left off:\n\n" + REST),
        ("fence", "```\n" + REST),
        ("restart", ANSWER),
        ("skip:3", ANSWER[83:]),
        ("done", "The answer above is already complete."),
        ("anchor", SHOWN[-30:] + REST),
        ("empty", ""),
    ],
)
def test_a_recovery_begins_in_its_manner(
    client: anthropic.Anthropic, manner: str, begins: str
) -> None:
    prompt = {"role": "user", "content": f"Repeat <tail>{SHOWN[-30:]}</tail>, then go on."}
    assert begins[:80] == second(client, manner, prompt=prompt)


@pytest.mark.parametrize(
    "quoted",
    [
        '"{}"',
        "```\n{}\n```",
        "<<<\n{}\n>>>",
        "[{}]",
        "Your answer ended with {} and nothing more",
        "The last words between <a> and </a>:\n<a>{}</a>",
    ],
)
def test_the_anchor_is_found_however_it_is_quoted(client: anthropic.Anthropic, quoted: str) -> None:
    prompt = {"role": "user", "content": quoted.format(SHOWN[-20:])}
    assert (SHOWN[-20:] + REST)[:80] == second(client, "anchor", prompt=prompt)


def test_an_anchor_that_lost_its_white_space_gets_it_back(client: anthropic.Anthropic) -> None:
    limit = (ANSWER.index("\n") + 1 + 4) // 4
    shown = ANSWER[: limit * 4]
    prompt = {"role": "user", "content": f"Repeat <tail>{shown.rstrip()[-9:]}</tail> and go on."}
    begin = len(shown.rstrip())
    assert ANSWER[begin - 9 :][: limit * 4] == second(client, "anchor", limit, prompt)


def test_white_space_is_eaten_or_added_at_the_seam() -> None:
    with Simulator("one two   three") as sim, connect(sim) as client:
        how = {"extra_headers": {"x-simulate": "manner=whitespace"}}
        eaten = create(client, 99, GO, {"role": "assistant", "content": "one two"}, PROMPT, **how)
        added = create(client, 99, GO, {"role": "assistant", "content": "one t"}, PROMPT, **how)
    assert (text_of(eaten), text_of(added)) == ("three", "\nwo   three")


def test_a_fence_is_opened_again_in_its_language() -> None:
    text = "Look:\n```python\nprint(1)\nprint(2)\n```\n"
    with Simulator(text) as sim, connect(sim) as client:
        how = {"extra_headers": {"x-simulate": "manner=fence"}}
        partial = {"role": "assistant", "content": "Look:\n```python\nprint(1)\n"}
        message = create(client, 99, GO, partial, PROMPT, **how)
    assert text_of(message) == "```python\nprint(2)\n```\n"


@pytest.mark.parametrize(("manner", "told"), [("prefill-echo", ANSWER), ("preamble", ANSWER[80:])])
def test_a_prefill_comes_back_in_one_manner_and_is_left_alone_in_all_others(
    client: anthropic.Anthropic, manner: str, told: str
) -> None:
    how = {"extra_headers": {"x-simulate": f"manner={manner}"}}
    partial = {"role": "assistant", "content": SHOWN}
    assert text_of(create(client, 4096, GO, partial, model=OLD, **how)) == told


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("manner=backwards", "manner: 'backwards'"),
        ("manner=echo", "'echo:40'"),
        ("manner=exact:3", "needs no count"),
        ("maner=exact", "'maner=exact' is not a setting"),
        ("thinking=lots", "thinking: 'lots'"),
        ("status=529", "status='529'"),
        ("slow=-1", "slow='-1'"),
        ("slow=soon", "slow='soon'"),
        ("ceiling=much", "ceiling='much'"),
        ("call=perhaps", "call='perhaps'"),
        ("deltas=0", "deltas: 0"),
        ("hop=x", "write a whole number"),
        ("empty_shape=9", "not one of the shapes 1 to 8"),
    ],
)
def test_malformed_settings_are_refused_by_name(
    client: anthropic.Anthropic, settings: str, named: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        create(client, extra_headers={"x-simulate": settings})
    assert named in str(caught.value.body)


def test_settings_are_laid_over_those_of_the_run() -> None:
    run = Scenario(manner="done", slow=2.0)
    assert run == run.but("")
    laid = run.but("status=1:429+3:529, retry-after=0.5, call=yes, any_model=off,, thinking=7")
    status = {1: 429, 3: 529}
    assert laid == replace(
        run, status=status, retry_after=0.5, call=True, any_model=False, thinking=7
    )
