"""The generateContent format of the Gemini API and of Vertex.

Wire facts: Google's pages on generateContent, thought signatures and long decode, error texts as
quoted in public issues, and the behaviour of google-genai 3.4.
"""

from __future__ import annotations

import re
from typing import Any

from continuation.answer.message_builder import MessageBuilder
from continuation.policy import Policy
from continuation.prompts import call_hint
from continuation.providers.contract import Dialect, Grammar, SdkDriver
from continuation.providers.contract import MessageBuilder as Turn
from continuation.providers.gemini.codec import GeminiCodec
from continuation.providers.gemini.declarations import (
    declaration,
    declared,
    either_case,
    in_json_schema,
    parameters,
    snake,
)
from continuation.providers.gemini.message_builder import GeminiMessageBuilder
from continuation.providers.gemini.parts import spoken
from continuation.providers.gemini.shape import GeminiShape
from continuation.providers.request import BaseRequest, alternate, read_body, segment
from continuation.types import ClassifiedError, ErrorKind, Head, Json, Outgoing, Request, short
from continuation.wire import sse
from continuation.wire.errors import label_of, message_of
from continuation.wire.json_values import as_int, as_json, as_list, as_text, dumps

_PATH = re.compile(
    r"/(?:models|tunedModels|endpoints)/(?P<model>[^/:]+):(?P<verb>g|streamG)enerateContent$"
)
_VERTEX = re.compile(r"/(?:publishers|endpoints)/")
_GENERATION = re.compile(r"gemini-(\d+)")
_HOP_MOST = 65_536
"""The most output tokens of one streamed request to a model that answers in hops."""
_UNARY_MOST = 32_768
"""The largest limit in tokens of such a request that is not streamed."""
_SCHEMAS = ("responseSchema", "responseJsonSchema", "responseFormat")
_LEAST = 512
"""The smallest thinking budget, in tokens, that all models with budgets accept."""
_BUSY = frozenset({408, 429, 500, 502, 503, 504})

_RANGE = re.compile(
    r"maxOutputTokens value of \d+ but the supported range is from \d+ \(inclusive\) to (\d+)"
    r" \(exclusive\)"
)
_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')
_PREFILL = re.compile(r"ending with a model turn|last turn cannot be model|prefill", re.IGNORECASE)


class GenerateRequest(BaseRequest):
    """One generateContent request of the caller.

    `unbounded` is `False`, because the default limit may be 8,192, and no response reports it.
    """

    messages_key = "contents"
    ceiling_field = "outputTokenLimit"
    can_drop_schema = False

    def __init__(self, request: Request, body: Json, codec: GeminiCodec | None = None) -> None:
        super().__init__(request, body)
        found = _PATH.search(request.path)
        self.model = short(found["model"]) if found else ""
        self.streamed = found is not None and found["verb"] == "streamG"
        self._config = _Setting(body, "generationConfig")
        self.limit = as_int(self._config.get("maxOutputTokens"))
        self._codec = codec or GeminiCodec()
        self._codec.limit, self._codec.tools = self.limit, body.get("tools")
        generation = _GENERATION.match(self.model)
        self._generation = int(generation[1]) if generation is not None else None
        self._hops = self._generation is not None and self._generation >= 4
        """Whether the model answers in hops, and input and output share one context window."""
        self.unary_ceiling = _UNARY_MOST if self._hops else None
        self.hop_ceiling = _HOP_MOST if self._hops else None
        # A request is structured if it demands JSON by a schema or forces a call. A request with a
        # continuation token counts as well: it can be resent, but a recovery would need the earlier
        # text, which is not known here.
        calling = _Setting(_Setting(body, "toolConfig").value, "functionCallingConfig")
        self._shaped = as_text(self._config.get("responseMimeType")) not in {
            "",
            "text/plain",
        } or any(self._config.get(kind) for kind in _SCHEMAS)
        self._bound = calling.get("mode") == "ANY" or bool(either_case(body, "continuationToken"))
        self.structured = self._shaped or self._bound
        self._asked = body
        """The body of the attempt that a token continues."""

    def untouched(self, policy: Policy) -> str | None:
        """Return why this request is passed through unchanged; `None`: it is not."""
        count = as_int(self._config.get("candidateCount"))
        if count is not None and count > 1:
            return f"candidateCount {count}: several answers"
        modalities = {str(kind).upper() for kind in as_list(self._config.get("responseModalities"))}
        if other := sorted(modalities - {"TEXT", "MODALITY_UNSPECIFIED"}):
            return f"responseModalities {other[0]!r}: not text"
        return None

    @property
    def completable(self) -> bool:
        return not self._bound

    @property
    def wanted(self) -> tuple[str, Json]:
        path, body = super().wanted
        return path.replace(":streamGenerateContent", ":generateContent"), body

    def _answers_tool(self, last: Json) -> bool:
        parts = map(as_json, as_list(last.get("parts")))
        answers = any(either_case(part, "functionResponse") for part in parts)
        return answers or super()._answers_tool(last)

    @property
    def _stop_sequences(self) -> object:
        return self._config.get("stopSequences")

    def hinted(self, note: str) -> GenerateRequest | None:
        """Add the schemas of the tools that the provider's `note` names, or of all tools."""
        tools = dict(declared(self.body.get("tools")))
        meant = {name: tool for name, tool in tools.items() if name in note} or tools
        if not meant:
            return None
        messages = self._messages_of(self.body)
        self._add_user(messages, call_hint(dumps(tool).decode() for tool in meant.values()))
        return self._like({**self.body, self.messages_key: messages})

    def prefills(self, model_takes_it: bool) -> bool:
        return model_takes_it and not self.structured

    def codec(self) -> GeminiCodec:
        return self._codec

    def answer(self, policy: Policy) -> MessageBuilder:
        return GeminiMessageBuilder(self._codec, policy)

    def with_less_thinking(self) -> GenerateRequest | None:
        """Lower the thinking level, or the budget of models before 3; `None`: it is low."""
        config = _Setting(self._config.value, "thinkingConfig")
        level, budget = as_text(config.get("thinkingLevel")), as_int(config.get("thinkingBudget"))
        budgets = budget is not None or (self._generation or 3) < 3
        if level.lower() in {"low", "minimal"} or (budget is not None and 0 <= budget <= _LEAST):
            return None
        lowered = (
            config.put("thinkingBudget", _LEAST) if budgets else config.put("thinkingLevel", "low")
        )
        return self._like({**self.body, self._config.name: lowered})

    def hop(self, answer: Turn, limit: int | None) -> Outgoing:
        """Return the last request with the answer's token. `limit` is for all hops together."""
        body = {**self._asked, "continuationToken": answer.token}
        body.pop("continuation_token", None)
        return self._send(body, limit)

    def refused(self, head: Head, body: bytes) -> ClassifiedError:
        """Classify an error response to a later attempt."""
        text, label = message_of(body), label_of(head.status, body)
        if head.status in _BUSY:
            # The wait is in a `google.rpc.RetryInfo` in the body, because there is no header.
            delay = _DELAY.search(body)
            wait = float(delay[1]) if delay else None
            return ClassifiedError(ErrorKind.RETRYABLE, label, wait=wait)
        if found := _RANGE.search(text):
            # If the window is shared, the range ends at the tokens that this prompt leaves free.
            refusal = ErrorKind.CONTEXT_OVERFLOW if self._hops else ErrorKind.CEILING
            return ClassifiedError(refusal, label, int(found[1]) - 1)
        if _PREFILL.search(text):
            return ClassifiedError(ErrorKind.PREFILL, label)
        return ClassifiedError(ErrorKind.FINAL, label)

    def lookup(self) -> Outgoing | None:
        """Return `GET .../models/{id}`, or `None` for Vertex, which reports no limits there."""
        if _VERTEX.search(self._request.path) or not segment(self.model):
            return None
        return Outgoing(
            b"", path=lambda path: path.rpartition(":")[0], query={"alt": ""}, method="GET"
        )

    def looked_up(self, body: bytes) -> int | None:
        """Return the ceiling in tokens. `None`: unknown, or the number may be for one hop."""
        limit = super().looked_up(body)
        return None if limit is not None and self._hops and limit <= _HOP_MOST else limit

    # --- how a request is made --------------------------------------------------------------------

    def _like(self, body: Json) -> GenerateRequest:
        return GenerateRequest(self._request, body, self._codec)

    def _add_user(self, messages: list[Any], text: str) -> None:
        """Append a message. A system instruction is refused together with cached content."""
        alternate(messages, "user", "parts", [{"text": text}])

    def _add_model(self, messages: list[Any], content: list[Json]) -> None:
        alternate(messages, "model", "parts", spoken(content))

    def _send(self, body: Json, limit: int | None) -> Outgoing:
        self._asked = body
        body = self._limited(body, limit)
        if not self.streamed:  # in a body, each call must be one part
            tools_of = _Setting(body, "toolConfig")
            calling = _Setting(tools_of.value, "functionCallingConfig")
            if calling.get("streamFunctionCallArguments"):
                whole = calling.without("streamFunctionCallArguments")
                body = tools_of.put("functionCallingConfig", whole)
        return Outgoing(
            self._written(body),
            path=lambda path: path.replace(":generateContent", ":streamGenerateContent"),
            query={"alt": "sse"},
        )

    def _for_recovery(self, body: Json, answer: Turn) -> Json:
        """Drop the output constraint, because the rest of a document is not a valid document."""
        config = _Setting(body, "generationConfig")
        for key in ("responseMimeType", *_SCHEMAS) if self._shaped else ():
            config = _Setting({**body, config.name: config.without(key)}, "generationConfig")
        return config.body

    @property
    def document(self) -> Json | None:
        shape = as_json(self._config.get("responseJsonSchema"))
        return shape or as_json(in_json_schema(self._config.get("responseSchema"))) or None

    def _calling_none(self, body: Json) -> Json:
        if not body.get("tools"):
            return body
        return _Setting(body, "toolConfig").put("functionCallingConfig", {"mode": "NONE"})

    def _calling(self, body: Json, tool: str, schema: Json) -> Json:
        declaration = {"name": tool, "parametersJsonSchema": schema}
        body = {**body, "tools": [{"functionDeclarations": [declaration]}]}
        only = {"mode": "ANY", "allowedFunctionNames": [tool]}
        return _Setting(body, "toolConfig").put("functionCallingConfig", only)

    @property
    def callable_tools(self) -> list[str]:
        calling = _Setting(_Setting(self.body, "toolConfig").value, "functionCallingConfig")
        if calling.get("mode") == "NONE":
            return []
        return [name for name, _ in declared(self.body.get("tools")) if name]

    def schema(self, tool: str) -> Json | None:
        declared = declaration(self.body.get("tools"), tool)
        return parameters(declared) or None if declared is not None else None

    def _limited(self, body: Json, limit: int | None) -> Json:
        self._codec.limit = self.limit if limit is None else limit
        if limit is None:
            return dict(body)
        return _Setting(body, "generationConfig").put("maxOutputTokens", limit)


class _Setting:
    """One object in a request. Its keys may be in camelCase or snake_case, as the server allows."""

    def __init__(self, body: Json, name: str) -> None:
        self.body = body
        self.name = name if name in body or snake(name) not in body else snake(name)
        self.value = as_json(body.get(self.name))

    def get(self, key: str) -> object:
        return either_case(self.value, key)

    def put(self, key: str, value: object) -> Json:
        """Return the request's body with another value for a key of this object."""
        return {**self.body, self.name: {**self.without(key), key: value}}

    def without(self, key: str) -> Json:
        return {k: v for k, v in self.value.items() if k not in {key, snake(key)}}


class Gemini(Dialect):
    """The dialect of generateContent."""

    name = "gemini"
    has_grammar = True
    default_ceiling = 65_535
    default_timeout: float | None = None
    shape = GeminiShape()

    def claims(self, method: str, path: str) -> bool:
        return method == "POST" and _PATH.search(path) is not None

    def call(self, request: Request) -> GenerateRequest:
        return GenerateRequest(request, read_body(request))

    def grammar(self) -> Grammar:
        from continuation.providers.gemini.history import GeminiGrammar

        return GeminiGrammar()

    def driver(self) -> SdkDriver:
        from continuation.providers.gemini.sdk import DRIVER

        return DRIVER

    def keep_alive(self, opening: bytes) -> bytes:
        """Return a chunk with an empty text. A comment would break readers that expect JSON."""
        first = sse.first_json(opening)
        content: Json = {"parts": [{"text": ""}], "role": "model"}
        chunk: Json = {"candidates": [{"content": content, "index": 0}]}
        chunk |= {key: first[key] for key in ("modelVersion", "responseId") if key in first}
        return b"data: %b\r\n\r\n" % dumps(chunk)


DIALECT = Gemini()
