"""Every manner in which a model may continue, in many texts, cut at every few characters.

The texts are those of `seam_languages.py` (25 languages and 11 kinds) and of `seam_texts.py` (those
on which a seam is easily wrong). The words to the reader are in the language of the text, in
English and in another language. Counted are joins that are exact, joins that keep words which are
no part of the text, and joins that lose a character of the text. The last must be 0.

    python tests/benchmarks/seam_manners.py [--step 5] [--seed 7] [--failures 10] [--held-out]
    python tests/benchmarks/seam_manners.py --only "exact" --lost
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from seam_languages import GENRES, HELD_OUT, LANGUAGES, Language
from seam_texts import HELD_OUT as HELD_OUT_TEXTS
from seam_texts import hard_texts

from continuation.seams.judge import EXACT
from continuation.seams.seam import Seam, Verdict
from continuation.seams.text import Cut, choose_anchor

ENGLISH = (
    "Sorry, my answer was cut off.",
    "Sure",
    "Continuing from where I left off:",
    "Apologies for the interruption.",
    "Oh, one second. Where was I",
    "I apologize for the truncated response! Here is the rest.",
    "Right.",
    "As requested, I repeat the last words first",
    "OK here goes -",
    "(continued)",
    "[resuming]",
    "**Continuation**",
    "Well... that was long.",
    "Picking up exactly at the anchor:",
)
ENGLISH_HELD_OUT = (
    "Whoops, ran out of tokens there.",
    "Absolutely, the remainder follows",
    "My response got truncated, resuming now:",
    "No worries, I'll carry on!",
    "Thanks for the nudge.",
    "And now the missing part:",
    "*continues*",
    "Part 2",
)
SURE_MANNERS = re.compile(r"exact|anchor|restart")
"""Manners in which every join should be exact."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a model writes; `whole` is the text that should come out of the join."""

    manner: str
    after: str
    rest: str
    """What of it belongs to the text."""


def _lines(before: str) -> str:
    return before[before.rfind("\n", 0, -1) + 1 :]


def attempts(
    before: str, rest: str, native: Language, said: list[str], rng: random.Random
) -> Iterator[Attempt]:
    """Yield the attempts of one cut, with a few of the words that are possible."""
    anchor, line = choose_anchor(before), _lines(before)
    yield Attempt("exact", rest, rest)
    own = native.own_line + native.same_line
    for language, words in (("native", own), ("English", said)):
        word = rng.choice(words).strip()
        bare = word.rstrip(" .!:：。！،…")
        gap = rng.choice(("\n", "\n\n"))
        yield Attempt(f"own line, {language}", f"{word}\n\n{rest}", rest)
        yield Attempt(f"same line, {language}", f"{word} {rest}", rest)
        yield Attempt(f"same line bare, {language}", f"{bare} {rest}", rest)
        yield Attempt(f"only words, {language}", word, "")
        if len(line.strip()) >= 24:
            yield Attempt(f"own line + line, {language}", f"{word}{gap}{line}{rest}", rest)
            yield Attempt(f"same line + line, {language}", f"{word} {line}{rest}", rest)
        if anchor is None:
            continue
        yield Attempt(f"own line + anchor, {language}", f"{word}{gap}{anchor}{rest}", rest)
        yield Attempt(f"same line + anchor, {language}", f"{word} {anchor}{rest}", rest)
        yield Attempt(f"bare + anchor, {language}", f"{bare} {anchor}{rest}", rest)
        yield Attempt(f"no space + anchor, {language}", f"{word}{anchor}{rest}", rest)
        mark = rng.choice((": ", ' "', " …", " - ", ": **", " `", "... ", " “"))
        close = {' "': '"', ": **": "**", " `": "`", " “": "”"}.get(mark, "")
        yield Attempt(f"mark + anchor, {language}", f"{bare}{mark}{anchor}{close}{rest}", rest)
        fold = rng.choice(("NFD", "NFC", "straight", "space"))
        yield Attempt(
            f"words + other anchor, {language}", f"{word} {other(anchor, fold)}{rest}", rest
        )
    if anchor is not None:
        yield from _anchors(anchor, rest, rng)
    yield from _echoes(before, rest, rng)
    yield from _fences(before, rest, said, rng)
    yield Attempt("restart", before + rest, rest)
    yield Attempt("restart, words on the line", f"{rng.choice(said)}\n\n{before}{rest}", rest)
    heading = [*re.finditer(r"(?:^|\n)(#{1,6} [^\n]+)\n", before)]
    if heading:
        yield Attempt("heading again", f"{heading[-1][1]}\n\n{rest}", rest)


def other(anchor: str, how: str) -> str:
    """Return the anchor in another form."""
    if how == "NFD":
        return unicodedata.normalize("NFD", anchor)
    if how == "NFC":
        return unicodedata.normalize("NFC", anchor)
    if how == "space":
        return re.sub(r"\s+", lambda found: "  " if found[0] == " " else " ", anchor)
    straight = str.maketrans({
        "’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "‑": "-",
        "\u00a0": " ", "\u202f": " ", "\u3000": " ",
    })  # fmt: skip
    return anchor.translate(straight).replace("…", "...")


def _anchors(anchor: str, rest: str, rng: random.Random) -> Iterator[Attempt]:
    yield Attempt("anchor", anchor + rest, rest)
    yield Attempt("anchor in NFD", other(anchor, "NFD") + rest, rest)
    yield Attempt("anchor in NFC", other(anchor, "NFC") + rest, rest)
    yield Attempt("anchor, straight", other(anchor, "straight") + rest, rest)
    yield Attempt("anchor, other space", other(anchor, "space") + rest, rest)
    quote = rng.choice(('""', "“”", "``", "«»", "「」"))
    yield Attempt("anchor in quotes", f"{quote[0]}{anchor}{quote[1]}{rest}", rest)
    yield Attempt("anchor in tags", f"<anchor>{anchor}</anchor>{rest}", rest)
    yield Attempt("anchor after a newline", f"\n{anchor}{rest}", rest)
    yield Attempt("part of it", anchor[len(anchor) // 2 :] + rest, rest)
    yield Attempt("twice", anchor + anchor + rest, rest)


def _echoes(before: str, rest: str, rng: random.Random) -> Iterator[Attempt]:
    word = re.search(r"\S+\s*\Z", before)
    if word:
        yield Attempt("echo of a word", word[0] + rest, rest)
    if (line := _lines(before)).strip():
        yield Attempt("echo of the line", line + rest, rest)
    sentence = re.search(r"[^.!?。！？]+[.!?。！？]?\s*\Z", before[-400:])
    if sentence and len(sentence[0]) < 400:
        yield Attempt("echo of the sentence", sentence[0].lstrip() + rest, rest)
    size = rng.randint(12, 200)
    yield Attempt("echo of some", before[-size:] + rest, rest)


def _fences(before: str, rest: str, said: list[str], rng: random.Random) -> Iterator[Attempt]:
    fence = Cut(before).fence
    if fence is None or Cut(before).line.lstrip().startswith(fence.marker):
        return
    opening, word = f"{fence.marker}{fence.info}\n", rng.choice(said)
    yield Attempt("fence again", opening + rest, rest)
    yield Attempt("bare fence again", f"{fence.marker}\n{rest}", rest)
    yield Attempt("fence again, words", f"{word}\n\n{opening}{rest}", rest)
    yield Attempt("fence and line again", opening + _lines(before) + rest, rest)


# Joining and counting ----------------------------------------------------------------------------


def join_streamed(before: str, after: str, rng: random.Random) -> tuple[str, Verdict]:
    """Join as a stream does: all of `before` is shown, `after` comes in pieces of any size."""
    seam = Seam(before, anchor=choose_anchor(before))
    size = rng.choice((1, 3, 7, 20, 100, 5000))
    shown = "".join(seam.feed(after[at : at + size]) for at in range(0, len(after), size))
    shown += seam.finish()
    assert seam.verdict is not None
    return before + shown, seam.verdict


def texts(seed: int, *, held_out: bool) -> Iterator[tuple[str, str, Language]]:
    """Yield each text with its name and the native words that may precede its continuation."""
    for name, language in LANGUAGES.items():
        if (name in HELD_OUT) is held_out:
            yield name, language.text, language
    for at, (name, text) in enumerate(GENRES.items()):
        if (at % 5 == 4) is held_out:
            yield name, text, LANGUAGES["fr"]
    for name, text in hard_texts(seed).items():
        if (name in HELD_OUT_TEXTS) is held_out:
            native = LANGUAGES.get(name.partition(" ")[0], LANGUAGES["de"])
            yield name, text, native


@dataclass
class Count:
    """What became of the joins of one manner."""

    cases: int = 0
    exact: int = 0
    lost: int = 0
    claimed: int = 0
    """How many are not exact although the verdict says so."""
    losers: Counter[str] = field(default_factory=Counter[str])


def measure(
    *, step: int, seed: int, held_out: bool, failures: int, only: str, lost_only: bool
) -> dict[str, Count]:
    """Return the counts by manner."""
    counts = defaultdict[str, Count](Count)
    said = [*(ENGLISH_HELD_OUT if held_out else ENGLISH)]
    for name, text, native in texts(seed, held_out=held_out):
        rng = random.Random(f"{seed} {name}")
        for cut in range(30 + rng.randrange(step), len(text) - 1, step):
            before, rest = text[:cut], text[cut:]
            for attempt in attempts(before, rest, native, said, rng):
                if not attempt.manner.startswith(only):
                    continue
                joined, verdict = join_streamed(before, attempt.after, rng)
                whole = before + attempt.rest
                lost = not (joined.startswith(before) and joined.endswith(attempt.rest))
                lost = lost or len(joined) < len(whole)
                count = counts[attempt.manner]
                count.cases += 1
                count.exact += joined == whole
                count.lost += lost
                count.claimed += joined != whole and verdict.kind in EXACT
                if lost:
                    count.losers[name] += 1
                if failures > 0 and (lost or (joined != whole and not lost_only)):
                    failures -= 1
                    print(f"-- {name} · {attempt.manner} {'LOST' if lost else 'kept'} {verdict}")
                    print(f"   {before[-60:]!r} | {attempt.after[:110]!r}")
                    if lost:
                        print(f"   -> {joined[cut - 20 : cut + 60]!r}")
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--step", type=int, default=5, help="cut at every so many characters")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--failures", type=int, default=0, help="show so many wrong joins")
    parser.add_argument("--lost", action="store_true", help="show only those that lose text")
    parser.add_argument("--only", default="", help="only manners that begin so")
    parser.add_argument("--held-out", action="store_true", help="use the texts that are held out")
    given = parser.parse_args()
    counts = measure(
        step=given.step,
        seed=given.seed,
        held_out=given.held_out,
        failures=given.failures,
        only=given.only,
        lost_only=given.lost,
    )
    print(f"{'manner':32}{'cases':>8}{'exact':>9}{'kept':>7}{'claimed':>9}{'lost':>6}")
    for name, count in counts.items():
        share, kept = 100 * count.exact / count.cases, count.cases - count.exact - count.lost
        losers = ", ".join(f"{who} {some}" for who, some in count.losers.most_common(4))
        print(
            f"{name:32}{count.cases:>8}{share:>8.2f}%{kept:>7}{count.claimed:>9}{count.lost:>6}"
            f"  {losers}"
        )
    print(f"\nlost in all: {sum(count.lost for count in counts.values())}")
    return int(any(count.lost for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
