"""What an error answer of a server that speaks OpenAI's formats means for a later attempt.

Chat and Responses share their errors, and every vendor words them in its own way: `errors.toml`
holds the wordings, with what each means and how the limit that fits follows from its numbers.
Pure functions over status and body; none of them raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple

from continuation.types import ClassifiedError, ErrorKind
from continuation.wire.json_values import as_json, as_list, as_text, loads
from continuation.wire.request import label_of

MARGIN: Final = 256
"""Tokens kept free where a server only estimates the size of the prompt."""

_READ = frozenset({400, 413, 422})
"""Statuses whose text says what is wrong with the request."""
_BUSY = frozenset({408, 409, 425, 429})


class ErrorRow(NamedTuple):
    """One wording: whose it is, what it means, and how the limit follows from its numbers."""

    name: str
    kind: ErrorKind
    text: str
    """A pattern as `compiled` reads it."""
    fits: str = ""
    """A key of `_FITS`; `""`: the text tells no limit."""


@cache  # on first use: most programs never see an error
def table() -> Mapping[str, Any]:
    """Return `errors.toml`, decoded."""
    import tomllib
    from importlib.resources import files

    source = files("continuation.providers.openai_common").joinpath("errors.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))


@cache
def rows() -> tuple[tuple[ErrorRow, ...], tuple[ErrorRow, ...]]:
    """Return the rows about a quota, and all rows; the first that fits decides."""
    quotas, others = (
        tuple(ErrorRow(**{**row, "kind": ErrorKind(row["kind"])}) for row in table()[which])
        for which in ("quota", "row")
    )
    return quotas, quotas + others


def refused(status: int, body: bytes, asked: int | None = None) -> ClassifiedError:
    """Classify an error answer; `asked` is the limit that was sent, in tokens, if it is known.

    Some servers name only how far a request is over the line; then the limit that fits can be
    told with `asked` alone, and `maximum` is `None` without it. A maximum is always positive.
    `RETRYABLE` with a maximum: the limit itself is over a quota, and waiting would not help.
    """
    label = label_of(status, body)
    if status not in _READ | {402, 429}:
        busy = status in _BUSY or status >= 500
        return ClassifiedError(ErrorKind.RETRYABLE if busy else ErrorKind.FINAL, label)
    text, (quotas, every) = text_of(body), rows()
    for row in every if status in _READ else quotas:
        if (found := compiled(row.text).search(text)) is None:
            continue
        # Numbers without separators; marks such as "about" count as 1.
        groups = {name: n.replace(",", "") for name, n in found.groupdict("").items() if n}
        numbers = {name: int(n) if n.isdecimal() else 1 for name, n in groups.items()}
        maximum = _FITS[row.fits](numbers, asked) if row.fits else None
        if maximum is not None and maximum < 1:
            return ClassifiedError(ErrorKind.FINAL, label)
        return ClassifiedError(row.kind, label, maximum)
    return ClassifiedError(ErrorKind.RETRYABLE if status == 429 else ErrorKind.FINAL, label)


def wrong_parameter(status: int, body: bytes) -> str | None:
    """Return the name to send the limit under, if the error is that it has the wrong one."""
    found = compiled(table()["wrong_parameter"]).search(text_of(body)) if status in _READ else None
    if found is None:
        return None
    wrong = next(name for name in found.groups() if name)
    return "max_tokens" if wrong == "max_completion_tokens" else "max_completion_tokens"


def lasting(error: Mapping[str, object]) -> bool:
    """Whether an error told in a stream would be told again, however often one asks."""
    for key in ("code", "status", "type"):
        code = str(error.get(key) or "")
        if code.isdecimal():
            return 400 <= int(code) < 500 and int(code) not in _BUSY
        if compiled(table()["lasting"]).search(code):
            return True
    return False


def refuses(what: str, status: int, body: bytes) -> bool:
    """Whether a request was refused for asking for `stream`, or for usage by `stream_options`."""
    return status in _READ and compiled(table()[what]).search(text_of(body)) is not None


# --- how a limit follows from the numbers --------------------------------------------------------


def _counted(numbers: Mapping[str, int], _: int | None) -> int:
    """VLLM stops counting the prompt one token after it is too long for the limit asked for.

    What it reports then is `window - requested + 1` whatever the prompt is, and a limit derived
    from it would creep down token by token. The half is the best guess: few tries are allowed.
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
    # The request's total is given with the part of the answer in it.
    "window - (total - output)": lambda n, _: (
        n["window"] - (n["total"] - n["output"]) - (MARGIN if "about" in n else 0)
    ),
    # Three characters to a token, which is few for prose.
    "window - characters / 3": lambda n, _: n["window"] - -(-n["characters"] // 3) - MARGIN,
    # Only the window is named: a limit as large as that leaves no room for any prompt.
    "window / 2": lambda n, _: n["window"] // 2,
    # It is the limit, but the size of the prompt is not told: half of it, as for "counted".
    "asked / 2": lambda _, asked: None if asked is None else asked // 2,
    # Prompt and limit are told as one sum; how much of it is the limit, only the sender knows.
    "asked - (total - window)": lambda n, asked: (
        None if asked is None else asked - (n["total"] - n["window"])
    ),
}
"""What `fits` of a row says -> the limit that fits; zero or less: nothing does; `None`: untold."""


# --- patterns ------------------------------------------------------------------------------------

_WORDS = {
    "LIMIT": r"max_(?:completion_|new_|output_)?tokens",
    # Between the name of the limit and "at most N": nothing that makes it a sum with the prompt.
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
    """Compile a pattern of the table, in which the words that its top explains stand for more."""
    for word, meaning in _WORDS.items():
        source = source.replace(word, meaning)
    named = re.sub(r"(?<!\(\?P)<(\w+)>", lambda group: f"(?P<{group[1]}>{_WORDS['<#>']})", source)
    return re.compile(named, re.IGNORECASE)


# --- the text of an error ------------------------------------------------------------------------
#
# `{"error": {...}}` is OpenAI's; `{"error": "text"}` xAI's; `{"message": ...}` vLLM's and SGLang's;
# `[{"error": {...}}]` Gemini's; `metadata.raw` holds the upstream's body in OpenRouter's; `detail`
# is a text or a list of `{"loc", "msg"}` in validators'. A proxy's page is no JSON at all. Only the
# fields errors travel in are read: a validator repeats the caller's own input, and a prompt may
# speak of anything.

_FIELDS = ("error", "message", "msg", "detail", "details", "errors", "metadata", "raw")
_MOST_TEXT = 4_000
"""Characters of one message that are looked at: a body can be a whole page of HTML."""
_MOST_MESSAGES = 16
"""A validator that complains of every message of a long history says the same each time."""
_MOST_NESTED = 8
_QUOTES = re.compile("[`'\"‘’“”\\\\]")  # noqa: RUF001 -- the quotes of other languages


def text_of(body: bytes) -> str:
    """Return the messages in a body, one to a line, without quotes and with single spaces.

    The parameter a message is about and the server's codes are part of it.
    """
    messages = islice(filter(None, _messages(_decoded(body), 0)), _MOST_MESSAGES)
    return "\n".join(re.sub(r"\s+", " ", _QUOTES.sub("", text)) for text in messages)


def _decoded(body: bytes | str) -> Any:
    """Decode JSON, or else text."""
    try:
        return loads(body)
    except ValueError:
        return body if isinstance(body, str) else body.decode("utf-8", "replace")


def _messages(value: object, depth: int) -> Iterator[str]:
    if depth > _MOST_NESTED:
        return
    if isinstance(value, str):
        # A gateway hands its upstream's error on as a text that is JSON again.
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
