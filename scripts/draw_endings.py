"""Draw the table of endings: every stop reason of every format, and what is done about it.

    python scripts/draw_endings.py            # print the drawing
    python scripts/draw_endings.py --write    # put it into design/endings.md

The formats state what their stop reasons mean; the engine's decision table states what follows.
`tests/engine/test_endings.py` fails if the page differs, and plays each cell.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from continuation.engine.table import Action, Decision, Situation, decide
from continuation.providers.anthropic_messages.codec import MessagesCodec
from continuation.providers.contract import WireCodec
from continuation.providers.gemini.codec import GeminiCodec
from continuation.providers.openai_chat.codec import ChatCodec
from continuation.providers.openai_responses.codec import ResponsesCodec
from continuation.types import AttemptResult, Outcome, Stop

PAGE = Path(__file__).resolve().parents[1] / "design" / "endings.md"
BEGIN, END = "<!-- drawn by scripts/draw_endings.py -->", "<!-- end of the drawing -->"
CODECS: dict[str, type[WireCodec]] = {
    "Anthropic Messages": MessagesCodec,
    "Chat Completions": ChatCodec,
    "Responses": ResponsesCodec,
    "Gemini": GeminiCodec,
}
WORDS = {
    Action.REPEAT: "resent, twice at most",
    Action.RESEND: "resent",
    Action.RESUME: "resumed",
    Action.ESCALATE: "resent at the ceiling",
    Action.RECOVER: "continued",
    Action.TOKEN: "resumed",
}
"""What is done -> how the page says it."""


def decided(codec: type[WireCodec], reason: str | None, *, shown: bool, empty: bool) -> Decision:
    """Return what follows an answer with this stop reason below the ceiling.

    `reason`: `None`: the stream ended without one. `shown`: text of it was delivered.
    """
    stop = Stop.DROPPED if reason is None else codec.stops.get(reason, Stop.OTHER)
    result = AttemptResult(
        stop=stop,
        raw=reason,
        text=not empty,
        empty=empty,
        shown=shown,
        # Only a format whose pauses are resumed by us is asked to; the SDK of Gemini does it.
        token=codec.sends_back and stop is Stop.PAUSED,
    )
    return decide(
        Situation(result=result, below=True, repeats=2, resumes=codec.sends_back, silence=False)
    )


def cell(decision: Decision) -> str:
    """Return a decision in words."""
    if decision.outcome is None:
        return WORDS[decision.action]
    return "complete" if decision.outcome is Outcome.COMPLETE else f"reported: {decision.outcome}"


def reasons(codec: type[WireCodec]) -> dict[str | None, Stop]:
    """Return the stop reasons of a format in the order of what they mean."""
    ordered = sorted(codec.stops.items(), key=lambda item: [*Stop].index(item[1]))
    return {**dict(ordered), None: Stop.DROPPED}


def drawn() -> Iterator[str]:
    """Draw the table, line by line."""
    yield "| format | stop reason | `ending` | nothing delivered yet | part delivered |"
    yield "|---|---|---|---|---|"
    for name, codec in CODECS.items():
        rows = dict[tuple[str, str, str], list[str]]()
        for reason, stop in reasons(codec).items():
            cells = [
                cell(decided(codec, reason, shown=shown, empty=False)) for shown in (False, True)
            ]
            said = "none: the stream dropped" if reason is None else f"`{reason}`"
            rows.setdefault((stop, *cells), []).append(said)  # type: ignore[arg-type]
        empty = cell(decided(codec, codec.ended, shown=False, empty=True)).partition(",")[0]
        unknown = [cell(decided(codec, "?", shown=shown, empty=False)) for shown in (False, True)]
        rows.setdefault((Stop.OTHER, unknown[0], unknown[1]), []).append("any other")
        for (stop_word, unseen, seen), words in rows.items():
            yield f"| {name} | {', '.join(words)} | `{stop_word}` | {unseen} | {seen} |"
        yield f"| {name} | `{codec.ended}`, without text or call | `empty` | {empty} once | - |"


def with_drawing(page: str) -> str:
    """Return the page with the table of today."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n" + "\n".join(drawn()) + f"\n\n{END}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_drawing(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n".join(drawn()))
