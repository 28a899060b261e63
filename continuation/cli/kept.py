"""The journal of `continuation run PROMPT --journal FILE`. It has a session for each prompt."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from continuation.bulk.lines import RequestIds
from continuation.cli.exits import CommandError, Exit, reason
from continuation.policy import Policy, without_password
from continuation.providers.sdk import Prompt
from continuation.reports.account import plural

if TYPE_CHECKING:
    from continuation.journal import Journal
    from continuation.providers.contract import ProviderRequest


class Kept:
    """What a journal keeps of a prompt's answer. It is also the journal that `wrap` gets.

    The same prompt resumes an incomplete answer, and gets a complete answer again.
    """

    def __init__(self, journal: Journal, name: str) -> None:
        self._journal, self._name = journal, name
        resume = journal.resume()
        self._characters = resume.characters
        ended = resume.kind != "turn" and journal.pointer["turn"] != 0
        self.has_text = ended or resume.characters > 0
        """Whether an earlier process has kept text. It may have written some of that."""

    def check(self) -> None:
        self._journal.check()

    def failed(self, error: BaseException) -> str:
        return self._journal.failed(error)

    def begin(self, form: str, request: ProviderRequest, *, framed: bool) -> Any:
        return self._journal.begin(form, request, framed=framed, once=True)

    def save(self) -> None:
        """Return after everything so far has been written to the journal."""
        self._journal.resume()

    def describe(self) -> str:
        """Describe in words what an earlier process has kept."""
        count = plural(self._characters, "character") if self._characters else "an answer"
        return f"{self._name} has {count} of the same command; this is not billed again"


@contextlib.contextmanager
def opened(target: str, dialect: str, server: str, ask: Prompt, policy: Policy) -> Generator[Kept]:
    """Open the session of a prompt to a server. It does not depend on the output limit.

    Raises `CommandError` if the journal cannot be used, or would keep nothing.
    """
    name = without_password(target)
    why = "" if policy.enabled else "enabled = false; set it to true"
    if policy.leave_limits_below > ask.limit:
        why = (
            f"a limit below leave_limits_below = {policy.leave_limits_below}; raise --max-tokens, "
            f"or add --set leave_limits_below={ask.limit}"
        )
    if why:
        message = f"--journal {name}: no answer is recorded with {why}, or leave out --journal"
        raise CommandError(message, Exit.USAGE)
    from continuation.journal import Journal, JournalError, LeaseHeld

    asked = {"dialect": dialect, "server": server, "model": ask.model}
    digest = RequestIds().of({**asked, "prompt": ask.text, "system": ask.system})
    try:
        journal = Journal(target, f"run/{digest}")
    except LeaseHeld as error:
        message = f"--journal {name}: the same command is running; {reason(error)}"
        raise CommandError(message, Exit.USAGE) from error
    except (OSError, ValueError, JournalError) as error:
        message = f"--journal {reason(error).removeprefix('journal ')}"
        raise CommandError(message, Exit.USAGE) from error
    with journal:
        yield Kept(journal, name)
