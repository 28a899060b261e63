"""What evidence decides: numbering, typography, fields, words that belong to the answer itself.

Each row is a text, where it is cut, and what a model says before it goes on.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable

import pytest

from continuation.seams.judge import SeamKind
from continuation.seams.seam import Seam, join
from continuation.seams.text import choose_anchor

FABLE = (
    "# The café by the sea\n\nThe owner kept a ledger of storms – forty‑one of them – under the "
    "counter. “Nobody reads it,” she used to say, “but it’s there.” Fishermen came in before dawn "
    "and left wet footprints on the tiles; the naïve ones asked for credit. When the pier was "
    "rebuilt the café moved three doors down, and the old sign stayed where it was. “You’ll find "
    "us by the smell,” she told a guest – and the guest wrote it do"
)
FABLE_REST = "wn – word for word – on the back of a café bill.\n"
PLAIN = str.maketrans({"“": '"', "”": '"', "’": "'", "–": "-", "…": "..."})
SKIES, NAMES, WOODS = "cold warm mild grey", "Ada Bo Chiara Dmitri Esra", "oak elm ash"


def one_of(words: str, number: int) -> str:
    return words.split()[number % len(words.split())]


WEATHER = "The stations:\n\n| no | sky | wind |\n| --- | --- | --- |\n" + "".join(
    f"| {n} | {one_of(SKIES, n)} | {n * 37 % 11} |\n" for n in range(30)
)
RECORDS = "no,name,kind,grams\n" + "".join(
    f"{n},{one_of(NAMES, n)},{one_of(WOODS, n)},{n * 71 % 997}\n" for n in range(1140, 1190)
)
SHAPES = "<svg>\n" + "".join(
    f'  <rect x="{8 * n}" y="0" width="8" height="8"/>\n' for n in range(40)
)
BITS = "P1\n61 30\n" + "\n".join(
    " ".join("01"[20 + y * 7 % 17 <= x < 30 + y * y % 13] for x in range(61)) for y in range(30)
)
DARK = "P1\n51 51\n" + (" ".join("0" * 51) + "\n") * 20
MINIFIED = '{"name":"grid","rows":[{"x":[' + "0," * 60 + '0],"y":[' + "0," * 60 + "0]}]}"
CODE = "Use it so:\n\n```python\n" + "".join(
    f"def f{n}(x):\n    if x > {n}:\n        return x + {n}\n\n" for n in range(12)
)
VALUES = CODE + '"spindle of the old mill by the river": None, "loom": 1\n'
LOG = "".join(
    f"2025-03-01T10:0{n % 6}:{n * 7 % 60:02} {one_of('INFO WARN', n)} "
    f"[{one_of(NAMES, n)}] seq={n * n}\n"
    for n in range(40)
)
NESTED = json.dumps(
    [{"sky": one_of(SKIES, n), "by": {"name": one_of(NAMES, n), "wood": n}} for n in range(20)],
    indent=4,
)
LISTED = '{\n  "events": [\n' + "".join(
    f'    "{one_of("spot:HALT spot:GAIN spot:LOSS", n)}_{n}",\n    "scale:EC2_{name}",\n'
    f'    "scale:EC2_{name}_ERROR",\n'
    for n, name in enumerate(["LAUNCH", "TERMINATE", "REFRESH", "TEST", "MOVE"] * 4)
)
DUMP = "".join(f"{16 * n:08x}  {n * 7919 % 256:02x} 4a 00 7f  |a.{n:c}.|\n" for n in range(40, 90))
DONE = "```\n" + "  - ok: false\n    by: Ada\n" * 20
PAGES = "\n\n".join(f"{one_of(NAMES, n)} saw storm {n * 37} coming in." for n in range(9))
TAGGED = (
    "Write the prompt with its tags and nothing else:\n\n<anchor>words of the answer</anchor>\n"
)
SHELL = (
    'deactivate () {\n    if [ -n "${OLD_PATH:-}" ] ; then\n        PATH="${OLD_PATH:-}"\n'
    "        export PATH\n        unset OLD_PATH\n    fi\n    hash -r\n\n    unset VENV_HOME\n"
    "    unset VENV_HOME_PROMPT\n    if [ -z $1 ] ; then\n        unset -f deactivate\n    fi\n}\n"
)


def cut(text: str, place: str) -> tuple[str, str]:
    """`text` in two, behind `place`."""
    before, found, rest = text.partition(place)
    assert found
    return before + found, rest


ANCHORS: dict[str, tuple[tuple[str, str], Callable[[str], str]]] = {
    "straight quotes": ((FABLE + " “out–", "side”" + FABLE_REST), lambda x: x.translate(PLAIN)),
    "three dots": ((FABLE + "… and so…", FABLE_REST), lambda x: x.translate(PLAIN)),
    "decomposed letters": (
        (FABLE + " at the naïve café’s dé", "jà vu.\n"),
        lambda x: unicodedata.normalize("NFD", x),
    ),
    "a capital letter": ((FABLE, FABLE_REST), lambda x: x[0].upper() + x[1:]),
    "other white space": (cut(CODE, "x + 9"), lambda x: "  ".join(x.split())),
    "an ellipsis before a mark": (cut(VALUES, ' by the river": N'), lambda x: "…" + x),
    "tags beside its own": (
        cut(TAGGED, "<anchor>words of the ans"),
        lambda x: f"<anchor-2>{x}</anchor-2>",
    ),
    "a bitmap": ((BITS[:411], BITS[411:]), str),
    "its newline left out before a blank line": (cut(PAGES, "storm 185 coming in.\n"), str.rstrip),
    "its newline left out, mid-line": (
        cut(FABLE + "wn\nin a hand that nobody\nknew", "hand that nobody\n"),
        str.rstrip,
    ),
    "minified JSON": (cut(MINIFIED, '"y":[0,0,0,0,0,0,0,0,0,'), str),
}


@pytest.mark.parametrize("name", ANCHORS)
def test_the_anchor_is_known_in_other_typography_and_in_a_run(name: str) -> None:
    (before, rest), say = ANCHORS[name]
    anchor = choose_anchor(before)
    assert anchor is not None
    said = say(anchor)
    assert said != anchor or say is str
    seam = Seam(before, anchor=anchor)
    shown = "".join(map(seam.feed, said + rest)) + seam.finish()
    assert before + shown == before + rest == join(before, said + rest, anchor=anchor)[0]


ECHOES = {
    "forty characters, from inside a word": (
        cut(CODE, "return x + 4\n\n"),
        "x):\n    if x > 4:\n        return x + 4\n\n",
    ),
    "twenty-four, by the indentation": (
        cut(CODE, "x > 3:\n        retu"),
        " if x > 3:\n        retu",
    ),
    "twenty-four in a sentence": (
        cut(FABLE, "smell,” she told a guest – a"),
        "l,” she told a guest – a",
    ),
    "a row, by its number": (cut(WEATHER, "| 24 | cold | 8 |\n"), "| 24 | cold | 8 |\n"),
    "from inside a row": (cut(WEATHER, "| 20 | co"), " | grey | 10 |\n| 20 | co"),
    "fields of a record": (cut(RECORDS, "1161,Bo,oak,"), "Ada,ash,606\n1161,Bo,oak,"),
    "two records": (cut(RECORDS, "\n1163,"), "1161,Bo,oak,677\n1162,Chiara,elm,748\n1163,"),
    "a shape, by its place": (
        cut(SHAPES, 'x="160"'),
        '0" width="8" height="8"/>\n  <rect x="160"',
    ),
    "a line that would be like no other": (
        cut(LOG, "seq=361\n2025-03-01T10:02:20"),
        "=361\n2025-03-01T10:02:20",
    ),
    "a member of JSON, by its indentation": (
        cut(NESTED, '"wood": 9\n        }\n    },\n    {'),
        "9\n        }\n    },\n    {",
    ),
    "a member of JSON, by its key": (cut(NESTED, '"wood": 13'), ',\n            "wood": 13'),
    "a text that ends in a run, from its top": ((DARK[:583], DARK[583:]), DARK[:583]),
}


@pytest.mark.parametrize("name", ECHOES)
def test_an_echo_that_begins_anywhere_is_known_by_what_the_text_counts(name: str) -> None:
    (before, rest), echo = ECHOES[name]
    assert before.endswith(echo)
    joined, verdict = join(before, echo + rest)
    assert (joined, verdict.dropped) == (before + rest, len(echo))


BLOCK = "Save this:\n\n```python\nimport os\nprint(os.getcwd())\n```\n"
CHAT = "".join(f"[9:{n}] {one_of(NAMES, n)}: Sorry, I was away.\n" for n in range(10, 24))

OPENED = {
    "words before rows of a dump": (cut(DUMP, "|a.A.|\n"), "Thanks, resuming below.\n\n"),
    "a fence again, within a run": ((DONE[:185], DONE[185:]), "```\n"),
    "a fence again, before its first line": (cut(BLOCK, "```python\n"), "```\n"),
}


@pytest.mark.parametrize("name", OPENED)
def test_what_stands_before_the_text_goes(name: str) -> None:
    (before, rest), opening = OPENED[name]
    assert join(before, opening + rest)[0] == before + rest


ROWS = "| quiet | harbour |\n"
KEPT = {
    "a longer name on the next line of JSON": cut(LISTED, '"scale:EC2_TERMINATE'),
    "a block, in a text that begins within one": (
        "    Ada,\n)\n```\n\n## Sky\n\nWords on it.\n\nTypes:\n",
        "\n```python\nfrom sky import Dmitri\n```\n",
    ),
    "a closing fence before an adjacent fence": cut(BLOCK + "```sh\nls\n```\n", "getcwd())\n"),
    "the same, bare": cut(BLOCK + "```\nls -l\n```\n", "getcwd())\n"),
    "a closing sentence": (BLOCK + "\n", "That's all the code you need for this project."),
    "one about completeness": (FABLE + "wn.\n\n", "With that the answer is complete."),
    "a chat in which others are sorry": (
        CHAT + "[9:24]",
        " Zoe: Sorry, I was away.\n[9:25] Ada: ok\n",
    ),
    "a name that is longer on the next line": cut(SHELL, "unset VENV_HOME"),
    "the same after the line": cut(SHELL, "unset VENV_HOME\n"),
    "a line that says the end of the one before": (
        SHELL + "        offset = 0;\n        stations.get(number).value = answer.value;\n",
        "        value = answer.value;\n      } catch (error) {\n",
    ),
    "rows of a run that begins there": (FABLE + "\n\n" + ROWS * 8, ROWS * 40),
}


@pytest.mark.parametrize("name", KEPT)
def test_text_that_goes_on_as_it_must_is_kept(name: str) -> None:
    before, after = KEPT[name]
    for anchor in (None, choose_anchor(before)):
        assert join(before, after, anchor=anchor)[0] == before + after


@pytest.mark.parametrize("unit", ["ab" * 10, "no, " * 4, "All work and no play.\n", "0" * 40])
@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_prefill_that_goes_round_from_its_first_character_goes_on(unit: str, times: int) -> None:
    before = unit * times
    seam = Seam(before, prefilled=before)
    assert "".join(map(seam.feed, unit * 40)) + seam.finish() == unit * 40


@pytest.mark.parametrize(("stop", "back"), [("", 0), ("do not", 2), ("END", 0)])
def test_an_attempt_that_ends_within_the_anchor_adds_nothing(stop: str, back: int) -> None:
    anchor = choose_anchor(FABLE)
    assert anchor is not None
    seam = Seam(FABLE, anchor=anchor, unshown=100)
    assert seam.feed(anchor[:-2]) + seam.finish(stop) == ""
    assert seam.verdict is not None
    assert (seam.verdict.kind, seam.verdict.taken_back) == (SeamKind.ECHO, back)


@pytest.mark.parametrize("half", ["<", "<anch", "<anchor"])
@pytest.mark.parametrize("closed", [True, False])
def test_our_mark_never_comes_back_behind_half_a_mark_of_the_text(half: str, closed: bool) -> None:
    before = f"<anchor>alpha 12 beta</anchor>\ngamma 45 delta 78 omega 33\n{half}"
    rest = f"{'<anchor>'[len(half) :]}kappa 19</anchor>\n"
    anchor = before[-30:]
    assert anchor.count("<") == 1
    head = f"<anchor>{anchor}{'</anchor>' if closed else ''}{rest}"
    assert join(before, head, anchor=anchor)[0] == before + rest
    assert join(before, anchor + rest, anchor=anchor)[0] == before + rest
    assert join(before, rest, anchor=anchor)[0] == before + rest
