"""Sessions that survive a kill: the conversation, the answer being written, the tools.

`Journal` is the entry point. design/internals/journal.md says what it guarantees and what not.
"""

from continuation.journal.errors import Fenced, JournalError, LeaseHeld, OutcomeUnknown
from continuation.journal.journal import Journal
from continuation.journal.reader import Codec, Resume
from continuation.journal.tools import ToolRun
from continuation.providers.contract import ParsedCall

__all__ = [
    "Codec",
    "Fenced",
    "Journal",
    "JournalError",
    "LeaseHeld",
    "OutcomeUnknown",
    "ParsedCall",
    "Resume",
    "ToolRun",
]
