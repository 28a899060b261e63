"""The timeline: what is drawn is what happened, and nothing in it can do anything."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from support.sdks import chat, messages, responses
from support.sdks.messages import run
from support.sdks.turn import FAST

from continuation import Report, Truncated, TruncatedAnswerError
from continuation.cli.words import describe
from continuation.ledger import Attempt
from continuation.reports.report import CallReport, SeamReport
from continuation.reports.timeline import page, rows, svg
from continuation.simulator import Reply, Scenario, Simulator, Text, ToolUse
from continuation.types import Change, Mode, Outcome, Usage

EVIL = """<script src="http://x.test/x.js">alert('1')</script>&"><img src=x onerror="alert(2)">"""
SVG = "{http://www.w3.org/2000/svg}"


TEXT = "".join(f"{n}. The line with the number {n * n} of a long answer.\n" for n in range(300))


def healed(text: str = TEXT) -> Report:
    """A stream that is cut, turned away once, and gone on with by repeating some of it."""
    with Simulator(text, Scenario(manner="anchor", deltas=400, slow=0.002, status={2: 529})) as sim:
        return run(sim, "sync-stream", policy=FAST, max_tokens=1000).told


def titles(drawn: str) -> list[str]:
    return [title.text or "" for title in ET.fromstring(drawn).iter(f"{SVG}title")]


def test_each_attempt_each_seam_and_each_wait_is_drawn() -> None:
    report = healed()
    assert [a.error and a.error[:3] for a in report.attempts] == [None, "529", None]
    told = titles(svg(("turn", report)))
    assert sum("1,000 of 1,000 tokens" in each for each in told) == 1
    assert sum("529" in each for each in told) == 1
    [seam] = report.seams
    assert f"a seam at character {seam.at:,}: {seam.kind}, {seam.dropped} characters" in str(told)
    waited = replace(report.attempts[2], begun=report.attempts[2].begun + 1.0)
    later = replace(report, attempts=(*report.attempts[:2], waited))
    assert any(re.fullmatch(r"waited 1\.\d\d s", each) for each in titles(svg(("", later))))


def test_what_was_held_of_a_recovery_is_timed() -> None:
    first, refused, last = healed().attempts
    assert first.shown is refused.shown is None
    assert last.shown is not None
    assert last.begun < last.shown < last.begun + last.seconds
    held = replace(last, begun=0.0, seconds=4.0, shown=1.0)
    told = titles(svg(("", replace(healed(), attempts=(held,)))))
    assert "held for 1.00 s" in told


def test_turns_share_one_axis() -> None:
    short = replace(healed(), attempts=(Attempt(1, Mode.FIRST, 9, "end", Usage(), None, 1.0),))
    long = replace(short, attempts=(replace(short.attempts[0], seconds=4.0),))
    bars = [float(bar.get("width", 0)) for bar in ET.fromstring(svg(("a", short), ("b", long)))
            .iter(f"{SVG}rect") if bar.get("height") == "12"]  # fmt: skip
    assert bars[1] == pytest.approx(4 * bars[0], rel=0.01)


# --- what is an estimate, and what became of each attempt ----------------------------------------

BROKEN = [
    pytest.param(messages, {"max_tokens": 8000}, id="messages"),
    pytest.param(chat, {"max_tokens": 8000}, id="chat"),
    pytest.param(responses, {"max_output_tokens": 8000}, id="responses"),
]
"""Of Gemini nothing is estimated: each chunk has the count so far."""


def half_call() -> list[Reply]:
    call = ToolUse("Write", json.dumps({"path": "a.txt", "content": "x" * 4000}))
    return [
        Reply([Text(TEXT[:9400]), replace(call, cut=2000)], stop="max_tokens"),
        Reply([Text(TEXT[:9400]), call], stop="tool_use"),
    ]


@pytest.mark.parametrize(("sdk", "limit"), BROKEN)
def test_an_estimate_is_marked_wherever_it_is_told(sdk: Any, limit: dict[str, Any]) -> None:
    with Simulator(TEXT, Scenario(manner="anchor", deltas=40)) as sim:
        sim.script([Reply([Text(TEXT)], drop=200, deltas=40)])
        ran = sdk.run(sim, "sync-stream", policy=FAST, **limit)
    report = ran.told
    first, last = report.attempts[0], report.attempts[-1]
    assert (first.estimated, last.estimated) == (True, False)
    assert first.usage is not None
    wanted = f"~{first.usage.output:,}"
    both = f"~{report.billed.output:,}"
    assert f"{wanted} out, " in str(report)
    assert f"{both} out" in str(report).splitlines()[-1]
    drawn = report.to_html()
    for told in (drawn, report._repr_html_(), svg(("", report))):
        assert f"{wanted} of {first.limit:,} tokens" in told
        assert f"{both} out" in told
    assert f">{wanted}<" in drawn  # in its table
    assert f"{last.usage and last.usage.output:,}" in drawn
    assert f"~{last.usage and last.usage.output:,}" not in drawn
    document = json.loads(json.dumps(report.as_dict()))
    flags = {name: document[name]["estimated"] for name in ("turn", "billed", "discarded")}
    assert flags == {"turn": True, "billed": True, "discarded": False}
    assert document["attempts"][0]["usage"]["estimated"]
    assert Report.from_dict(document) == report
    [cut] = [event for event in ran.events if isinstance(event, Truncated)]
    assert cut.estimated
    if report.cost is not None:
        assert f"~${report.cost:.4f}" in str(report)


def test_a_sum_that_lacks_an_attempt_says_so() -> None:
    report = healed()
    exact = str(report).splitlines()[-1]
    assert "at least" not in exact
    assert "~" not in str(report)
    unknown = replace(report.attempts[0], usage=Usage(output=1000))
    lacking = replace(report, attempts=(unknown, *report.attempts[1:]))
    assert "billed: at least " in str(lacking)
    assert "billed: at least " in lacking.to_html()
    if report.cost is not None:
        assert "~$" in str(lacking)


@pytest.mark.parametrize("sdk", [messages, chat])
def test_text_of_an_attempt_that_was_made_again_is_in_the_answer(sdk: Any) -> None:
    with Simulator(TEXT) as sim:
        sim.script(half_call())
        report = sdk.run(sim, "sync-stream", policy=FAST, max_tokens=5000).told
    assert report.outcome == "healed"
    first, last = report.attempts
    assert (first.discarded, first.kept, last.kept) == (True, 9400, 0)
    [drawn, _] = rows(report.attempts, report.seams)
    assert drawn.kind == "in"
    assert drawn.what.endswith("9,400 characters of it in the answer")
    assert "not in the answer" not in report.to_html()
    assert "9,400 characters kept, the rest discarded" in str(report)


def test_an_attempt_of_which_nothing_was_given_is_not_in_the_answer() -> None:
    with Simulator(TEXT) as sim:
        sim.script(half_call())
        report = messages.run(sim, "sync", policy=FAST, max_tokens=5000).told
    first = report.attempts[0]
    assert (first.discarded, first.kept) == (True, 0)
    [drawn, _] = rows(report.attempts, report.seams)
    assert drawn.kind == "out"
    assert drawn.what.endswith("not in the answer")


def test_an_answer_that_was_saved_is_in_the_answer() -> None:
    report = healed()
    saved = replace(report, attempts=(replace(report.attempts[0], saved=True),))
    [drawn] = rows(saved.attempts, ())
    assert drawn.kind == "in"
    assert drawn.what.endswith("not paid again")


def test_one_of_a_kind_is_told_in_the_singular() -> None:
    report = healed()
    one = Attempt(1, Mode.FIRST, None, "end", Usage(input=1, output=1), None, 1.0)
    single = replace(report, attempts=(one,))
    assert "1 token in, 1 out" in str(single)
    assert "1 token, end" in single.to_html()
    assert "1 token:" in describe(Truncated(1, "max_tokens", 9, 1))
    assert "1 character received" in str(TruncatedAnswerError(single, "x", None))
    told = " ".join([str(single), single.to_html()])
    assert not re.search(r"\b1 (tokens|attempts|characters)\b", told)


class _Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.text = set[str](), set[str](), ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_nothing_that_was_named_can_do_anything_in_a_page() -> None:
    report = replace(
        healed(),
        model=EVIL,
        reason=EVIL,
        outcome=Outcome.PARTIAL,
        stop=EVIL,
        attempts=(
            Attempt(1, Mode.FIRST, 9, EVIL, Usage(), EVIL, 1.0),
            Attempt(2, Mode.RECOVERY, 9, None, None, EVIL, 1.0, EVIL, begun=1.0),
        ),
        seams=(SeamReport(2, 1, EVIL, 0, 0, 0, 1.0, EVIL),),
        calls=(CallReport(EVIL, EVIL, 1, EVIL),),
        repairs=(Change(EVIL, EVIL, EVIL),),
    )
    for html in (report.to_html(), report._repr_html_()):
        read = _Tags(html)
        assert not read.tags & {"script", "img", "link", "iframe", "object", "style"}
        assert not {n for n in read.attributes if n.startswith("on") or n in {"src", "href"}}
        assert EVIL in read.text
        outside = html.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert re.findall(r"(?:url\(|@import)(?!#)", outside) == []
    ET.fromstring(svg((EVIL, report)))  # well-formed


def test_a_page_holds_several_turns_and_never_what_was_said() -> None:
    report = healed(TEXT.replace("line", "Bernstein"))
    html = page([report, report])
    assert html.count("<svg") == 2
    assert "Bernstein" not in html


def test_a_report_is_read_again_from_its_json() -> None:
    report = healed()
    told: dict[str, Any] = json.loads(json.dumps(report.as_dict()))
    assert Report.from_dict(told) == report
    later = {**told, "novel": 1, "attempts": [{**a, "novel": 2} for a in told["attempts"]]}
    assert Report.from_dict(later) == report
    for wrong in ({}, {**told, "outcome": "odd"}, {**told, "attempts": [3]}, {**told, "seams": 1}):
        with pytest.raises(ValueError, match="not a report of a turn"):
            Report.from_dict(wrong)


def test_a_turn_without_an_attempt_is_drawn() -> None:
    with Simulator("x") as sim:
        sim.script([Reply([Text("x")])])
        report = replace(run(sim, "sync").told, attempts=())
    ET.fromstring(svg(("none", report)))
