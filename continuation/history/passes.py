"""The passes of a repair that are the same in every dialect, and the order they run in.

Why in this order: see the top of `arrange`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from continuation.history.arrange import arrange, identify
from continuation.history.tree import Fault, Kind, Message, Part, Role
from continuation.history.wordings import quoted_anchor

if TYPE_CHECKING:
    from continuation.history.grammar import Work


def run(work: Work) -> None:
    """Run all passes once; what one of them breaks for another shows in the next check."""
    _convert_messages(work)
    _join_recoveries(work)
    _repair_parts(work)
    work.grammar.prepare(work)
    identify(work)
    arrange(work)
    _drop_empty(work)
    merge_neighbours(work)
    work.grammar.finish(work)


def _convert_messages(work: Work) -> None:
    """Deal with what is wrong with whole messages: their role, their shape."""
    after: list[Message] = []
    for message in work.messages:
        fault = message.faults[0] if message.faults else None
        if fault and work.may(work.grammar.rules[fault.code].repair, message, fault.code):
            after.extend(work.grammar.convert(message, fault))
        else:
            after.append(message)
    work.messages = after


def _repair_parts(work: Work) -> None:
    """Deal with what is wrong with single parts."""
    for message in work.messages:
        if not any(part.faults for part in message.parts):
            continue
        parts: list[Part] = []
        for part in message.parts:
            fault = part.faults[0] if part.faults else None
            if fault and work.may(work.grammar.rules[fault.code].repair, part, fault.code):
                parts.extend(work.grammar.repaired_part(message, part, fault))
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
        _is_split(work, messages[n - 1], messages[n], messages[n + 1])
        for n in range(1, len(messages) - 1)
    )


def _is_split(work: Work, before: Message, prompt: Message, after: Message) -> bool:
    """Whether a recovery prompt has split one answer into these."""
    if prompt.role != "user" or before.role != "assistant" or after.role != "assistant":
        return False
    if before.has(Kind.CALL, Kind.SERVER_CALL) or not prompt.parts:
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
            and _is_split(work, after[-2], after[-1], message)
            and work.may("join_recovery", after[-1], "recovery_pair")
        ):
            after[-2:] = [_joined(work, after[-2], after[-1], message)]
        else:
            after.append(message)
    work.messages = after


def _joined(work: Work, first: Message, prompt: Message, second: Message) -> Message:
    """The two halves as one; what the second half thought was bound to the prompt, so it goes."""
    anchor = quoted_anchor(prompt.parts[0].text)

    def join_texts(before: str, after: str) -> str:
        """What the second says again of the first goes, and nothing else does."""
        from continuation.seams.seam import SeamKind, join  # few histories hold a pair

        asked = anchor if anchor and before.endswith(anchor) else None
        one, verdict = join(before, after, anchor=asked, unshown=0)
        repeats = (SeamKind.ANCHOR, SeamKind.ECHO, SeamKind.RESTART, SeamKind.FENCE)
        return one if verdict.kind in repeats else before + after

    head = list(first.parts)
    while head and head[-1].kind is Kind.THINKING:
        head.pop()
    tail = [work.grammar.after_join(p) for p in second.parts if p.kind is not Kind.THINKING]
    if head and tail and head[-1].kind is tail[0].kind is Kind.TEXT:
        one = work.grammar.joined_text(head[-1], tail[0], join_texts)
        if one is not None:
            head[-1:], tail[:1] = [one], []
    return Message(
        "assistant", head + tail, first.native, first.index, touched=True, faults=first.faults
    )


# -- empty and neighbouring messages -------------------------------------------------------------


def _drop_empty(work: Work) -> None:
    """Drop the messages that say nothing."""
    after: list[Message] = []
    for n, message in enumerate(work.messages):
        code = work.grammar.empty_fault(message, last=n == len(work.messages) - 1)
        if code is None or not work.may("drop_message", message, code):
            after.append(message)
    work.messages = after


def merge_neighbours(work: Work) -> None:
    """Make one message of neighbours that must not stand side by side."""
    after: list[Message] = []
    for message in work.messages:
        if (
            after
            and work.grammar.must_merge(after[-1], message, work.context)
            and work.may("merge_messages", message, "roles_not_alternating")
        ):
            after[-1] = work.grammar.merged(after[-1], message)
        else:
            after.append(message)
    work.messages = after


# -- calls and results on the wrong side (Anthropic, Gemini) ------------------------------------


def side_fault(role: Role, part: Part) -> tuple[Fault, ...]:
    """What is wrong with a call of the user's, or a result of the assistant's."""
    if role == "user" and part.kind is Kind.CALL:
        return (Fault("tool_use_in_user"),)
    if role == "assistant" and part.kind is Kind.RESULT:
        return (Fault("tool_result_in_assistant"),)
    return ()


def split_by_side(work: Work) -> None:
    """Give calls to the assistant and results to the user where a message mixes them."""
    after: list[Message] = []
    for message in work.messages:
        wrong = Kind.CALL if message.role == "user" else Kind.RESULT
        strays = {part for part in message.parts if part.kind is wrong and not part.faults}
        if message.role == "system" or not strays:
            after.append(message)
            continue
        other: Role = "assistant" if message.role == "user" else "user"
        pieces: list[Message] = []
        for part in message.parts:
            role = other if part in strays else message.role
            if not pieces or pieces[-1].role != role:
                native = message.native if role == message.role and not pieces else None
                pieces.append(Message(role, [], native, message.index, touched=True))
            pieces[-1].parts.append(part)
        after += pieces
    work.messages = after
