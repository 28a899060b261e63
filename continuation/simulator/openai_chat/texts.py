"""Longer error texts of Chat servers, word for word; `_chat_vendors.py` tells what fills them."""

from __future__ import annotations

OPENAI_CEILING = (
    "{name} is too large: {asked}. This model supports at most {most} completion tokens, "
    "whereas you provided {asked}."
)
OPENAI_TOTAL = (
    "This model's maximum context length is {window} tokens. However, you requested {total} tokens "
    "({prompt} in the messages, {asked} in the completion). Please reduce the length of the "
    "messages or completion."
)
OPENAI_PROMPT = (
    "This model's maximum context length is {window} tokens. However, your messages resulted in "
    "{prompt} tokens. Please reduce the length of the messages."
)
OPENAI_REASONING_PROMPT = (
    "Input tokens exceed the configured limit of {room} tokens. Your messages resulted in {prompt} "
    "tokens. Please reduce the length of the messages."
)
DEEPSEEK_CEILING = "Invalid max_tokens value, the valid range of max_tokens is [1, {most}]"
QWEN_CEILING = (
    "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, {most}]"
)
QWEN_PROMPT = (
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {window}]"
)
GROQ_CEILING = (
    "`{name}` must be less than or equal to `{most}`, the maximum value for `{name}` is less than "
    "the `context_window` for this model"
)
SGLANG_CEILING = (  # no space between its sentences
    "max_completion_tokens is too large: {asked}."
    "This model supports at most {most} completion tokens."
)
SGLANG_TOTAL = (
    "Requested token count exceeds the model's maximum context length of {window} tokens. You "
    "requested a total of {total} tokens: {prompt} tokens from the input messages and {asked} "
    "tokens for the completion."
)
SGLANG_PROMPT = (
    "The input ({prompt} tokens) is longer than the model's context length ({window} tokens)."
)
VLLM_TOTAL = (
    "You passed {prompt} input tokens and requested {asked} output tokens. However, the model's "
    "context length is only {window} tokens, resulting in a maximum input length of {room} tokens. "
    "Please reduce the length of the input prompt. (parameter=input_tokens, value={prompt})"
)
OPENROUTER_TOTAL = (
    "This endpoint's maximum context length is {window} tokens. However, you requested about "
    "{total} tokens ({prompt} of text input, {asked} in the output). Please reduce the length of "
    'either one, or use the "middle-out" transform to compress your prompt automatically.'
)

NO_KEY = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header "
    "using Bearer auth (i.e. Authorization: Bearer YOUR_KEY), or as the password field (with blank "
    "username) if you're accessing the API from your browser and are prompted for a username and "
    "password. You can obtain an API key from https://platform.openai.com/account/api-keys."
)
NO_JSON = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using "
    "your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not "
    "valid JSON. If you have trouble figuring out how to fix this, please contact us through our "
    "help center at help.openai.com.)"
)
SERVER_ERROR = "The server had an error while processing your request. Sorry about that!"

DEEPSEEK_LAST = (
    "The last message of {model} must be a user message, or an assistant message with prefix mode "
    "on (refer to https://api-docs.deepseek.com/guides/chat_prefix_completion)."
)
DEEPSEEK_BETA = (
    'prefix is only available when using beta api (set base_url="https://api.deepseek.com/beta")'
)
MISTRAL_LAST = (
    "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
)
MISTRAL_COUNT = "Not the same number of function calls and responses"
VLLM_BOTH = "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
VLLM_DEFAULT = (  # its template library's, when the other flag was left at its default
    "continue_final_message and add_generation_prompt are not compatible. Use "
    "continue_final_message when you want the model to continue the final message, and "
    "add_generation_prompt when you want to add a header that will prompt it to start a new "
    "assistant message instead."
)
VLLM_MISTRAL = (
    "Cannot set `add_generation_prompt` to True when the last message is from the assistant. "
    "Consider using `continue_final_message` instead."
)
LLAMACPP_THINKING = "Assistant response prefill is incompatible with enable_thinking."
LLAMACPP_TWO = "Cannot have 2 or more assistant messages at the end of the list."
GEMINI_LAST = "Requests ending with a model turn are not supported."
CLAUDE_LAST = (
    "This model does not support assistant message prefill. "
    "The conversation must end with a user message."
)
QWEN_THINKING = (  # ours, after its refusal of JSON mode
    "<400> InternalError.Algo.InvalidParameter: Partial mode is not supported when "
    "enable_thinking is true"
)
