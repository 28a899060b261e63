"""Classifies the error responses of servers with OpenAI's formats.

Chat and Responses have the same errors, but every vendor has its own wordings. `errors.toml` lists
the wordings with their meanings. It also has a formula by which a limit that fits follows from the
numbers in the text. The functions here are pure functions of status and body, and never raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple

from continuation.types import ClassifiedError, ErrorKind
from continuation.wire.errors import label_of
from continuation.wire.json_values import as_json, as_list, as_text, loads

MARGIN: Final = 256
"""Tokens that are left free if a server only estimates the size of the prompt."""

_READ = frozenset({400, 413, 422})
"""The statuses with which a server explains what is wrong with the request."""
_BUSY = frozenset({408, 409, 425, 429})


class ErrorRow(NamedTuple):
    """One wording: its name, its meaning, and how a limit follows from its numbers."""

    name: str
    kind: ErrorKind
    text: str
    """A pattern for `compiled`."""
    fits: str = ""
    """A key of `_FITS`; `""`: no limit follows from the text."""


@cache  # read at first use, because most programs get no error
def table() -> Mapping[str, Any]:
    """Return `errors.toml`, decoded."""
    import tomllib
    from importlib.resources import files

    source = files("continuation.providers.openai_common").joinpath("errors.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))


@cache
def rows() -> tuple[tuple[ErrorRow, ...], tuple[ErrorRow, ...]]:
    """Return the rows about quotas, and all rows. The first row that matches decides."""
    quotas, others = (
        tuple(ErrorRow(**{**row, "kind": ErrorKind(row["kind"])}) for row in table()[which])
        for which in ("quota", "row")
    )
    return quotas, quotas + others


def refused(status: int, body: bytes, asked: int | None = None) -> ClassifiedError:
    """Classify an error response.

    `asked`: the limit that was sent, in tokens; `None`: unknown. Some servers report only by how
    many tokens a request is too large. Then `maximum` follows from `asked`, and is `None` without
    it. A maximum is always positive. `RETRYABLE` with a maximum means that the limit itself is over
    a quota, so a retry with the same limit would fail again.
    """
    label = label_of(status, body)
    if status not in _READ | {402, 429}:
        busy = status in _BUSY or status >= 500
        return ClassifiedError(ErrorKind.RETRYABLE if busy else ErrorKind.FINAL, label)
    text, (quotas, every) = text_of(body), rows()
    for row in every if status in _READ else quotas:
        if (found := compiled(row.text).search(text)) is None:
            continue
        # Numbers lose their separators. Marks such as "about" count as 1.
        groups = {name: n.replace(",", "") for name, n in found.groupdict("").items() if n}
        numbers = {name: int(n) if n.isdecimal() else 1 for name, n in groups.items()}
        maximum = _FITS[row.fits](numbers, asked) if row.fits else None
        if maximum is not None and maximum < 1:
            return ClassifiedError(ErrorKind.FINAL, label)
        return ClassifiedError(row.kind, label, maximum)
    return ClassifiedError(ErrorKind.RETRYABLE if status == 429 else ErrorKind.FINAL, label)


def wrong_parameter(status: int, body: bytes) -> str | None:
    """Return the right name of the limit parameter, or `None` if that is not the error."""
    found = compiled(table()["wrong_parameter"]).search(text_of(body)) if status in _READ else None
    if found is None:
        return None
    wrong = next(name for name in found.groups() if name)
    return "max_tokens" if wrong == "max_completion_tokens" else "max_completion_tokens"


def lasting(error: Mapping[str, object]) -> bool:
    """Whether every retry would get the same error, which was reported inside a stream."""
    for key in ("code", "status", "type"):
        code = str(error.get(key) or "")
        if code.isdecimal():
            return 400 <= int(code) < 500 and int(code) not in _BUSY
        if compiled(table()["lasting"]).search(code):
            return True
    return False


def refuses(what: str, status: int, body: bytes) -> bool:
    """Whether a request was refused for the parameter `what`: "stream" or "stream_options"."""
    return status in _READ and compiled(table()[what]).search(text_of(body)) is not None


# --- how a limit follows from the numbers --------------------------------------------------------


def _counted(numbers: Mapping[str, int], _: int | None) -> int:
    """Return the limit that fits by vLLM's numbers, or half the requested limit.

    vLLM stops counting the prompt at one token more than the requested limit leaves free. Then it
    reports `window - requested + 1` for any prompt. A limit from that number would be lowered by
    one token with each attempt, so half the requested limit is used.
    """
    window, prompt, requested = numbers["window"], numbers["prompt"], numbers["requested"]
    if prompt > window or prompt != window - requested + 1:
        return window - prompt
    return requested // 2


_FITS: Final[Mapping[str, Callable[[Mapping[str, int], int | None], int | None]]] = {
    "maximum": lambda n, _: n["maximum"],
    "bound - 1": lambda n, _: n["bound"] - 1,
    "window - prompt": lambda n, _: n["window"] - n["prompt"],
    "counted": _counted,
    # The total of the request includes the output limit.
    "window - (total - output)": lambda n, _: (
        n["window"] - (n["total"] - n["output"]) - (MARGIN if "about" in n else 0)
    ),
    # Three characters per token, which is low for prose.
    "window - characters / 3": lambda n, _: n["window"] - -(-n["characters"] // 3) - MARGIN,
    # Only the window is reported: a limit of that size leaves no room for any prompt.
    "window / 2": lambda n, _: n["window"] // 2,
    # The limit is too large, but the prompt's size is not reported. Use half, as for "counted".
    "asked / 2": lambda _, asked: None if asked is None else asked // 2,
    # The sum of prompt and limit is reported. Only the sender knows the limit.
    "asked - (total - window)": lambda n, asked: (
        None if asked is None else asked - (n["total"] - n["window"])
    ),
}
"""A row's `fits` -> a function that returns the limit that fits, in tokens.

0 or less: no limit fits. `None`: unknown."""


# --- patterns ------------------------------------------------------------------------------------

_WORDS = {
    "LIMIT": r"max_(?:completion_|new_|output_)?tokens",
    # Text between the limit's name and "at most N" that does not make it a sum with the prompt.
    "ALONE": r"(?:(?!\+|\bplus\b|prompt|input (?:tokens|length)|inputs|context|\bsum\b).)",
    "MOST": (
        r"(?:less than or equal to|at most|<=|no (?:more|greater|larger) than"
        r"|(?:not|cannot) exceed)"
    ),
    "REFUSED": (
        r"(?:unsupported parameter|unrecognized request argument(?:s)? supplied"
        r"|unknown parameter):?"
    ),
    "<#>": r"(?<![\d.])(?:\d{1,3}(?:,\d{3})+|\d{1,12})(?!\d|[.,]\d)",
}


@cache
def compiled(source: str) -> re.Pattern[str]:
    """Compile a pattern of `errors.toml`. The head of that file explains the words it may have."""
    for word, meaning in _WORDS.items():
        source = source.replace(word, meaning)
    named = re.sub(r"(?<!\(\?P)<(\w+)>", lambda group: f"(?P<{group[1]}>{_WORDS['<#>']})", source)
    return re.compile(named, re.IGNORECASE)


# --- the text of an error ------------------------------------------------------------------------
#
# Forms of bodies: `{"error": {...}}` (OpenAI), `{"error": "text"}` (xAI), `{"message": ...}` (vLLM,
# SGLang), `[{"error": {...}}]` (Gemini). In OpenRouter's, `metadata.raw` is the upstream's body. In
# a validator's, `detail` is a text or a list of `{"loc", "msg"}`. A proxy's page is not JSON. Only
# `_FIELDS` are read, because a validator repeats the caller's input, and a prompt may contain any
# of the wordings.

_FIELDS = ("error", "message", "msg", "detail", "details", "errors", "metadata", "raw")
_MOST_TEXT = 4_000
"""The most characters of one message that are read. A body may be a page of HTML."""
_MOST_MESSAGES = 16
"""The most messages that are read. A validator may repeat its text for each message of a history.
"""
_MOST_NESTED = 8
_QUOTES = re.compile("[`'\"‘’“”\\\\]")  # noqa: RUF001 -- the quotes of other languages


def text_of(body: bytes) -> str:
    """Return the messages in a body, one per line, without quotes and with single spaces.

    They include the server's codes and the names of parameters.
    """
    messages = islice(filter(None, _messages(_decoded(body), 0)), _MOST_MESSAGES)
    return "\n".join(re.sub(r"\s+", " ", _QUOTES.sub("", text)) for text in messages)


def _decoded(body: bytes | str) -> Any:
    """Decode a body as JSON, or as text if it is not JSON."""
    try:
        return loads(body)
    except ValueError:
        return body if isinstance(body, str) else body.decode("utf-8", "replace")


def _messages(value: object, depth: int) -> Iterator[str]:
    if depth > _MOST_NESTED:
        return
    if isinstance(value, str):
        # A gateway may pass on its upstream's error as a text that is JSON.
        inner = _decoded(value) if value.lstrip()[:1] in {"{", "["} else value
        if isinstance(inner, str):
            yield inner[:_MOST_TEXT]
        else:
            yield from _messages(inner, depth + 1)
        return
    for item in as_list(value):
        yield from _messages(item, depth + 1)
    if error := as_json(value):
        codes = " ".join(filter(None, (as_text(error.get(key)) for key in ("type", "code"))))
        place = as_text(error.get("param")) or ".".join(map(str, as_list(error.get("loc"))))
        yield codes[:_MOST_TEXT]
        for key in _FIELDS:
            for message in _messages(error.get(key), depth + 1):
                yield f"{place[:100]}: {message}" if place else message
