"""A long text without repetitions, so that a seam in it has one right place."""

from __future__ import annotations

import random

_WORDS = (  # noqa: SIM905 - fifty quoted words are no easier to read
    "captain lamplight oranges overboard Madeira parrot polite morning kettle sing Lisbon maps "
    "countries harbour Tuesday pilot coffee gin sandbank nine miles customs letters tall twice "
    "missing crates winter orchard ladder copper violin thunder velvet 文字 🙂 naïve größer river "
    "lantern gravel pepper saddle engine whisper marble anchor biscuit compass ribbon"
).split()


def telling(characters: int) -> str:
    """Return a text of so many characters, the same at each call."""
    choose = random.Random(7)
    said = ""
    while len(said) < characters:
        words = [choose.choice(_WORDS) for _ in range(choose.randint(4, 14))]
        said += " ".join(words).capitalize() + choose.choice([". ", ", and ", "; ", ".\n"])
    return said[:characters]
