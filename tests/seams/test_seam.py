"""Tests of the seam: manners, properties, real cases by the number of their issue."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import examples

from continuation.seams.judge import SeamKind
from continuation.seams.seam import Seam, Verdict, join
from continuation.seams.text import Cut, choose_anchor, says_the_same

LINE = "And then the bell rang once more over the quay.\n"
PROSE = (
    "# The ferry\n\nEvery morning at six the ferry leaves the northern harbour with coal, letters "
    "and a handful of passengers. The captain, who has crossed the strait for thirty years, keeps "
    "a ledger of every storm he has seen.\n\nIn winter the crossing takes twice as long, because "
    "drifting ice forces the pilot to follow the coast. Nobody complains; the islanders bring "
    "bread, cards and a lantern, and they talk about the most impor"
)
PROSE_REST = "tant events of the week.\n\nBy noon the bell rings twice.\n"
CODE = (
    "Here is the module:\n\n```python\nimport os\n\n\ndef total(prices: list[float]) -> float:\n"
    "    amount = 0.0\n    for price in prices:\n        amount += price\n    return amount\n\n\n"
    "def discount(prices: list[float], rate: float) -> list[float]:\n"
    "    reduced = []\n    for price in prices:\n        reduced.append(price * (1 - rate))\n"
    "    retu"
)
CODE_REST = "rn reduced\n```\n\nBoth functions are pure.\n"
TABLE = (
    "The results so far:\n\n| city | people | river |\n| --- | --- | --- |\n"
    "| Lyon | 522250 | Rhône |\n| Graz | 298479 | Mur |\n| Porto | 231800 | Douro |"
)
TABLE_REST = "\n| Turku | 202250 | Aura |\n| Gent | 269597 | Leie |\n"


def stream(before: str, after: str, cuts: list[int], **options: object) -> tuple[str, Verdict]:
    """Join as a stream does, with `after` cut at `cuts`."""
    seam = Seam(before, unshown=len(before), **options)  # type: ignore[arg-type] # test options
    places = sorted({min(cut, len(after)) for cut in cuts} | {0, len(after)})
    pieces = [after[a:b] for a, b in pairwise(places)]
    shown = "".join([seam.feed(piece) for piece in pieces]) + seam.finish()
    assert seam.verdict is not None
    return before[: len(before) - seam.verdict.taken_back] + shown, seam.verdict


# Properties -------------------------------------------------------------------------------------


@given(st.text(max_size=200), st.integers(0, 200))
def test_an_exact_continuation_is_a_concatenation_for_any_text_and_cut(text: str, at: int) -> None:
    at = min(at, len(text))
    before, after = text[:at], text[at:]
    for anchor in (None, choose_anchor(before)):
        seam = Seam(before, anchor=anchor)
        assert before + seam.feed(after) + seam.finish() == text


@given(
    st.sampled_from([PROSE + PROSE_REST, CODE + CODE_REST, TABLE + TABLE_REST]),
    st.integers(1, 900),
    st.sampled_from([None, 0, 5, 40, 180]),
)
@example(CODE + CODE_REST, CODE.index("amount = 0.0"), 5)  # the anchor is white space
@settings(max_examples=examples(150))
def test_an_exact_continuation_of_real_text_is_a_concatenation(
    text: str, at: int, size: int | None
) -> None:
    at = min(at, len(text) - 1)
    before, after = text[:at], text[at:]
    anchor = choose_anchor(before) if size is None else before[len(before) - size :] or None
    if anchor and after.startswith(anchor):
        return
    assert join(before, after, anchor=anchor)[0] == text


UNITS = st.one_of(
    st.text("ab ", min_size=1, max_size=6),
    st.text("01,\n", min_size=1, max_size=12),
    st.sampled_from(
        ["    }\n", "| a | b |\n", "- [ ] todo\n", "0, 0, ", "word ", "</div>\n", "\n"]
    ),
    st.text(min_size=1, max_size=25),
)


@given(UNITS, st.integers(2, 60), st.integers(0, 1500))
@example("00000000000\r0000102345670", 3, 37)  # was an echo without the white space at its end
@settings(max_examples=examples(200))
def test_a_periodic_text_loses_nothing_wherever_it_is_cut(unit: str, times: int, at: int) -> None:
    text = unit * times
    at = min(at, len(text))
    before, after = text[:at], text[at:]
    for anchor in (None, choose_anchor(before)):
        seam = Seam(before, anchor=anchor)
        assert before + seam.feed(after) + seam.finish() == text


@given(
    st.sampled_from([PROSE, CODE, TABLE, "", "x", "\ufffd"]),
    st.lists(
        st.sampled_from(
            [
                PROSE[-60:],
                CODE[-30:],
                CODE,
                PROSE,
                "```python\n",
                "Sorry, continuing:\n\n",
                PROSE_REST,
                CODE_REST,
                TABLE_REST,
                "| city | people | river |\n| --- | --- | --- |\n",
                "again and again. " * 80,
                "\n",
                " ",
                "\ufffd",
            ]
        ),
        max_size=4,
    ),
    st.lists(st.integers(0, 3000), max_size=12),
    st.booleans(),
)
@settings(max_examples=examples(300))
def test_a_stream_gives_what_the_whole_gives_for_every_chunking(
    before: str, parts: list[str], cuts: list[int], asked: bool
) -> None:
    after = "".join(parts)
    anchor = choose_anchor(before) if asked else None
    assert stream(before, after, cuts, anchor=anchor) == join(before, after, anchor=anchor)
    single = list(range(len(after)))
    assert stream(before, after, single, anchor=anchor) == join(before, after, anchor=anchor)


@given(
    st.sampled_from(["The answer", "We stop here.\n\n", "a \t\n", PROSE]),
    st.sampled_from(["", " ", "\n", "\n\n", "  ", "\n    "]),
    st.sampled_from(["next words", "N", ""]),
    st.booleans(),
    st.lists(st.integers(0, 900), max_size=6),
)
def test_a_prefill_keeps_its_white_space_once(
    text: str, space: str, rest: str, echoed: bool, cuts: list[int]
) -> None:
    before = text.rstrip() + space
    prefilled = before.rstrip()
    lead = prefilled if echoed and len(prefilled) >= 16 else ""
    for written in (space + rest, rest):
        after = lead + written
        assert join(before, after, prefilled=prefilled)[0] == before + rest
        assert stream(before, after, cuts, prefilled=prefilled)[0] == before + rest


# Manners ----------------------------------------------------------------------------------------

FEW_ROWS = "| palmond | malwood |\n| porwick | gartree |\n| valka |"
FEW_ROWS_REST = " korlo |\n| falmer | zorness |\n| roston | ralthin |\n"
MANNERS = {
    "anchor": (PROSE, "they talk about the most impor" + PROSE_REST, PROSE_REST, "anchor"),
    "word completed": (PROSE, "impor" + PROSE_REST, PROSE_REST, "echo"),
    "last words": (PROSE, "about the most impor" + PROSE_REST, PROSE_REST, "echo"),
    "anchor in quotes": (
        PROSE,
        '"they talk about the most impor"' + PROSE_REST,
        PROSE_REST,
        "anchor",
    ),
    "anchor after an ellipsis": (
        PROSE,
        "...they talk about the most impor" + PROSE_REST,
        PROSE_REST,
        "anchor",
    ),
    "anchor with its white space changed": (
        PROSE,
        "they talk about\nthe most impor" + PROSE_REST,
        PROSE_REST,
        "anchor",
    ),
    "preamble": (
        PROSE,
        "Sorry for the cut-off. Here is the rest:\n\n" + PROSE_REST,
        PROSE_REST,
        "preamble",
    ),
    "preamble in German": (
        PROSE,
        "Natürlich, weiter geht es:\n\n" + PROSE_REST,
        PROSE_REST,
        "preamble",
    ),
    "preamble in Chinese": (PROSE, "抱歉，接着上文：\n\n" + PROSE_REST, PROSE_REST, "preamble"),
    "preamble of unknown wording, the word is known": (
        PROSE.replace("The ferry", "The important ferry", 1),
        "Vale, on we go with it then.\n\n" + PROSE_REST,
        PROSE_REST,
        "preamble",
    ),
    "two preambles and the anchor": (
        PROSE,
        "My apologies!\n\nContinuing from the last line:\n\nthey talk about the most impor"
        + PROSE_REST,
        PROSE_REST,
        "preamble",
    ),
    "fence again": (CODE, "```python\n" + CODE_REST, CODE_REST, "fence"),
    "bare fence again": (CODE, "```\n" + CODE_REST, CODE_REST, "fence"),
    "fence and line again": (CODE, "```python\n    retu" + CODE_REST, CODE_REST, "fence"),
    "preamble and fence": (
        CODE,
        "Sure, here's the rest of the code:\n\n```python\n    retu" + CODE_REST,
        CODE_REST,
        "preamble",
    ),
    "line again": (CODE, "    retu" + CODE_REST, CODE_REST, "echo"),
    "restart": (CODE, CODE + CODE_REST, CODE_REST, "restart"),
    "restart of a few rows": (
        FEW_ROWS,
        FEW_ROWS + FEW_ROWS_REST,
        FEW_ROWS_REST,
        "restart",
    ),
    "preamble and restart": (PROSE, "Of course:\n\n" + PROSE + PROSE_REST, PROSE_REST, "preamble"),
    "long restart": (PROSE * 4 + "!", PROSE * 4 + "!" + PROSE_REST, PROSE_REST, "restart"),
    "head of the table again": (
        TABLE,
        "| city | people | river |\n| --- | --- | --- |" + TABLE_REST,
        TABLE_REST,
        "echo",
    ),
    "row again": (TABLE, "| Porto | 231800 | Douro |" + TABLE_REST, TABLE_REST, "echo"),
    "newline eaten before a row": (TABLE, TABLE_REST[1:], TABLE_REST, "whitespace"),
    "already complete": (PROSE, "My previous response was already complete.", "", "complete"),
    "empty": (PROSE, "", "", "empty"),
}


@pytest.mark.parametrize("name", MANNERS)
def test_a_manner_of_going_on_is_mended(name: str) -> None:
    before, after, rest, kind = MANNERS[name]
    anchor = "they talk about the most impor" if before == PROSE else None
    joined, verdict = join(before, after, anchor=anchor)
    assert joined == before + rest
    assert verdict.kind == kind
    assert verdict.dropped == len(after) - len(rest) + verdict.inserted


KEPT = {
    "a legitimate new fence": (PROSE[:-5] + "this:\n\n", "```python\nprint(1)\n```\n"),
    "the closing fence": (CODE + "rn reduced\n", "```\n\nBoth functions are pure.\n"),
    "a closing fence and a new one": (
        CODE + "rn reduced\n",
        "```\n\nAnd the tests:\n\n```python\nassert total([]) == 0\n```\n",
    ),
    "a fence within a Markdown fence": (
        "```markdown\n# Title\n\n",
        "```python\nx = 1\n```\n\nText\n```\n",
    ),
    "a ladder of braces": ("{\n  a {\n    b {\n      c\n    }\n", "  }\n}\n"),
    "the same line twice": (CODE + "rn reduced\n    yield\n", "    yield\n    yield\n```\n"),
    "a double space after a full stop": ("One.  Two.  Three. " * 9, " Four.  Five."),
    "a sentence about going on": (
        PROSE[:-5] + "old tales.\n\n",
        "Continuing along the coast, the pilot sang.\n\nThe islanders slept.\n",
    ),
    "a name of two words": ("We bought a new Mac", "Book Pro yesterday.\n\nIt is fast."),
    "a line of code that looks like words": ("class Type", "Error(Exception):\n\n    pass\n"),
}


@pytest.mark.parametrize("name", KEPT)
def test_text_that_only_looks_like_a_repetition_is_kept(name: str) -> None:
    before, after = KEPT[name]
    for anchor in (None, choose_anchor(before)):
        assert join(before, after, anchor=anchor)[0] == before + after


def test_an_obeyed_anchor_is_cut_once_even_where_the_line_follows_again() -> None:
    before = PROSE[:-5] + "day.\nThe bell rang over the empty quay.\n"
    anchor = "The bell rang over the empty quay.\n"
    joined, verdict = join(before, anchor + anchor + "Silence.", anchor=anchor)
    assert joined == before + anchor + "Silence."
    assert verdict.kind is SeamKind.ASSUMED, "one of the two may be the text's own"


def test_a_whole_text_gets_no_blank_line_from_an_anchor_that_nothing_follows() -> None:
    before = "".join(f"The {n} bells rang over the quay.\n\n" for n in range(2, 30))[:-1]
    anchor = before[before.rindex("The") :]
    assert join(before, anchor, anchor=anchor)[0] == before
    assert join(before, anchor + "Silence.", anchor=anchor)[0] == before + "\nSilence."


def test_half_a_character_is_taken_back_only_where_it_was_not_shown() -> None:
    before, after = "今天的天气很好，我们\ufffd", "去公园散步。"
    assert join(before, after)[0] == "今天的天气很好，我们去公园散步。"
    assert join(before, after)[1].taken_back == 1
    assert join(before, after, unshown=0)[0] == before + after


SENTENCE = (
    "Nobody complains; the islanders “bring” bread, cards and a lantern, and talk about the impor"
)


@pytest.mark.parametrize(
    "again",
    [
        SENTENCE.replace(" ", "  "),
        SENTENCE.replace(" ", "\u00a0"),
        SENTENCE.replace("; ", ";\n"),
        SENTENCE.replace("“", '"').replace("”", '"'),
    ],
    ids=["two spaces", "no-break spaces", "line break", "straight quotes"],
)
@pytest.mark.parametrize("anchor", [None, "talk about the impor"])
def test_the_unfinished_line_is_known_in_other_white_space(again: str, anchor: str | None) -> None:
    before = PROSE[: PROSE.index("Nobody")] + "\n\n" + SENTENCE
    for cuts in ([], list(range(len(again)))):
        joined, verdict = stream(before, again + PROSE_REST, cuts, anchor=anchor)
        assert joined == before + PROSE_REST
        assert (verdict.kind, verdict.dropped) == (SeamKind.ECHO, len(again))


THOUGHT = "<think>\nThe rest of the talk, then.\n</think>\n\n"


@pytest.mark.parametrize("lead", [THOUGHT, "\n" + THOUGHT, THOUGHT.replace("then", "then, " * 500)])
@pytest.mark.parametrize("said", ["", "the most impor", PROSE])
def test_thoughts_in_a_text_that_began_with_some_are_left_out(lead: str, said: str) -> None:
    before, after = "<think>Fishing.</think>\n" + PROSE, lead + said + PROSE_REST
    for cuts in ([], list(range(len(after)))):
        joined, verdict = stream(before, after, cuts)
        assert joined == before + PROSE_REST
        assert verdict.dropped == len(lead + said)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Tags that models write: ", THOUGHT),  # no thoughts so far: its own words
        ("<think>Not yet at an ", "end.</think>\nFishing."),
        ("<think>Fishing.</think>\n" + PROSE, "<thin" + PROSE_REST),
        ("<think>Fishing.</think>\n" + PROSE, "<thin"),
    ],
)
def test_what_only_looks_like_thoughts_stays(before: str, after: str) -> None:
    for cuts in ([], list(range(len(after)))):
        assert stream(before, after, cuts)[0] == before + after


def test_thoughts_that_never_end_add_nothing() -> None:
    before = "<think>Fishing.</think>\n" + PROSE
    assert join(before, "<think>The rest of the talk")[0] == before


class Piece(str):
    """A piece of text that counts the characters which are copied when it is added to others."""

    __slots__ = ()
    copied = 0

    def __radd__(self, left: str) -> str:
        Piece.copied += len(left) + len(self)
        return left + str(self)


def test_each_character_of_long_thoughts_is_read_a_few_times() -> None:
    thought = "<think>" + "It is a long talk. " * 4000 + "</think>\n\n"
    seam = Seam("<think>Fishing.</think>\n" + PROSE)
    before = Piece.copied
    for at in range(0, len(thought), 4):
        assert seam.feed(Piece(thought[at : at + 4])) == ""
    assert seam.feed(PROSE_REST) + seam.finish() == PROSE_REST
    assert 0 < Piece.copied - before < 4 * len(thought)


def test_the_closing_fence_of_a_fence_we_dropped_is_dropped_as_well() -> None:
    before = '{\n  "name": "harbour",\n  "note": "leaves at s'
    after = '```json\nix in the morning",\n  "open": true\n}\n```'
    for cuts in ([], list(range(len(after)))):
        joined, verdict = stream(before, after, cuts)
        assert joined == before + 'ix in the morning",\n  "open": true\n}'
        assert verdict.kind is SeamKind.FENCE
        assert verdict.dropped == len("```json\n") + len("\n```")


def test_a_newline_in_an_open_json_string_is_dropped() -> None:
    before = '{\n  "name": "harbour",\n  "note": "leaves at'
    assert join(before, '\n six"\n}')[0] == before + ' six"\n}'


CODE = "".join(f"def f{n}(x):\n    if x > {n}:\n        return x + {n}\n\n" for n in range(20))


@pytest.mark.parametrize("fence", ["```python\n", "```\n"])
@pytest.mark.parametrize("back", [7, 9, 15, 27])
def test_a_file_of_code_that_is_suddenly_fenced_goes_on_without_the_fence(
    back: int, fence: str
) -> None:
    before, rest = CODE[:-back], CODE[-back:]
    joined, verdict = join(before, fence + rest + "```")
    assert (joined, verdict.kind) == (CODE.removesuffix("\n"), SeamKind.FENCE)


def test_a_fence_after_code_in_prose_is_a_new_one() -> None:
    before = "First:\n\n```python\n" + CODE + "```\n\nThen run"
    rest = "```sh\nnpm install\n```\n"
    assert join(before, rest)[0].endswith(rest)


JSON_LIST = '{\n  "tags": [\n    "orchestra",\n    "theorem"\n'
ROWS = "A few words.\n\n| window | festival |\n| --- | --- |\n| quiet | yes |\n|"


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (JSON_LIST, '    "theorem"\n  ],\n', "  ],\n"),
        (JSON_LIST, '  ],\n  "theorem": 1\n', '  ],\n  "theorem": 1\n'),
        ('{\n  "tags": [\n', '  "tags": [\n    "table"\n', '    "table"\n'),
        ('[\n  {\n    "a": {\n', '    "a": {\n    "b": 1', '    "a": {\n    "b": 1'),
        (ROWS, "| foreign | no |\n| far | no |\n", " foreign | no |\n| far | no |\n"),
        (ROWS, "| no |\n| far | no |\n", "| no |\n| far | no |\n"),
        ("A few words.\n\n|", "| a | b |\n| - | - |\n| 1 |", " a | b |\n| - | - |\n| 1 |"),
        ("A title\n" + "^" * 30, "^" * 10 + "\nText", "^" * 10 + "\nText"),
    ],
)
def test_syntax_tells_whether_a_line_is_said_again(before: str, after: str, kept: str) -> None:
    for cuts in ([], list(range(len(after)))):
        assert stream(before, after, cuts)[0] == before + kept


def test_a_preamble_before_a_run_takes_nothing_of_the_run() -> None:
    before = "A long title of a chapter\n" + "^" * 68
    after = "Sure, here is the rest:\n\n" + "^" * 100 + "\nAnd the text of the chapter.\n"
    assert join(before, after)[0].count("^") == 168


def test_a_number_left_out_of_a_list_is_reported_and_nothing_is_dropped() -> None:
    before = "Steps:\n\n1. Fill the tank.\n2. Check the oil.\n"
    joined, verdict = join(before, "5. Start the engine.\n")
    assert joined == before + "5. Start the engine.\n"
    assert (verdict.kind, verdict.dropped) == (SeamKind.SKIP, 0)


def test_an_attempt_that_only_repeats_shows_nothing() -> None:
    joined, verdict = join(
        PROSE, "the islanders bring bread, cards and a lantern, and they talk about the most impor"
    )
    assert joined == PROSE
    assert verdict.kind is SeamKind.ECHO


# Cases of the issue trackers ---------------------------------------------------------------------

CASES = {
    "qwen-code 3966, overlap": (
        "Alpha shared recovery suffix",
        "shared recovery suffix and continuation",
        "Alpha shared recovery suffix and continuation",
    ),
    "qwen-code 3966, block above": (
        "Intro\n### Cities\n| city | people | river |\ntail that was truncated",
        "### Cities\n| city | people | river |\nnew suffix",
        "Intro\n### Cities\n| city | people | river |\ntail that was truncated\nnew suffix",
    ),
    "qwen-code 3966, block above, indented": (
        "Intro\n### Cities\n| city | people | river |\ntail that was truncated",
        "  ### Cities\n  | city | people | river |\nnew suffix",
        "Intro\n### Cities\n| city | people | river |\ntail that was truncated\nnew suffix",
    ),
    "qwen-code 3966, opener of a sentence": (
        "We covered cats. In summary, this concludes the cat section.",
        "In summary, the answer is 42 and the dog section follows.",
        None,
    ),
    "qwen-code 3966, far earlier": (
        "Here is the rest of the explanation." + " Filler about the strait." * 20 + " cut off here",
        "Here is the rest of the explanation continued.",
        None,
    ),
    "qwen-code 3966, heading in the middle of a line": (
        "some text ### Heading and then more inline prose follows",
        "### Heading\nfresh continuation of it",
        None,
    ),
    "qwen-code 3966, one cell": (
        "Note:\n|expression| evaluates to a scalar value.\nAnother line here.\n",
        "|expression| evaluates to a scalar value. And more.",
        None,
    ),
    "qwen-code 3966, newline kept": (
        "Intro paragraph.\n### Section",
        "### Section\nbody prose continuation",
        "Intro paragraph.\n### Section\nbody prose continuation",
    ),
    "qwen-code 3966, whole replay": (
        "leading content. tail-fragment",
        "tail-fragment",
        "leading content. tail-fragment",
    ),
    "qwen-code 3966, two CJK characters": ("我们讨论问题", "问题在于时间不够。", None),
    "qwen-code 3966, a closing brace": (
        "void f() {\n  if (x) {\n    y();\n    }\n",
        "    }\n}\n",
        None,
    ),
    "hackerai 1165, a closing fence": ("```sh\nls -l\n", "```\n\nThat lists the files.\n", None),
    "vercel 3118, a word in two": ("The weather is beau", "tiful today.", None),
    "hermes 78577, no separator is invented": ('{"key": "PMCDC', 'Waiting"}', None),
    "DFIR-Companion 188, fence in a JSON string": (
        '{"finding": "The process was star',
        '```json\nted by a scheduled task."}\n```',
        '{"finding": "The process was started by a scheduled task."}',
    ),
    "hermes 30963, not truncated": (
        "The deploy is finished and every check is green.",
        "I wasn't truncated. My previous message was complete.",
        "The deploy is finished and every check is green.",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_from_an_issue_tracker(name: str) -> None:
    before, after, expected = CASES[name]
    assert join(before, after)[0] == (before + after if expected is None else expected)


# No stall, no loop, no cost -----------------------------------------------------------------------


def shown_after(seam: Seam, text: str) -> int:
    """Characters of `text` that go in before the seam is decided."""
    for number, char in enumerate(text, 1):
        seam.feed(char)
        if seam.verdict is not None:
            return number
    return len(text)


def test_an_anchor_is_let_through_as_soon_as_it_is_known() -> None:
    anchor = choose_anchor(PROSE)
    assert anchor is not None
    assert shown_after(Seam(PROSE, anchor=anchor), anchor + PROSE_REST) <= len(anchor) + 20


def test_a_plain_continuation_is_let_through_early() -> None:
    assert shown_after(Seam(PROSE), PROSE_REST) <= 48


def test_the_head_is_never_held_beyond_its_limit() -> None:
    tricky = ("Sure, Continuing " * 200)[:3000]
    assert shown_after(Seam(PROSE, hold=300), tricky) <= 300


@pytest.mark.parametrize(
    ("before", "new", "same"),
    [
        ("Once.\n" + LINE * 4, LINE * 10, True),
        ("Once.\n" + LINE * 4 + LINE[:9], LINE[9:] + LINE * 6 + LINE[:4], True),
        ("0," * 50, "0," * 70, True),
        ("0," * 50, "0," * 40, False),  # too little to tell
        ("Once.\n", LINE * 10, True),
        ("Once.\n", "And then:\n" + LINE * 10, False),
        ("Once.\n" + LINE * 4, LINE * 10 + "The end", False),
        (TABLE, "".join(f"| {number} | yes | no |\n" for number in range(40)), False),
        (PROSE, PROSE, False),
    ],
)
def test_more_of_the_same_unit_is_nothing_new(before: str, new: str, same: bool) -> None:
    assert says_the_same(before + new, len(before)) is same


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("It was late.", True),
        ("It was late.\n\n", True),
        ("The End\n", True),
        ("Er sagte: „Nein!“", True),
        ("いい天気です。", True),
        ("```py\nx = 1\n```", True),
        ("| a | b |\n|---|---|\n| 1 | 2 |", True),
        ('{"a": [1, 2]}', True),
        ("", False),
        ("It was lat", False),
        ("It was late, ", False),
        ("As follows:\n", False),
        ("It was late (", False),
        ("```py\nx = 1.\n", False),
        ("| a | b |\n|---|---|\n| 1 | 2.", False),
        ('{"a": [1, 2]', False),
        ("a,b\n1,2\n3,4\n5,6\n7,?", False),
    ],
)
def test_where_a_whole_text_may_end(text: str, ends: bool) -> None:
    assert Cut(text).at_end is ends


def test_an_attempt_that_restarts_and_gets_no_further_is_known() -> None:
    before = PROSE + "tant.\n\n" + CODE + "rn reduced\n```\n\n" + TABLE
    seam = Seam(before)
    assert seam.feed(before[:700]) == ""
    assert seam.finish() == ""
    assert seam.restarted


def test_a_replay_that_diverges_is_shown_whole() -> None:
    before = PROSE.replace("impor", "impor") + " " + CODE
    after = before[:700] + "and here the story takes another turn altogether, to the south."
    joined, verdict = join(before, after)
    assert joined == before + after
    assert verdict.dropped == 0


def test_a_seam_after_a_long_answer_costs_a_few_milliseconds_at_most() -> None:
    words = random.Random(4).choices(PROSE.split(), k=70_000)
    before = " ".join(words)
    started = time.thread_time()
    for _ in range(20):
        seam = Seam(before, anchor=before[-60:])
        seam.feed("Sorry, going on now:\n\n" + PROSE_REST * 8)
        seam.finish()
    assert (time.thread_time() - started) / 20 < 0.02


# The anchor --------------------------------------------------------------------------------------


def test_an_anchor_ends_the_text_and_is_unique_in_it() -> None:
    for text in (PROSE, CODE, TABLE):
        anchor = choose_anchor(text)
        assert anchor is not None
        assert text.endswith(anchor)
        assert text.count(anchor) == 1


def test_a_low_entropy_tail_gets_a_longer_anchor() -> None:
    plain = choose_anchor(PROSE)
    block = "    return {\n        'rate': {\n            'low': 1\n        }\n    }\n"
    braces = choose_anchor(CODE + "rn reduced\n\n\ndef a():\n" + block + "\n\ndef b():\n" + block)
    assert plain is not None
    assert braces is not None
    assert len(braces) > len(plain)


@pytest.mark.parametrize("text", ["", " ", "ok", "0, " * 400, "    }\n" * 100, "\n\n\n"])
def test_a_text_without_a_telling_end_has_no_anchor(text: str) -> None:
    assert choose_anchor(text) is None


def test_a_verdict_holds_counts_and_no_text() -> None:
    verdict = join(PROSE, PROSE_REST)[1]
    assert verdict == Verdict(SeamKind.ASSUMED, 0, 0, 0, 0.5)


@pytest.mark.parametrize("at", range(900, 990))
def test_lines_that_speak_of_going_on_are_no_preamble(at: int) -> None:
    text = "".join(f"Line {n}: der Text, 文字 und 🙂, geht weiter.\n" for n in range(60))
    seam = Seam(text[:at], anchor=choose_anchor(text[:at]))
    assert seam.feed(text[at:]) + seam.finish() == text[at:]
