"""What we write to a model ourselves: the recovery prompt, and the notes on a truncated call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from continuation.policy import fill, template_error
from continuation.seams.text import Cut, Form

__all__ = [
    "Cause",
    "argument_prompt",
    "call_hint",
    "cut_call_guidance",
    "cut_call_note",
    "looks_like_recovery_prompt",
    "members_prompt",
    "recovery_prompt",
]


class Cause(StrEnum):
    """Why the earlier attempt ended."""

    LENGTH = "length"
    """The output limit was reached."""
    DROP = "drop"
    """The connection broke, or the stream ended without its closing event."""
    REPETITION = "repetition"
    """The text repeated itself over and over; all but its first copy was removed."""


_LEADS: Final = {
    Cause.LENGTH: "Your answer above stopped at the output limit; it is not finished.",
    Cause.DROP: (
        "The connection broke while your answer above was on its way; only this much arrived."
    ),
    Cause.REPETITION: (
        "Your answer above repeated its last words over and over, so it was stopped, and the "
        "copies were removed. Do not write them again: continue with what comes next."
    ),
}
_ANCHORED: Final = (
    "Go on exactly where it stopped. Begin by repeating the text between {open} and {close}, "
    "character for character and without the tags, then write what follows it, in the same reply "
    "and without a break."
)
_PLAIN: Final = "Go on exactly where it stopped, and begin with the very next character."
_MANNERS: Final = (
    "No preamble, no apology, no summary, and nothing from before that text; open no new code "
    "fence for what is already open."
)

_INSIDE: Final = {
    Form.JSON: "a JSON document",
    Form.CSV: "a file of comma-separated values",
    Form.HTML: "an HTML or XML document",
    Form.YAML: "a YAML document",
    Form.TABLE: "a table",
    Form.LIST: "a list",
    Form.CODE: "code",
}


def call_hint(tools: Iterable[str]) -> str:
    """Return a hint for a model whose call was malformed; `tools`: declarations as JSON."""
    listed = "\n".join(tools)
    return (
        "Your last answer was discarded, because its function call could not be read. If you call "
        f"a function, use its exact name, and arguments that match its schema:\n{listed}"
    )


def recovery_prompt(
    before: str, anchor: str | None, cause: Cause, template: str | None = None
) -> str:
    """Return the user message that asks the model to continue where `before` stopped.

    `anchor` is the end of `before` that the model is asked to repeat first; `None`: it is asked to
    repeat nothing. `template` replaces the wording: a text in which `{anchor}` stands for the
    quoted anchor and `{state}` for a sentence (or nothing) about what is open at the cut.

    Raises `ValueError` when `template` has another placeholder or a single brace.
    """
    name = _tag("anchor", anchor or "")
    quoted = f"<{name}>{anchor}</{name}>" if anchor else ""
    state = _state(before)
    if template is not None:
        if wrong := template_error(template):
            raise ValueError(f"recovery prompt: {wrong}")
        return fill(template, anchor=quoted, state=state)
    ask = _ANCHORED.format(open=f"<{name}>", close=f"</{name}>") if anchor else _PLAIN
    sentences = " ".join(filter(None, (_LEADS[cause], ask, state, _MANNERS)))
    return f"{sentences}\n{quoted}" if quoted else sentences


def looks_like_recovery_prompt(text: str) -> bool:
    """Whether `text` is a recovery prompt in our own wording, whatever its cause and anchor."""
    prompt = text.lstrip()
    return prompt.startswith(tuple(_LEADS.values())) and _MANNERS in prompt


def cut_call_note(name: str, received: int) -> str:
    """Return the text that replaces a call that was cut and not run in the answer.

    `received` counts the characters of its arguments that arrived.
    """
    return (
        f"[The call to `{name}` was cut off by the output limit after {_characters(received)} of "
        "its arguments. It was not run. Split the work into smaller calls.]"
    )


def cut_call_guidance(name: str, received: int) -> str:
    """Return the user message that asks for a cut call again, in smaller pieces."""
    return (
        f"Your call to `{name}` was cut off by the output limit after {_characters(received)} of "
        "its arguments, so it was not run. Do not send the same call again: do the work in several "
        "smaller calls, each well below that size, and begin with the first one now."
    )


def announced_call_prompt() -> str:
    """Return the user message that asks for a call that the text before it announces."""
    return (
        "Your last message announces a tool call, but contains none. Make the call now, without "
        "repeating that message. If no call is needed, say so in one sentence."
    )


def argument_prompt(name: str, argument: str, before: str, anchor: str, sign: str) -> str:
    """Return the user message that asks for the rest of a call's argument as plain text.

    The model is asked to write `sign` after the last character: nothing else tells whether a last
    line break belongs to the text, and where the text ends. `before` is the argument's text so far.
    It is quoted in the message, because not every format can send an unfinished call back, and so
    that no result has to be made up for the call.
    """
    tag = _tag("arrived", before)
    mark = _tag("anchor", anchor + before)
    return (
        f"Your call to `{name}` was cut off by the output limit inside its argument `{argument}`. "
        f"It was not run. What arrived of that argument stands between <{tag}> and </{tag}>, and "
        "is kept. Do not call the tool again and do not begin anew: write the rest of that "
        "argument now, as plain text, not as JSON: nothing escaped, no quotes around it, no code "
        "fence, no word to me. Begin by repeating the text between "
        f"<{mark}> and </{mark}>, character for character and without the tags, then write what "
        f"follows it, directly behind the argument's last character write {sign} and stop there."
        f"\n<{tag}>{before}</{tag}>\n<{mark}>{anchor}</{mark}>"
    )


def members_prompt(
    name: str,
    lacking: Sequence[str],
    allowed: Sequence[str],
    lists: Sequence[str],
    argument: str,
    arrived: str,
    *,
    begun: bool,
) -> str:
    """Return the user message that asks for the arguments a call lacks, and for optional ones.

    `lacking` and `allowed` are their names, `lists` those of `lacking` whose first elements are
    there. `argument`: the long argument that is whole now. `arrived`: the arguments so far, quoted.
    `begun`: one of `allowed` had begun to arrive.
    """
    tag = _tag("arrived", arrived)
    quoted = f" What stands between <{tag}> and </{tag}> is kept." if arrived else ""
    if argument:
        kept = f"The argument `{argument}` of your call to `{name}` is whole now, and kept.{quoted}"
    else:
        kept = f"Your call to `{name}` was cut off by the output limit. It was not run.{quoted}"
    more = "still lacks one or more of" if begun else "may have"
    wanted = (("still lacks", lacking), (more, allowed))
    asks = [f"{verb} {', '.join(f'`{one}`' for one in names)}" for verb, names in wanted if names]
    follow = "".join(
        f"Of `{one}` give only the elements that follow those that are there, or an empty list. "
        for one in lists
    )
    meant = (
        "Of those that it may have, give each that you meant to follow; if none was, give none of "
        f"them{'' if lacking else ' and call with an empty object'}. "
        if allowed and not begun
        else ""
    )
    return (
        f"{kept} The call {' and '.join(asks)}. {meant}{follow}Call `{name}` with just that, under "
        "just these names, and nothing else; what you wrote before is put beside it."
        + (f"\n<{tag}>{arrived}</{tag}>" if arrived else "")
    )


def _tag(name: str, text: str) -> str:
    """Return a tag name that does not occur in `text`, so that the quoted text cannot close it."""
    tag, number = name, 1
    while f"{tag}>" in text:
        number += 1
        tag = f"{name}-{number}"
    return tag


def _characters(count: int) -> str:
    return "1 character" if count == 1 else f"{count:,} characters"


def _state(before: str) -> str:
    """Return a sentence about what is open where `before` stopped; `""`: nothing is."""
    cut = Cut(before)
    place = ", in the middle of a line" if cut.inside_line else ", after a whole line"
    if cut.fence is not None:
        language = cut.fence.info.split()[0] if cut.fence.info else ""
        what = f"an open {language} code block" if language else "an open code block"
        return f"It stopped inside {what}{place}."
    if cut.inside_string:
        return "It stopped inside a string of a JSON document."
    what = _INSIDE.get(cut.form, "")
    if not what:
        return "It stopped in the middle of a line." if cut.inside_word else ""
    return f"It stopped inside {what}{place}."
