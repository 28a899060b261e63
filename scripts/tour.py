"""Follow one truncated stream through the code, from `wrap` to the joined answer.

    python scripts/tour.py

It streams an answer through Anthropic's SDK from the simulator, which truncates it at the ceiling.
It prints the files that the answer passes, in the order in which each is entered first, and under
each file its functions. The number of a function is its place among all functions.

"The life of a request" in design/architecture.md follows this order; a test compares the two.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import anthropic

import continuation
from continuation.simulator import Scenario, Simulator

ROOT = Path(__file__).resolve().parents[1]
MODEL, LIMIT = "claude-sonnet-5", 4096
TEXT = " ".join(f"Sentence {n} says that {n} is a number." for n in range(1, 701))


def place(code: CodeType) -> tuple[str, str] | None:
    """Return file and name of a function; `None`: it is not ours, or it has no name."""
    path = Path(code.co_filename)
    if not path.is_absolute() or code.co_name.startswith("<"):  # made by `dataclass`, a lambda
        return None
    path = path.resolve()  # `continuation/providers` is a link
    if not any(path.is_relative_to(ROOT / top) for top in ("continuation", "providers")):
        return None
    return path.relative_to(ROOT).as_posix().removeprefix("continuation/"), code.co_qualname


@contextmanager
def followed() -> Iterator[dict[CodeType, None]]:
    """Yield the functions that this thread enters, in the order of the first entries.

    The simulator answers in other threads.
    """
    entered = dict[CodeType, None]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.setdefault(frame.f_code)

    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)


def stream(url: str) -> str:
    """Wrap a client and return a streamed answer's text."""
    messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": "Go."}]
    with (
        continuation.wrap(anthropic.Anthropic(base_url=url, api_key="any")) as client,
        client.messages.stream(model=MODEL, max_tokens=LIMIT, messages=messages) as answer,
    ):
        return answer.get_final_text()


def tour() -> list[tuple[str, list[tuple[int, str]]]]:
    """Return the files in order, each with the numbers and names of its functions."""
    with Simulator(TEXT, Scenario(ceiling=LIMIT)) as simulator:
        url = simulator.url
        stream(url)  # what the first call imports and caches is not on the way
        with followed() as entered:
            text = stream(url)
    assert text == TEXT
    files = defaultdict[str, list[tuple[int, str]]](list)
    for number, (file, name) in enumerate(dict.fromkeys(filter(None, map(place, entered))), 1):
        files[file].append((number, name))
    return list(files.items())


def main() -> None:
    """Print the tour."""
    for file, functions in tour():
        print(file)
        for number, name in functions:
            print(f"    {number:4} {name}")


if __name__ == "__main__":
    main()
