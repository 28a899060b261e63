"""Draw the README's picture from a run: a client's cut answer, and the same call wrapped.

    python scripts/draw_turn.py            # write design/turn.svg

The simulated model recites a text at some 1,500 tokens a second; all that is drawn was measured.
"""

from __future__ import annotations

import time
from pathlib import Path

import anthropic

import continuation
from continuation import Attempt, Outcome, Report, Usage
from continuation.cli.demo import default_file
from continuation.reports.timeline import svg
from continuation.simulator import Scenario, Simulator
from continuation.types import Mode

PICTURE = Path(__file__).resolve().parents[1] / "design" / "turn.svg"
MODEL, LIMIT, CEILING, LENGTH = "claude-sonnet-5", 4096, 8192, 72_000
"""The model; the caller's limit and the ceiling, in tokens; the text's length in characters."""


def ask(client: anthropic.Anthropic) -> anthropic.types.Message:
    """Stream an answer to its end, and return it."""
    messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": "Write the file."}]
    with client.messages.stream(model=MODEL, max_tokens=LIMIT, messages=messages) as stream:
        return stream.get_final_message()


def text_of(message: anthropic.types.Message) -> str:
    """Return the text of an answer."""
    return "".join(block.text for block in message.content if block.type == "text")


def bare(client: anthropic.Anthropic) -> tuple[str, Report]:
    """Call the bare client; return a title, and a report made here of what came."""
    began = time.monotonic()
    message = ask(client)
    seconds = time.monotonic() - began
    counts = Usage(input=message.usage.input_tokens, output=message.usage.output_tokens)
    stop = message.stop_reason
    only = Attempt(1, Mode.FIRST, LIMIT, stop, counts, None, seconds, answered=True)
    report = Report(
        outcome=Outcome.TRUNCATED,
        reason="the rest is never requested",
        dialect="anthropic",
        model=MODEL,
        stop=stop,
        synthetic=False,
        attempts=(only,),
        seams=(),
        error=None,
        seconds=seconds,
    )
    return f"anthropic.Anthropic(): {len(text_of(message)):,} of {LENGTH:,} characters", report


def wrapped(client: anthropic.Anthropic, whole: str) -> tuple[str, Report]:
    """Call the wrapped client, check the answer; return a title and the turn's report."""
    message = ask(continuation.wrap(client))
    report = continuation.last_report()
    assert text_of(message) == whole
    assert report is not None
    return f"continuation.wrap(anthropic.Anthropic()): all {LENGTH:,} characters", report


def main() -> None:
    """Make both calls, and draw them."""
    text = default_file().read_text(encoding="utf-8")[:LENGTH]
    scenario = Scenario(manner="echo:400", ceiling=CEILING, deltas=200, slow=0.033)
    with Simulator(text, scenario) as simulator:
        client = anthropic.Anthropic(base_url=simulator.url, api_key="any", max_retries=0)
        with client:
            PICTURE.write_text(svg(bare(client), wrapped(client, text)) + "\n", encoding="utf-8")
    print(f"written: {PICTURE}")


if __name__ == "__main__":
    main()
