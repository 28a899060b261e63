"""What a model may write: its ceiling, its window and its abilities, from a table or learned.

`models.toml` beside this file is the table. One row is one family: a glob over the *normalised*
model id and what holds for every model it matches. Providers, clouds, gateways and local servers
spell one model in many ways; `find` undoes the spelling, then the most specific row wins, which is
the one with the longest literal prefix. A model without a row gets no guess here: its dialect has a
generous default. If that is too large, the provider refuses it with an error that costs nothing and
names the right limit, which `Learned` keeps.
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

DEFAULT_CEILING: Final = 64_000
"""The ceiling assumed for an unknown model, in tokens."""


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What is known of one model; the defaults of the fields are assumed for an unknown one."""

    ceiling: int
    """Largest output limit the provider accepts, in tokens."""
    window: int | None = None
    """Context window in tokens, prompt and answer together; None where it is not known."""
    prefill: bool = False
    """Whether it continues a trailing assistant message (in the vendor's form), thinking off."""
    thinking: str = "none"
    """When it thinks: "none" (never), "manual" (if asked), "adaptive" (can be off), "always"."""
    binding: bool = False
    """Whether a thinking block is refused when the messages before it have changed."""
    window_shared: bool = False
    """Whether prompt and limit must fit the window together; if so, the limit is clamped."""
    source: str = "default"
    """Where the numbers come from, in a word or two."""
    date: str | None = None
    """When that source was read or published, as YYYY-MM-DD."""


_LONGEST: Final = 200
"""Characters of a model id that are looked at: no real one is longer, and caches keep them."""


def find(model: str) -> ModelLimits | None:
    """Return the table's row for a model id in any usual spelling, or None when there is none.

    Understood are provider paths ("anthropic/", "models/", "publishers/google/models/"), cloud
    prefixes ("us.anthropic.") and suffixes ("-v1:0", "@20250514"), gateway tags (":free"), dates,
    "-latest", and Claude's minors and word orders ("claude-4.5-opus" is "claude-opus-4-5").
    """
    return _find(model[:_LONGEST])


@lru_cache(maxsize=1024)
def _find(model: str) -> ModelLimits | None:
    row = pick(table(), model)
    return row.limits if row else None


def clamp(ceiling: int, window: int | None, prompt: int | None, *, margin: int, floor: int) -> int:
    """Return the limit for a later attempt, in tokens: what fits, never below the last one used.

    `prompt` is the estimated size of the request in tokens, `margin` is kept free in case that is
    too low, `floor` is the last limit used. Without a window or a prompt size the ceiling applies.
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


def spellings(model: str) -> tuple[str, ...]:
    """Return the normalised forms of a model id, the most literal first.

    Dates and version words are peeled off one by one; the longer forms stay in the list because a
    dated model may have a row of its own.
    """
    return _spellings(model[:_LONGEST])


@lru_cache(maxsize=1024)
def _spellings(model: str) -> tuple[str, ...]:
    name = model.strip().lower()
    if name.startswith("ft:"):  # OpenAI: ft:BASE:organisation:name:id
        name = name.split(":")[1]
    # Drop provider path, cloud prefix, tag and context mark.
    name = re.split(r"[/|]", name)[-1]
    name = re.sub(r"\[.*\]$", "", name)
    name = re.sub(r"(?:-v?\d)?:.*$", "", name).replace("@", "-")
    name = re.sub(r"^(?:[a-z]{2,6}(?:-[a-z]+)?\.)?deepseek\.", "deepseek-", name)
    name = _CLOUD_PREFIX.sub("", name)
    # Spellings of single families: word order, dots, and p for the decimal point.
    if name.startswith("claude"):
        name = re.sub(r"(?<=\d)\.(?=\d)", "-", name)
        name = _CLAUDE_NUMBER_FIRST.sub(r"claude-\2-\1", name)
        name = _CLAUDE_3_NAME_FIRST.sub(r"claude-\2-\1", name)
    else:
        name = re.sub(r"(?<=\d)p(?=\d)", ".", name)  # Fireworks: llama-v3p1, kimi-k2p6
        name = re.sub(r"^llama-?v?(?=\d)", "llama-", name)
        name = re.sub(r"^qwen-(?=\d)", "qwen", name)
    forms = [name]
    while forms[-1] != (shorter := _SUFFIX.sub("", forms[-1])):
        forms.append(shorter)
    # Gateways that allow no dots write gemini-2-5-pro for gemini-2.5-pro (but not gpt-4-1106).
    forms += [re.sub(r"(?<=\d)-(\d)(?=-|$)", r".\1", name, count=1) for name in forms]
    return tuple(dict.fromkeys(name for name in forms if name))


# -- table ---------------------------------------------------------------------------------------

_FIELDS: Final = tuple(field.name for field in fields(ModelLimits))


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of models.toml: a glob over normalised ids, and the limits of what it matches."""

    match: str
    """The glob."""
    prefix: str
    """The literal text of the glob before its first wildcard."""
    limits: ModelLimits
    """The limits of every model it matches."""


def parse(text: str) -> tuple[ModelRow, ...]:
    """Return the rows of a table in the form of models.toml, the most specific first."""
    import tomllib  # not needed by a program whose answers are never cut

    rows = list[ModelRow]()
    for entry in tomllib.loads(text)["model"]:
        match: str = entry["match"]
        limits = ModelLimits(**{name: entry[name] for name in _FIELDS if name in entry})
        rows.append(ModelRow(match, re.split(r"[*?\[]", match, maxsplit=1)[0], limits))
    # The longest literal prefix, then an exact name, then the longest glob.
    rows.sort(key=lambda r: (len(r.prefix), r.prefix == r.match, len(r.match)), reverse=True)
    return tuple(rows)


@cache
def table() -> tuple[ModelRow, ...]:
    """Return the table we ship, the most specific row first; read once, on first use."""
    return parse(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))


def pick(rows: Iterable[ModelRow], model: str) -> ModelRow | None:
    """Return the first row that matches any spelling of the model; None without one."""
    names = spellings(model)
    for row in rows:
        for name in names:
            # Most rows fail on the prefix; a glob is only compiled for the few that do not.
            if name.startswith(row.prefix) and fnmatchcase(name, row.match):
                return row
    return None


# -- what a client learned -----------------------------------------------------------------------


class LearnedFacts(NamedTuple):
    """What was learned of one model."""

    ceiling: int | None = None
    """The largest output limit, in tokens, as the provider stated it."""
    needed: int | None = None
    """Output tokens of the longest answer that was cut below the ceiling; no tools."""
    needed_with_tools: int | None = None
    """The same for requests with tools."""
    gap_text: int | None = None
    """Seconds of the longest silence in a text, of answers that arrived to their end."""
    gap_thinking: int | None = None
    """The same in thinking that is streamed."""
    gap_call: int | None = None
    """The same in a call, and in a text that a call may follow."""
    no_prefill: bool = False
    """Whether a trailing assistant message was refused."""
    asked: bool = False
    """Whether the models endpoint was asked."""
    no_stream: bool = False
    """Whether a request for a body was refused as a stream, and then accepted."""

    @property
    def limits(self) -> bool:
        """Whether something was learned that a request's limit may depend on."""
        return self._replace(gap_text=None, gap_thinking=None, gap_call=None) != LearnedFacts()


NUMBERS: Final = (
    *("ceiling", "needed", "needed_with_tools"),
    *("gap_text", "gap_thinking", "gap_call"),
)
"""The facts that are numbers: of tokens, or of seconds."""
PERSISTED: Final = (*NUMBERS, "no_prefill")
"""The facts that are saved: all but `asked` and `no_stream`."""


class Learned:
    """What one client learned from its providers; every method is safe to call from any thread.

    A key is any hashable; the engine uses (upstream, digest of the credential, model), since the
    same name can mean another model or another quota elsewhere. At most `capacity` keys are kept;
    the least recently used is dropped, so that a gateway for many tenants has a bounded size.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._facts: OrderedDict[Hashable, LearnedFacts] = OrderedDict()
        self.salt = os.urandom(16)
        self.histories: OrderedDict[tuple[Hashable, int, bytes], Any] = OrderedDict()
        """Histories that were refused and repaired; `engine/history_repair.py` fills it."""
        self.on_change: Callable[[], None] | None = None
        """Called when a fact of `PERSISTED` has changed; the lock is not held then."""

    def get(self, key: Hashable) -> LearnedFacts:
        """Return what was learned for this key; the defaults for an unknown one."""
        with self._lock:
            if key not in self._facts:
                return LearnedFacts()
            self._facts.move_to_end(key)
            return self._facts[key]

    def knows(self, key: Hashable) -> bool:
        """Whether anything was learned for this key."""
        return key in self._facts

    def learn(self, key: Hashable, **facts: Any) -> bool:
        """Set fields of this key's `LearnedFacts`; return whether that changed one of them.

        If several threads learn the same fact at once, exactly one of them gets True. If a value
        is below 1, nothing is changed.
        """
        for value in facts.values():
            if value is not None and value < 1:
                return False
        with self._lock:
            before = self._facts.pop(key, LearnedFacts())
            after = self._facts[key] = before._replace(**facts)
            if len(self._facts) > self._capacity:
                self._facts.popitem(last=False)
        saved = after._replace(asked=before.asked, no_stream=before.no_stream)
        if saved != before and self.on_change is not None:
            self.on_change()
        return after != before

    def digest(self, credential: str | None) -> str:
        """Return a salted hash of a credential, for keys: 32 hexadecimal digits."""
        return hashlib.sha256(self.salt + (credential or "").encode()).hexdigest()[:32]

    def facts(self) -> dict[Hashable, dict[str, Any]]:
        """Return the `PERSISTED` facts that are set, by key, the least recently used first."""
        with self._lock:
            snapshot = dict(self._facts)
        persisted = {
            key: {name: value for name in PERSISTED if (value := getattr(facts, name))}
            for key, facts in snapshot.items()
        }
        return {key: facts for key, facts in persisted.items() if facts}
