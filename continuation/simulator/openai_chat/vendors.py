"""The servers that speak Chat Completions, and in what each differs from OpenAI: a table.

Texts are the vendors' own, as public issues and their sources quote them; `{name}`, `{asked}` and
`{most}` stand for the limit's parameter, its value and the ceiling, `{prompt}`, `{window}`,
`{total}`, `{room}` and `{chars}` for sizes. Default limits are what API references gave last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from continuation.simulator.openai_chat.texts import (
    DEEPSEEK_CEILING,
    GROQ_CEILING,
    OPENAI_CEILING,
    OPENAI_PROMPT,
    OPENAI_TOTAL,
    OPENROUTER_TOTAL,
    QWEN_CEILING,
    QWEN_PROMPT,
    SGLANG_CEILING,
    SGLANG_PROMPT,
    SGLANG_TOTAL,
    VLLM_TOTAL,
)

Prefill = Literal["none", "flag", "continue", "bare", "refused"]
Shape = Literal["nested", "flat", "string", "list"]
Unfinished = Literal["never", "overflow", "cut"]


@dataclass(frozen=True)
class Vendor:
    """One server's ways.

    Going on from a trailing assistant message:

    - `prefill`: `none` takes it for a finished turn; `flag` wants the member `flag` on it;
      `continue` wants `continue_final_message` in the body; `bare` goes on as it is, unless the
      model reasons; `refused` allows none. `echoes`: the answer repeats it.

    The limit:

    - `limits`: its parameters, the first given counts; others are ignored, or refused if
      `refuses_others`. `default_limit`: without one; None is the ceiling.
    - `ceiling`, `total` (prompt and limit), `prompt` (alone): what is said when it is passed; None
      lets it through, and the answer ends at the limit or at the window. `window_code`: their code.
    - `stops_counting`: of a prompt that is too long, one token more than fits is told.
    - `stream_above`: a larger limit needs a stream.

    Errors: `shape` of the body, `fields` of the error in it, its usual `kind` and `code` (`status`
    stands for the HTTP status).

    Answers:

    - `takes_stream_options`, `usage_unasked` (in the closing chunk), `sends_done`.
    - `unfinished`: when a stream ends without a finish reason. `window_stop`: the reason at the
      window's end. `truncated_tool_call`: the reason told of a cut call in a body.
    - `reasoning`: the member that carries thinking, None hides it. `whole_calls`: calls come in one
      piece. `call_id`: how ids of calls look. `withholds`: a cut text is billed, not sent.
    - `openai`: has what only OpenAI's own servers have (strict parameters, obfuscation, tiers).
    - `checks_history`: refuses histories that break the rules.
    - `listed`: members of a model's description, and the fact each tells; a dot nests.
    """

    name: str
    prefill: Prefill = "none"
    flag: str = ""
    echoes: bool = False
    limits: tuple[str, ...] = ("max_completion_tokens", "max_tokens")
    refuses_others: bool = False
    default_limit: int | None = None
    ceiling: str | None = None
    total: str | None = None
    prompt: str | None = None
    window_code: str | None = None
    stops_counting: bool = False
    stream_above: int | None = None
    shape: Shape = "nested"
    fields: tuple[str, ...] = ("message", "type", "param", "code")
    kind: str = "invalid_request_error"
    code: str | None = None
    takes_stream_options: bool = True
    usage_unasked: bool = False
    sends_done: bool = True
    unfinished: Unfinished = "never"
    window_stop: str = "length"
    truncated_tool_call: str | None = None
    reasoning: str | None = "reasoning_content"
    whole_calls: bool = False
    call_id: str = "call_sim{:021d}"
    withholds: bool = False
    openai: bool = False
    checks_history: bool = False
    listed: Mapping[str, str] = field(default_factory=dict[str, str])


_OPENAI = Vendor(
    "openai",
    ceiling=OPENAI_CEILING,
    total=OPENAI_TOTAL,
    prompt=OPENAI_PROMPT,
    window_code="context_length_exceeded",
    reasoning=None,
    openai=True,
    checks_history=True,
)
_VENDORS = (
    _OPENAI,
    replace(_OPENAI, name="azure"),
    Vendor(
        "deepseek",
        prefill="flag",
        flag="prefix",
        limits=("max_tokens",),
        default_limit=4096,
        ceiling=DEEPSEEK_CEILING,
        total=OPENAI_TOTAL,
        prompt=OPENAI_PROMPT,
        code="invalid_request_error",
        checks_history=True,
    ),
    Vendor(
        "moonshot",
        prefill="flag",
        flag="partial",
        default_limit=1024,
        total="Invalid request: Your request exceeded model token limit: {window} "
        "(requested: {total})",
        prompt="Input token length too long",
        fields=("message", "type"),
        checks_history=True,
    ),
    Vendor(
        "dashscope",
        prefill="flag",
        flag="partial",
        ceiling=QWEN_CEILING,
        prompt=QWEN_PROMPT,
        code="invalid_parameter_error",
        checks_history=True,
    ),
    Vendor(
        "zhipu",
        limits=("max_tokens",),
        default_limit=1024,
        ceiling="max_tokens参数非法：限制数值范围[1,{most}]",  # noqa: RUF001 - as it is
        prompt="Prompt exceeds max length",
        window_code="1261",
        fields=("code", "message"),
        code="1210",
        window_stop="model_context_window_exceeded",
    ),
    Vendor(
        "mistral",
        prefill="flag",
        flag="prefix",
        echoes=True,
        limits=("max_tokens",),
        refuses_others=True,
        prompt="Prompt contains {prompt} tokens and 0 draft tokens, too large for model with "
        "{window} maximum context length",
        shape="flat",
        takes_stream_options=False,
        usage_unasked=True,
        reasoning=None,
        whole_calls=True,
        call_id="sim{:06d}",
        checks_history=True,
        listed={"max_context_length": "window"},
    ),
    Vendor(
        "groq",
        prefill="bare",
        ceiling=GROQ_CEILING,
        total="Please reduce the length of the messages or completion.",
        window_code="context_length_exceeded",
        reasoning="reasoning",
        listed={"context_window": "window", "max_completion_tokens": "ceiling"},
    ),
    Vendor(
        "xai",
        prompt="This model's maximum prompt length is {window} but the request contains {prompt} "
        "tokens.",
        shape="string",
        code="Client specified an invalid argument",
    ),
    Vendor(
        "openrouter",
        prefill="bare",
        total=OPENROUTER_TOTAL,
        fields=("message", "code"),
        code="status",
        reasoning="reasoning",
        listed={
            "context_length": "window",
            "top_provider.context_length": "window",
            "top_provider.max_completion_tokens": "ceiling",
        },
    ),
    Vendor(
        "together",
        prefill="bare",
        total="`inputs` tokens + `max_new_tokens` must be <= {window}",
        reasoning="reasoning",
        listed={"context_length": "window"},
    ),
    Vendor(
        "fireworks",
        prefill="bare",
        default_limit=2048,
        stream_above=4096,
        listed={"context_length": "window"},
    ),
    Vendor(
        "vllm",
        prefill="continue",
        total=VLLM_TOTAL,
        stops_counting=True,
        kind="BadRequestError",
        code="status",
        truncated_tool_call="tool_calls",
        reasoning="reasoning",
        listed={"max_model_len": "window"},
    ),
    Vendor(
        "sglang",
        prefill="continue",
        ceiling=SGLANG_CEILING,
        total=SGLANG_TOTAL,
        prompt=SGLANG_PROMPT,
        shape="flat",
        kind="BadRequestError",
        code="status",
        listed={"max_model_len": "window"},
    ),
    Vendor(
        "llamacpp",
        prefill="bare",
        prompt="request ({prompt} tokens) exceeds the available context size ({window} tokens), "
        "try increasing it",
        fields=("code", "message", "type"),
        code="status",
        listed={"meta.n_ctx_train": "window"},
    ),
    Vendor(
        "ollama", prefill="bare", limits=("max_tokens",), reasoning="reasoning", whole_calls=True
    ),
    Vendor(
        "lmstudio",
        limits=("max_tokens",),
        total="maximum context length is {window} tokens. However, you requested {asked} output "
        "tokens and your prompt contains {chars} characters",
        unfinished="overflow",
    ),
    Vendor(
        "gemini",
        prefill="refused",
        prompt="The input token count ({prompt}) exceeds the maximum number of tokens allowed "
        "({window}).",
        shape="list",
        fields=("code", "message", "status"),
        reasoning=None,
        whole_calls=True,
    ),
)
VENDORS: Mapping[str, Vendor] = MappingProxyType({each.name: each for each in _VENDORS})

#: What a scenario may lay over any vendor, since one host has it today and another tomorrow.
QUIRKS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "max-tokens-only": {"limits": ("max_tokens",), "refuses_others": True},
        "no-stream-options": {"takes_stream_options": False},
        "no-done": {"sends_done": False},
        "no-finish": {"unfinished": "cut"},
        "usage-unasked": {"usage_unasked": True},
        "withhold": {"withholds": True},
        "flat-errors": {"shape": "flat"},
        "lax-history": {"checks_history": False},
        "cut-call-stop": {"truncated_tool_call": "stop"},
        "cut-call-tool-calls": {"truncated_tool_call": "tool_calls"},
    }
)


def find_vendor(name: str, quirks: str = "") -> Vendor:
    """Return a vendor with the quirks laid over it, several of which are joined by `+`.

    Raises ValueError that names what is unknown and what is possible.
    """
    if name not in VENDORS:
        msg = f"vendor: {name!r} is none of {', '.join(VENDORS)}"
        raise ValueError(msg)
    changes: dict[str, Any] = {}
    for quirk in filter(None, quirks.split("+")):
        if quirk not in QUIRKS:
            msg = f"quirks: {quirk!r} is none of {', '.join(QUIRKS)}; join several by '+'"
            raise ValueError(msg)
        changes.update(QUIRKS[quirk])
    return replace(VENDORS[name], **changes)
