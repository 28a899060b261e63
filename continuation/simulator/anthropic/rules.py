"""The rules for a Messages history, as Anthropic's API enforces them.

They are written only from the provider's pages and error texts. They share nothing with the code
that repairs histories, so that a wrong rule there is not confirmed here. Sources: Anthropic's pages
on errors, tool use and extended thinking, and the error texts that public issues quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

from continuation.limits import ModelLimits
from continuation.simulator.common import REASONING_KEYS, HistoryFault, Rulebook, is_reasoning
from continuation.simulator.wire import Json
from continuation.wire.json_values import as_list, is_map, mapping, objects

_MUST_ANSWER = (
    "messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}."
    " Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)
RULES = Rulebook(
    {
        "message_invalid": "messages.{n}: Input should be a valid dictionary",
        "block_invalid": "messages.{n}.content.{m}: Input tag does not match any of the expected"
        " tags",
        "role_invalid": "messages.{n}.role: Input should be 'user' or 'assistant'",
        "system_misplaced": "messages.{n}: {detail}; the directive-only form (content: [] with"
        " output_config) is accepted at any position",
        "tool_use_in_user": "messages.{n}: `tool_use` blocks can only be in `assistant` messages",
        "tool_result_in_assistant": "messages.{n}: `tool_result` blocks can only be in `user`"
        " messages",
        "first_not_user": 'messages: first message must use the "user" role',
        "message_empty": "messages.{n}: all messages must have non-empty content except for the"
        " optional final assistant message",
        "text_empty": "messages: text content blocks must be non-empty",
        "text_blank": "messages: text content blocks must contain non-whitespace text",
        "system_text_empty": "system: text content blocks must be non-empty",
        "tool_use_id_invalid": "messages.{n}.content.{m}.tool_use.id: String should match pattern"
        " '^[a-zA-Z0-9_-]+$'",
        "tool_name_invalid": "messages.{n}.content.{m}.tool_use.name: String should {detail}",
        "tool_input_invalid": "messages.{n}.content.{m}.tool_use.input: Input should be a valid"
        " dictionary",
        "tools_undeclared": "Requests which include `tool_use` or `tool_result` blocks must define"
        " tools.",
        "tool_use_duplicate_id": "messages: `tool_use` ids must be unique",
        "thinking_not_first": "messages.{n}.content.0.type: If an assistant message contains any"
        " thinking blocks, the first block must be `thinking` or `redacted_thinking`. Found"
        " `{detail}`.",
        "thinking_last": "messages.{n}: The final block in an assistant message cannot be"
        " `thinking`.",
        "thinking_foreign": "messages.{n}.content.{m}: Invalid `signature` in `thinking` block",
        "thinking_blank": "messages.{n}.content.{m}.thinking: each thinking block must contain"
        " thinking",
        "thinking_redacted_invalid": "messages.{n}.content.{m}: Invalid `data` in"
        " `redacted_thinking` block",
        "thinking_modified": "messages.{n}.content.{m}: `thinking` or `redacted_thinking` blocks in"
        " the latest assistant message cannot be modified. These blocks must remain as they were in"
        " the original response.",
        "tool_use_not_last": _MUST_ANSWER,
        "tool_result_missing": _MUST_ANSWER,
        "tool_result_orphan": "messages.{n}.content.{m}: unexpected `tool_use_id` found in"
        " `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use`"
        " block in the previous message.",
        "tool_result_duplicate": "messages.{n}.content.{m}: each tool_use must have a single"
        " result. Found multiple `tool_result` blocks with id: {id}",
        "error_result_not_text": "messages.{n}.content.{m}.tool_result: all content must be type"
        " `text` if `is_error` is true",
        "server_result_missing": "messages.{n}.content.{m}: `{name}` tool use with id `{id}` was"
        " found without a corresponding `{name}_tool_result` block",
        "server_result_orphan": "messages.{n}.content.{m}: unexpected `tool_use_id` found in tool"
        " result blocks: {id}",
        "thinking_missing": "messages.{n}.content.0.type: Expected `thinking` or"
        " `redacted_thinking`, but found `{detail}`. When `thinking` is enabled, a final"
        " `assistant` message must start with a thinking block (preceeding the lastmost set of"
        " `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from"
        " previous turns. To avoid this requirement, disable `thinking`.",
        "trailing_whitespace": "messages: final assistant content cannot end with trailing"
        " whitespace",
        "content_invalid": "messages.{n}.content: Input should be a valid list",
        "prefill_unsupported": "This model does not support assistant message prefill. The"
        " conversation must end with a user message.",
        "thinking_bound": "messages.{n}.content.{m}: Invalid `signature` in `thinking` block. The"
        " block is bound to a different conversation. Remove the block, or set"
        ' `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".',
        "thinking_in_user": "messages.{n}: `thinking` blocks can only be in `assistant` messages",
        "thinking_when_off": "messages.{n}: When thinking is disabled, an `assistant` message in"
        " the final position cannot contain `thinking`. To use thinking blocks, enable `thinking`"
        " in your request.",
        "thinking_unsupported": "messages.{n}.content.{m}: thinking is not supported on this model",
        "thinking_mode_unsupported": '"thinking.type.{detail}" is not supported for this model',
    }
)
_fault = RULES.fault

_THINKING = ("thinking", "redacted_thinking")
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_FOREIGN = frozenset(
    {"input_text", "output_text", "refusal", "image_url", "input_image", "reasoning"}
)
"""Types of blocks that only other formats have. Unknown types are accepted: they may be new."""
_CHAT_FIELDS = REASONING_KEYS | {"tool_calls", "function_call", "refusal", "annotations", "audio"}
_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
_SIGNATURE = re.compile(r"[A-Za-z0-9+/_=-]+\Z")
_OTHERS_SIGNATURES = (
    *("skip_thought_signature_validator", "context_engineering_is_the_way", "gAAAA"),
)
"""Google's placeholders for a lost signature, and the beginning of OpenAI's encrypted reasoning."""
_LONGEST_NAME = 200


class _Block(NamedTuple):
    m: int
    kind: str
    fields: Json


class _Said(NamedTuple):
    n: int
    role: str
    fields: Json
    blocks: list[_Block]

    def of(self, *kinds: str) -> list[_Block]:
        return [block for block in self.blocks if block.kind in kinds]


def faults(body: Json, model: ModelLimits) -> list[HistoryFault]:
    """Return the rules that a history breaks. It must end so that the model can answer."""
    natives = as_list(body.get("messages"))
    messages = [_message(n, native) for n, native in enumerate(natives)]
    found = [
        *(fault for n, native in enumerate(natives) for fault in _form(n, native)),
        *(fault for message in messages for fault in _contents(message, len(messages))),
        *(fault for message in messages for fault in _sides(message)),
        *_order(messages),
        *_calls(messages),
        *_server_calls(messages),
        *_request(body, messages),
        *_thinking(body, messages, model),
        *_end(body, messages, model),
    ]
    name = str(body.get("model") or "")
    if not name or "claude" in name.lower():  # other vendors' models do not sign thinking
        found += _signatures(messages)
        found += _systems(messages)
    return RULES.ranked(found)


def _message(n: int, native: Any) -> _Said:
    fields = mapping(native)
    content = fields.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    blocks = [
        _Block(m, str(mapping(block).get("type")), mapping(block))
        for m, block in enumerate(as_list(content))
    ]
    role = fields.get("role")
    return _Said(n, role if role in ("assistant", "system") else "user", fields, blocks)


def _form(n: int, native: Any) -> Iterator[HistoryFault]:
    fields = mapping(native)
    if not is_map(native):
        yield _fault("message_invalid", n)
    elif fields.get("role") not in ("user", "assistant", "system") or _CHAT_FIELDS & fields.keys():
        yield _fault("role_invalid", n)
    elif is_map(fields.get("content")):
        yield _fault("content_invalid", n)


def _contents(message: _Said, count: int) -> Iterator[HistoryFault]:
    """Check for empty messages, and check each block by itself."""
    n, content = message.n, message.fields.get("content")
    if not message.blocks and message.fields and not is_map(content):
        last = n == count - 1 and message.role == "assistant" and content is not None
        directive = message.role == "system" and "output_config" in message.fields
        if not last and not directive:
            yield _fault("message_empty", n)
    for block in message.blocks:
        if _is_foreign(block):
            yield _fault("block_invalid", n, block.m)
        elif block.kind == "text" and not (text := str(block.fields["text"])).strip():
            yield _fault("text_blank" if text else "text_empty", n, block.m)
        elif block.kind == "tool_use":
            yield from _call(n, block)
        elif block.kind == "tool_result":
            yield from _result(n, block)


def _is_foreign(block: _Block) -> bool:
    """Whether a block has a type that the API cannot have, or is a text block without a text."""
    fields, kind = block.fields, block.kind
    untyped = not isinstance(fields.get("type"), str)
    textless = kind == "text" and not isinstance(fields.get("text"), str)
    thought = is_reasoning(fields) and kind not in _THINKING
    return untyped or textless or thought or kind in _FOREIGN


def _call(n: int, block: _Block) -> Iterator[HistoryFault]:
    fields, name = block.fields, str(block.fields.get("name") or "")
    if not _ID.match(str(fields.get("id") or "")):
        yield _fault("tool_use_id_invalid", n, block.m)
    if not 0 < len(name) <= _LONGEST_NAME:
        bound = f"most {_LONGEST_NAME} characters" if name else "least 1 character"
        yield _fault("tool_name_invalid", n, block.m, detail=f"have at {bound}")
    if not is_map(fields.get("input")):
        yield _fault("tool_input_invalid", n, block.m)


def _result(n: int, block: _Block) -> Iterator[HistoryFault]:
    content = block.fields.get("content")
    if is_map(content):
        yield _fault("content_invalid", n, block.m)
    if any(map(_blank, objects(content))):
        yield _fault("text_empty", n, block.m)
    plain = all(mapping(each).get("type") == "text" for each in as_list(content))
    if block.fields.get("is_error") and not plain:
        yield _fault("error_result_not_text", n, block.m)


def _blank(block: Json) -> bool:
    text = block.get("text")
    return block.get("type") == "text" and isinstance(text, str) and not text.strip()


def _sides(message: _Said) -> Iterator[HistoryFault]:
    n, role = message.n, message.role
    if role == "user":
        yield from (_fault("tool_use_in_user", n, m) for m, _, _ in message.of("tool_use"))
        yield from (_fault("thinking_in_user", n, m) for m, _, _ in message.of(*_THINKING))
    if role == "assistant":
        results = message.of("tool_result")
        yield from (_fault("tool_result_in_assistant", n, m) for m, _, _ in results)


def _order(messages: list[_Said]) -> Iterator[HistoryFault]:
    if messages and messages[0].role == "assistant":
        yield _fault("first_not_user", 0)


def _calls(messages: list[_Said]) -> Iterator[HistoryFault]:
    """Check that each call has one result at the head of the next message, and vice versa."""
    seen = set[str]()
    for message in (each for each in messages if each.role == "assistant"):
        for m, _, block in message.of("tool_use"):
            if (name := str(block.get("id") or "")) in seen:
                yield _fault("tool_use_duplicate_id", message.n, m)
            seen.add(name)
        yield from _calls_end(message)
    ends: list[_Said | None] = [None, *messages, None]
    for before, after in pairwise(ends):
        calls = before.of("tool_use") if before and before.role == "assistant" else []
        names = [str(block.fields.get("id") or "") for block in calls]
        answers = after.blocks if after and after.role == "user" else []
        head = takewhile(lambda block: block.kind == "tool_result", answers)
        answered = {str(block.fields.get("tool_use_id") or "") for block in head}
        missing = [name for name in names if name not in answered]
        if before and missing:
            yield _fault("tool_result_missing", before.n, ids=", ".join(missing[:50]))
        if after and after.role == "user":
            yield from _results(after, names)


def _calls_end(message: _Said) -> Iterator[HistoryFault]:
    """Check that only other calls, thinking and server calls follow a call."""
    called = list[str]()
    for block in message.blocks:
        if block.kind == "tool_use":
            called.append(str(block.fields.get("id") or ""))
        elif called and not (
            block.kind in (*_THINKING, *_SERVER_CALLS) or block.kind.endswith("tool_result")
        ):
            yield _fault("tool_use_not_last", message.n, block.m, ids=", ".join(called))
            return


def _results(message: _Said, called: list[str]) -> Iterator[HistoryFault]:
    seen = set[str]()
    for m, _, block in message.of("tool_result"):
        name = str(block.get("tool_use_id") or "")
        if name not in called or name in seen:
            code = "tool_result_duplicate" if name in seen else "tool_result_orphan"
            yield _fault(code, message.n, m, id=name)
        seen.add(name)


def _server_calls(messages: list[_Said]) -> Iterator[HistoryFault]:
    """Check the calls that the server answers. One without a result must be in a paused answer."""
    open_calls: dict[str, tuple[int, _Block]] = {}
    names = {
        str(b.fields.get("id") or "") for message in messages for b in message.of(*_SERVER_CALLS)
    }
    for message in messages:
        for block in message.blocks:
            if block.kind in _SERVER_CALLS:
                name = str(block.fields.get("id") or "")
                open_calls[name] = message.n, block
            elif block.kind.endswith("_tool_result"):
                name = str(block.fields.get("tool_use_id") or "")
                open_calls.pop(name, None)
                if name not in names:
                    yield _fault("server_result_orphan", message.n, block.m, id=name)
        if message.role == "user" and any(b.kind != "tool_result" for b in message.blocks):
            for name, (n, block) in open_calls.items():
                tool = block.fields.get("name", "")
                yield _fault("server_result_missing", n, block.m, name=tool, id=name)
            open_calls = {}


def _request(body: Json, messages: list[_Said]) -> Iterator[HistoryFault]:
    """Check the other fields of the request that a history requires."""
    if not body.get("tools") and any(each.of("tool_use", "tool_result") for each in messages):
        yield _fault("tools_undeclared")
    system = body.get("system")
    if isinstance(system, str):
        if system and not system.strip():
            yield _fault("system_text_empty")
    elif any(map(_blank, objects(system))):
        yield _fault("system_text_empty")


def _end(body: Json, messages: list[_Said], model: ModelLimits) -> Iterator[HistoryFault]:
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or not last.blocks:
        return
    text = str(last.blocks[-1].fields.get("text"))
    if last.blocks[-1].kind != "text" or not text.strip():
        return
    thinks = mapping(body.get("thinking")).get("type") in ("enabled", "adaptive")
    if thinks or not model.prefill:
        yield _fault("prefill_unsupported", last.n)
    elif text != text.rstrip():
        yield _fault("trailing_whitespace", last.n)


def _systems(messages: list[_Said]) -> Iterator[HistoryFault]:
    """Check the places of system messages.

    A system message must follow the user or a server's result, and must precede the assistant or
    end the array. One without content is accepted anywhere. Source: Anthropic's page on
    mid-conversation system messages.
    """
    before: _Said | None = None
    for at, message in enumerate(messages):
        if message.role != "system":
            before = message
            continue
        after = next((each for each in messages[at:] if each.role != "system"), None)
        detail = ""
        if before is None:
            detail = "use the top-level 'system' parameter for the initial system prompt"
        elif before.role == "assistant" and not (
            before.blocks
            and before.blocks[-1].kind.endswith("_tool_result")
            and before.blocks[-1].kind != "tool_result"
        ):
            detail = (
                "role 'system' must follow a 'user' message or an 'assistant' message ending in a"
                " server tool result"
            )
        elif after is not None and after.role == "user":
            detail = "role 'system' must precede an 'assistant' message or end the array"
        if detail and message.blocks:
            yield _fault("system_misplaced", message.n, detail=detail)


def _signatures(messages: list[_Said]) -> Iterator[HistoryFault]:
    """Check that the signatures of thinking may be Anthropic's."""
    for message in messages:
        for m, kind, block in message.of(*_THINKING):
            signature = block.get("signature")
            if kind == "redacted_thinking":
                if not isinstance(block.get("data"), str) or not block["data"]:
                    yield _fault("thinking_redacted_invalid", message.n, m)
            elif not isinstance(signature, str) or not signature:
                blank = not str(block.get("thinking") or "").strip()
                yield _fault("thinking_blank" if blank else "thinking_foreign", message.n, m)
            elif not _SIGNATURE.match(signature) or signature.startswith(_OTHERS_SIGNATURES):
                yield _fault("thinking_foreign", message.n, m)


def _thinking(body: Json, messages: list[_Said], model: ModelLimits) -> Iterator[HistoryFault]:
    """Check the places of thinking, and whether the model accepts thinking and its mode."""
    mode = str(mapping(body.get("thinking")).get("type", ""))
    if mode in _REFUSED_MODES.get(model.thinking, ()):
        yield _fault("thinking_mode_unsupported", detail=mode)
    for message, after in zip(messages, [*messages[1:], None], strict=False):
        thoughts = message.of(*_THINKING) if message.role == "assistant" else []
        if not thoughts:
            continue
        if model.thinking == "none":
            yield from (_fault("thinking_unsupported", message.n, m) for m, _, _ in thoughts)
            continue
        if message.blocks[-1].kind in _THINKING and (after is None or after.role != "assistant"):
            yield _fault("thinking_last", message.n, message.blocks[-1].m)
        # The API writes no adjacent thinking blocks before a call, so a client has merged messages.
        kinds = [block.kind for block in message.blocks]
        for m, pair in enumerate(pairwise(kinds)):
            if pair == ("thinking", "thinking") and "tool_use" in kinds:
                yield _fault("thinking_modified", message.n, m)
    if mode == "enabled":
        yield from _loop(messages)


_REFUSED_MODES = {
    "none": ("enabled", "adaptive"),
    "manual": ("adaptive",),
    "always": ("disabled", "enabled"),
}


def _loop(messages: list[_Said]) -> Iterator[HistoryFault]:
    """Check that an open tool loop begins with thinking, as manual mode requires."""
    first: _Said | None = None
    results = False
    for message in reversed(messages):
        if message.role == "assistant":
            if not results:
                return
            first = message
        elif message.role == "user":
            if message.of("tool_result"):
                results = True
            elif first is not None:
                break
    if first is not None and first.blocks and first.blocks[0].kind not in _THINKING:
        yield _fault("thinking_missing", first.n, detail=first.blocks[0].kind)
