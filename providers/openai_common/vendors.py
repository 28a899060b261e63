"""How servers with OpenAI's formats differ. Each vendor has a profile, found by the URL.

The profiles are in `continuation/wire/vendors.toml`, which the simulator and the rules of histories
also read. `design/vendors.md` lists the sources. The keys of a user's `[vendors.NAME]` table
override those of the built-in profile. If the URL does not show the built-in profile, `like =
"vllm"` in that table names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

from continuation.policy import known_key, shown
from continuation.wire import vendors
from continuation.wire.json_values import as_int, as_json, as_list

UNKNOWN: Final = "unknown"
CONDITIONS: Final = ("thinking", "response_format", "tools", "tool_choice")
"""Conditions that may prevent a prefill: thinking is on, or the request has the parameter."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a dialect needs to know about a server. The defaults apply to an unknown server.

    The head of `vendors.toml` explains each field.
    """

    name: str = UNKNOWN
    """The name of the built-in profile on which it is based."""
    urls: tuple[str, ...] = ()
    prefill: Literal["none", "bare", "prefix", "partial", "continue_final_message"] = "none"
    prefill_path: str = ""
    prefill_unless: tuple[str, ...] = ()
    prefill_models: tuple[str, ...] = ()
    prefill_not_models: tuple[str, ...] = ()
    prefill_echoes: bool = False
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    limit_only: bool = False
    default_limit_is_ceiling: bool = False
    always_completed: bool = False
    terminal: Literal["required", "done", "optional"] = "done"
    stream_options: bool = False
    stream_above: int | None = None
    reasoning: tuple[str, ...] = ("reasoning_content", "reasoning")
    replays_reasoning: bool = False
    models_endpoint: str = ""
    ceiling_field: str = ""
    ceilings: tuple[tuple[str, int], ...] = ()

    def ceiling(self, model: str) -> int | None:
        """Return the vendor's own ceiling for a model in tokens; `None`: it has none."""
        found = [pair for pair in self.ceilings if _covers((pair[0],), model)]
        return max(found, key=lambda pair: len(pair[0]))[1] if found else None

    def prefills(self, model: str, model_takes_it: bool, present: Collection[str] = ()) -> bool:
        """Whether a request can be continued by prefill.

        `model_takes_it`: whether the model supports prefill, by the table of models. `present`: the
        `CONDITIONS` that are true for the request.
        """
        if self.prefill == "none" or not set(present).isdisjoint(self.prefill_unless):
            return False
        if _covers(self.prefill_not_models, model):
            return False
        return _covers(self.prefill_models, model) if self.prefill_models else model_takes_it

    def prefill_url(self, path: str) -> str:
        """Return the URL path for a prefill, in which `prefill_path` replaces the version.

        With "/beta", the paths `/chat/completions`, `/v1/chat/completions` and
        `/beta/chat/completions` all become the last one. A gateway's prefix is kept.
        """
        head, found, tail = path.rpartition(_CHAT)
        if not found or not self.prefill_path:
            return path
        kept = re.sub(r"/v\d+$", "", head.removesuffix(self.prefill_path))
        return f"{kept}{self.prefill_path}{found}{tail}"

    def models_url(self, path: str, model: str) -> str | None:
        """Return the path of the models endpoint for a model, by a request's path, or `None`."""
        call = _CALL.search(path)
        upwards = {".", ".."}.intersection(model.split("/"))  # would lead to another path
        if call is None or not self.models_endpoint or upwards:
            return None
        return path[: call.start()] + self.models_endpoint.replace("{model}", quote(model, "/:@"))


_CHAT = "/chat/completions"
_CALL = re.compile(r"/(?:chat/completions|completions|responses)/?$")


def profile(url: str, settings: Mapping[str, object] = {}) -> Profile:
    """Return the profile for a URL: the built-in one, overridden by the user's settings.

    Raises `ValueError` for an invalid setting; its text has the key, the value and what is
    possible.
    """
    place = _place(url)
    key = place, repr(settings) if settings else ""
    if (found := _FOUND.get(key)) is None:
        if len(_FOUND) >= _MOST:
            _FOUND.clear()
        found = _FOUND[key] = _laid_over(_matching(place), settings)
    return found


def mistakes(settings: Mapping[str, object]) -> Iterator[ValueError]:
    """Yield the errors that `profile` would raise for these settings, with any URL."""
    for key, value in settings.items():
        try:
            _laid_over(Profile(), {key: value})
        except ValueError as error:
            yield error


_FOUND: dict[tuple[str, str], Profile] = {}
_MOST = 1024


@cache
def built_in() -> Mapping[str, Profile]:
    """Return the built-in profiles by name. They are read once, at first use."""
    shipped: dict[str, Profile] = {}
    for name, table in vendors.tables().items():
        values = {key: table[key] for key in table if key not in (vendors.SERVER, vendors.HISTORY)}
        # Users' tables do not have this key: there, `base_url` selects the servers.
        urls = tuple(as_list(values.pop("urls")))
        shipped[name] = _laid_over(Profile(name, urls), values)
    return shipped


def _matching(place: str) -> Profile:
    """Return the built-in profile with the longest glob that matches a place (see `_place`)."""
    fits = [
        (len(glob), one)
        for one in built_in().values()
        for glob in one.urls
        if fnmatchcase(place, glob) or fnmatchcase(place, f"{glob}/*")
    ]
    return max(fits, key=lambda pair: pair[0])[1] if fits else built_in()[UNKNOWN]


def _place(url: str) -> str:
    """Return `host[:port]/path` in lower case, without scheme, user, query and default port."""
    bare = re.sub(r"^[a-z][a-z0-9+.-]*://", "", url.strip().lower())
    authority, slash, path = re.split(r"[?#]", bare, maxsplit=1)[0].partition("/")
    host = re.sub(r":(?:80|443)$", "", authority.rpartition("@")[2])
    return f"{host}{slash}{path}".rstrip("/")


def _covers(globs: tuple[str, ...], model: str) -> bool:
    """Whether one of the globs matches a model's name, with or without its path."""
    full = model.lower()
    names = (full, full.rpartition("/")[2])
    return any(fnmatchcase(name, glob.lower()) for glob in globs for name in names)


# --- settings ------------------------------------------------------------------------------------


def _laid_over(base: Profile, settings: Mapping[str, object]) -> Profile:
    read: dict[str, Any] = {}
    for key, value in settings.items():
        known_key(key, value, (*_READERS, vendors.LIKE), also=("base_url",))
        reader, possible = _one_of(*built_in()) if key == vendors.LIKE else _READERS[key]
        if (parsed := reader(value)) is _WRONG:
            raise ValueError(f"{key} = {shown(key, value)}: must be {possible}")
        read[key] = parsed
    like = read.pop(vendors.LIKE, None)
    return replace(base if like is None else built_in()[like], **read)


Reader: TypeAlias = tuple[Callable[[object], object], str]
"""A function that returns a parsed value or `_WRONG`, and a text that says what is possible."""
_WRONG: Final = object()


def _one_of(*choices: str) -> Reader:
    possible = f"one of {', '.join(map(repr, choices))}"
    return lambda value: value if value in choices else _WRONG, possible


def _fitting(pattern: str, possible: str) -> Reader:
    fits = re.compile(pattern).fullmatch
    return lambda value: value if isinstance(value, str) and fits(value) else _WRONG, possible


def _tokens(value: object) -> object:
    """Return a number of tokens, or `None` for 0, which removes the built-in profile's number."""
    tokens = as_int(value)
    return _WRONG if tokens is None or tokens < 0 else tokens or None


def _texts(value: object) -> object:
    texts = [item for item in as_list(value) if isinstance(item, str) and item.strip()]
    return tuple(texts) if texts == value else _WRONG


def _conditions(value: object) -> object:
    return _texts(value) if all(item in CONDITIONS for item in as_list(value)) else _WRONG


def _ceilings(value: object) -> object:
    read = {glob: as_int(tokens) for glob, tokens in as_json(value).items() if glob.strip()}
    pairs = tuple((glob, tokens) for glob, tokens in read.items() if tokens and tokens > 0)
    return pairs if dict(pairs) == value else _WRONG


_FLAG: Reader = lambda value: value if isinstance(value, bool) else _WRONG, "true or false"
_PATH = _fitting(r"(?:/[^\s?#]*[^\s?#/])?", 'a path such as "/beta", or "" for none')
_KEYS = 'keys joined by dots such as "data.max_tokens", or "" for none'
_TEXTS: Reader = _texts, "a list of strings"

_READERS: Final[Mapping[str, Reader]] = {
    "prefill": _one_of("none", "bare", "prefix", "partial", "continue_final_message"),
    "prefill_path": _PATH,
    "prefill_unless": (_conditions, f"a list with any of {', '.join(map(repr, CONDITIONS))}"),
    "prefill_models": _TEXTS,
    "prefill_not_models": _TEXTS,
    "prefill_echoes": _FLAG,
    "limit": _one_of("max_tokens", "max_completion_tokens"),
    "limit_only": _FLAG,
    "default_limit_is_ceiling": _FLAG,
    "always_completed": _FLAG,
    "terminal": _one_of("required", "done", "optional"),
    "stream_options": _FLAG,
    "stream_above": (_tokens, "a whole number of tokens, 0 for none"),
    "reasoning": _TEXTS,
    "replays_reasoning": _FLAG,
    "models_endpoint": _PATH,
    "ceiling_field": _fitting(r"(?:[\w-]+(?:\.[\w-]+)*)?", _KEYS),
    "ceilings": (_ceilings, 'a table of model globs and tokens, as in { "kimi-*" = 65536 }'),
}
"""Each key of a user's table -> its reader. These are all fields except `name` and `urls`."""
