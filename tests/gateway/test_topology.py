"""Two gateways behind nginx with one PostgreSQL, as processes: killed, drained, frozen."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.postgres import Postgres, needs_postgres
from support.topology import Replica, needs_nginx, nginx

from continuation.simulator import Simulator

pytestmark = [pytest.mark.slow, needs_postgres, needs_nginx]
CONVERSATIONS = int(os.environ.get("CONVERSATIONS", "250"))
ANSWER = "".join(f"Sentence {n} of what is told to the end. " for n in range(20))
LIMIT = 120
"""Tokens; four characters each. The answer takes two attempts."""
KEYS = {"authorization": "Bearer sk-one"}
MORE = "escalate = false\nremember_limit = false\nleave_limits_below = 16\nbackoff_seconds = 0.05\n"
MORE += "store_seconds = 1.0\n"  # a busy machine is slow


@dataclass
class House:
    """All of it."""

    url: str
    sim: Simulator
    a: Replica
    b: Replica
    server: Postgres


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with Postgres() as server, Simulator(ANSWER) as sim:
        a, b = (Replica(tmp_path / name, sim.url, server.url(), MORE) for name in "ab")
        with a, b, nginx(tmp_path, [a.port, b.port]) as url:
            yield House(url, sim, a, b, server)


def ask(url: str, text: str, after: str | None = None, **more: Any) -> httpx2.Response:
    """Ask for a turn of a conversation, whole."""
    body = {"model": "gpt-5.4", "max_output_tokens": LIMIT, "input": text, **more}
    if after is not None:
        body["previous_response_id"] = after
    return httpx2.post(f"{url}/openai/v1/responses", json=body, headers=KEYS, timeout=60)


def said(answer: httpx2.Response) -> tuple[str, str]:
    """Return the id of an answer and its text."""
    assert answer.status_code == 200, answer.text
    told = answer.json()
    parts = [part for item in told["output"] for part in item.get("content") or []]
    return told["id"], "".join(part.get("text", "") for part in parts)


def read(sim: Simulator, text: str) -> list[str]:
    """Return what the model was sent with the turn that ends with this text, as texts."""
    for post in reversed(sim.posts):
        body = post.body or {}
        items = body["input"]
        if isinstance(items, list) and _text(items[-1]) == text:
            assert "previous_response_id" not in body
            return [_text(item) for item in items]
    raise AssertionError(text)


def _text(item: dict[str, Any]) -> str:
    content = item.get("content")
    return content if isinstance(content, str) else "".join(p["text"] for p in content or [])


def turns(replica: Replica) -> list[dict[str, Any]]:
    lines = (replica._folder / "turns.log").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_what_is_joined_on_one_is_gone_on_with_on_the_other(house: House) -> None:
    """All of many; `.ci/gateway` has a thousand."""

    def conversation(number: int) -> tuple[list[str], list[str]]:
        first, text = said(ask(house.a.url, f"Tell {number}."))
        assert text == ANSWER
        _, again = said(ask(house.b.url, f"And then, {number}?", after=first))
        assert again == ANSWER
        return read(house.sim, f"And then, {number}?"), [
            f"Tell {number}.",
            ANSWER,
            f"And then, {number}?",
        ]

    with ThreadPoolExecutor(8) as pool:
        for seen, wanted in pool.map(conversation, range(CONVERSATIONS)):
            assert seen == wanted
    assert house.server.connections() <= 2 * 4
    assert {turn["chain"] for turn in [*turns(house.a), *turns(house.b)]} == {None}


def test_one_is_killed_between_turns(house: House) -> None:
    """The other one knows its chains, and so does the one that is started in its place."""
    begun = [said(ask(house.url, f"Tell {n}."))[0] for n in range(20)]
    house.a.process.kill()
    house.a.process.wait()
    for n, first in enumerate(begun[:10]):
        assert said(ask(house.url, f"And then, {n}?", after=first))[1] == ANSWER
        assert read(house.sim, f"And then, {n}?") == [f"Tell {n}.", ANSWER, f"And then, {n}?"]
    house.a.start()
    for n, first in enumerate(begun[10:], 10):
        assert said(ask(house.a.url, f"And then, {n}?", after=first))[1] == ANSWER
        assert read(house.sim, f"And then, {n}?") == [f"Tell {n}.", ANSWER, f"And then, {n}?"]


def test_one_is_drained_in_the_middle_of_turns(house: House) -> None:
    """What it has begun is ended, and nobody is turned away meanwhile.

    But for one who is in its queue while it stops to listen: the system resets that connection, and
    nginx, which sends no POST twice, says 502. Clients ask again, as their SDKs do.
    """
    over, slow, failed = threading.Event(), list[str](), list[object]()
    reset = list[int]()

    def stream(number: int) -> None:
        headers = {**KEYS, "x-simulate": "slow=0.1"}
        body: dict[str, Any] = {"model": "gpt-5.4", "max_output_tokens": LIMIT}
        body["input"] = f"Slow {number}."
        url = f"{house.url}/openai/v1/responses"
        given: dict[str, Any] = {
            "json": {**body, "stream": True},
            "headers": headers,
            "timeout": 60,
        }
        with httpx2.stream("POST", url, **given) as answer:
            slow.append(answer.read().decode())

    def others() -> None:
        number = 0
        while not over.is_set():
            number += 1
            try:
                answer = ask(house.url, f"Tell {number}.")
                if answer.status_code == 502:
                    reset.append(number)
                    answer = ask(house.url, f"Tell {number}.")
                assert said(answer)[1] == ANSWER
            except (AssertionError, httpx2.HTTPError) as error:
                failed.append(error)

    threads = [threading.Thread(target=stream, args=(n,)) for n in range(6)]
    threads.append(threading.Thread(target=others))
    for thread in threads:
        thread.start()
    time.sleep(1)
    house.a.process.send_signal(signal.SIGTERM)
    for thread in threads[:-1]:
        thread.join()
    assert house.a.process.wait(30) == 0
    over.set()
    threads[-1].join()
    assert failed == []
    assert len(reset) <= 1
    assert max(turn["seconds"] for turn in turns(house.a)) > 2, (
        "it was drained in the middle of one"
    )
    assert len(slow) == 6
    for text in slow:
        deltas = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert "".join(d.get("delta", "") for d in deltas if "delta" in d) == ANSWER
        assert deltas[-1]["type"] == "response.completed"


def test_the_database_is_frozen_killed_and_started_again(house: House) -> None:
    """No wrong answer, no stuck request, and what was kept before is found."""
    kept = [said(ask(house.url, f"Tell {n}."))[0] for n in range(5)]

    def without_a_store(round_: str) -> list[str]:
        """Ask for everything once more; return the ids of joined bodies, which no server knows."""
        left = list[str]()
        for n, first in enumerate(kept):
            refused = ask(house.url, f"{round_} {n}?", after=first)
            assert refused.status_code == 400
            assert refused.json()["error"]["code"] == "previous_response_not_found"
            assert "send the whole conversation" in refused.json()["error"]["message"]
            assert said(ask(house.url, f"Plain {n}.", store=False))[1] == ANSWER
            name, text = said(ask(house.url, f"Stored {round_} {n}."))
            assert text == ANSWER
            assert name.startswith("resp_joined_")
            left.append(name)
        for replica in (house.a, house.b):
            assert httpx2.get(f"{replica.url}/readyz").status_code == 200
        return left

    begun = time.monotonic()
    house.server.freeze()
    left = without_a_store("Frozen")
    house.server.thaw()
    assert said(ask(house.url, "Thawed 0?", after=kept[0]))[1] == ANSWER
    house.server.kill()
    left += without_a_store("Killed")
    house.server.start()
    assert time.monotonic() - begun < 60
    for n, first in enumerate(kept):
        assert said(ask(house.url, f"And then, {n}?", after=first))[1] == ANSWER
        assert read(house.sim, f"And then, {n}?") == [f"Tell {n}.", ANSWER, f"And then, {n}?"]
    for n, name in enumerate(left):  # nobody continues from half of it
        refused = ask(house.url, f"Left {n}?", after=name)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "previous_response_not_found"
