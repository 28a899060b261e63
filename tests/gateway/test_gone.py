"""A caller that leaves ends its turn, wherever that stands; one that reads slowly is waited for."""

from __future__ import annotations

import json

import httpx2
import pytest
from support.gateways import CALL, KEYS, MESSAGES, URLS, Served, begin, told, until
from support.sdks.turn import cut, end
from support.shells import PATIENCE, gone

from continuation.simulator import Reply, Simulator

EVENTS = range(1, 19)
"""Of an answer of nineteen."""
LEAVE = [
    # where the turn stands; what the provider says; how many requests it has had by then
    ("before the first byte", [end("One.", delay=PATIENCE)], 1),
    ("between attempts", [cut("One, "), end("two.", delay=PATIENCE)], 2),
    *((f"at event {n}", [end("One.", CALL, stop="tool_use", stall=n)], 1) for n in EVENTS),
    *((f"at event {n}, later", [cut("One, "), end("two.", CALL, stall=n)], 2) for n in EVENTS),
]


@pytest.mark.parametrize(
    ("where", "replies", "count", "streamed"),
    [
        pytest.param(*row, streamed, id=f"{row[0]}-{'stream' if streamed else 'body'}")
        for streamed, rows in ((True, LEAVE), (False, LEAVE[:2]))
        for row in rows
    ],
)
def test_a_caller_that_leaves_closes_the_upstream(
    served: Served, sim: Simulator, where: str, replies: list[Reply], count: int, streamed: bool
) -> None:
    sim.script(replies)
    with begin(served, {**MESSAGES, "stream": streamed}):
        until(lambda: len(sim.posts) == count)
        if replies[-1].stall is not None and streamed:
            until(lambda: sim.posts[-1].sent == replies[-1].stall)
    assert gone(sim.posts[-1])
    assert len(sim.posts) == count


def test_a_caller_that_leaves_in_a_wait_ends_the_turn(served: Served, sim: Simulator) -> None:
    busy = Reply(status=529, headers={"retry-after": "30"})
    sim.script([cut("One, "), busy, end("two.")])
    before = set(served.gateway.turns.ids)
    with begin(served, {**MESSAGES, "stream": True}):
        until(lambda: len(sim.posts) == 2 and sim.posts[-1].done.is_set())
    (name,) = set(served.gateway.turns.ids) - before
    until(lambda: (served.gateway.turns.find(name) or {})["outcome"] == "partial")
    assert len(sim.posts) == 2


DEAD = [Reply(drop=-1)] * 12
"""What comes behind; of an answer that lacks its last event alone nothing is missing."""
DIE = [
    *([end("One, two.", CALL, drop=event), *DEAD] for event in range(18)),
    *([cut("One, "), end("two.", CALL, drop=event), *DEAD] for event in range(18)),
    [cut("One, "), *DEAD],
    [cut("One, "), Reply(status=529), *DEAD],
    [cut("One, "), Reply(status=400, drop=1), *DEAD],
]


@pytest.mark.parametrize("replies", DIE)
def test_an_upstream_that_dies_leaves_an_answer_that_ends_or_breaks_off(
    served: Served, sim: Simulator, replies: list[Reply]
) -> None:
    """Where nothing more can be done there is no end that could pass for that of a whole one."""
    sim.script(replies)
    url = served.of("anthropic-messages") + URLS["anthropic-messages"]
    raw, broke = b"", False
    with httpx2.stream("POST", url, json={**MESSAGES, "stream": True}, headers=KEYS) as answer:
        try:
            for piece in answer.iter_raw():
                raw += piece
        except httpx2.RemoteProtocolError:
            broke = True
    failed = b"event: error" in raw
    assert raw.count(b"event: message_stop") == (not (broke or failed))
    events = [json.loads(line[6:]) for line in raw.split(b"\n") if line.startswith(b"data: ")]
    call = "".join(event.get("delta", {}).get("partial_json", "") for event in events)
    assert not call or json.loads(call) == CALL.arguments
    assert told(served, answer.headers)["outcome"] in {"failed", "partial"}
