"""What an error answer of a server that speaks OpenAI's formats means for a later attempt.

Chat and Responses share their errors, and every vendor words them in its own way. `ROWS` is the
table: the first row whose pattern fits says what it is and which limit the text names. The rules:

- a number counts only beside the words that say what it is, so the lower bound of a range or a
  limit of another parameter is never taken;
- a prompt that is too long is never read as a ceiling, since a smaller output limit would not help;
- a row never reaches over from one message of a body into the next.

Pure functions over status and body; none of them raises. `design/vendors.md` has the doubts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from continuation.providers.openai_common.error_text import text_of
from continuation.types import ClassifiedError, ErrorKind
from continuation.wire.error_body import label_of

MARGIN: Final = 256
"""Tokens kept free where a server only estimates the size of the prompt."""

_READ = frozenset({400, 413, 422})
"""Statuses whose text says what is wrong with the request."""
_BUSY = frozenset({408, 409, 425, 429})

Numbers: TypeAlias = Mapping[str, int]
Measure: TypeAlias = Callable[[Numbers, "int | None"], "int | None"]
"""Takes the numbers in a text and the limit that was asked for; returns the limit that fits.

Zero or less means that nothing fits, `None` that the text does not tell.
"""


class ErrorRow(NamedTuple):
    """One wording: whose it is, what it means, and how the limit follows from its numbers."""

    name: str
    kind: ErrorKind
    source: str
    """A pattern as `_compile` reads it."""
    measure: Measure


def refused(status: int, body: bytes, asked: int | None = None) -> ClassifiedError:
    """Classify an error answer; `asked` is the limit that was sent, in tokens, if it is known.

    Some servers name only how far a request is over the line; then the limit that fits can be
    told with `asked` alone, and `maximum` is `None` without it. A maximum is always positive.
    `BUSY` with a maximum: the limit itself is over a quota, and waiting would not help.
    """
    if status not in _READ and status != 429:
        busy = status in _BUSY or status >= 500
        return ClassifiedError(
            ErrorKind.RETRYABLE if busy else ErrorKind.FINAL, label_of(status, body)
        )
    text, label = text_of(body), label_of(status, body)
    rows = ROWS if status in _READ else QUOTAS
    for row in rows:
        if found := _compile(row.source).search(text):
            maximum = row.measure(_numbers(found), asked)
            if maximum is not None and maximum < 1:
                return ClassifiedError(ErrorKind.FINAL, label)
            return ClassifiedError(row.kind, label, maximum)
    return ClassifiedError(ErrorKind.FINAL if status in _READ else ErrorKind.RETRYABLE, label)


def wrong_parameter(status: int, body: bytes) -> str | None:
    """Return the name to send the limit under, if the error is that it has the wrong one."""
    found = _compile(_WRONG_PARAMETER).search(text_of(body)) if status in _READ else None
    if found is None:
        return None
    wrong = next(name for name in found.groups() if name)
    return "max_tokens" if wrong == "max_completion_tokens" else "max_completion_tokens"


def lasting(error: Mapping[str, object]) -> bool:
    """Whether an error told in a stream would be told again, however often one asks."""
    for key in ("code", "status", "type"):
        said = str(error.get(key) or "")
        if said.isdecimal():
            return 400 <= int(said) < 500 and int(said) not in _BUSY
        if _compile(_LASTING).search(said):
            return True
    return False


def refuses_stream_options(status: int, body: bytes) -> bool:
    """Whether the request was refused because it asked for usage in the stream."""
    return status in _READ and _compile(_STREAM_OPTIONS).search(text_of(body)) is not None


def truncated(status: int, body: bytes) -> bool:
    """Whether the error stands for an answer that ran into its limit before any text was out."""
    return status in _READ and _compile(_TRUNCATED).search(text_of(body)) is not None


def _numbers(found: re.Match[str]) -> dict[str, int]:
    """Read the groups that took part: numbers without separators, marks such as "about" as 1."""
    groups = {name: text for name, text in found.groupdict().items() if text is not None}
    return {
        name: int(digits) if (digits := text.replace(",", "")).isdecimal() else 1
        for name, text in groups.items()
    }


# --- how a limit follows from the numbers --------------------------------------------------------


def _named(numbers: Numbers, asked: int | None) -> int | None:
    return numbers["maximum"]


def _exclusive(numbers: Numbers, asked: int | None) -> int | None:
    return numbers["bound"] - 1


def _untold(numbers: Numbers, asked: int | None) -> int | None:
    return None


def _guessed(numbers: Numbers, asked: int | None) -> int | None:
    """It is the limit, but the size of the prompt is not told: half of it, as for `_floor`."""
    return None if asked is None else asked // 2


def _left(numbers: Numbers, asked: int | None) -> int | None:
    return numbers["window"] - numbers["prompt"]


def _split(numbers: Numbers, asked: int | None) -> int | None:
    """The request's total is given with the part of the answer in it."""
    margin = MARGIN if "about" in numbers else 0
    return numbers["window"] - (numbers["total"] - numbers["output"]) - margin


def _floor(numbers: Numbers, asked: int | None) -> int | None:
    """VLLM stops counting the prompt one token after it is too long for the limit asked for.

    What it reports then is `window - requested + 1` whatever the prompt is, and a limit derived
    from it would creep down token by token. The half is the best guess: few tries are allowed.
    """
    window, prompt, requested = numbers["window"], numbers["prompt"], numbers["requested"]
    if prompt > window or prompt != window - requested + 1:
        return window - prompt
    return requested // 2


def _halved(numbers: Numbers, asked: int | None) -> int | None:
    """Only the window is named: a limit as large as that leaves no room for any prompt."""
    return numbers["window"] // 2


def _characters(numbers: Numbers, asked: int | None) -> int | None:
    """The prompt is told in characters: three to a token, which is few for prose."""
    return numbers["window"] - -(-numbers["characters"] // 3) - MARGIN


def _over(numbers: Numbers, asked: int | None) -> int | None:
    """Prompt and limit are told as one sum; how much of it is the limit, only the sender knows."""
    return None if asked is None else asked - (numbers["total"] - numbers["window"])


# --- the table -----------------------------------------------------------------------------------

_NUMBER = r"(?<![\d.])(?:\d{1,3}(?:,\d{3})+|\d{1,12})(?!\d|[.,]\d)"
_LIMIT = r"max_(?:completion_|new_|output_)?tokens"
# Between the name of the limit and "at most N": nothing that makes it a sum with the prompt.
_ALONE = r"(?:(?!\+|\bplus\b|prompt|input (?:tokens|length)|inputs|context|\bsum\b).)"
_MOST = (
    r"(?:less than or equal to|at most|<=|no (?:more|greater|larger) than|(?:not|cannot) exceed)"
)


@cache  # on first use: most programs never see an error
def _compile(source: str) -> re.Pattern[str]:
    """Compile a pattern in which `<name>` is a number, `<#>` one without a name, `LIMIT` the limit.

    One space stands for any white space; quotes are not in the texts that are compared.
    """
    for word, meaning in (("LIMIT", _LIMIT), ("ALONE", _ALONE), ("MOST", _MOST), ("<#>", _NUMBER)):
        source = source.replace(word, meaning)
    named = re.sub(r"(?<!\(\?P)<(\w+)>", lambda group: f"(?P<{group[1]}>{_NUMBER})", source)
    return re.compile(named, re.IGNORECASE)


def _ceiling(name: str, source: str, measure: Measure = _named) -> ErrorRow:
    return ErrorRow(name, ErrorKind.CEILING, source, measure)


def _room(name: str, source: str, measure: Measure = _left) -> ErrorRow:
    return ErrorRow(name, ErrorKind.CONTEXT_OVERFLOW, source, measure)


def _no_fix(name: str, source: str) -> ErrorRow:
    return ErrorRow(name, ErrorKind.FINAL, source, _untold)


def _prefill(name: str, source: str) -> ErrorRow:
    return ErrorRow(name, ErrorKind.PREFILL, source, _untold)


QUOTAS: Final = (
    # OpenAI; Groq with status 413. The limit is reserved against the quota, so a single request can
    # be larger than all of it. "Limit 30000, Used 29000, Requested 5000" is not that, and passes.
    ErrorRow(
        "tokens per minute",
        ErrorKind.RETRYABLE,
        r"request too large.{0,300}?\(TP[MDH]\): limit:? <window>, requested:? <total>",
        _over,
    ),
    # OpenAI, Moonshot: no money left. Waiting does not bring any.
    _no_fix("no credit", r"\b(?:insufficient_quota|exceeded_current_quota_error)\b"),
)

_ROOM = (
    # OpenAI "(62 in the messages, 4095 in the completion)", older "(1360 in your prompt; 4000 for
    # the completion)", OpenRouter "about ... (N of text input, N of tool input, N in the output)".
    _room(
        "openai, openrouter",
        r"maximum context length is <window> tokens.{0,40}?requested (?P<about>about )?<total>"
        r" tokens \([^)]{0,200}?<output> (?:in|for|of) (?:the |your )?(?:completion|output)",
        _split,
    ),
    # SGLang 0.5, tokenizer_manager.
    _room(
        "sglang",
        r"maximum context length of <window> tokens. You requested a total of <#> tokens:"
        r" <prompt> tokens from the input messages",
    ),
    # vLLM since 0.16, and before. `prompt` may be the point where it stopped counting.
    _room(
        "vllm",
        r"You passed <prompt> input tokens and requested <requested> output tokens.{0,40}?"
        r"context length is only <window> tokens",
        _floor,
    ),
    _room(
        "vllm before 0.16",
        r"maximum context length is <window> tokens.{0,20}?you requested <requested> output tokens"
        r" and your prompt contains (?:at least )?<prompt> input tokens",
        _floor,
    ),
    _room(
        "vllm, limit against window",
        r"LIMIT is too large: <#>\. This models maximum context length is <window> tokens and your"
        r" request has <prompt> input tokens",
    ),
    _room(
        "vllm, limit over window",
        r"LIMIT=<#> cannot be greater than max_model_len=(?:max_total_tokens=)?<window>",
        _halved,
    ),
    # LM Studio, and vLLM where it refuses by length before it counts.
    _room(
        "characters",
        r"maximum context length is <window> tokens.{0,20}?you requested <#> output tokens and your"
        r" prompt contains <characters> characters",
        _characters,
    ),
    # Anthropic's own, through gateways. What the text says is left wins over the sum.
    _room("available", r"LIMIT.{0,200}?available[_ ]tokens:? <maximum>", _named),
    _room("anthropic", r"exceed context limit:? (?:\(?i\.e\.?,? )?<prompt> \+ <#> > <window>"),
    # Moonshot: prompt and limit in one sum.
    _room("moonshot", r"exceeded model token limit: <window> \(requested: <total>\)", _over),
    # Together and others on text-generation-inference; without the second sentence no prompt.
    _room(
        "tgi",
        r"inputs tokens \+ max_new_tokens must be <= <window>\. Given: <prompt> inputs tokens",
    ),
    _room(
        "tgi, no prompt",
        r"inputs tokens (?:\+|and) max_new_tokens must (?:be <=|not exceed) <#>",
        _guessed,
    ),
)

_PROMPT = (
    # OpenAI Chat, also gpt-5 with "Input tokens exceed the configured limit of"; older vLLM.
    _no_fix("openai", r"your (?:messages resulted in|request has) <#> (?:input )?tokens"),
    _no_fix("openai responses", r"input exceeds the context window"),
    _no_fix("dashscope", r"range of input length should be"),
    # Zhipu code 1261; it names no numbers.
    _no_fix("zhipu", r"prompt exceeds max length"),
    _no_fix("moonshot", r"input token length too long"),
    _no_fix("volcengine", r"input length <#> exceeds the maximum length"),
    _no_fix("xai", r"maximum prompt length is <#>"),
    _no_fix("mistral", r"too large for model with <#> maximum context length"),
    _no_fix("sglang", r"the input \(<#> tokens\) is longer than the models context length"),
    _no_fix("llama.cpp", r"exceed_context_size_error|exceeds the available context size"),
    _no_fix("gemini", r"input token count \(<#>\) exceeds the maximum number of tokens"),
    _no_fix("anthropic", r"prompt is too long"),
)

_CEILING = (
    # OpenAI and Azure; SGLang without a space after the first sentence.
    _ceiling("openai", r"supports at most <maximum> (?:completion|output) tokens"),
    # DeepSeek "valid range of max_tokens is [1, N]", DashScope "Range of max_tokens should be".
    _ceiling("range", r"range of LIMIT (?:is|should be) \[\d+ ?, ?<maximum>\]"),
    _ceiling("zhipu", r"LIMIT ?参数非法.{0,40}?\[\d+ ?[,，] ?<maximum>\]"),  # noqa: RUF001 -- its comma
    # Volcengine and OpenAI's own validation. Other parameters have the same sentence.
    _ceiling("expected", r"LIMIT.{0,120}?integer above maximum value.{0,20}?value <= <maximum>"),
    # Gateways "max_tokens (384000) exceeds model's maximum output tokens (65536)".
    _ceiling(
        "gateway", r"LIMIT.{0,40}?exceeds (?:the )?models maximum output tokens \(<maximum>\)"
    ),
    _ceiling("anthropic", r"LIMIT: <#> > <maximum>, which is the maximum allowed"),
    # Gemini's endpoint in OpenAI's format; the upper end of the range is not part of it.
    _ceiling(
        "gemini",
        r"maxOutputTokens value of <#> but the supported range is from \d+ \(inclusive\)"
        r" to <bound> \(exclusive\)",
        _exclusive,
    ),
    _ceiling("between", r"LIMITALONE{0,40}?between \d+ and <maximum>"),
    # Groq, gateways, validators; "prompt + max_tokens must be at most" is no ceiling.
    _ceiling("at most", r"(?<!\+ )(?<!and )(?<!plus )\bLIMITALONE{0,40}?MOST <maximum>"),
)

_PREFILLS = (
    # Claude since 4.6 behind any gateway.
    _prefill("claude", r"does not support (?:assistant message )?prefill"),
    _prefill("last is user", r"must end with a user message"),
    _prefill("gemini", r"ending with a model turn"),
    # Without the flag; with it, but not at /beta.
    _prefill(
        "deepseek",
        r"last message\b.{0,60}?must be a user|prefix mode on|prefix is only available",
    ),
    _prefill("mistral", r"expected last role"),
    # llama.cpp: with thinking on; and where the caller's history ends in an answer already.
    _prefill("llama.cpp", r"prefill is incompatible"),
    _prefill("llama.cpp, two", r"cannot have 2 or more assistant messages at the end"),
    # vLLM, SGLang, transformers: every error that names the flag is about how we asked.
    _prefill("vllm", r"continue_final_message"),
    _prefill("dashscope", r"partial mode is not supported"),
    # A server that checks its fields and does not know the flag.
    _prefill(
        "unknown flag",
        r"\b(?:prefix|partial|add_generation_prompt): extra inputs are not permitted",
    ),
)

# OpenAI's reasoning models on Chat: all tokens went into thoughts and nothing was delivered.
_TRUNCATED = r"could not finish the message because LIMIT or model output limit was reached"

ROWS: Final = (
    *QUOTAS,
    ErrorRow("spent", ErrorKind.LIMIT_CONSUMED, _TRUNCATED, _untold),
    *_ROOM,
    *_PROMPT,
    *_CEILING,
    *_PREFILLS,
    # Groq, without any number; after the rows that have one.
    _room("no numbers", r"reduce the length of the messages or completion", _guessed),
)

# OpenAI "Unsupported parameter: X is not supported with this model", older Azure "Unrecognized
# request argument supplied: X", newer "Unknown parameter: X", validators "X: Extra inputs ...".
_REFUSES = (
    r"(?:unsupported parameter|unrecognized request argument(?:s)? supplied|unknown parameter)"
    r":? {name}\b(?! and| or)|\b{name}: extra inputs are not permitted"
)
_WRONG_PARAMETER = (
    _REFUSES.format(name="(max_tokens|max_completion_tokens)")
    + r"|use (?:max_tokens|max_completion_tokens) instead of (max_tokens|max_completion_tokens)"
)
# OpenAI's own sentence is about a request that is not streamed.
_STREAM_OPTIONS = (
    _REFUSES.format(name=r"stream_options(?:\.include_usage)?")
    + r"|stream_options parameter is only allowed"
)
# Types and codes of what is wrong with the request, the key or the account.
_LASTING = (
    r"invalid|bad_?request|authenti|permission|unauthori[sz]ed|forbidden|not_?found"
    r"|context_length|insufficient_quota|exceeded_current_quota|content_(?:filter|policy)"
)
