"""The tables of the file that only the gateway reads: `[gateway]` and `[upstreams.NAME]`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from continuation.policy import (
    CLIENT_KEYS,
    KEYS,
    Between,
    file_of,
    is_url,
    known_key,
    shown,
    store_error,
)
from continuation.registry import upstreams

_NUMBERS = {
    "ping_seconds": Between(0.01, 300),
    "idle_seconds": Between(1, 86_400),
    "drain_seconds": Between(0, 86_400),
    "max_streams": Between(1, 1_000_000),
    "max_waiting": Between(1, 1_000_000),
    "body_seconds": Between(0.1, 86_400),
    "max_held_bytes": Between(1 << 20, 1 << 40),
    "max_json_values": Between(1_000, 1_000_000_000),
    "max_event_bytes": Between(1 << 10, 1 << 40),
    "max_body_bytes": Between(1 << 10, 1 << 40),
    "journal_seconds": Between(30, 86_400),
    "journal_turns": Between(1, 1_000_000),
}
IDLE_SECONDS = 600.0
_OVERRIDES = ("lower", "any")
_OWN_PATHS = frozenset({"t", "continuation", "livez", "readyz", "metrics"})


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server that requests under `/NAME/` go to."""

    name: str
    base_url: str
    """The URL before the rest of the path, without a slash at its end."""
    dialect: str
    vendor: str = ""
    """Name of a `[vendors.NAME]` table, or of a vendor we know; empty: found by its URL."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers to set on each request."""
    key_env: str = ""
    """The environment variable with the key to send instead of the caller's own."""


def built_in() -> dict[str, Upstream]:
    """Return the upstreams that need no table: the providers of the wire formats."""
    return {name: Upstream(name, shape.server, name) for name, shape in upstreams().items()}


@dataclass(frozen=True, slots=True)
class GatewayTable:
    """The settings of the gateway, and its upstreams."""

    ping_seconds: float = 10.0
    """Seconds of silence after which a stream is kept alive by an event without content."""
    idle_seconds: float = IDLE_SECONDS
    """Seconds of silence after which an upstream counts as broken off."""
    drain_seconds: float = 600.0
    """Seconds that streams have to end in, once the gateway is to stop."""
    max_streams: float = 2000.0
    """How many requests may be under way at once; others are answered with 503."""
    max_waiting: float = 100.0
    """How many connections of one address may be without a complete request for over a second."""
    body_seconds: float = 60.0
    """Seconds in which a request's body must arrive; each 64 kB that arrive add one more."""
    max_held_bytes: float = float(2 << 30)
    """Bytes that all requests take in memory at once, roughly; further ones get 503."""
    max_json_values: float = 1_000_000.0
    """How many JSON values a request's body may have to be parsed; larger ones are only relayed."""
    max_event_bytes: float = float(32 << 20)
    """Bytes that one event of an upstream's stream may have; a longer one ends the answer."""
    max_body_bytes: float = float(256 << 20)
    """Bytes that an upstream's whole answer may have, decoded; a longer one ends there."""
    overrides: str = "lower"
    """What callers may set by the header `x-continuation`: "lower": nothing that lifts a limit of
    this configuration; "any": all that holds for one call."""
    token_env: str = "CONTINUATION_TOKEN"
    """The environment variable with the access token; if it is set, all callers need the token."""
    hosts: tuple[str, ...] = ()
    """Names, besides localhost, by which the gateway may be called."""
    origins: tuple[str, ...] = ()
    """Web pages that may use it, as in `http://localhost:3000`."""
    journal: str = field(default="", repr=False)
    """A file or a postgresql:// URL in which streamed answers are kept until they have ended, for
    clients that repeat the same request; empty: nowhere."""
    journal_seconds: float = 900.0
    """Seconds after its beginning for which a half-written answer can be continued."""
    journal_turns: float = 1000.0
    """How many half-written answers are kept: the newest."""
    upstreams: Mapping[str, Upstream] = field(default_factory=built_in)


_GATEWAY_KEYS = tuple(item.name for item in fields(GatewayTable))[:-1]
_UPSTREAM_KEYS = tuple(item.name for item in fields(Upstream))[1:]
_PLACES: dict[str, str] = {
    **dict.fromkeys(_UPSTREAM_KEYS, "under [upstreams.NAME]"),
    **dict.fromkeys(KEYS, 'under [defaults], or under [models."GLOB"]'),
    **dict.fromkeys(CLIENT_KEYS, "under [defaults]"),
    **dict.fromkeys(_GATEWAY_KEYS, "under [gateway]"),
    "base_url": "under [upstreams.NAME], or under [vendors.NAME]",
    "like": "under [vendors.NAME]",
}
"""Key -> the table that it belongs in."""


def known_here(key: str, value: object, known: Iterable[str]) -> None:
    """Raise `ValueError` for a key that a table of the file does not have.

    The message states the table that has it, or else what `known_key` states.
    """
    if key not in (known := tuple(known)) and (place := _PLACES.get(key)):
        raise ValueError(f"{key} = {shown(key, value)}: does not belong here; put it {place}")
    known_key(key, value, known)


def _prefixed(prefix: str, errors: Iterable[Exception]) -> list[Exception]:
    return [type(error)(f"{prefix}{error}") for error in errors]


class Mistakes(list[Exception]):
    """The mistakes in a table, collected so that all are reported at once."""

    @contextlib.contextmanager
    def collecting(self, prefix: str = "") -> Generator[None]:
        """Collect a mistake, or a group of them, that the block raises, with a prefix."""
        try:
            yield
        except ExceptionGroup as group:
            self += _prefixed(prefix, group.exceptions)
        except (ValueError, TypeError) as error:
            self += _prefixed(prefix, [error])

    def raise_all(self) -> None:
        """Raise all of them as an `ExceptionGroup`, if there are any."""
        if self:
            raise ExceptionGroup("", self)


def read_gateway(values: object, folder: Path = Path()) -> GatewayTable:
    """Return the table `[gateway]` of a file in a folder, checked.

    Raises an `ExceptionGroup` of `ValueError` and `TypeError` that name key, value and remedy.
    """
    settings, mistakes = dict[str, Any](), Mistakes()
    for key, value in _as_table("[gateway]", values).items():
        with mistakes.collecting():
            settings[key] = _gateway_value(key, value, folder)
    mistakes.raise_all()
    return GatewayTable(**settings)


def _gateway_value(key: str, value: object, folder: Path) -> Any:
    known_here(key, value, _GATEWAY_KEYS)
    if key in {"hosts", "origins"}:
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        return tuple(_text(key, item).lower().rstrip("/") for item in items)
    if key == "token_env":
        return _text(key, value)
    if key == "overrides":
        if value not in _OVERRIDES:
            choices = ", ".join(map(repr, _OVERRIDES))
            raise ValueError(f"{key} = {shown(key, value)}: choose one of {choices}")
        return value
    if key == "journal":
        target = _text(key, value)
        if problem := store_error(target):
            raise ValueError(f"{key} = {shown(key, value)}: {problem}")
        # A path in the file is relative to the file's folder.
        return target if is_url(target) else str(folder / file_of(target))
    bounds = _NUMBERS[key]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not bounds.low <= float(cast("float", value)) <= bounds.high:
        raise ValueError(f"{key} = {shown(key, value)}: must be a number {bounds}")
    return float(cast("float", value))


def is_name(name: str) -> bool:
    """Whether an upstream may have a name, which is the first segment of its paths."""
    return bool(re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name)) and name not in _OWN_PATHS


def read_upstream(name: str, values: object, vendor: Callable[[str], object]) -> Upstream:
    """Return `[upstreams.NAME]`, checked; `vendor` returns a vendor's settings, `None`: unknown.

    Raises an `ExceptionGroup` of `ValueError` and `TypeError` that name key, value and remedy.
    """
    mistakes = Mistakes()
    with mistakes.collecting():
        if not is_name(name):
            raise ValueError(
                "the name is a path: use small letters, digits, '_', '-', not a gateway path"
                f" ({', '.join(sorted(_OWN_PATHS))})"
            )
    upstream = built_in().get(name, Upstream(name, "", ""))
    table: dict[str, Any] = {"base_url": upstream.base_url, "dialect": upstream.dialect}
    for key, value in _as_table(f"[upstreams.{name}]", values).items():
        with mistakes.collecting():
            known_here(key, value, _UPSTREAM_KEYS)
            table.pop(key, None)  # a wrong value is not also reported as missing
            table[key] = _headers(value) if key == "headers" else _text(key, value)
    for key, find_error in (("base_url", _url_error), ("dialect", _dialect_error)):
        if key in table and (message := find_error(table[key])):
            mistakes.append(ValueError(message))
    if table.get("vendor") and vendor(table["vendor"]) is None:
        message = f"vendor = {table['vendor']!r}: there is no [vendors.{table['vendor']}] table"
        mistakes.append(ValueError(message))
    mistakes.raise_all()
    table["base_url"] = table["base_url"].rstrip("/")
    return Upstream(name, **table)


def _url_error(text: str) -> str:
    if not text:
        return 'base_url is missing; name the server, as in "https://llm.example.com"'
    url = urlsplit(text)
    if url.scheme in {"http", "https"} and url.netloc and not url.query and "@" not in url.netloc:
        return ""
    return (
        f'base_url = {shown("base_url", text)}: must be a URL such as "https://llm.example.com/v1"'
    )


def _dialect_error(text: str) -> str:
    problem = f"= {text!r}" if text else "is missing"
    choices = ", ".join(map(repr, upstreams()))
    return "" if text in upstreams() else f"dialect {problem}: choose one of {choices}"


def _as_table(title: str, values: object) -> Mapping[str, object]:
    if not isinstance(values, dict):
        raise TypeError(f"= {shown('', values)}: must be a table, {title}")
    return cast("Mapping[str, object]", values)


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{key} = {shown(key, value)}: must be a string")
    return value


def _headers(value: object) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, header in _as_table("headers", value).items():
        text = _text(f"headers: {name}", header)
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not re.fullmatch(
            r"[\t\x20-\x7e\x80-\xff]*", text
        ):
            raise ValueError(f"headers: {name} = {shown(name, text)}: is not a valid header")
        headers[name.lower()] = text
    return headers
