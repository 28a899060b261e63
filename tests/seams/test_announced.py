"""An opening that only announces the continuation is left out wherever no line can stand."""

from __future__ import annotations

import pytest

from continuation.seams.seam import Seam

PROSE = (
    "The harbour lay in fog. Nobody had seen the ferry since noon.\n\nThe pilot lit his pipe and "
    "waited. Then the bell rang twice.\n\nIt was the old bell of the customs house.\n"
)
LOG = "".join(
    f"2025-03-01T20:{minute:02}:49.859Z {level}  [worker-{minute % 4}] {what} seq={minute}\n"
    for minute, (level, what) in enumerate(
        [("INFO", "heartbeat ok"), ("WARN", "cache"), ("ERROR", "reset by peer")] * 4
    )
)
TABLE = "id;name;state\n" + "".join(f"{at};name {at};{at * 7}.00\n" for at in range(100, 120))
ANNOUNCED = [
    "I'll continue from where I left off.",
    "Continuing from where I stopped:",
    "Sorry for the interruption. Here is the rest of the answer:",
    "[Continuing from previous response]",
    "**Continuing from where I left off:**",
    "Ich setze genau dort fort:",
    "Ich fahre dort fort, wo ich aufgehört habe:",
    "以下是续写内容：",
    "Je reprends là où je me suis arrêté :",
    "Continúo desde donde me quedé:",
    "Извините, продолжаю:",
    "抱歉，我继续：",
    "すみません、続けます：",
    "죄송합니다. 계속하겠습니다:",
    "मैं वहीं से जारी रखता हूँ:",
]


def joined(before: str, after: str, size: int) -> str:
    seam = Seam(before, anchor=None)
    shown = "".join(seam.feed(after[at : at + size]) for at in range(0, len(after), size))
    return before + shown + seam.finish()


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("said", ANNOUNCED)
def test_between_paragraphs(said: str, size: int) -> None:
    at = PROSE.index("The pilot")
    assert joined(PROSE[:at], f"{said}\n\n{PROSE[at:]}", size) == PROSE


@pytest.mark.parametrize("said", ANNOUNCED)
def test_in_a_sentence(said: str) -> None:
    for part in (" lit his", " noon.", "ell rang"):
        at = PROSE.index(part)
        assert joined(PROSE[:at], f"{said}\n\n{PROSE[at:]}", 5) == PROSE, part


@pytest.mark.parametrize("said", ANNOUNCED)
@pytest.mark.parametrize("text", [LOG, TABLE])
def test_in_a_record(text: str, said: str) -> None:
    half = text.index("\n", len(text) // 2) + 1
    for at in (half, half + 2):
        assert joined(text[:at], f"{said}\n\n{text[at:]}", 3) == text, at


@pytest.mark.parametrize(
    "line",
    [
        "We apologize for the interruption.",
        "Continued.",
        "Sorry.",
        "Where I left off.",
        "The rest is missing.",
        "“I'll continue from where I left off.”",
        "I'll continue the story of the lighthouse:",
        "Let me continue with the next part.",
        "Here is the rest of the code:",
        "I'll go on with the second section:",
        "Continuing:",
        "Voici la suite :",
        "中断しました。",
    ],
)
def test_a_line_of_the_text_is_kept(line: str) -> None:
    at = PROSE.index("The pilot")
    text = f"{PROSE[:at]}{line}\n\n{PROSE[at:]}"
    assert joined(text[:at], text[at:], 4) == text
