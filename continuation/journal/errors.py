"""The errors that a journal raises."""

from __future__ import annotations


class JournalError(Exception):
    """The journal cannot be used; the message states which one, why, and the remedy."""


class LeaseHeld(JournalError):  # noqa: N818 - the field's word
    """Another process owns the session; the message states which one, and since when."""


class Fenced(JournalError):  # noqa: N818 - the field's word
    """Another process has taken over the session; this one can write nothing to it any more."""


class OutcomeUnknown(JournalError):  # noqa: N818 - the field's word
    """Raise it in `verify` of `Journal.call`: whether the interrupted tool has run is unknown."""
