"""What can go wrong with a journal, in words for its caller."""

from __future__ import annotations


class JournalError(Exception):
    """The journal cannot be used; the text says which one, why, and what helps."""


class LeaseHeld(JournalError):  # noqa: N818 - the field's word
    """Somebody else owns the session; the text says who, and since when."""


class Fenced(JournalError):  # noqa: N818 - the field's word
    """The session was taken over by another process; nothing of this one's is written any more."""


class OutcomeUnknown(JournalError):  # noqa: N818 - the field's word
    """A tool began before the process was stopped, and nobody knows what became of it."""


def describe_error(error: BaseException) -> str:
    """Say what went wrong, without what a server quotes of the rows that it is about."""
    primary: str | None = getattr(getattr(error, "diag", None), "message_primary", None)
    return primary or str(error).strip() or type(error).__name__
