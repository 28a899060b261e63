"""What OpenAI-compatible servers say when they refuse a request, in their own words.

Collected from issue trackers, documentation and the servers' sources; the numbers are sometimes
adapted. A case is the text and the limit it names, if it names one.
"""

from __future__ import annotations

from typing import TypeAlias

from continuation.providers.openai_common.errors import MARGIN

Case: TypeAlias = tuple[str, int | None]

CEILINGS: dict[str, Case] = {
    "openai": (
        "max_tokens is too large: 100000. This model supports at most 16384 completion"
        " tokens, whereas you provided 100000.",
        16384,
    ),
    "openai, other parameter": (
        "max_completion_tokens is too large: 200000. This model supports at most 100000"
        " completion tokens, whereas you provided 200000.",
        100000,
    ),
    "openai responses": (
        "max_output_tokens is too large: 32000. This model supports at most 16384"
        " output tokens, whereas you provided 32000.",
        16384,
    ),
    "thousands separators": (
        "This model supports at most 16,384 completion tokens",
        16384,
    ),
    "deepseek": (
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        8192,
    ),
    "deepseek v4": (
        "Invalid max_tokens value, the valid range of max_tokens is [1, 393216]",
        393216,
    ),
    "deepseek responses": (
        "Invalid max_output_tokens value, the valid range of max_output_tokens is [1, 393216]",
        393216,
    ),
    "dashscope": (
        "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]",
        8192,
    ),
    "zhipu": (
        "max_tokens参数非法：限制数值范围[1,131072]",
        131072,
    ),
    "volcengine": (
        "The parameter `max_completion_tokens` specified in the request are not valid:"
        " integer above maximum value, expected a value <= 12288, but got 32000"
        " instead. Request id: 02177",
        12288,
    ),
    "openai validation": (
        "Invalid 'max_output_tokens': integer above maximum value. Expected a value <="
        " 128000, but got 200000 instead.",
        128000,
    ),
    "groq": (
        "`max_tokens` must be less than or equal to `16384`, the maximum value for"
        " `max_tokens` is less than the `context_window` for this model",
        16384,
    ),
    "groq, other parameter": (
        "max_completion_tokens must be less than or equal to 40960, the maximum value"
        " for max_completion_tokens is less than the context_window for this model",
        40960,
    ),
    "sglang": (
        "max_completion_tokens is too large: 50000.This model supports at most 8192"
        " completion tokens.",
        8192,
    ),
    "gateway": (
        "max_tokens (384000) exceeds model's maximum output tokens (65536) for model"
        " deepseek-v4-flash:0731",
        65536,
    ),
    "gateway, max_new_tokens": (
        "OpenAI API error (400): 400 max_new_tokens (384000) exceeds model's maximum"
        " output tokens (65536)",
        65536,
    ),
    "at most": (
        "max_tokens must be at most 4096",
        4096,
    ),
    "between": (
        "max_tokens must be between 1 and 32768",
        32768,
    ),
    "tgi": (
        "Input validation error: `max_new_tokens` must be <= 2048. Given: 5000",
        2048,
    ),
    "anthropic": (
        "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens"
        " for claude-3-5-sonnet-20240620",
        4096,
    ),
    "gemini": (
        "Unable to submit request because it has a maxOutputTokens value of 788977 but"
        " the supported range is from 1 (inclusive) to 65537 (exclusive). Update the"
        " value and try again.",
        65536,
    ),
}

ROOMS: dict[str, Case] = {
    "openai": (
        "This model's maximum context length is 4096 tokens. However, you requested"
        " 4157 tokens (62 in the messages, 4095 in the completion). Please reduce the"
        " length of the messages or completion.",
        4096 - 62,
    ),
    "openai, functions": (
        "This model's maximum context length is 4096 tokens. However, you requested"
        " 4157 tokens (62 in the messages, 95 in the functions, and 4000 in the"
        " completion).",
        4096 - 157,
    ),
    "openai legacy": (
        "This model's maximum context length is 4097 tokens, however you requested 5360"
        " tokens (1360 in your prompt; 4000 for the completion). Please reduce your"
        " prompt; or completion length.",
        4097 - 1360,
    ),
    "openrouter": (
        "This endpoint's maximum context length is 200000 tokens. However, you"
        " requested about 235000 tokens (150000 of text input, 40000 of tool input,"
        " 45000 in the output). Please reduce the length of either one, or use the"
        ' "middle-out" transform to compress your prompt automatically.',
        10000 - MARGIN,
    ),
    "vllm": (
        "You passed 400 input tokens and requested 2045 output tokens. However, the"
        " model's context length is only 2048 tokens, resulting in a maximum input"
        " length of 3 tokens.",
        2048 - 400,
    ),
    "vllm stopped counting": (
        "You passed 10243 input tokens and requested 6142 output tokens. However, the"
        " model's context length is only 16384 tokens, resulting in a maximum input"
        " length of 10242 tokens. Please reduce the length of the input prompt."
        " (parameter=input_tokens, value=10243)",
        6142 // 2,
    ),
    "vllm before 0.16": (
        "This model's maximum context length is 131072 tokens. However, you requested"
        " 65536 output tokens and your prompt contains 70000 input tokens, for a total"
        " of 135536 tokens.",
        131072 - 70000,
    ),
    "vllm before 0.16, stopped counting": (
        "This model's maximum context length is 131072 tokens. However, you requested"
        " 65536 output tokens and your prompt contains at least 65537 input tokens, for"
        " a total of at least 131073 tokens. Please reduce the length of the input"
        " prompt or the number of requested output tokens.",
        65536 // 2,
    ),
    "vllm, limit against window": (
        "'max_tokens' or 'max_completion_tokens' is too large: 40000. This model's"
        " maximum context length is 40960 tokens and your request has 1200 input tokens"
        " (40000 > 40960 - 1200).",
        40960 - 1200,
    ),
    "vllm, limit over window": (
        "max_tokens=8000 cannot be greater than max_model_len=max_total_tokens=4096."
        " Please request fewer output tokens. (parameter=max_tokens, value=8000)",
        2048,
    ),
    "vllm, limit over window, older": (
        "max_tokens=65536 cannot be greater than max_model_len=40960. Please request"
        " fewer output tokens.",
        20480,
    ),
    "sglang": (
        "Requested token count exceeds the model's maximum context length of 32768"
        " tokens. You requested a total of 40100 tokens: 100 tokens from the input"
        " messages and 40000 tokens for the completion. Please reduce the number of"
        " tokens in the input messages or the completion to fit within the limit.",
        32668,
    ),
    "lm studio": (
        "This model's maximum context length is 65536 tokens. However, you requested"
        " 65536 output tokens and your prompt contains 77409 characters (more than 0"
        " characters, which is the upper bound for 0 input tokens). Please reduce the"
        " length of the input prompt or the number of requested output tokens.",
        65536 - 25803 - MARGIN,
    ),
    "anthropic": (
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000,"
        " decrease input length or `max_tokens` and try again",
        200000 - 188240,
    ),
    "anthropic, i.e.": (
        "input length and max_tokens exceed context limit (i.e 156321 + 48384 > 200000)",
        200000 - 156321,
    ),
    "available": (
        "max_tokens: 32768 > context_window: 200000 - input_tokens: 190000 ="
        " available_tokens: 10000",
        10000,
    ),
    "tgi": (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096."
        " Given: 1000 `inputs` tokens and 32768 `max_new_tokens`",
        3096,
    ),
    "together, no prompt": (
        "`inputs` tokens + `max_new_tokens` must be <= 4097",
        None,
    ),
    "together, sum": (
        "The sum of 'inputs' tokens and 'max_new_tokens' must not exceed 4097.",
        None,
    ),
    "groq, no numbers": (
        "Please reduce the length of the messages or completion.",
        None,
    ),
    "moonshot": (
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 265359)",
        None,
    ),
}

FINALS: dict[str, str] = {
    # The prompt alone is too long.
    "openai": (
        "This model's maximum context length is 8192 tokens. However, your messages"
        " resulted in 9000 tokens. Please reduce the length of the messages."
    ),
    "openai, no room": (
        "This model's maximum context length is 4096 tokens. However, you requested"
        " 4157 tokens (4100 in the messages, 57 in the completion)."
    ),
    "gpt-5": (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages"
        " resulted in 300007 tokens. Please reduce the length of the messages."
    ),
    "responses": (
        "Your input exceeds the context window of this model. Please adjust your input"
        " and try again."
    ),
    "dashscope": "Range of input length should be [1, 3072]",
    "zhipu": "Prompt exceeds max length",
    "moonshot": "Input token length too long",
    "volcengine": "Input length 1048826 exceeds the maximum length 1048566. Request id: 0217882",
    "xai": ("This model's maximum prompt length is 131072 but the request contains 149617 tokens."),
    "mistral": (
        "Prompt contains 40046 tokens and 0 draft tokens, too large for model with"
        " 32768 maximum context length"
    ),
    "sglang": (
        "The input (70000 tokens) is longer than the model's context length (65536 tokens)."
    ),
    "llama.cpp": (
        "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"
    ),
    "vllm": (
        "You passed 2049 input tokens and requested 0 output tokens. However, the"
        " model's context length is only 2048 tokens, resulting in a maximum input"
        " length of 2048 tokens."
    ),
    "vllm, older": (
        "This model's maximum context length is 8192 tokens. However, your request has"
        " 9000 input tokens."
    ),
    "lm studio": (
        "maximum context length is 1000 tokens. However, you requested 1000 output"
        " tokens and your prompt contains 9000 characters."
    ),
    "gemini": (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    ),
    "anthropic": "prompt is too long: 205000 tokens > 200000 maximum",
    "anthropic, no room": (
        "input length and `max_tokens` exceed context limit: 205000 + 4096 > 200000"
    ),
    "tgi": (
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4500 `inputs`"
        " tokens and 512 `max_new_tokens`"
    ),
    "available 0": (
        "max_tokens: 8192 > context_window: 128000 - input_tokens: 128000 = available_tokens: 0"
    ),
    # A number is there, but it is not the limit.
    "another parameter": (
        "Invalid 'n': integer above maximum value. Expected a value <= 1, but got 5 instead."
    ),
    "another less than": "temperature must be less than or equal to 2",
    "below the minimum": (
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >="
        " 16, but got 1 instead."
    ),
    "no label": "exceeded: 205000 > 200000",
    "no label at all": "at most 4096",
    "sum with the prompt": "prompt + max_tokens must be at most 8192",
    "sum in words": "The sum of prompt and max_tokens must be less than or equal to 8192",
    "against the context": "max_tokens with the context must be less than or equal to 8192",
    "tools": "This model supports at most 128 tools",
    "cache blocks": "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    # Something else is wrong.
    "stream": "Requests with max_tokens > 4096 must have stream=true",
    "wrong name": (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
        " 'max_completion_tokens' instead."
    ),
    "history": "The `reasoning_content` in the thinking mode must be passed back to the API.",
    "empty": "",
}

PREFILLS: dict[str, str] = {
    "gemini": "Requests ending with a model turn are not supported.",
    "deepseek, not at /beta": (
        "prefix is only available when using beta api (set"
        ' base_url="https://api.deepseek.com/beta")'
    ),
    "vllm, one flag": (
        "continue_final_message and add_generation_prompt are not compatible. Use"
        " continue_final_message when you want the model to continue the final message"
    ),
    "claude": (
        "This model does not support assistant message prefill. The conversation must"
        " end with a user message."
    ),
    "deepseek": (
        "The last message of deepseek-reasoner must be a user message, or an assistant"
        " message with prefix mode on (refer to"
        " https://api-docs.deepseek.com/guides/chat_prefix_completion)."
    ),
    "mistral": (
        "Expected last role User or Tool (or Assistant with prefix True) for serving"
        " but got assistant"
    ),
    "llama.cpp": "Assistant response prefill is incompatible with enable_thinking.",
    "llama.cpp, two": "Cannot have 2 or more assistant messages at the end of the list.",
    "vllm, both": "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
    "vllm, mistral": (
        "Cannot set `add_generation_prompt` to True when the last message is from the"
        " assistant. Consider using `continue_final_message` instead."
    ),
    "dashscope": (
        "<400> InternalError.Algo.InvalidParameter: Partial mode is not supported when"
        " enable_thinking is true"
    ),
    "unknown field": "Unrecognized request argument supplied: continue_final_message",
    "gateway": "The conversation must end with a user message.",
    "validator": "partial: Extra inputs are not permitted",
}

TPM = (
    "Request too large for gpt-4o in organization org-abc on tokens per min (TPM):"
    " Limit 30000, Requested 40000. The input or output tokens must be reduced in"
    " order to run successfully."
)

SPENT = (
    "Could not finish the message because max_tokens or model output limit was"
    " reached. Please try again with higher max_tokens."
)
