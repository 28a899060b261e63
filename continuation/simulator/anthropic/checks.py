"""What Anthropic refuses by model, header or size: whatever needs more than its structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from continuation.limits import ModelLimits
from continuation.simulator.anthropic import signatures
from continuation.simulator.anthropic.body import THINKING, Json, mapping, placed_blocks, turns
from continuation.simulator.anthropic.rules import THINKING_DOCS, first_error, thinking_tokens
from continuation.simulator.anthropic.usage import input_tokens

API_VERSION_2026 = "2026-10-21"
_SAMPLING = ("temperature", "top_p", "top_k")
_CONTROLS = "thinking-binding-controls-2026-08-01"
_NEEDS_CONTROLS = f"That setting requires the `{_CONTROLS}` value in the `anthropic-beta` header."
PREFILL = (
    "This model does not support assistant message prefill. "
    "The conversation must end with a user message."
)


@dataclass(frozen=True)
class Context:
    """A request whose form is right, and what its model can do."""

    body: Json
    model: ModelLimits
    headers: dict[str, str]
    strict_signatures: bool = False

    @cached_property
    def betas(self) -> list[str]:
        return [name.strip() for name in self.headers.get("anthropic-beta", "").split(",")]

    @property
    def new_version(self) -> bool:
        return self.headers.get("anthropic-version", "") >= API_VERSION_2026

    @property
    def thinking(self) -> str | None:
        """The kind the request asks for: enabled, adaptive, between_tools, disabled, or none."""
        kind = mapping(self.body.get("thinking")).get("type")
        return None if kind is None else str(kind)

    @property
    def thinks(self) -> bool:
        """Thinking is on; where the request says nothing, adaptive models think."""
        if self.thinking is None:
            return self.model.thinking in ("adaptive", "always")
        return self.thinking != "disabled" and self.model.thinking != "none"


Check = Callable[[Context], Iterator[str]]


def first_refusal(context: Context) -> str | None:
    """Return the text of the first check the request fails, the structural rules among them."""
    return next(chain.from_iterable(check(context) for check in CHECKS), None)


def ceiling(context: Context) -> Iterator[str]:
    asked, most = context.body["max_tokens"], context.model.ceiling
    if asked > most:
        name = context.body["model"]
        yield (
            f"max_tokens: {asked} > {most}, which is the maximum allowed number of output tokens "
            f"for {name}"
        )


def sampling(context: Context) -> Iterator[str]:
    """Refuse the sampling parameters, which are gone since API version 2026-10-21 (text ours)."""
    for name in _SAMPLING:
        if context.new_version and name in context.body:
            yield f"{name}: Extra inputs are not permitted"


def new_version_blocks(context: Context) -> Iterator[str]:
    """Refuse documents from the model, citations from the user (since 2026; texts ours)."""
    for role, placed in placed_blocks(context.body) if context.new_version else ():
        if role == "assistant" and placed.kind == "document":
            yield f"{placed.path}: `document` blocks are not allowed in `assistant` messages"
        if role == "user" and placed.kind == "text" and placed.block.get("citations"):
            yield f"{placed.path}.text.citations: citations are not allowed in `user` messages"


def thinking_mode(context: Context) -> Iterator[str]:
    kind, mode = context.thinking, context.model.thinking
    if mode == "always" and kind in ("enabled", "disabled"):
        yield f'"thinking.type.{kind}" is not supported for this model.'
    if mode == "manual" and kind == "adaptive":
        yield "adaptive thinking is not supported on this model"


def thinking_room(context: Context) -> Iterator[str]:
    """Keep the budget below the limit; interleaved thinking may go beyond one answer."""
    budget = thinking_tokens(context.body) or 0
    interleaved = any(beta.startswith("interleaved-thinking") for beta in context.betas)
    if 0 < context.body["max_tokens"] <= budget and not interleaved:
        yield (
            "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our "
            f"documentation at {THINKING_DOCS}#max-tokens-and-context-window-size"
        )


def prefill(context: Context) -> Iterator[str]:
    """Refuse a trailing assistant message, unless it is a paused turn that is to go on."""
    last = turns(context.body)[-1]
    if last.role != "assistant" or last.of("server_tool_use"):
        return
    if context.thinking == "disabled" and last.of(*THINKING):
        yield (
            "When thinking is disabled, an `assistant` message in the final position cannot "
            "contain `thinking`. To use thinking blocks, enable `thinking` in your request."
        )
    if not context.model.prefill or context.thinking not in (None, "disabled"):
        yield PREFILL


def structure(context: Context) -> Iterator[str]:
    error = first_error(context.body, context.model)
    if error is not None:
        yield error


def thinking_blocks(context: Context) -> Iterator[str]:
    """Check signatures and, on binding models, the conversation before each block."""
    binding = mapping(mapping(context.body.get("thinking")).get("block_binding"))
    drop = binding.get("prefix_mismatch_behavior") == "drop_block"
    found = signatures.errors(
        context.body,
        binding=context.model.binding and not (drop and _CONTROLS in context.betas),
        strict=context.strict_signatures,
    )
    for text in found:
        yield f"{text} {_NEEDS_CONTROLS}" if drop and text.endswith(signatures.BOUND) else text


def window(context: Context) -> Iterator[str]:
    most = context.model.window
    if most is None:
        return
    used, asked = input_tokens(context.body), context.body["max_tokens"]
    if used > most:
        yield f"prompt is too long: {used} tokens > {most} maximum"
    if context.model.window_shared and used + asked > most:
        yield (
            f"input length and `max_tokens` exceed context limit: {used} + {asked} > {most}, "
            "decrease input length or `max_tokens` and try again"
        )


CHECKS: tuple[Check, ...] = (
    ceiling,
    sampling,
    thinking_mode,
    thinking_room,
    prefill,
    structure,
    new_version_blocks,
    thinking_blocks,
    window,
)
