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
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from continuation.engine import waits
from continuation.simulator import Reply, Scenario, Simulator, Text, ToolUse, tokens
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
    """How a scenario is played: in how many attempts of a conversation, and what happens there."""

    about: str
    attempts: float = 1
    cut: bool = True
    call: bool = False
    label: str | None = None
    empty: bool = False
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
        "The process that `victim` names is killed during the first answer.",
        cut=False,
        scenario={"kill": {1: 100}, "slow": 0.005},
    ),
    "mislabelled": _Variant(
        "The first answer is truncated, but its stop reason says that it ended.", label="end_turn"
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
    "empty": _Variant("The first answer ends normally, and is empty.", empty=True),
    "refused": _Variant("The first answer is refused in its middle.", label="refusal"),
    "overloaded": _Variant(
        "The first answer is truncated, and the provider is overloaded at the second attempt.",
        scenario={"status": {2: 529}},
    ),
}

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
        if variant.call and not ask.turns[-1].results:
            call = ToolUse(self._tool, self._arguments)
            if not affected:
                return Reply([Text(PREFACE), call], stop="tool_use")
            half = replace(call, cut=len(self._arguments) // 2)
            return Reply([Text(PREFACE), half], stop="max_tokens", usage=at_limit)
        if not affected:
            return super()._reply(ask, replace(scenario, thinking="none"), attempt)
        if variant.empty:
            return Reply([])
        if not variant.cut:
            return super()._reply(ask, scenario, attempt)
        # The answer breaks off inside a word, if it can.
        position = self._reciter.position(ask.turns) if self._reciter is not None else 0
        rest = self.answer[position:]
        most = min(_CUT_AFTER, max(1, tokens(rest) - 1))
        inside = (n for n in range(most, 0, -1) if rest[4 * n - 1 : 4 * n + 1].isalnum())
        limit = min(ask.limit, next(inside, most))
        reply = super()._reply(replace(ask, limit=limit), scenario, attempt)
        if variant.label is None:
            return reply
        # The stop reason is normal; only the used-up limit betrays the cut.
        return replace(reply, stop=variant.label, usage=at_limit)


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
