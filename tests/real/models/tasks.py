"""Generated tasks whose answer follows from the prompt, and chats that ask to continue one.

Everything is drawn from a seeded `random.Random`, so that a seed names a task for good. The score
of an answer is the share of its lines that are right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The model's chat template, as the server reads it. `render` below writes the same."""

FIRST = (
    "bar bel bor cal cor dan dor fal fen gar gil hal hol jas kel kor lan lor mal mer mor nal nor"
)
FIRST += " pal per por quin ral ren ros sal sel sor tal ter tor val ver vor wal wen yar zel zor"
LAST = "bert den din don dra field ford gate gen ham hill ka la lin lo mark mer mi mond na ness nix"
LAST += " por rick rin ro ros son sta stone ta ter thin ton tree va ville vin ward wick wood za"
FIRSTS, LASTS = FIRST.split(), LAST.split()


@dataclass(frozen=True)
class Task:
    """One task: its prompt, and the one right answer."""

    kind: str
    prompt: str
    answer: str

    def score(self, text: str) -> float:
        """Return the share of the right answer's lines that `text` has in the same places."""
        wanted, got = self.answer.strip().split("\n"), text.strip().split("\n")
        right = sum(a == b for a, b in zip(wanted, got, strict=False))
        return right / max(len(wanted), len(got))


def names(draw: random.Random, count: int) -> list[str]:
    """Return names of which no two begin or end alike."""
    first, last = draw.sample(FIRSTS, count), draw.sample(LASTS, count)
    return [a + b for a, b in zip(first, last, strict=True)]


def table(draw: random.Random, rows: int) -> Task:
    """Write a list as a table."""
    both = names(draw, 2 * min(rows, 18))
    cells = list(zip(both[::2], both[1::2], strict=True))
    listed = "\n".join(f"- {a} = {b}" for a, b in cells)
    return Task("table", f"Table:\n{listed}", "\n".join(f"| {a} | {b} |" for a, b in cells))


def path(draw: random.Random, rows: int) -> Task:
    """Follow arrows that are listed in no order, until none leads on."""
    stops = names(draw, rows + 1)
    steps = [f"- {a} > {b}" for a, b in pairwise(stops)]
    listed = "\n".join(draw.sample(steps, len(steps)))
    return Task("path", f"Path from {stops[0]}:\n{listed}", "\n".join(steps))


def trace(draw: random.Random, rows: int) -> Task:
    """Run a program whose numbered lines each print a word and jump to another line."""
    words = names(draw, rows)
    lines = [str(at) for at in draw.sample(range(10, 100), rows)]
    code = [
        f"- {at}: {word} > {to}"
        for at, word, to in zip(lines, words, [*lines[1:], "end"], strict=True)
    ]
    listed = "\n".join(draw.sample(code, rows))
    return Task("trace", f"Trace from {lines[0]}:\n{listed}", "\n".join(code))


KINDS: dict[str, Callable[[random.Random, int], Task]] = {
    "table": table,
    "path": path,
    "trace": trace,
}


def task(draw: random.Random, least: int, most: int, kind: str | None = None) -> Task:
    """Return a task of `least` to `most` lines."""
    return KINDS[kind or draw.choice(list(KINDS))](draw, draw.randint(least, most))


# --- chats that ask to continue -------------------------------------------------------------------

ASK = [
    "Continue.",
    "continue",
    "Please continue your answer exactly where it stopped.",
    "Carry on from the last character.",
    "The limit was reached. Write the rest.",
]
"""Answered with the rest, from the next character on."""
LINE = ["Go on.", "Finish the list, please.", "And the remaining lines?"]
"""Answered with the current line from its beginning, then the rest."""
PREAMBLE = ["Could you finish it?", "You were interrupted. Can you write the rest?"]
"""Answered with a preamble, then the current line from its beginning, then the rest."""
TAGS = ["last", "text", "tail", "end", "seen", "quote", "piece"]
QUOTED = [
    "Your message was interrupted. Repeat the quoted text first, then write what follows.",
    "Begin with the text in the tags, character for character, then go on with the rest.",
    "Answer with the quoted text, and without a break what comes after it.",
    "Start with what is quoted here and complete the answer.",
]
"""Answered with the quoted end of the text, then the rest."""
FILLER = """
The answer above is not finished. It stopped in the middle of a line. Only this much arrived here.
The connection broke while the message was on its way. Do not write an apology or a summary. Open no
new code block. Write nothing from before that text. Keep the same form as above. Use no preamble.
It stopped inside a table. It stopped after a whole line. A list was not complete. The output limit
was reached. Begin with the very next character. Write in the same reply and without a break. Do not
explain what you do. The next part has to fit exactly. Leave out the tags. Keep every space. The
document is long. Nobody needs an introduction. Do not close a fence that is already open.
""".replace("\n", " ").strip()
SENTENCES = [sentence + "." for sentence in FILLER.rstrip(".").split(". ")]
PREAMBLE_TEXT = "Sure, here is the rest:\n\n"


def continued(draw: random.Random, answer: str, at: int) -> tuple[str, str]:
    """Return a user message that asks to continue `answer` from `at`, and the reply to it."""
    before, rest = answer[:at], answer[at:]
    line = before[before.rfind("\n") + 1 :]
    manner = draw.choice("aqqqqlp")
    if manner == "q":
        tag, quoted = draw.choice(TAGS), before[-draw.randint(8, 90) :]
        about = [draw.choice(QUOTED), *draw.sample(SENTENCES, draw.randint(0, 8))]
        draw.shuffle(about)
        return f"{' '.join(about)}\n<{tag}>{quoted}</{tag}>", quoted + rest
    asks = {"a": ASK, "l": LINE, "p": PREAMBLE}[manner]
    preamble = {"a": "", "l": line, "p": PREAMBLE_TEXT + line}[manner]
    return draw.choice(asks), preamble + rest


def render(turns: list[tuple[str, str]]) -> list[tuple[str, bool]]:
    """Return a chat as pieces of text, each with whether the model is to learn to write it."""
    pieces: list[tuple[str, bool]] = []
    for number, (asked, answer) in enumerate(turns, 1):
        pieces += [(USER + asked + END + ASSISTANT, False), (answer + END, number == len(turns))]
    return pieces
