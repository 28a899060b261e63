"""The few sentences we say to a model: go on from here, and this call was cut."""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "Cause",
    "cut_call_guidance",
    "cut_call_note",
    "looks_like_recovery_prompt",
    "recovery_prompt",
]


class Cause(StrEnum):
    """Why the earlier attempt ended."""

    #: The output limit was reached.
    LENGTH = "length"
    #: The connection broke, or the stream ended without its closing event.
    DROP = "drop"


_LEADS = {
    Cause.LENGTH: "Your answer above was cut off by the output limit.",
    Cause.DROP: "The connection broke while your answer above was arriving.",
}


def recovery_prompt(
    before: str, anchor: str | None, cause: Cause, template: str | None = None
) -> str:
    """The user turn that asks the model to go on where `before` stopped."""
    lead = _LEADS[cause]
    if template is not None:
        return template.format(anchor=anchor or "", state="")
    if anchor is None:
        return f"{lead} Go on directly."
    return f"{lead} Begin by repeating exactly the text between <anchor> and </anchor>, then go on.\n<anchor>{anchor}</anchor>"


def looks_like_recovery_prompt(text: str) -> bool:
    """Whether `text` is a recovery prompt of ours."""
    return text.startswith(tuple(_LEADS.values()))


def cut_call_note(name: str, received: int) -> str:
    """The note that stands in the answer for a call that was cut and not run."""
    return (
        f"The call to {name} was cut off by the output limit after {received} characters of its "
        "arguments and was not run. Split the work into smaller calls."
    )


def cut_call_guidance(name: str, received: int) -> str:
    """The user turn that asks for a cut call again, in smaller pieces."""
    return (
        f"Your call to {name} was cut off by the output limit after {received} characters of its "
        "arguments, so it was not run. Make the call again in smaller pieces."
    )
