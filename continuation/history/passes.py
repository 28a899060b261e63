"""The passes of a repair that are the same in every dialect, and the order they run in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from continuation.history.arrange import arrange, identify
from continuation.history.tree import Kind, Message, Part
from continuation.history.wordings import quoted_anchor

if TYPE_CHECKING:
    from continuation.history.grammar import Work

__all__ = ["clear", "fold", "has_recovery", "run"]


def run(work: Work) -> None:
    """Run all passes once; what one of them breaks for another shows in the next check."""
    _reshape(work)
    _join_recoveries(work)
    _mend(work)
    work.grammar.prepare(work)
    identify(work)
    arrange(work)
    clear(work)
    fold(work)
    work.grammar.finish(work)


def _reshape(work: Work) -> None:
    """Mend what is wrong with whole messages: their role, their shape."""
    after: list[Message] = []
    for message in work.messages:
        fault = message.faults[0] if message.faults else None
        if fault and work.may(work.grammar.rules[fault.code].repair, message, fault.code):
            after.extend(work.grammar.reshape(work, message, fault))
        else:
            after.append(message)
    work.messages = after


def _mend(work: Work) -> None:
    """Mend what is wrong with single parts."""
    for message in work.messages:
        if any(part.faults for part in message.parts):
            _mend_message(work, message)


def _mend_message(work: Work, message: Message) -> None:
    parts: list[Part] = []
    for part in message.parts:
        fault = part.faults[0] if part.faults else None
        if fault and work.may(work.grammar.rules[fault.code].repair, part, fault.code):
            parts.extend(work.grammar.mend(work, message, part, fault))
        else:
            parts.append(part)
    if parts != message.parts:
        message.keep(parts)


# -- recovery pairs ------------------------------------------------------------------------------


def has_recovery(work: Work) -> bool:
    """Whether a recovery prompt stands between two assistant turns that may be joined.

    Where thinking is bound to what precedes it, joining would void all thinking behind: not there.
    """
    messages = work.messages
    return not work.context.binding and any(
        _splits(work, messages[n - 1], messages[n], messages[n + 1])
        for n in range(1, len(messages) - 1)
    )


def _splits(work: Work, before: Message, prompt: Message, after: Message) -> bool:
    if prompt.role != "user" or before.role != "assistant" or after.role != "assistant":
        return False
    if before.has(Kind.CALL, Kind.ASIDE) or not prompt.parts:
        return False
    texts = all(part.kind is Kind.TEXT for part in prompt.parts)
    return texts and work.policy.is_recovery(prompt.parts[0].text)


def _join_recoveries(work: Work) -> None:
    """Make one turn again of an answer that an old recovery prompt had split."""
    if not work.policy.coalesce or work.context.binding:
        return
    after: list[Message] = []
    for message in work.messages:
        if (
            len(after) > 1
            and _splits(work, after[-2], after[-1], message)
            and work.may("join_recovery", after[-1], "recovery_pair")
        ):
            after[-2:] = [_joined(work, after[-2], after[-1], message)]
        else:
            after.append(message)
    work.messages = after


def _joined(work: Work, first: Message, prompt: Message, second: Message) -> Message:
    """The two halves as one; what the second half thought was bound to the prompt, so it goes."""
    weld = partial(_weld, anchor=quoted_anchor(prompt.parts[0].text))
    head = list(first.parts)
    while head and head[-1].kind is Kind.THINKING:
        head.pop()
    tail = [work.grammar.continued(part) for part in second.parts if part.kind is not Kind.THINKING]
    if head and tail and head[-1].kind is tail[0].kind is Kind.TEXT:
        one = work.grammar.joined(head[-1], tail[0], weld)
        if one is not None:
            head[-1:], tail[:1] = [one], []
    return Message(
        "assistant", head + tail, first.native, first.index, touched=True, faults=first.faults
    )


def _weld(before: str, after: str, *, anchor: str | None) -> str:
    """Two texts as one: what the second says again of the first goes, and nothing else does."""
    from continuation.seams.seam import SeamKind, join  # few histories hold a pair

    asked = anchor if anchor and before.endswith(anchor) else None
    one, verdict = join(before, after, anchor=asked, unshown=0)
    repeats = (SeamKind.ANCHOR, SeamKind.ECHO, SeamKind.RESTART, SeamKind.FENCE)
    return one if verdict.kind in repeats else before + after


# -- empty and neighbouring messages -------------------------------------------------------------


def clear(work: Work) -> None:
    """Drop the messages that say nothing."""
    after: list[Message] = []
    for n, message in enumerate(work.messages):
        code = work.grammar.vacuous(message, last=n == len(work.messages) - 1)
        if code is None or not work.may("drop_message", message, code):
            after.append(message)
    work.messages = after


def fold(work: Work) -> None:
    """Make one message of neighbours that must not stand side by side."""
    after: list[Message] = []
    for message in work.messages:
        if (
            after
            and work.grammar.folds(after[-1], message, work.context)
            and work.may("merge_messages", message, "roles_not_alternating")
        ):
            after[-1] = work.grammar.folded(after[-1], message)
        else:
            after.append(message)
    work.messages = after
