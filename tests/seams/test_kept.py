"""No seam loses text: what only looks like an echo, or like words to the reader, is kept."""

# ruff: noqa: E501 - a text is easier to check where a line is a line
from __future__ import annotations

import pytest

from continuation.seams.judge import EXACT
from continuation.seams.seam import Seam, Verdict
from continuation.seams.text import choose_anchor

ABOUT = (
    "# When an answer is truncated\n\nThe model stops at its limit. Then it writes one of these:\n\n"
    "Sorry, my answer was cut off.\n\nContinuing from where I left off:\n\nHere is the rest of the "
    "response:\n\nNone of these is part of the answer.\n\nThe response above is already complete.\n"
)
LETTER = (
    "Subject: Last night\n\nDear members,\n\nWe apologize for the interruption.\n\nThe service is "
    "back. My previous message was cut off, so here it is.\n\nThank you for your patience.\n"
)
STORY = (
    "He opened the letter again. It said nothing new.\n\nSorry.\n\nHe turned the page and read:\n\n"
    "Continued.\n\n“Go on where?” asked the captain.\n\nWhere I left off.\n\nThe end was missing.\n"
)
CODE = (
    'def resume(state):\n    """\n    Continue the interrupted message.\n\n    The rest follows.\n'
    '    """\n    # Sorry, the answer was cut off.\n    # Continue where we left off:\n'
    "    log('Continuing from the last token.')\n    return state\n"
)
NAMES = (
    "Prices moved this spring. Mac sales rose while MacBook prices fell.\n\niPad orders were flat. "
    "JavaScript is the language they run. The group is called The Rest of Us.\n\neBay noticed.\n"
)
CHINESE = (
    "# 截断的回答\n\n模型达到长度限制时，回答会被截断。用户让它继续，它常常先写：\n\n抱歉，我的回答被截断了。\n\n"
    "他最喜欢的书是The Great Gatsby.\n\n他每年读一遍。他只说了抱歉。\n\n然后继续写剩余的内容。唱片名为Sorry to Go On:\n\n"
    "第一首歌很慢。以上回答已经完整，没有更多内容。\n"
)
PRAYER = "".join(
    f"For the {one} and the {other}, amen.\nLord of the harbour, hear our prayer.\n"
    for one, other in [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]
).replace("the a", "the narrow anchor")
ROWS = "| item | state |\n|---|---|\n| oar | ok |\n| oar | ok |\n| rope | ok |\n| rope | ok |\n"
LOG = "worker: Connection lost. Retrying the request in five seconds.\n" * 5
CHAT = (
    "Ada: Did you get it?\nBo: Sorry, my answer was cut off.\nAda: Here is the rest:\nAda: two\n"
    "Bo: Continuing where I left off:\nAda: fine, thanks\n"
)
TEXTS = {
    "about truncation": ABOUT,
    "a letter": LETTER,
    "a story": STORY,
    "code that speaks": CODE,
    "brand names": NAMES,
    "Chinese": CHINESE,
    "a refrain": PRAYER,
    "equal rows": ROWS,
    "equal lines": LOG,
    "a chat": CHAT,
}
SAID = ("Sorry, my answer was cut off.", "Here is the rest:", "Hier der fehlende Teil:", "抱歉。")


def joined(before: str, after: str, size: int) -> tuple[str, Verdict]:
    seam = Seam(before, anchor=choose_anchor(before))
    shown = "".join(seam.feed(after[at : at + size]) for at in range(0, len(after), size))
    shown += seam.finish()
    assert seam.verdict is not None
    return before + shown, seam.verdict


@pytest.mark.parametrize("name", TEXTS)
def test_an_exact_continuation_loses_nothing_wherever_it_is_truncated(name: str) -> None:
    text = TEXTS[name]
    for at in range(20, len(text)):
        one, verdict = joined(text[:at], text[at:], 1 + at % 9)
        assert one == text, (text[:at][-40:], text[at:][:60])
        assert verdict.kind not in EXACT, "nothing was repeated, so nothing is proven"


@pytest.mark.parametrize("gap", ["", " ", "\n\n"])
@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("name", TEXTS)
def test_words_to_the_reader_take_no_text_with_them(name: str, said: str, gap: str) -> None:
    text = TEXTS[name]
    for at in range(21, len(text) - 1, 3):
        one, _ = joined(text[:at], said + gap + text[at:], 1 + at % 9)
        assert one.endswith(text[at:]), (text[:at][-40:], text[at:][:60])


@pytest.mark.parametrize("gap", ["", " ", "\n", "\n\n", ": “", " …"])
@pytest.mark.parametrize(
    "said", ["Hoppla, da brach es ab.", "ok, here goes -", "对不住。", *SAID[:2]]
)
@pytest.mark.parametrize("name", ["a story", "brand names"])
def test_words_before_the_anchor_are_left_out_in_any_language(
    name: str, said: str, gap: str
) -> None:
    text = TEXTS[name]
    for at in range(60, len(text) - 1, 7):
        if anchor := choose_anchor(text[:at]):
            closing = "”" if gap.endswith("“") else ""
            one, _ = joined(text[:at], said + gap + anchor + closing + text[at:], 1 + at % 9)
            assert one == text, (text[:at][-40:], anchor)
