"""OpenAI's Chat Completions (`POST .../chat/completions`), and the many servers with this format.

`vendors.toml` describes how servers differ. Wire facts: API reference "Chat Completions", and the
behaviour of openai 3.5x.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from continuation.answer.message_builder import MessageBuilder
from continuation.policy import Policy
from continuation.providers.contract import Dialect, Grammar, SdkDriver
from continuation.providers.contract import MessageBuilder as Turn
from continuation.providers.openai_chat.codec import ChatCodec
from continuation.providers.openai_chat.shape import ChatShape
from continuation.providers.openai_common import errors
from continuation.providers.openai_common.request import OpenAIRequest
from continuation.providers.openai_common.vendors import UNKNOWN
from continuation.providers.request import exchange, read_body
from continuation.types import ClassifiedError, ErrorKind, Head, Json, Outgoing, Request, Way
from continuation.wire import sse
from continuation.wire.json_values import as_int, as_json, as_list, as_text, dumps

_PATH = re.compile(r"/chat/completions/?$")
_LIMITS = ("max_completion_tokens", "max_tokens")
_BOUND = re.compile(r"\bthinking\b|reason", re.IGNORECASE)
_LOW = frozenset({"none", "minimal", "low"})


class ChatRequest(OpenAIRequest):
    """One Chat request of the caller."""

    def __init__(self, request: Request, body: Json) -> None:
        super().__init__(request, body)
        vendor = self._vendor
        self._added = False
        """Whether the last request wants usage that the caller did not want."""
        self._guessed = False
        """Whether this may have caused a refusal. Then this turn does not request usage again."""
        # A limit that the server ignores does not count: it truncates nothing, and raising it is
        # useless.
        read = (vendor.limit,) if vendor.limit_only else _LIMITS
        self._given = next((name for name in read if as_int(body.get(name)) is not None), None)
        self.limit = as_int(body[self._given]) if self._given else None
        kind = as_text(as_json(body.get("response_format")).get("type"))
        self._shaped = kind not in {"", "text"}
        # A forced call is structured output that cannot be dropped: a model that must call cannot
        # continue its text. Only the same request with a higher limit helps.
        forced = any(_forced(body.get(key)) for key in ("tool_choice", "function_call"))
        self.structured = self._shaped or forced
        self.can_drop_schema = not forced
        self.unbounded = self.limit is None and vendor.default_limit_is_ceiling

    def untouched(self, policy: Policy) -> str | None:
        """Return why this request is passed through unchanged; `None`: it is not."""
        body = self.body
        if (as_int(body.get("n")) or 1) > 1:
            return "the request asks for several choices (`n`)"
        spoken = [kind for kind in as_list(body.get("modalities")) if kind != "text"]
        if spoken or body.get("audio"):
            return "the answer is not text alone"
        if body.get("logprobs") or body.get("top_logprobs"):
            return "the request asks for 'logprobs'"
        wished = [limit for name in _LIMITS if (limit := as_int(body.get(name))) is not None]
        if self.limit is None and wished and min(wished) < policy.leave_limits_below:
            return f"limit {min(wished)} is below leave_limits_below {policy.leave_limits_below}"
        return None

    @property
    def gathers(self) -> bool:
        """Whether a complete body can be made of a stream: it needs usage, which a body has."""
        return super().gathers and self._vendor.stream_options and self._manners.counts

    def prefills(self, model_takes_it: bool) -> bool:
        """Whether prefill works. The server's profile decides, or leaves it to the model."""
        body = self.body
        present = [k for k in ("tools", "tool_choice") if body.get(k) not in (None, [], "auto")]
        if self._shaped:
            present.append("response_format")
        # Whether reasoning is on, by the parameter of any vendor.
        template = as_json(body.get("chat_template_kwargs"))
        if (
            body.get("enable_thinking") is True
            or template.get("enable_thinking") is True
            or as_json(body.get("reasoning"))
            or as_text(as_json(body.get("thinking")).get("type")) not in {"", "disabled"}
            or as_text(body.get("reasoning_effort")) not in {"", "none"}
            or _BOUND.search(self.model)
        ):
            present.append("thinking")
        return self._vendor.prefills(self.model, model_takes_it, present)

    def resume(self, answer: Turn, way: Way, prompt: str, limit: int | None) -> Outgoing:
        messages, begun = self._begun(answer)
        body = self._for_recovery({**self.body, "messages": messages}, answer)
        if way is Way.PREFILL:
            return self._prefill(body, begun, answer, limit)
        for message in exchange(answer, way, prompt):
            if isinstance(message, str):
                self._add_user(messages, message)
            else:
                messages += self._assistant_messages(message, begun)
                begun = ""
        return self._send(self._calling_none(body) if way is Way.ARGUMENT else body, limit)

    def _for_recovery(self, body: Json, answer: Turn) -> Json:
        """Drop constraints on the complete answer. The server must not store our prompt."""
        lifted = {key: value for key, value in body.items() if key not in _FIRST_ONLY}
        if self.body.get("store") or self._vendor.name == "openai":
            lifted["store"] = False  # OpenAI's default is to store requests of new accounts
        return lifted

    def _begun(self, answer: Turn) -> tuple[list[Any], str]:
        """Return the caller's messages without a prefill at their end, and the prefill's text.

        The prefill and the answer become one message. The text is `""` if there is no prefill, or
        if the server repeats it.
        """
        messages = as_list(self.body.get("messages"))
        last = as_json(messages[-1]) if messages else {}
        if last.get("role") != "assistant" or last.get("tool_calls"):
            return [*messages], ""
        body, vendor = self.body, self._vendor
        flags = (last.get("prefix"), last.get("partial"), body.get("continue_final_message"))
        if True not in flags and not (vendor.prefill == "bare" and self.prefills(False)):
            return [*messages], ""
        begun = as_text(last.get("content"))
        # Not every version of such a server repeats it, and llama.cpp has a flag against it.
        repeats = vendor.prefill_echoes or body.get("echo") is True
        return messages[:-1], "" if repeats and _text(answer.content).startswith(begun) else begun

    def _prefill(self, body: Json, begun: str, answer: Turn, limit: int | None) -> Outgoing:
        vendor = self._vendor
        messages = self._assistant_messages(answer.content) or [{"role": "assistant"}]
        last: Json = {**messages[-1], "content": begun + self.prefilled(answer)}
        if vendor.prefill in {"prefix", "partial"}:
            last[vendor.prefill] = True
        elif vendor.prefill == "continue_final_message" or vendor.prefill_echoes:
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        sent = self._send({**body, "messages": [*as_list(body["messages"]), last]}, limit)
        path = vendor.prefill_url if vendor.prefill_path else None
        return replace(sent, path=path)

    def _assistant_messages(self, content: list[Json], begun: str = "") -> list[Json]:
        """Return the model's content as one message without calls; `[]`: it has no text."""
        text = begun + _text(content)
        if not text.strip():
            return []
        message: Json = {"role": "assistant", "content": text}
        if self._vendor.replays_reasoning:
            for name in self._vendor.reasoning:
                if thought := "".join(as_text(part.get(name)) for part in content):
                    message[name] = thought
        return [message]

    def prefilled(self, answer: Turn) -> str:
        """Return the prefill's text. A "bare" one has no spaces at its end: Claude refuses them."""
        text = answer.text or answer.open_text
        return text.rstrip() if self._vendor.prefill == "bare" else text

    def codec(self) -> ChatCodec:
        asked = as_json(self.body.get("stream_options")).get("include_usage") is True
        return ChatCodec(self._vendor, usage_asked=asked, asks=lambda: self._added)

    def answer(self, policy: Policy) -> MessageBuilder:
        return MessageBuilder(self.codec(), policy)

    def with_less_thinking(self) -> ChatRequest | None:
        """Turn the vendor's thinking parameter off, or lower the effort; `None`: it is low."""
        body = self.body
        thinking, reasoning = as_json(body.get("thinking")), as_json(body.get("reasoning"))
        if thinking.get("type") == "enabled":
            lowered: Json = {"thinking": {**thinking, "type": "disabled"}}
        elif body.get("enable_thinking") is True:
            lowered = {"enable_thinking": False}
        else:
            effort = reasoning.get("effort") if reasoning else body.get("reasoning_effort")
            if as_text(effort) in _LOW:
                return None
            lowered = {"reasoning": {"effort": "low"}} if reasoning else {"reasoning_effort": "low"}
        return self._like({**body, **lowered})

    def refused(self, head: Head, body: bytes) -> ClassifiedError:
        refused = super().refused(head, body)
        final = refused.kind is ErrorKind.FINAL
        form = dict(refused.form)
        limit = errors.wrong_parameter(head.status, body)
        if limit is not None and self._manners.limit is None:
            form["limit"] = limit
            return ClassifiedError(ErrorKind.UNSUPPORTED_PARAMETER, refused.error, form=form)
        # An unknown server may refuse `stream_options` with a text that `errors.toml` lacks.
        strange = self._added and self._vendor.name == UNKNOWN
        guessed = strange and final and head.status in {400, 422}
        if guessed:
            form["guessed"] = True
        counts = self._manners.counts
        if self._guessed and final:
            form["counts"] = counts = True  # it was refused without it, so that was not the reason
        if (
            counts
            and self._added
            and (guessed or errors.refuses("stream_options", head.status, body))
        ):
            form["counts"] = False
            return ClassifiedError(ErrorKind.UNSUPPORTED_PARAMETER, refused.error, form=form)
        return replace(refused, form=form)

    def adapt(self, error: ClassifiedError) -> None:
        super().adapt(error)
        form = error.form
        self._manners.limit = as_text(form.get("limit")) or self._manners.limit
        self._manners.counts = bool(form.get("counts", self._manners.counts))
        self._guessed = self._guessed or "guessed" in form

    # --- how a request is made --------------------------------------------------------------------

    def _add_user(self, messages: list[Any], text: str) -> None:
        messages.append({"role": "user", "content": text})

    def _add_model(self, messages: list[Any], content: list[Json]) -> None:
        messages += self._assistant_messages(content)

    @property
    def document(self) -> Json | None:
        shaped = as_json(self.body.get("response_format"))
        return as_json(as_json(shaped.get("json_schema")).get("schema")) or None

    def _limited(self, body: Json, limit: int | None) -> Json:
        """Set the limit under the name that the server accepts, if known, or the caller's name."""
        self._asked = limit if limit is not None else self.limit
        if self._asked is None:
            return dict(body)
        name = self._manners.limit or self._given or self._vendor.limit
        kept = {key: value for key, value in body.items() if key not in _LIMITS}
        return {**kept, name: self._asked}

    def _send(self, body: Json, limit: int | None) -> Outgoing:
        """Return the request for a later attempt. It wants usage if the server accepts that."""
        if not self.streams:
            self._added = False
            return super()._send(body, limit)
        body = {**self._limited(body, limit), "stream": True}
        options = as_json(body.get("stream_options"))
        asked = options.get("include_usage") is True
        takes = self._vendor.stream_options and self._manners.counts and not self._guessed
        self._added = takes and not asked
        if self._added:
            body["stream_options"] = {**options, "include_usage": True}
        if not self._manners.counts:
            body.pop("stream_options", None)
        return Outgoing(self._written(body), headers={"accept": "application/json"})


def _text(content: list[Json]) -> str:
    return "".join(as_text(part.get("content")) for part in content)


def _forced(choice: object) -> bool:
    """Whether the model must call a tool: any tool ("required"), a named one, or one of a list."""
    if given := as_json(choice):
        allowed = as_json(given.get("allowed_tools")) or given
        return given.get("type") != "allowed_tools" or allowed.get("mode") == "required"
    return as_text(choice) in {"required", "any"}  # "any" is Mistral's word


_FIRST_ONLY = {
    "response_format",
    "prediction",
    # The server stores requests for the caller. It must not store our prompt.
    "store",
    "metadata",
    # vLLM, SGLang: they say how the answer continues the caller's last message.
    "continue_final_message",
    "add_generation_prompt",
    "echo",
}
"""Parameters that apply only to the first attempt."""


_OF_EACH_CHUNK = ("id", "object", "created", "model", "service_tier", "system_fingerprint")


class OpenAIChat(Dialect):
    """The dialect of Chat Completions."""

    name = "openai-chat"
    has_grammar = True
    default_ceiling = 64_000
    default_timeout: float | None = 600.0
    shape = ChatShape()

    def claims(self, method: str, path: str) -> bool:
        return method == "POST" and _PATH.search(path) is not None

    def call(self, request: Request) -> ChatRequest:
        return ChatRequest(request, read_body(request))

    def grammar(self) -> Grammar:
        from continuation.providers.openai_chat.history import ChatGrammar

        return ChatGrammar()

    def driver(self) -> SdkDriver:
        from continuation.providers.openai_chat.sdk import DRIVER

        return DRIVER

    def keep_alive(self, opening: bytes) -> bytes:
        """Return a chunk with an empty delta and the fields that each chunk of the answer has."""
        chunk = sse.first_json(opening)
        if not chunk:
            return sse.COMMENT
        repeated = {key: chunk[key] for key in _OF_EACH_CHUNK if key in chunk}
        repeated["choices"] = [{"index": 0, "delta": {}, "finish_reason": None}]
        return b"data: %b\n\n" % dumps(repeated)


DIALECT = OpenAIChat()
