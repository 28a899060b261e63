"""Figures of completed calls: real files as arguments, cut anywhere, gone on with in every manner.

    python tests/benchmarks/arguments.py [--cases 4000] [--seed 7] [--live] [--quick]
    python tests/benchmarks/arguments.py --huge

A case is a call that writes a file (source, prose, JSON inside JSON, a patch), cut at a character
of its JSON, escapes included. Counted are calls that were delivered, and of those the ones that are
not exact to the byte; and how many joins were exact before anything was asked to prove itself.
`--live`: calls that are shown as they come, but for what keeps them some way behind.
`--huge`: files of 600 kB and 1 MB, written by one streamed call under a ceiling of 64,000 tokens
with three and six recoveries, through the SDK of each format: whole or not, and output tokens
billed for each of the file's.
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from google.genai import types
from support.sdks import gemini
from support.sdks.formats import FORMATS, MAKES, request
from support.sdks.turn import play

from continuation import Policy
from continuation.answer.call_completion import CallCompletion
from continuation.answer.message_builder import MessageBuilder
from continuation.answer.open_string import escaped
from continuation.engine.table import objection
from continuation.providers.anthropic_messages.codec import MessagesCodec
from continuation.simulator import Scenario, Simulator, tokens
from continuation.types import Enough, Head, JoinPlan, Json, Mode, ReplayBuffer
from continuation.wire.json_values import as_list

HEAD = Head(200, {"content-type": "text/event-stream"})
HOUSE = Path(__file__).parent.parent.parent
LENGTH = 6000
CEILING = 64_000
PIECES = types.ToolConfig(
    function_calling_config=types.FunctionCallingConfig(stream_function_call_arguments=True)
)
CLOSING = "Let me know if there is anything else to write."
LINE = "\n"
ELISION = "# ... the rest of the file is as before ..."


@dataclass(frozen=True)
class Asked:
    """What a model is asked to go on with."""

    before: str
    """The text before the cut."""
    anchor: str
    rest: str
    sign: str
    """What is to stand behind the text."""

    @property
    def all(self) -> str:
        """What a model says that repeats the anchor."""
        return self.anchor + self.rest


MANNERS: Mapping[str, Callable[[Asked], str]] = {
    "repeats the anchor": lambda to: f"{to.all}{to.sign}",
    "the same, no sign": lambda to: to.all,
    "the same, escaped": lambda to: f"{escaped(to.all)}{to.sign}",
    "the same, quoted": lambda to: f'"{escaped(to.all)}"{to.sign}',
    "the same, in a fence": lambda to: f"```\n{to.all}{to.sign}\n```",
    "the same, in a fence, no sign": lambda to: f"```\n{to.all}\n```",
    "the same, behind words": lambda to: f"Here is the rest:\n\n{to.all}{to.sign}",
    "the same, behind words, fenced": lambda to: f"Here it is:\n\n```\n{to.all}{to.sign}\n```",
    "the same, and a closing word": lambda to: f"{to.all}{to.sign}\n\n{CLOSING}",
    "the closing word, but no sign": lambda to: f"{to.all}\n\n{CLOSING}",
    "the same, with an elision": lambda to: f"{to.anchor}{to.rest[:80]}\n{ELISION}\n{to.sign}",
    "goes on at once": lambda to: f"{to.rest}{to.sign}",
    "echoes 40 characters": lambda to: f"{to.before[-40:]}{to.rest}{to.sign}",
    "echoes a line": lambda to: f"{to.before[to.before.rfind(LINE) + 1 :]}{to.rest}{to.sign}",
    "skips a line": lambda to: to.rest.partition(LINE)[2] + to.sign,
    "begins anew": lambda to: f"{to.before}{to.rest}{to.sign}",
    "answers with another file": lambda to: "import os\nprint(os.sep)\n" * 20 + to.sign,
    "only talks": lambda to: "The file is complete as it stands.",
}
"""What a model makes of it."""
LACKING = frozenset(
    {
        *("the closing word, but no sign", "the same, with an elision", "skips a line"),
        *("answers with another file", "only talks"),
    }
)
"""Manners that leave something out, or put words of their own in: no join of them is the file."""


def files() -> list[str]:
    """Return what is written: files of this project, as they are, as JSON, and as patches."""
    paths = sorted([*HOUSE.glob("continuation/*/*.py"), *HOUSE.glob("design/*.md")])
    texts = [path.read_text(encoding="utf-8")[:LENGTH] for path in paths]
    as_json = [json.dumps({"name": "é😀", "lines": text.splitlines()}, indent=2) for text in texts]
    patches = list[str]()
    for text in texts:
        lines = text.splitlines(keepends=True)
        changed = [line for n, line in enumerate(lines) if n % 7] + ["# the end\n"]
        patches.append("".join(difflib.unified_diff(lines, changed, "a", "b")))
    return [text for text in (*texts, *as_json, *patches) if len(text) > 500]


def told(*blocks: Mapping[str, object], stop: str) -> bytes:
    events: list[Mapping[str, object]] = [{"type": "message_start", "message": {"id": "m"}}]
    for block in blocks:
        events.append({"type": "content_block_start", "index": 0, "content_block": block["start"]})
        deltas = as_list(block["deltas"])
        events += [{"type": "content_block_delta", "index": 0, "delta": one} for one in deltas]
        events.append({"type": "content_block_stop", "index": 0})
    ended = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 9}}
    events += [ended, {"type": "message_stop"}]
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)


def cut_call(raw: str, *, live: bool) -> CallCompletion:
    """Return the completion of a call of which this much arrived."""
    start: Json = {"type": "tool_use", "id": "t", "name": "Write", "input": {}}
    pieces = [raw[at : at + 25] for at in range(0, len(raw), 25)] if live else [raw]
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    stream = told({"start": start, "deltas": deltas}, stop="max_tokens")
    policy = Policy(truncated_tool_call="complete", stream_tool_calls="live" if live else "hold")
    builder, replay = MessageBuilder(MessagesCodec(), policy), ReplayBuffer()
    feed = builder.first(HEAD, replay)
    with suppress(Enough):
        for event in stream.split(b"\n\n")[:-1]:
            replay.raw += event + b"\n\n"
            feed(event + b"\n\n")
    builder.end()
    return builder.completion(None)


@dataclass
class Tally:
    """Counts of one manner."""

    cases: int = 0
    joined: int = 0
    """Exact before the proof."""
    delivered: int = 0
    wrong: int = 0
    """Delivered, and not exact."""


def run(cases: int, seed: int, *, live: bool) -> Mapping[str, Tally]:
    rng, tallies, texts = random.Random(seed), defaultdict[str, Tally](Tally), files()
    for case in cases_of(rng, texts, cases):
        raw, at, text = case
        for name, manner in MANNERS.items():
            completion = cut_call(raw[:at], live=live)
            completion.quote(again=False)
            if objection(completion.proof) is not None:
                continue
            before, tally = completion.text.text, tallies[name]
            sign = completion.sign
            said = manner(Asked(before, completion.anchor or "", text[len(before) :], sign))
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": said}
            stream = told({"start": start, "deltas": [delta]}, stop="end_turn")
            plan = JoinPlan(Mode.RECOVERY, completion.anchor, prompt="Go on.", hold=600)
            with suppress(Enough):
                completion.begin(plan, HEAD)(stream)
            result = completion.text.end()
            tally.cases += 1
            completion.take(result, sure=True)
            tally.joined += completion.text.text == text
            if objection(completion.proof) is None and completion.deliver() is not None:
                tally.delivered += 1
                tally.wrong += json.loads(completion.call.arguments) != json.loads(raw)
    return tallies


def cases_of(rng: random.Random, texts: list[str], count: int) -> Iterator[tuple[str, int, str]]:
    for _ in range(count):
        text = rng.choice(texts)
        raw = json.dumps({"path": "a.txt", "content": text}, ensure_ascii=rng.random() < 0.5)
        yield raw, rng.randrange(100, len(raw) - 2), text


def huge() -> bool:
    """Write large files by one call in each format; whether all came whole, and at what price."""
    source = "".join(path.read_text() for path in sorted(HOUSE.glob("[cpt]*/**/*.py")))
    good = True
    print(f"{'format':20} {'bytes':>9} attempts  whole  billed/delivered  seconds")
    for size, recoveries in ((600_000, 3), (1_000_000, 6)):
        text = f"# A file of {size:,} characters.\n{source}"[:size]
        policy = Policy(truncated_tool_call="complete", max_recoveries=recoveries)
        for dialect in FORMATS:
            scenario = Scenario(manner="anchor", call=True, ceiling=CEILING, deltas=400)
            asked = request(
                dialect, CEILING, {"tool_config": PIECES} if dialect == "gemini" else {}
            )
            if dialect == "openai-chat":  # a model with room for what arrived in its prompt
                asked["model"], asked["max_completion_tokens"] = "gpt-5.4", asked.pop("max_tokens")
                asked["stream_options"] = {"include_usage": True}
            ran = gemini.Ran(vertex=True) if dialect == "gemini" else MAKES[dialect]()
            began = time.monotonic()
            with Simulator(text, scenario) as sim:
                play(ran, "sync-stream", sim, asked, policy)
            made = [args for _, args in ran.tool_calls if args]
            if isinstance(ran, gemini.Ran):
                pieces = [piece for call in ran.calls for piece in call.partial_args or []]
                content = [p.string_value or "" for p in pieces if p.json_path == "$.content"]
                made = [{"path": "answer.txt", "content": "".join(content)}]
            whole = made == [{"path": "answer.txt", "content": text}]
            billed = (ran.told.billed.output or 0) / tokens(text)
            good = good and whole and billed <= 1.05
            seconds = time.monotonic() - began
            print(
                f"{dialect:20} {len(text.encode()):9,} {len(ran.told.attempts):8} {whole!s:>6}"
                f" {billed:17.3f} {seconds:8.1f}"
            )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--live", action="store_true", help="calls that are shown as they come")
    parser.add_argument("--quick", action="store_true", help="few cases: a look, not a figure")
    parser.add_argument("--huge", action="store_true", help="large files, through the SDKs")
    options = parser.parse_args()
    if options.huge:
        return 0 if huge() else 1
    tallies = run(200 if options.quick else options.cases, options.seed, live=options.live)
    print(f"{'manner':31} {'cases':>7} {'exact':>9} {'delivered':>10} {'wrong':>6}")
    for name, tally in tallies.items():
        exact, delivered = tally.joined / tally.cases, tally.delivered / tally.cases
        print(f"{name:31} {tally.cases:7} {exact:9.2%} {delivered:10.2%} {tally.wrong:6}")
    whole = [tally for name, tally in tallies.items() if name not in LACKING]
    cases = sum(tally.cases for tally in whole)
    exact = sum(tally.joined for tally in whole) / cases
    print(f"{'all that say the rest whole':31} {cases:7} {exact:9.2%}")
    obeying = tallies["repeats the anchor"]
    good = obeying.delivered == obeying.cases and exact >= 0.99
    return 0 if good and not any(tally.wrong for tally in tallies.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
