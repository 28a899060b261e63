"""The limits of models: ceiling, window and abilities, from a table or learned from providers.

`models.toml` beside this file is the table. A row describes a family of models. It has a glob over
normalised model ids, and what is true for every model that the glob matches. Providers, clouds,
gateways and local servers spell one model in many ways, so `find` normalises the spelling first.
Then the most specific row wins, which is the row with the longest literal prefix.

A model without a row gets the default of its dialect, which is large. If it is too large, the
provider refuses the request with an error that names the right limit. That costs nothing, and
`Learned` stores the limit.
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
    """What is known of one model. For an unknown model, the fields' defaults apply."""

    ceiling: int
    """The largest output limit that the provider accepts, in tokens."""
    window: int | None = None
    """The context window, prompt and answer together, in tokens; None: unknown."""
    prefill: bool = False
    """Whether it continues a trailing assistant message, in the vendor's form, without thinking."""
    thinking: str = "none"
    """When it thinks: "none" (never), "manual" (if the request says so), "adaptive" (unless the
    request turns it off) or "always"."""
    binding: bool = False
    """Whether a thinking block is refused after a message before it has changed."""
    window_shared: bool = False
    """Whether prompt and limit together must fit the window. If so, the limit is lowered."""
    source: str = "default"
    """Where the numbers come from, in one or two words."""
    date: str | None = None
    """When that source was read or published, as YYYY-MM-DD."""


_LONGEST: Final = 200
"""The characters of a model id that are used. No real id is longer, and caches store the ids."""


def find(model: str) -> ModelLimits | None:
    """Return the limits in the table's row for a model id in any usual spelling, or None.

    An id may have a provider's path ("anthropic/", "models/", "publishers/google/models/"), a
    cloud's prefix ("us.anthropic.") or suffix ("-v1:0", "@20250514"), a gateway's tag (":free"), a
    date or "-latest". Claude's names may be written in other ways ("claude-4.5-opus" is
    "claude-opus-4-5").
    """
    return _find(model[:_LONGEST])


@lru_cache(maxsize=1024)
def _find(model: str) -> ModelLimits | None:
    row = pick(table(), model)
    return row.limits if row else None


def clamp(ceiling: int, window: int | None, prompt: int | None, *, margin: int, floor: int) -> int:
    """Return the limit for a later attempt, in tokens: what fits the window, at least `floor`.

    `prompt`: the estimated tokens of the request. `margin`: tokens kept free, in case the estimate
    is too low. `floor`: the last limit used. If `window` or `prompt` is None, the ceiling applies.
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

    Each form lacks one more date or version word than the form before it. The longer forms stay in
    the list, because a dated model may have its own row.
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
    # Some families are spelled with another word order, with dots, or with p as decimal point.
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
    # Some gateways allow no dots: they write gemini-2-5-pro for gemini-2.5-pro. gpt-4-1106 is
    # not such a name.
    forms += [re.sub(r"(?<=\d)-(\d)(?=-|$)", r".\1", name, count=1) for name in forms]
    return tuple(dict.fromkeys(name for name in forms if name))


# -- table ---------------------------------------------------------------------------------------

_FIELDS: Final = tuple(field.name for field in fields(ModelLimits))


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One row of models.toml: a glob over normalised ids, and the limits of matching models."""

    match: str
    """The glob."""
    prefix: str
    """The literal text of the glob before its first wildcard."""
    limits: ModelLimits
    """The limits of every model that the glob matches."""


def parse(text: str) -> tuple[ModelRow, ...]:
    """Return the rows of a table in the form of models.toml, the most specific first."""
    import tomllib  # imported here, as it is not needed until an answer is truncated

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
    """Return the table of this package, the most specific row first. It is read at first use."""
    return parse(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))


def pick(rows: Iterable[ModelRow], model: str) -> ModelRow | None:
    """Return the first row that matches any spelling of the model, or None."""
    names = spellings(model)
    for row in rows:
        for name in names:
            # The prefix excludes most rows, so few globs are compiled.
            if name.startswith(row.prefix) and fnmatchcase(name, row.match):
                return row
    return None


# -- what a client learned -----------------------------------------------------------------------


class LearnedFacts(NamedTuple):
    """What was learned about one model."""

    ceiling: int | None = None
    """The largest output limit in tokens, as the provider stated it."""
    needed: int | None = None
    """Output tokens of the longest answer truncated below the ceiling. Requests without tools."""
    needed_with_tools: int | None = None
    """The same for requests with tools."""
    gap_text: int | None = None
    """The longest silence in a text, in seconds, of answers that arrived completely."""
    gap_thinking: int | None = None
    """The same for thinking that is streamed."""
    gap_call: int | None = None
    """The same for a call, and for a text that a call may follow."""
    no_prefill: bool = False
    """Whether a trailing assistant message was refused."""
    asked: bool = False
    """Whether the limit was looked up at the models endpoint."""
    no_stream: bool = False
    """Whether a request for a body was refused as a stream, and then accepted as it was."""

    @property
    def limits(self) -> bool:
        """Whether a fact was learned that may change a request's limit."""
        return self._replace(gap_text=None, gap_thinking=None, gap_call=None) != LearnedFacts()


NUMBERS: Final = (
    *("ceiling", "needed", "needed_with_tools"),
    *("gap_text", "gap_thinking", "gap_call"),
)
"""The facts that are numbers, of tokens or seconds."""
PERSISTED: Final = (*NUMBERS, "no_prefill")
"""The facts that are saved: all except `asked` and `no_stream`."""


class Learned:
    """What one client learned from its providers. All methods are thread-safe.

    A key is any hashable. The engine uses (upstream, digest of the credential, model), because one
    name may mean another model or another quota elsewhere. At most `capacity` keys are kept, and
    the least recently used is dropped first, so that a gateway with many tenants needs bounded
    memory.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._facts: OrderedDict[Hashable, LearnedFacts] = OrderedDict()
        self.salt = os.urandom(16)
        self.histories: OrderedDict[tuple[Hashable, int, bytes], Any] = OrderedDict()
        """Histories that were refused and repaired; `engine/history_repair.py` fills it."""
        self.on_change: Callable[[], None] | None = None
        """Called after a fact of `PERSISTED` has changed, without the lock."""

    def get(self, key: Hashable) -> LearnedFacts:
        """Return what was learned for this key. For an unknown key these are the defaults."""
        with self._lock:
            if key not in self._facts:
                return LearnedFacts()
            self._facts.move_to_end(key)
            return self._facts[key]

    def knows(self, key: Hashable) -> bool:
        """Whether anything was learned for this key."""
        return key in self._facts

    def learn(self, key: Hashable, **facts: Any) -> bool:
        """Set fields of this key's `LearnedFacts`; return whether one of them changed.

        If several threads learn the same fact simultaneously, exactly one of them gets True. If a
        value is below 1, nothing changes.
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
        """Return a salted hash of a credential, of 32 hexadecimal digits, for keys."""
        return hashlib.sha256(self.salt + (credential or "").encode()).hexdigest()[:32]

    def facts(self) -> dict[Hashable, dict[str, Any]]:
        """Return the `PERSISTED` facts that are set, by key. The least recently used is first."""
        with self._lock:
            snapshot = dict(self._facts)
        persisted = {
            key: {name: value for name in PERSISTED if (value := getattr(facts, name))}
            for key, facts in snapshot.items()
        }
        return {key: facts for key, facts in persisted.items() if facts}
