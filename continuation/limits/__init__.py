"""What a model may write: its ceiling, its window and its abilities, from a table or learned.

`models.toml` beside this file is the table. One row is one family: a glob over the *normalised*
model id and what holds for every model it matches. Providers, clouds, gateways and local servers
spell one model in many ways; `find` undoes the spelling, then the most specific row wins, which is
the one with the longest literal prefix. A model without a row gets no guess here: its dialect has a
generous default, and the provider corrects it, since a limit that is too large is refused by a free
error that names the right one (`Learned` keeps it).
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

__all__ = [
    "DEFAULT_CEILING",
    "KEPT",
    "Learned",
    "ModelLimits",
    "ModelRow",
    "clamp",
    "find",
    "parse",
    "pick",
    "spellings",
    "table",
]

DEFAULT_CEILING: Final = 64_000
"""The ceiling assumed for an unknown model, in tokens."""


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What is known of one model; the defaults are what is assumed of an unknown one."""

    ceiling: int
    """Largest output limit the provider accepts, in tokens."""
    window: int | None = None
    """Context window in tokens, prompt and answer together; None where it is not known."""
    prefill: bool = False
    """Whether a trailing assistant message is continued (in the vendor's form), thinking off."""
    thinking: str = "none"
    """When it thinks: "none", "manual" (if asked), "adaptive" (can be off), "always" (cannot)."""
    binding: bool = False
    """Whether a thinking block is refused when the messages before it have changed."""
    window_shared: bool = False
    """Whether prompt and limit must fit the window together; if so, the limit is clamped."""
    source: str = "default"
    """Where the numbers come from, in a word or two."""
    date: str | None = None
    """When that source was read or published, as YYYY-MM-DD."""


@lru_cache(maxsize=1024)
def find(model: str) -> ModelLimits | None:
    """Return the table's row for a model id in any usual spelling, or None when there is none.

    Understood are provider paths ("anthropic/", "models/", "publishers/google/models/"), cloud
    prefixes ("us.anthropic.") and suffixes ("-v1:0", "@20250514"), gateway tags (":free"), dates,
    "-latest", and Claude's minors and word orders ("claude-4.5-opus" is "claude-opus-4-5").
    """
    row = pick(table(), model)
    return row.limits if row else None


def clamp(ceiling: int, window: int | None, prompt: int | None, *, margin: int, floor: int) -> int:
    """Return the limit for a later attempt, in tokens: what fits, never below the last one used.

    `prompt` is the size of the request in tokens, `margin` is kept free for what it got wrong and
    `floor` is the last limit used. Without a window or a prompt size the ceiling is the limit.
    """
    if window is None or prompt is None:
        return max(ceiling, floor)
    return max(min(ceiling, window - prompt - margin), floor)


# -- spelling ------------------------------------------------------------------------------------

# Amazon Bedrock writes region.vendor.model, SAP writes vendor--model, Databricks databricks-model.
_CLOUD_PREFIX: Final = re.compile(
    r"^(?:[a-z]{2,6}(?:-[a-z]+)?\.)?"
    r"(?:anthropic|openai|google|meta|mistral|qwen|moonshot(?:ai)?|minimax|zai|xai|cohere)"
    r"(?:\.|--)|^(?:databricks|meta|zai)-(?=[a-z])"
)
# Dates (20250514, 2025-05-14, 0528), version and route words that do not change the model's limits.
_SUFFIX: Final = re.compile(
    r"-(?:\d{8}|\d{4}-\d\d-\d\d|\d{4}|\d{3}|v\d|latest|default|preview|thinking)$"
)
_CLAUDE_NUMBER_FIRST: Final = re.compile(
    r"^claude-([4-9](?:-\d)?)-(opus|sonnet|haiku|fable|mythos)"
)
_CLAUDE_3_NAME_FIRST: Final = re.compile(r"^claude-(opus|sonnet|haiku)-(3(?:-\d)?)(?!\d)")


@lru_cache(maxsize=1024)
def spellings(model: str) -> tuple[str, ...]:
    """Return the normalised forms of a model id, the most literal first.

    Dates and version words are peeled off one by one; the longer forms stay in the list because a
    dated model may have a row of its own.
    """
    found = [_plain(model)]
    while found[-1] != (shorter := _SUFFIX.sub("", found[-1])):
        found.append(shorter)
    # What gateways without dots write: gemini-2-5-pro for gemini-2.5-pro (but not gpt-4-1106).
    found += [re.sub(r"(?<=\d)-(\d)(?=-|$)", r".\1", name, count=1) for name in found]
    return tuple(dict.fromkeys(name for name in found if name))


def _plain(model: str) -> str:
    """Strip provider path, cloud prefix, tag and context mark, and undo a family's own spelling."""
    name = model.strip().lower()
    if name.startswith("ft:"):  # OpenAI: ft:BASE:organisation:name:id
        name = name.split(":")[1]
    name = re.split(r"[/|]", name)[-1]
    name = re.sub(r"\[.*\]$", "", name)
    name = re.sub(r"(?:-v?\d)?:.*$", "", name).replace("@", "-")
    name = re.sub(r"^(?:[a-z]{2,6}(?:-[a-z]+)?\.)?deepseek\.", "deepseek-", name)
    name = _CLOUD_PREFIX.sub("", name)
    # What single families are known for: word order, dots, and p for the decimal point.
    if name.startswith("claude"):
        name = re.sub(r"(?<=\d)\.(?=\d)", "-", name)
        name = _CLAUDE_NUMBER_FIRST.sub(r"claude-\2-\1", name)
        return _CLAUDE_3_NAME_FIRST.sub(r"claude-\2-\1", name)
    name = re.sub(r"(?<=\d)p(?=\d)", ".", name)  # Fireworks: llama-v3p1, kimi-k2p6
    name = re.sub(r"^llama-?v?(?=\d)", "llama-", name)
    return re.sub(r"^qwen-(?=\d)", "qwen", name)


# -- table ---------------------------------------------------------------------------------------

_FIELDS: Final = tuple(field.name for field in fields(ModelLimits))


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of models.toml: a glob over normalised ids and what holds for what it matches."""

    match: str
    """The glob."""
    prefix: str
    """What is literal in the glob before its first wildcard."""
    limits: ModelLimits
    """What holds for what it matches."""

    @property
    def rank(self) -> tuple[int, bool, int]:
        """Sort key: longest literal prefix, then an exact name, then the longest glob."""
        return len(self.prefix), self.prefix == self.match, len(self.match)

    def covers(self, name: str) -> bool:
        """Tell whether one normalised id belongs to this row."""
        # Most rows fail on the prefix; a glob is only compiled for the few that do not.
        return name.startswith(self.prefix) and fnmatchcase(name, self.match)


def parse(text: str) -> tuple[ModelRow, ...]:
    """Read a table in the form of models.toml; the most specific row comes first."""
    import tomllib  # not needed by a program whose answers are never cut

    rows = list[ModelRow]()
    for entry in tomllib.loads(text)["model"]:
        match: str = entry["match"]
        limits = ModelLimits(**{name: entry[name] for name in _FIELDS if name in entry})
        rows.append(ModelRow(match, re.split(r"[*?\[]", match, maxsplit=1)[0], limits))
    return tuple(sorted(rows, key=lambda row: row.rank, reverse=True))


@cache
def table() -> tuple[ModelRow, ...]:
    """Return the table we ship, the most specific row first; read once, on first use."""
    return parse(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))


def pick(rows: Iterable[ModelRow], model: str) -> ModelRow | None:
    """Return the first of the rows that covers the model in any of its spellings."""
    names = spellings(model)
    return next((row for row in rows if any(row.covers(name) for name in names)), None)


# -- what a client learned -----------------------------------------------------------------------


@dataclass(slots=True)
class _Facts:
    ceiling: int | None = None
    raised: int | None = None
    no_prefill: bool = False
    asked: bool = False


KEPT: Final = ("ceiling", "raised", "no_prefill")
"""The facts that are worth a file; that a provider was asked is not."""


class Learned:
    """What one client learned from its providers; every method is safe to call from any thread.

    A key is any hashable; the engine uses (upstream, digest of the credential, model), since the
    same name can mean another model or another quota elsewhere. At most `capacity` keys are kept,
    the longest unused one goes first: a gateway for many tenants must not grow without end.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, _Facts] = OrderedDict()
        self.salt = os.urandom(16)
        self.on_news: Callable[[], None] | None = None
        """Called, outside the lock, when a fact has changed."""

    def get_ceiling(self, key: Hashable) -> int | None:
        """Return the ceiling a provider named for this key, in tokens."""
        with self._lock:
            return self._read(key).ceiling

    def learn_ceiling(self, key: Hashable, n: int) -> None:
        """Keep a ceiling in tokens; the newest counts, and a number below 1 is ignored."""
        if n > 0:
            self._set(key, "ceiling", n)

    def get_raised(self, key: Hashable) -> int | None:
        """Return the raised limit to start from, never above a ceiling learned since."""
        with self._lock:
            known = self._read(key)
            limits = [n for n in (known.raised, known.ceiling) if n is not None]
            return min(limits) if known.raised is not None else None

    def remember_raised(self, key: Hashable, n: int) -> None:
        """Keep the limit in tokens that an escalation needed."""
        if n > 0:
            self._set(key, "raised", n)

    def forget_raised(self, key: Hashable) -> None:
        """Forget the raised limit: it ran into a rate limit."""
        self._set(key, "raised", None)

    def prefill_refused(self, key: Hashable) -> bool:
        """Tell whether this provider refused a trailing assistant message before."""
        with self._lock:
            return self._read(key).no_prefill

    def refuse_prefill(self, key: Hashable) -> None:
        """Keep that a trailing assistant message is refused."""
        self._set(key, "no_prefill", True)

    def ask_once(self, key: Hashable) -> bool:
        """Return True to exactly one caller per key: the one who asks the models endpoint."""
        with self._lock:
            known = self._write(key)
            first, known.asked = not known.asked, True
            return first

    def digest(self, credential: str | None) -> str:
        """Return what stands for a credential in a key; it cannot be turned back into it."""
        return hashlib.sha256(self.salt + (credential or "").encode()).hexdigest()[:32]

    def facts(self) -> dict[Hashable, dict[str, Any]]:
        """Return what is worth keeping, by key, the longest unused first."""
        with self._lock:
            found = {
                key: {name: value for name in KEPT if (value := getattr(known, name))}
                for key, known in self._known.items()
            }
        return {key: facts for key, facts in found.items() if facts}

    def restore(self, key: Hashable, facts: Mapping[str, Any]) -> None:
        """Take in what `facts` returned before."""
        with self._lock:
            known = self._write(key)
            for name in KEPT:
                setattr(known, name, facts.get(name, getattr(known, name)))

    def _set(self, key: Hashable, name: str, value: object) -> None:
        """Keep a fact, and call `on_news` when it has changed."""
        with self._lock:
            known = self._write(key)
            news = getattr(known, name) != value
            setattr(known, name, value)
        if news and self.on_news is not None:
            self.on_news()

    def _read(self, key: Hashable) -> _Facts:
        if key not in self._known:
            return _Facts()
        self._known.move_to_end(key)
        return self._known[key]

    def _write(self, key: Hashable) -> _Facts:
        known = self._known.setdefault(key, _Facts())
        self._known.move_to_end(key)
        if len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return known
