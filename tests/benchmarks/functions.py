"""How much code one turn passes: distinct functions and modules of ours, uncut and healed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
from measure import Figure, is_quick, report

import continuation
from continuation.simulator import Scenario, Simulator
from continuation.types import Outcome

_HOUSE = Path(continuation.__file__).parent.parent
ROOTS = (f"{_HOUSE / 'continuation'}/", f"{_HOUSE / 'providers'}/")
"""Where our code lies."""
IN_PLACE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Comprehensions: calls before Python 3.12 only, and functions to no reader."""
BOUNDS = {"anthropic-messages": (178, 300, 25)}
"""Functions uncut, functions healed, modules healed. The other formats are told, not judged."""
ANSWER = "".join(f"{n}. A line of an answer, with a number in it, {n * 7}.\n" for n in range(60))
LIMIT = 600
"""Tokens: more than half of the answer."""

GO = {"role": "user", "content": "Go."}
TURNS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic-messages": (
        "/v1/messages",
        {"model": "claude-opus-5", "max_tokens": LIMIT, "messages": [GO], "stream": True},
    ),
    "openai-chat": (
        "/v1/chat/completions",
        {"model": "gpt-4o", "max_completion_tokens": LIMIT, "messages": [GO], "stream": True},
    ),
    "openai-responses": (
        "/v1/responses",
        {"model": "gpt-5.4", "max_output_tokens": LIMIT, "input": "Go.", "stream": True},
    ),
    "gemini": (
        "/v1beta/models/gemini-3.1-pro:streamGenerateContent?alt=sse",
        {
            "contents": [{"role": "user", "parts": [{"text": "Go."}]}],
            "generationConfig": {"maxOutputTokens": LIMIT},
        },
    ),
}
KEYS = {"x-api-key": "k", "anthropic-version": "2026-10-21", "authorization": "Bearer k"}
CUT = Scenario(manner="anchor", ceiling=LIMIT)
"""Every answer ends at `LIMIT`; a recovery repeats what it was quoted, and then goes on."""


def passed(simulator: Simulator, dialect: str) -> tuple[set[tuple[str, int, str]], Outcome]:
    """Return the functions of ours that a client's first streamed turn runs, and how it ended."""
    found = set[tuple[str, int, str]]()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        called = event == "call" and code.co_name not in IN_PLACE
        if called and code.co_filename.startswith(ROOTS):
            found.add((code.co_filename, code.co_firstlineno, code.co_name))

    url = simulator.url
    for profile in (None, note):  # the first time modules are imported, and that is no turn's work
        simulator.reset()
        with httpx2.Client(trust_env=False) as bare:
            policy = continuation.Policy(remember_limit=False)
            client = continuation.http_client(bare, config=policy)
            sys.setprofile(profile)  # of this thread only: the simulator has threads of its own
            try:
                _read(client, url, dialect)
            finally:
                sys.setprofile(None)
    told = continuation.last_report()
    assert told is not None
    return found, told.outcome


def _read(client: httpx2.Client, url: str, dialect: str) -> None:
    path, body = TURNS[dialect]
    with client.stream("POST", url + path, json=body, headers=KEYS) as response:
        for _ in response.iter_bytes():
            pass


def figures(dialect: str) -> Iterator[Figure]:
    uncut, healed, modules = BOUNDS.get(dialect, (None, None, None))
    yield from _turn(dialect, Simulator(ANSWER[:400]), Outcome.COMPLETE, uncut, None)
    yield from _turn(dialect, Simulator(ANSWER, CUT), Outcome.HEALED, healed, modules)


def _turn(
    dialect: str, simulator: Simulator, outcome: Outcome, most: float | None, files: float | None
) -> Iterator[Figure]:
    with simulator:
        found, ended = passed(simulator, dialect)
    assert ended is outcome, ended
    yield Figure(f"{dialect}, {outcome}: functions", len(found), "", most)
    yield Figure(f"{dialect}, {outcome}: modules", len({file for file, *_ in found}), "", files)


def main() -> int:
    is_quick(str(__doc__))  # a count is the same each time: there is nothing to shorten
    told = [figure for dialect in TURNS for figure in figures(dialect)]
    return report("functions and modules of ours that one streamed turn passes", told)


if __name__ == "__main__":
    sys.exit(main())
