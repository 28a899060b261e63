"""Heals model answers that were cut at the output limit.

client = continuation.wrap(anthropic.Anthropic())
"""

from pathlib import Path
from typing import TYPE_CHECKING

# Where a checkout cannot hold symbolic links, `continuation/providers` is a plain file. Then
# `providers` is imported from beside this folder. See design/decisions/0018.
if not Path(__path__[0], "providers").is_dir():
    __path__.append(str(Path(__path__[0]).parent))

from continuation.attach.doors import async_http_client, finish, http_client, wrap
from continuation.bulk import BatchResult, run_batch
from continuation.config import override
from continuation.ledger import Attempt
from continuation.policy import Policy
from continuation.reports.report import (
    Escalating,
    Event,
    Finished,
    NotDurable,
    Recovering,
    Repairing,
    Report,
    Retrying,
    Truncated,
    TruncatedAnswerError,
    last_report,
    report,
    watch,
)
from continuation.types import Outcome, Usage

if TYPE_CHECKING:
    from continuation.history import Repaired, RepairPolicy, Violation, repair, validate
    from continuation.journal import (
        Fenced,
        Journal,
        JournalError,
        LeaseHeld,
        OutcomeUnknown,
        Resume,
    )

__version__ = "0.1.0"

__all__ = [
    "Attempt",
    "BatchResult",
    "Escalating",
    "Event",
    "Fenced",
    "Finished",
    "Journal",
    "JournalError",
    "LeaseHeld",
    "NotDurable",
    "Outcome",
    "OutcomeUnknown",
    "Policy",
    "Recovering",
    "RepairPolicy",
    "Repaired",
    "Repairing",
    "Report",
    "Resume",
    "Retrying",
    "Truncated",
    "TruncatedAnswerError",
    "Usage",
    "Violation",
    "__version__",
    "async_http_client",
    "finish",
    "http_client",
    "last_report",
    "override",
    "repair",
    "report",
    "run_batch",
    "validate",
    "watch",
    "wrap",
]

_HISTORY = frozenset({"RepairPolicy", "Repaired", "Violation", "repair", "validate"})
_JOURNAL = frozenset({"Fenced", "Journal", "JournalError", "LeaseHeld", "OutcomeUnknown", "Resume"})

if not TYPE_CHECKING:  # to a type checker, a `__getattr__` here would make any name right

    def __getattr__(name: str) -> object:
        """Import histories and journals when they are first used; few programs need them."""
        if name in _HISTORY:
            from continuation import history as room
        elif name in _JOURNAL:
            from continuation import journal as room
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(room, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
