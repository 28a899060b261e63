"""The errors that a journal raises."""

from __future__ import annotations


class JournalError(Exception):
    """The journal cannot be used. The message says which one, why, and the remedy."""


class LeaseHeld(JournalError):  # noqa: N818 - the field's word
    """Another process owns the session. The message says which one, and since when."""


class Fenced(JournalError):  # noqa: N818 - the field's word
    """Another process has taken over the session; this one can no longer write to it."""


class OutcomeUnknown(JournalError):  # noqa: N818 - the field's word
    """`verify` of `Journal.call` raises it if it cannot find out whether the tool has run."""
