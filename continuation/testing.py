"""Rehearse truncation in your own tests: a simulated provider that cuts, and no waiting.

    def test_my_agent_survives_a_cut_call(simulator):
        simulator.play("cut-call")
        run_my_agent(base_url=simulator.url)            # any key will do
        assert len(simulator.posts) == 2                # it was asked again, at the model's ceiling

`simulator` is a pytest fixture, available wherever `continuation` is installed.

Without pytest: `with simulate("drop") as simulator: ...`. Importing this module imports no pytest.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from continuation.engine import waits
from continuation.simulator import Raw, Reply, Scenario, Simulator, Text, ToolUse, tokens
from continuation.simulator.model import PREFACE, Ask

__all__ = ["ANSWER", "SCENARIOS", "Rehearsal", "set_testing", "simulate", "simulator"]

ANSWER = "".join(
    f"{n}. The {word} line of an answer that is long enough to be cut somewhere in its middle.\n"
    for n, word in enumerate(["first", "next", "following", "longer"] * 12, 1)
)
"""The answer the model recites by default: about 1,000 of the simulator's tokens."""

_CUT_AFTER = 200
"""Tokens after which an answer is cut, whatever limit the caller set."""


@dataclass(frozen=True)
class _Variant:
    """How a scenario is played: in how many attempts of a conversation, and what happens there.

    - `cut`: the answer is truncated. `call`: it is a call.
    - `stop`: the stop reason, as in `Reply`. `ending`: the name of the format's own stop reason in
      `Ask.endings`, which replaces `stop`. `otherwise`: the settings that are played instead if the
      format has none.
    - `text`: replaces the answer.
    - `fits`: later attempts exceed the context window.
    """

    about: str
    attempts: float = 1
    cut: bool = True
    call: bool = False
    stop: str = "max_tokens"
    ending: str = ""
    otherwise: Mapping[str, Any] | None = None
    text: str | None = None
    fits: float = float("inf")
    scenario: Mapping[str, Any] = field(default_factory=dict[str, Any])


_VARIANTS: Mapping[str, _Variant] = {
    "whole": _Variant("Nothing goes wrong.", 0, cut=False),
    "cut-text": _Variant("The first answer is text, truncated at the output limit."),
    "always-cut": _Variant(
        "Every attempt is truncated, so the answer stays incomplete.", float("inf")
    ),
    "cut-call": _Variant(
        "The first answer is a function call, truncated in its arguments.", call=True
    ),
    "call-stays-cut": _Variant("The call is truncated at any limit.", float("inf"), call=True),
    "thinking-eats-all": _Variant(
        "The first answer is only thinking; without thinking, its text is truncated.",
        scenario={"thinking": "all"},
    ),
    "drop": _Variant(
        "The connection of the first answer breaks.", cut=False, scenario={"drop": {1: 8}}
    ),
    "kill": _Variant(
        "The process that `victim` names is killed during the first answer (only from Python).",
        cut=False,
        scenario={"kill": {1: 100}, "slow": 0.005},
    ),
    "mislabelled": _Variant(
        "The first answer is truncated, but its stop reason says that it ended.", stop="end_turn"
    ),
    "dead": _Variant(
        "The connection of the first answer breaks, and the provider never answers again.",
        cut=False,
        scenario={"drop": {1: 8}, "status": dict.fromkeys(range(2, 60), 503)},
    ),
    "torn": _Variant(
        "An event of the first answer ends in the middle of its data.",
        cut=False,
        scenario={"torn": {1: 8}},
    ),
    "torn-body": _Variant(
        "The first answer is a JSON body that ends in its middle; a stream is whole.",
        cut=False,
        scenario={"torn_body": {1: 1 << 20}},
    ),
    "stalled": _Variant(
        "The first stream falls silent in its middle; of a JSON body, nothing arrives.",
        cut=False,
        scenario={"stall": {1: 8}},
    ),
    "empty": _Variant("The first answer ends normally, and is empty.", stop="end_turn", text=""),
    "refused": _Variant("The first answer is refused or filtered in its middle.", stop="refusal"),
    "aborted": _Variant(
        "The generation of the first answer fails in its middle.",
        ending="aborted",
        otherwise={"error_event": {1: 8}},
    ),
    "paused": _Variant(
        "Anthropic pauses the first answer after a server tool; in other formats it is whole.",
        ending="paused",
        otherwise={},
    ),
    "window": _Variant(
        "The context window is full after a part of the answer, and later requests exceed it.",
        stop="model_context_window_exceeded",
        fits=1,
    ),
    "prompt-too-long": _Variant(
        "Every request exceeds the context window, and is refused with status 400.", fits=0
    ),
    "unknown-stop": _Variant(
        "The first answer ends in its middle, with a stop reason that nobody knows.",
        stop="steered",
    ),
    "promise": _Variant(
        "The first answer announces a call and ends; the second one is the call.",
        call=True,
        stop="end_turn",
        text=PREFACE.replace(".", ":"),
    ),
    "repeats": _Variant(
        "Every answer repeats one line until the output limit.",
        float("inf"),
        ending="repeats",
        text="The same line, again and again.\n" * 200,
    ),
    "overloaded": _Variant(
        "The first answer is truncated, and the provider is overloaded at the second attempt.",
        scenario={"status": {2: 503}},  # 529 is known only to Anthropic
    ),
}

_SEARCH: Sequence[Mapping[str, Any]] = (
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
)
"""A server tool's call and its result, before which and after which Anthropic may pause."""

SCENARIOS: Mapping[str, str] = {name: variant.about for name, variant in _VARIANTS.items()}
"""Name of each scenario -> what happens in it."""


class Rehearsal(Simulator):
    """The simulated provider, playing a scenario by name.

    `answer`: what the model recites, a text or the path of a UTF-8 file. `tool` and `arguments`:
    the call in the scenarios that have one. `port`: 0 takes a free one. A cut comes after 200
    tokens (as `continuation.simulator.tokens` counts them) whatever limit was asked for.

    Each conversation plays the scenario from its beginning. Requests with the same instructions and
    first message are one conversation; `play` and `reset` forget all conversations.

    Raises `ValueError` naming the scenarios for an unknown one, `OSError` where the port is taken
    or the file cannot be read.
    """

    def __init__(
        self,
        scenario: str = "cut-text",
        *,
        answer: str | Path = ANSWER,
        tool: str = "Write",
        arguments: Mapping[str, Any] | None = None,
        port: int = 0,
    ) -> None:
        self.answer = answer if isinstance(answer, str) else answer.read_text(encoding="utf-8")
        self._tool = tool
        self._arguments = json.dumps(arguments or {"path": "a.txt", "content": self.answer})
        self._variant = _named(scenario)
        super().__init__(self.answer, replace(Scenario(), **self._variant.scenario), port=port)

    def play(self, scenario: str) -> None:
        """Play another scenario from now on, and forget all requests; errors as in `Rehearsal`."""
        self._variant = _named(scenario)
        self.scenario = replace(Scenario(), **self._variant.scenario)
        self.reset()

    def _reply(self, ask: Ask, scenario: Scenario, attempt: int) -> Reply:
        """Answer as the scenario wants: lower the limit first, falsify the stop reason after."""
        variant, affected = self._variant, attempt <= self._variant.attempts
        at_limit = {ask.spent: ask.limit}
        stop = ask.endings.get(variant.ending, variant.stop)
        if attempt > variant.fits:
            return Reply(overflow=True)
        if affected and variant.text is not None:
            return Reply([Text(variant.text)] if variant.text else [], stop=stop)
        if variant.call and not ask.turns[-1].results:
            call = ToolUse(self._tool, self._arguments)
            if not affected:
                return Reply([call] if variant.text else [Text(PREFACE), call], stop="tool_use")
            half = replace(call, cut=len(self._arguments) // 2)
            return Reply([Text(PREFACE), half], stop="max_tokens", usage=at_limit)
        if not affected:
            return super()._reply(ask, replace(scenario, thinking="none"), attempt)
        if variant.otherwise is not None and variant.ending not in ask.endings:
            return super()._reply(ask, replace(scenario, **variant.otherwise), attempt)
        if not variant.cut:
            return super()._reply(ask, scenario, attempt)
        # The answer breaks off inside a word, if it can.
        position = self._reciter.position(ask.turns) if self._reciter is not None else 0
        rest = self.answer[position:]
        most = min(_CUT_AFTER, max(1, tokens(rest) - 1))
        inside = (n for n in range(most, 0, -1) if rest[4 * n - 1 : 4 * n + 1].isalnum())
        limit = min(ask.limit, next(inside, most))
        reply = super()._reply(replace(ask, limit=limit), scenario, attempt)
        if stop == "pause_turn":  # which is no end for a call that the caller is to run
            before = [block for block in reply.blocks if not isinstance(block, ToolUse)]
            reply = replace(reply, blocks=[*before, *map(Raw, _SEARCH)])
        if stop == "max_tokens":
            return reply
        # If the stop reason is normal, only the used-up limit shows that the answer is truncated.
        return replace(reply, stop=stop, usage=at_limit if stop == "end_turn" else None)


def _named(scenario: str) -> _Variant:
    if scenario not in _VARIANTS:
        raise ValueError(f"scenario {scenario!r}: choose one of {', '.join(_VARIANTS)}")
    return _VARIANTS[scenario]


@contextlib.contextmanager
def simulate(
    scenario: str = "cut-text",
    *,
    answer: str | Path = ANSWER,
    tool: str = "Write",
    arguments: Mapping[str, Any] | None = None,
) -> Generator[Rehearsal]:
    """Serve a scenario on this machine, without waits before retries.

    Its `url` is the base URL for clients of anthropic and google-genai; for openai append `/v1`.

    Parameters and errors are those of `Rehearsal`; `SCENARIOS` lists the scenarios.
    """
    with (
        set_testing(),
        Rehearsal(scenario, answer=answer, tool=tool, arguments=arguments) as rehearsal,
    ):
        yield rehearsal


# --- waiting ------------------------------------------------------------------------------------


def set_testing(
    testing: bool = True,
    *,
    longest_wait: float = 0.0,
) -> contextlib.AbstractContextManager[None]:
    """Cap each wait before a retry at `longest_wait` seconds, in the whole process.

    The number of retries does not change, nor when they are given up, nor do the SDKs' own waits.
    `set_testing(False)` removes the cap. As `with set_testing(): ...` it holds for the block.

    Raises `ValueError` for a wait below 0.
    """
    if longest_wait < 0:
        raise ValueError(f"longest_wait = {longest_wait!r}: must be 0 or more seconds")
    return _restoring(waits.cap_waits(longest_wait if testing else None))


@contextlib.contextmanager
def _restoring(before: float | None) -> Generator[None]:
    """Restore the cap that was set before, at the end of a `with` block."""
    try:
        yield
    finally:
        waits.cap_waits(before)


# --- pytest -------------------------------------------------------------------------------------


if TYPE_CHECKING:

    def simulator() -> Rehearsal:
        """The pytest fixture: a `Rehearsal` of `cut-text`, or of the scenario in its parameter."""
        ...
else:

    def __getattr__(name: str) -> Any:
        """Import the fixture when it is first used: importing this module needs no pytest."""
        if name != "simulator":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from continuation.pytest_plugin import simulator

        return simulator
