"""The timeline: what is drawn is what happened, and nothing in it can do anything."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from support.sdks.messages import run
from support.sdks.turn import FAST

from continuation import Report
from continuation.ledger import Attempt
from continuation.reports.report import CallReport, SeamReport
from continuation.reports.timeline import page, svg
from continuation.simulator import Reply, Scenario, Simulator, Text
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
        with pytest.raises(ValueError, match="no report of a turn"):
            Report.from_dict(wrong)


def test_a_turn_without_an_attempt_is_drawn() -> None:
    with Simulator("x") as sim:
        sim.script([Reply([Text("x")])])
        report = replace(run(sim, "sync").told, attempts=())
    ET.fromstring(svg(("none", report)))
