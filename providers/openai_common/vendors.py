"""How servers that speak OpenAI's formats differ: one profile per vendor, found by URL.

The data are in `continuation/wire/vendors.toml`, which the simulator and the rules of histories
read as well; `design/vendors.md` says where they come from. What the user says in a
`[vendors.NAME]` table is laid over the built-in profile, key by key; there, `like = "vllm"` names
the profile to start from where the URL does not tell.
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

Prefill: TypeAlias = Literal["none", "bare", "prefix", "partial", "continue_final_message"]
LimitName: TypeAlias = Literal["max_tokens", "max_completion_tokens"]

UNKNOWN: Final = "unknown"
CONDITIONS: Final = ("thinking", "response_format", "tools", "tool_choice")
"""What can stand in the way of a prefill: thinking is on, or the request has the parameter."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a dialect must know of a server; the defaults are what holds for an unknown one.

    What each field means stands at the top of `vendors.toml`.
    """

    name: str = UNKNOWN
    """The built-in profile it comes from."""
    urls: tuple[str, ...] = ()
    prefill: Prefill = "none"
    prefill_path: str = ""
    prefill_unless: tuple[str, ...] = ()
    prefill_models: tuple[str, ...] = ()
    prefill_not_models: tuple[str, ...] = ()
    prefill_echoes: bool = False
    limit: LimitName = "max_tokens"
    limit_only: bool = False
    default_limit_is_ceiling: bool = False
    terminal: Literal["required", "optional"] = "optional"
    stream_options: bool = False
    stream_above: int | None = None
    reasoning: tuple[str, ...] = ("reasoning_content", "reasoning")
    replays_reasoning: bool = False
    models_endpoint: str = ""
    ceiling_field: str = ""
    ceilings: tuple[tuple[str, int], ...] = ()

    def ceiling(self, model: str) -> int | None:
        """Return the ceiling this vendor has for a model, in tokens, if it is its own."""
        found = [pair for pair in self.ceilings if _covers((pair[0],), model)]
        return max(found, key=lambda pair: len(pair[0]))[1] if found else None

    def prefills(self, model: str, model_takes_it: bool, present: Collection[str] = ()) -> bool:
        """Whether a request can be gone on with by prefill.

        `model_takes_it` is what is known of the model anywhere; `present` holds those of
        `CONDITIONS` that the request fulfils.
        """
        if self.prefill == "none" or not set(present).isdisjoint(self.prefill_unless):
            return False
        if _covers(self.prefill_not_models, model):
            return False
        return _covers(self.prefill_models, model) if self.prefill_models else model_takes_it

    def prefill_url(self, path: str) -> str:
        """Return the URL path for a prefill: with `prefill_path` in place of a version.

        With "/beta", `/chat/completions`, `/v1/chat/completions` and `/beta/chat/completions` all
        become the last one; what a gateway puts before stays.
        """
        head, found, tail = path.rpartition(_CHAT)
        if not found or not self.prefill_path:
            return path
        kept = re.sub(r"/v\d+$", "", head.removesuffix(self.prefill_path))
        return f"{kept}{self.prefill_path}{found}{tail}"

    def models_url(self, path: str, model: str) -> str | None:
        """Return the URL path that tells the model's ceiling, from the path of a request."""
        call = _CALL.search(path)
        if call is None or not self.models_endpoint:
            return None
        return path[: call.start()] + self.models_endpoint.replace("{model}", quote(model, "/:@"))


_CHAT = "/chat/completions"
_CALL = re.compile(r"/(?:chat/completions|completions|responses)/?$")


def profile(url: str, settings: Mapping[str, object] = {}) -> Profile:
    """Return what holds for a URL: the built-in profile, and the user's settings above it.

    Raises ValueError naming field, value and what is possible.
    """
    place = _place(url)
    key = place, repr(settings) if settings else ""
    if (found := _FOUND.get(key)) is None:
        if len(_FOUND) >= _MOST:
            _FOUND.clear()
        found = _FOUND[key] = _laid_over(_matching(place), settings)
    return found


def mistakes(settings: Mapping[str, object]) -> Iterator[ValueError]:
    """Yield what `profile` would raise for each of these settings, whatever the URL."""
    for key, value in settings.items():
        try:
            _laid_over(Profile(), {key: value})
        except ValueError as error:
            yield error


_FOUND: dict[tuple[str, str], Profile] = {}
_MOST = 1024


@cache
def built_in() -> Mapping[str, Profile]:
    """Return the profiles we ship, by name; read once, on first use."""
    shipped: dict[str, Profile] = {}
    for name, table in vendors.tables().items():
        values = {key: table[key] for key in table if key not in (vendors.SERVER, vendors.HISTORY)}
        # Not a key of the user's: there, base_url says which servers are meant.
        urls = _texts("urls", values.pop("urls"))
        shipped[name] = _with(Profile(name, urls), values)
    return shipped


def _matching(place: str) -> Profile:
    """Return the built-in profile with the longest glob over a place."""
    fits = [
        (len(glob), one)
        for one in built_in().values()
        for glob in one.urls
        if fnmatchcase(place, glob) or fnmatchcase(place, f"{glob}/*")
    ]
    return max(fits, key=lambda pair: pair[0])[1] if fits else built_in()[UNKNOWN]


def _place(url: str) -> str:
    """Return `host[:port]/path` in small letters, without scheme, user, query and default port."""
    bare = re.sub(r"^[a-z][a-z0-9+.-]*://", "", url.strip().lower())
    authority, slash, path = re.split(r"[?#]", bare, maxsplit=1)[0].partition("/")
    host = re.sub(r":(?:80|443)$", "", authority.rpartition("@")[2])
    return f"{host}{slash}{path}".rstrip("/")


def _covers(globs: tuple[str, ...], model: str) -> bool:
    """Whether one of the globs is the model's, with or without the path before its name."""
    full = model.lower()
    names = (full, full.rpartition("/")[2])
    return any(fnmatchcase(name, glob.lower()) for glob in globs for name in names)


# --- settings ------------------------------------------------------------------------------------


def _laid_over(base: Profile, settings: Mapping[str, object]) -> Profile:
    values = dict(settings)
    if (like := values.pop(vendors.LIKE, None)) is not None:
        base = built_in()[_one_of(tuple(built_in()), vendors.LIKE, like)]
    return _with(base, values)


def _with(base: Profile, values: Mapping[str, object]) -> Profile:
    read: dict[str, Any] = {}
    for key, value in values.items():
        known_key(key, value, (*_READERS, vendors.LIKE))
        read[key] = _READERS[key](key, value)
    return replace(base, **read)


def _wrong(key: str, value: object, possible: str) -> ValueError:
    return ValueError(f"{key} = {shown(key, value)}: must be {possible}")


def _one_of(choices: tuple[str, ...], key: str, value: object) -> str:
    if isinstance(value, str) and value in choices:
        return value
    raise _wrong(key, value, f"one of {', '.join(map(repr, choices))}")


def _choice(*choices: str) -> Callable[[str, object], str]:
    return lambda key, value: _one_of(choices, key, value)


def _flag(key: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(key, value, "true or false")


def _tokens(key: str, value: object) -> int | None:
    """Zero takes a number back that the built-in profile has."""
    if value == 0 and as_int(value) is not None:
        return None
    if (tokens := _positive(value)) is not None:
        return tokens
    raise _wrong(key, value, "a whole number of tokens, 0 for none")


def _path(key: str, value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"(?:/[^\s?#]*[^\s?#/])?", value):
        return value
    raise _wrong(key, value, 'a path such as "/beta", or "" for none')


def _dotted(key: str, value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"(?:[\w-]+(?:\.[\w-]+)*)?", value):
        return value
    raise _wrong(key, value, 'keys joined by dots such as "data.max_tokens", or "" for none')


def _texts(key: str, value: object) -> tuple[str, ...]:
    texts = [item for item in as_list(value) if isinstance(item, str) and item.strip()]
    if texts == value:
        return tuple(texts)
    raise _wrong(key, value, "a list of texts")


def _conditions(key: str, value: object) -> tuple[str, ...]:
    texts = _texts(key, value)
    if set(texts) <= set(CONDITIONS):
        return texts
    raise _wrong(key, value, f"a list with any of {', '.join(map(repr, CONDITIONS))}")


def _ceilings(key: str, value: object) -> tuple[tuple[str, int], ...]:
    read = {glob: _positive(tokens) for glob, tokens in as_json(value).items() if glob.strip()}
    pairs = tuple((glob, tokens) for glob, tokens in read.items() if tokens is not None)
    if dict(pairs) == value:
        return pairs
    raise _wrong(key, value, 'a table of model globs and tokens, as in { "kimi-*" = 65536 }')


def _positive(value: object) -> int | None:
    number = as_int(value)
    return number if number is not None and number > 0 else None


_READERS: Final[Mapping[str, Callable[[str, object], object]]] = {
    "prefill": _choice("none", "bare", "prefix", "partial", "continue_final_message"),
    "prefill_path": _path,
    "prefill_unless": _conditions,
    "prefill_models": _texts,
    "prefill_not_models": _texts,
    "prefill_echoes": _flag,
    "limit": _choice("max_tokens", "max_completion_tokens"),
    "limit_only": _flag,
    "default_limit_is_ceiling": _flag,
    "terminal": _choice("required", "optional"),
    "stream_options": _flag,
    "stream_above": _tokens,
    "reasoning": _texts,
    "replays_reasoning": _flag,
    "models_endpoint": _path,
    "ceiling_field": _dotted,
    "ceilings": _ceilings,
}
"""How each key of a profile is read: all of its fields but name and urls."""
