"""The page at `/`: who may see it, what it is told, and how a browser shows it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.browser import CHROMIUM, browsing
from support.gateways import KEYS, MESSAGES, URLS, Served, begin, serving, until
from support.sdks.turn import cut, end

from continuation.simulator import Reply, Simulator, Text, ToolUse

PLACE = f"/anthropic{URLS['anthropic-messages']}"
TOKEN = "secret/1"
LONG = "The quick brown fox jumps over the lazy dog, and then it does so once more. " * 9
OTHERS = """
[gateway]
token_env = "PAGE_TEST_TOKEN"
[defaults]
backoff_seconds = 0.0
remember_limit = false
max_recoveries = 1
"""


@pytest.fixture
def fresh(provider: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A gateway of which nothing was asked yet, and that wants a token."""
    monkeypatch.setenv("PAGE_TEST_TOKEN", TOKEN)
    with serving(tmp_path, provider.url, OTHERS, show_content=True) as found:
        yield found
    provider.reset()


def ask(served: Served, **more: Any) -> httpx2.Response:
    headers = {**KEYS, "x-continuation-token": TOKEN}
    return httpx2.post(served.url + PLACE, json={**MESSAGES, **more}, headers=headers, timeout=60)


def live(served: Served) -> Any:
    return httpx2.get(f"{served.url}/continuation/live", auth=("anybody", TOKEN)).json()


@pytest.mark.parametrize("path", ["/", "/metrics", "/continuation/live", "/continuation/turns/x"])
def test_all_wants_the_token_and_a_browser_is_asked_for_it(fresh: Served, path: str) -> None:
    refused = httpx2.get(fresh.url + path)
    assert (refused.status_code, refused.headers["www-authenticate"][:6]) == (401, "Basic ")
    for wrong in ("", "secret", "sec\u00e9ret"):
        assert httpx2.get(fresh.url + path, auth=("x", wrong)).status_code == 401
    known = 404 if "turns" in path else 200
    assert httpx2.get(fresh.url + path, auth=("x", TOKEN)).status_code == known
    assert httpx2.get(f"{fresh.url}/t/secret%2F1{path}").status_code == known


def test_a_password_is_no_token_where_it_may_be_for_a_provider(fresh: Served) -> None:
    refused = httpx2.post(fresh.url + PLACE, json=MESSAGES, auth=("x", TOKEN))
    assert refused.status_code == 401
    assert "www-authenticate" not in refused.headers


def test_the_page_may_load_and_run_nothing_but_itself(fresh: Served) -> None:
    answer = httpx2.get(fresh.url, auth=("x", TOKEN))
    policy = dict(
        part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["script-src"].startswith("'sha256-")
    assert not re.search(r"""\bon[a-z]+=|style=|https?:|innerHTML|src=|url\(""", answer.text)
    assert 'name="viewport"' in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_turn_is_told_while_it_is_under_way_and_when_it_has_ended(
    fresh: Served, provider: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    provider.script([cut(LONG), end("It ends here, as it must.", gate=gate, gate_at=1)])
    body = {**MESSAGES, "stream": True}
    with begin(fresh, body, token=TOKEN) as line:
        until(lambda: len(provider.posts) == 2 and provider.posts[1].sent == 1)
        (turn,) = live(fresh)["live"]
        assert [row["name"] for row in turn["rows"]] == ["1 first", "2 recovery"]
        assert (turn["model"], turn["waits"]) == ("claude-opus-5", False)
        waited, begun, shown, ended = turn["rows"][1]["at"]
        assert 0 < waited <= begun < shown == ended <= turn["seconds"]  # it is held, so far
        assert turn["text"].endswith("once more. ")
        gate.set()
        while line.recv(65_536):
            if not live(fresh)["live"]:
                break
    until(lambda: live(fresh)["ended"])
    told = live(fresh)
    (turn,) = told["ended"]
    assert turn["good"]
    assert turn["rows"][1]["seam"].startswith("a seam at character")
    assert told["outcomes"] == {"healed": 1}
    assert told["failures"] == []
    assert told["tokens"]["billed in"] > told["tokens"]["delivered in"] > 0
    assert "quick" not in json.dumps({**told, "live": []})


def test_a_call_that_is_held_is_not_told_as_delivered(fresh: Served, provider: Simulator) -> None:
    gate = threading.Event()
    call = ToolUse("Write", json.dumps({"path": "a.txt", "content": "x" * 400}))
    provider.script(
        [Reply([Text("I write. "), call], stop="tool_use", gate=gate, gate_at=12, deltas=40)]
    )
    with begin(fresh, {**MESSAGES, "stream": True}, token=TOKEN) as line:
        until(lambda: bool(provider.posts) and provider.posts[0].sent == 12)
        until(lambda: live(fresh)["live"][0]["held"])
        gate.set()
        while b"message_stop" not in line.recv(65_536):
            pass
    until(lambda: live(fresh)["ended"])


def test_text_that_is_passed_on_is_not_told_as_held(fresh: Served, provider: Simulator) -> None:
    gate = threading.Event()
    provider.script([end(LONG, gate=gate, gate_at=6)])
    with begin(fresh, {**MESSAGES, "stream": True}, token=TOKEN) as line:
        until(lambda: bool(provider.posts) and provider.posts[0].sent == 6)
        until(lambda: LONG[:20] in live(fresh)["live"][0].get("text", ""))
        assert not live(fresh)["live"][0]["held"]
        gate.set()
        while b"message_stop" not in line.recv(65_536):
            pass


def test_tokens_with_an_estimate_in_them_are_told_as_such(
    fresh: Served, provider: Simulator
) -> None:
    provider.script([end(LONG)])
    ask(fresh, stream=True)
    assert "billed estimated" not in live(fresh)["tokens"]
    provider.script([end(LONG, drop=8, deltas=40), end(LONG)])
    ask(fresh, stream=True)
    assert live(fresh)["tokens"]["billed estimated"] == 1


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_a_browser_shows_what_waits_and_what_is_held(
    fresh: Served, provider: Simulator, tmp_path: Path
) -> None:
    place = fresh.url.replace("//", f"//anybody:{TOKEN.replace('/', '%2F')}@")
    wide = "[...document.querySelectorAll('#live .row:last-of-type .track i')]"
    drawn = f"{wide}.filter(i => i.offsetParent && i.offsetWidth > 0 && !i.matches('.wait')).length"
    busy = Reply(status=529, error=("overloaded_error", "busy"), headers={"retry-after": "4"})
    provider.script([cut(LONG), busy, end("It ends here, as it must.")])
    body = {**MESSAGES, "stream": True}
    with browsing(tmp_path) as tab:
        tab.size(1200, 900)
        with begin(fresh, body, token=TOKEN) as line:
            tab.do("Page.navigate", url=place)
            tab.until("document.querySelector('#live')?.innerText.includes('waiting')")
            assert tab.value(drawn) == 0
            tab.picture(tmp_path / "waiting.png")
            while b"message_stop" not in line.recv(65_536):
                pass
        gate = threading.Event()
        call = ToolUse("Write", json.dumps({"path": "a.txt", "content": "x" * 400}))
        held = Reply([Text("I write. "), call], stop="tool_use", gate=gate, gate_at=12, deltas=40)
        provider.script([held])
        with begin(fresh, body, token=TOKEN) as line:
            tab.until("document.querySelector('#live').innerText.includes('under way, held')")
            striped = f"{wide}.some(i => i.matches('.held') && i.offsetWidth > 2)"
            tab.until(striped)
            tab.picture(tmp_path / "held.png")
            gate.set()
            while b"message_stop" not in line.recv(65_536):
                pass
        tab.until("document.querySelectorAll('#live li').length == 0")
        assert tab.complaints == []


def test_a_failure_comes_with_its_reason_and_what_helps(fresh: Served, provider: Simulator) -> None:
    provider.script([cut(LONG), cut("On and on. ")])
    ask(fresh, stream=True)
    (failure,) = live(fresh)["failures"]
    assert failure["outcome"] == "truncated"
    assert (failure["reason"], failure["ending"]) == ("all recoveries used", "length")
    assert failure["remedy"] == "raise max_recoveries"


def test_the_page_shows_the_remedy_of_the_report(
    provider: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report knows the policy of its turn, so no remedy names what that sets already."""
    provider.script([cut(ToolUse("Write", {"path": "a"}, cut=5))] * 6)
    monkeypatch.setenv("PAGE_TEST_TOKEN", TOKEN)
    with serving(
        tmp_path, provider.url, f'{OTHERS}truncated_tool_call = "retry_smaller"'
    ) as served:
        ask(served).raise_for_status()
        (failure,) = live(served)["failures"]
    provider.reset()
    assert failure["ending"] == "length"
    assert failure["remedy"] == 'set truncated_tool_call = "complete", or request smaller calls'


def test_no_text_is_told_where_it_was_not_asked_for(served: Served, sim: Simulator) -> None:
    sim.script([end("Bernstein, and more of it.", stall=4)])
    with begin(served, {**MESSAGES, "stream": True}):
        until(lambda: sim.posts and sim.posts[0].sent == 4)
        told = httpx2.get(f"{served.url}/continuation/live").json()
        assert len(told["live"]) == 1
        assert "Bernstein" not in json.dumps(told)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_a_browser_shows_turns_as_they_grow(
    fresh: Served, provider: Simulator, tmp_path: Path
) -> None:
    ask(fresh, model="claude-<img src=x onerror=document.title='hit'>")
    provider.script([cut(LONG), end("The end of it, at last.")])
    ask(fresh, stream=True)
    provider.script([cut(LONG), cut("On and on. ")])
    ask(fresh, stream=True)
    busy = Reply(status=529, error=("overloaded_error", "busy"))
    gate = threading.Event()
    provider.script(
        [cut(LONG), busy, end("<b>It ends</b> here, as it must.", gate=gate, gate_at=1)]
    )
    place = fresh.url.replace("//", f"//anybody:{TOKEN.replace('/', '%2F')}@")
    body = {**MESSAGES, "stream": True}
    before = len(provider.posts)
    with begin(fresh, body, token=TOKEN) as line, browsing(tmp_path) as tab:
        until(lambda: len(provider.posts) == before + 3 and provider.posts[-1].sent == 1)
        tab.size(1200, 900)
        tab.do("Page.navigate", url=place)
        tab.until("document.querySelectorAll('#live li').length == 1")

        # It grows, and on its axis what was before it shrinks.
        seconds = (
            "parseFloat(document.querySelector('#live summary span').textContent.split(', ')[1])"
        )
        first = tab.value(seconds)
        tab.until(f"{seconds} > {first} + 1")
        width = "parseFloat(document.querySelector('#live .in').style.width)"
        wide = tab.value(width)
        tab.until(f"{width} < {wide}")
        assert "under way, held" in tab.value("document.querySelector('#live').innerText")
        assert "once more." in tab.value("document.querySelector('#live pre').textContent")
        shown = tab.value("document.querySelector('main').textContent")
        wanted = ["healed", "delivered, out", "billed, out", "all recoveries used"]
        wanted += ["What helps: raise max_recoveries", "a seam at character", "529"]
        for words in wanted:
            assert words in shown, words

        # What others have named is text.
        assert "claude-<img src=x" in shown
        assert tab.value("document.querySelectorAll('img').length") == 0
        assert tab.value("document.title") == "continuation"

        # By keyboard: a turn is shut, and stays so and in focus while the page goes on.
        tab.press("Tab")
        assert tab.value("document.activeElement.id") == "pause"
        tab.press("Tab")
        assert tab.value("document.activeElement.matches('#live summary')")
        tab.press("Enter")
        tab.until("!document.querySelector('#live details').open")
        then = tab.value(seconds)
        tab.until(f"{seconds} > {then}")
        assert tab.value("!document.querySelector('#live details').open")
        assert tab.value("document.activeElement.matches('#live summary')")
        tab.press("Enter")
        tab.until("document.querySelector('#live details').open")

        tab.picture(tmp_path / "desk.png")
        for narrow in (320, 360, 768):
            tab.size(narrow, 740)
            assert tab.value("document.documentElement.scrollWidth <= innerWidth"), narrow
        tab.size(360, 740)
        tab.picture(tmp_path / "phone.png")

        gate.set()
        while b"message_stop" not in line.recv(65_536):
            pass
        tab.until("document.querySelectorAll('#live li').length == 0")
        tab.until("document.querySelectorAll('#ended li').length == 4")
        assert tab.complaints == []


REFUSED = Reply(
    status=400, error=("invalid_request_error", "max_tokens: 9 is not allowed: Bernstein")
)


def test_equal_failures_are_one_entry_with_the_providers_reason(
    fresh: Served, provider: Simulator
) -> None:
    for _ in range(3):
        provider.script([REFUSED])
        assert ask(fresh).status_code == 400
    provider.script([REFUSED])
    refused = ask(fresh, model="claude-haiku-4-5")
    told = live(fresh)
    assert [(each["model"], each["count"]) for each in told["failures"]] == [
        ("claude-haiku-4-5", 1),
        ("claude-opus-5", 3),
    ]
    first = told["failures"][0]
    assert first["id"] == refused.headers["x-continuation-turn"]
    assert first["reason"] == "status 400 invalid_request_error"
    assert first["message"].startswith("max_tokens: 9")  # `--show-content` was said
    assert {each["id"] for each in told["ended"]} >= {each["id"] for each in told["failures"]}


def test_many_equal_failures_hide_no_other(fresh: Served, provider: Simulator) -> None:
    for number in range(25):
        provider.script([REFUSED])
        ask(fresh, model="claude-sonnet-5" if number == 3 else "claude-opus-5")
    counts = {each["model"]: each["count"] for each in live(fresh)["failures"]}
    assert counts == {"claude-opus-5": 24, "claude-sonnet-5": 1}


def test_what_a_provider_said_is_shown_only_where_content_is(
    served: Served, sim: Simulator
) -> None:
    sim.script([REFUSED])
    httpx2.post(served.url + PLACE, json=MESSAGES, headers=KEYS)
    told = httpx2.get(f"{served.url}/continuation/live").text
    assert "status 400 invalid_request_error" in told
    assert "Bernstein" not in told
