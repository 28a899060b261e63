"""The simulated generateContent of the Gemini API and of Vertex.

Most texts of refusals are from public bug reports or the providers' answers. The docstring of a
check says if its texts are ours, in the providers' style.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar
from urllib.parse import parse_qs

from continuation.limits import ModelLimits
from continuation.simulator.common import compact, conversation_key, decoded, unseal
from continuation.simulator.format import GRPC_STATUSES, Format
from continuation.simulator.gemini.events import GeminiReplyWriter
from continuation.simulator.gemini.hops import Portion, Progress
from continuation.simulator.gemini.request import (
    SIGNED_BY,
    UNARY_MOST,
    GeminiContext,
    Target,
    contents,
    get,
    part_digest,
    parts,
    target,
    turns,
)
from continuation.simulator.gemini.rules import faults
from continuation.simulator.model import Ask, PromptTurn
from continuation.simulator.scenario import Reply, Scenario
from continuation.simulator.wire import Answer, Event, Json, Recorded, Refusal, Route
from continuation.wire.json_values import as_int, as_list

_VERTEX = 65_535
"""Vertex's ceiling for 2.5, 3 and 3.5 Flash. The Gemini API's is 65,536."""
_GOOGLE = re.compile(r"gem|learnlm")
"""Matches the names of Google's models, in a path that several providers have."""

# -- what is refused


def not_found(target: Target) -> Refusal:
    return Refusal(f"models/{target.model} is not found for API version {target.version}", 404)


def form(context: GeminiContext) -> Iterator[Refusal | str]:
    """Refuse an unknown model, contents without parts, and a limit that is not a number."""
    if not context.served:
        yield not_found(context.target)
    for n, content in enumerate(() if context.vertex else contents(context.body)):
        if not parts(content):
            yield (
                f"* GenerateContentRequest.contents[{n}].parts: contents.parts must not be empty."
            )
    if (value := context.requested) is not None and as_int(value) is None:
        yield f"Invalid value at 'generation_config.max_output_tokens' (TYPE_INT32), \"{value}\""


def continuation_token(context: GeminiContext) -> Iterator[str]:
    """Refuse an invalid token, or the token of another request. The texts are ours."""
    token = context.token
    if token is None:
        return
    if context.vertex and context.target.version == "v1":
        yield (
            'Invalid JSON payload received. Unknown name "continuationToken": Cannot find field.'
        )
    elif not isinstance(token, str) or decoded(token) is None:
        yield "Invalid value at 'continuation_token' (TYPE_BYTES), Base64 decoding failed"
    elif not context.hops:
        yield "continuation_token is not supported for this model."
    elif context.continued is None:
        yield "Invalid continuation_token."
    elif context.continued[0] != context.conversation:
        yield "The continuation_token belongs to another request: contents must not be changed."


def limit(context: GeminiContext) -> Iterator[str]:
    """Refuse a limit above the ceiling on Vertex. The Gemini API lowers it silently."""
    requested, most = context.requested, context.ceiling
    if requested is None:
        return
    if context.vertex and not 1 <= requested <= most:
        yield (
            f"Unable to submit request because it has a maxOutputTokens value of {requested} but "
            f"the supported range is from 1 (inclusive) to {most + 1} (exclusive). Update the "
            "value and try again."
        )
    if requested < 1:
        yield (
            "* GenerateContentRequest.generation_config.max_output_tokens: max_output_tokens must "
            "be positive."
        )
    # A model that answers in hops refuses a large limit without streaming. The text is ours.
    if context.hops and not context.streamed and context.token is None and requested > UNARY_MOST:
        yield (
            f"max_output_tokens must be at most {UNARY_MOST} for a non-streaming request without "
            f"a continuation_token, but is {requested}."
        )


_VERTEX_ONLY = ("message_empty", "text_empty")
"""The Gemini API accepts an empty text, and has another text for missing parts (see `form`)."""


def history(context: GeminiContext) -> Iterator[str]:
    """Refuse an invalid history. A call must have a result, because the model must answer."""
    for fault in faults(context.body, context.name, context.model):
        if context.vertex or fault.code not in _VERTEX_ONLY:
            yield fault.text


STAND_IN = "skip_thought_signature_validator"
"""The signature that Google documents for a part that has lost its signature."""


def signatures(context: GeminiContext) -> Iterator[str]:
    """Refuse invalid thought signatures. Models before Gemini 3 neither make nor check them.

    Unknown signatures are refused only with `strict_signatures`. The rules of histories refuse
    invalid Base64. Source: Google's page on thought signatures, and public issues.
    """
    vertex = context.vertex
    listed = contents(context.body) if context.generation >= 3 else []
    for part in chain.from_iterable(map(parts, listed)):
        signature = get(part, "thoughtSignature")
        if not isinstance(signature, str) or signature in ("", STAND_IN):
            continue
        own, other = (unseal(SIGNED_BY[made], signature, 1) for made in (vertex, not vertex))
        signed = own or other
        if signed is not None and signed[0] != part_digest(part):
            yield "Corrupted thought signature."
        elif own is None and (other is not None or context.scenario.strict_signatures):
            here = "Unable to submit request because Thought signature is not valid."
            yield here if vertex else "Invalid thought signature."


def window(context: GeminiContext) -> Iterator[str]:
    most, used = context.model.window, context.input_tokens
    if most is not None and used > most:
        yield (
            f"The input token count ({used}) exceeds the maximum number of tokens allowed ({most})."
        )


class GeminiFormat(Format[GeminiContext]):
    """Serves generateContent, streamGenerateContent and the paths of models, with any prefix."""

    checks = (form, continuation_token, limit, history, signatures, window)
    kinds = GRPC_STATUSES
    words: ClassVar[Mapping[str, str]] = {
        "invalid_request_error": "INVALID_ARGUMENT",
        "authentication_error": "UNAUTHENTICATED",
        "permission_error": "PERMISSION_DENIED",
        "not_found_error": "NOT_FOUND",
        "rate_limit_error": "RESOURCE_EXHAUSTED",
        "api_error": "INTERNAL",
        "overloaded_error": "UNAVAILABLE",
        "timeout_error": "DEADLINE_EXCEEDED",
    }
    client_kind = "INVALID_ARGUMENT"
    server_kind = fault_kind = "UNAVAILABLE"
    fault_texts: ClassVar[Mapping[str, str]] = {
        "RESOURCE_EXHAUSTED": "Resource has been exhausted (e.g. check quota).",
        "INTERNAL": "An internal error has occurred. Please retry.",
        "UNAVAILABLE": "The model is overloaded. Please try again later.",
        "DEADLINE_EXCEEDED": "Deadline expired before operation could complete.",
        "": "Error",
    }
    id_header = ""
    json_type = "application/json; charset=UTF-8"
    key_headers = ("x-goog-api-key", "authorization")
    no_key = Refusal(
        "Method doesn't allow unregistered callers (callers without established identity). Please "
        "use API Key or other form of API consumer identity to call this API.",
        403,
    )

    def __init__(self, models: Mapping[str, ModelLimits]) -> None:
        super().__init__(models)
        self._tokens: dict[str, tuple[bytes, Progress]] = {}

    def forget(self) -> None:
        self._tokens.clear()

    def route(self, method: str, path: str) -> Route | None:
        """Claim Gemini's paths. `/v1/models/NAME` is claimed by the name: others have it, too."""
        match = target(path)
        if match is None:
            return None
        if method == "POST" and match.verb in ("generateContent", "streamGenerateContent"):
            return "model"
        gemini = match.verb or match.vertex or match.version != "v1" or _GOOGLE.match(match.model)
        return "other" if gemini else None

    def context(self, request: Recorded) -> GeminiContext:
        """Parse a request. If the table has Vertex's ceiling of 65,535, the Gemini API's is +1."""
        parsed, scenario = _target(request), request.scenario
        limits, known = self.limits(parsed.model, scenario)
        odd = limits.ceiling == _VERTEX and parsed.model not in self.models
        if odd and not parsed.vertex and scenario.ceiling is None:
            limits = replace(limits, ceiling=_VERTEX + 1)
        return GeminiContext(request, limits, known, parsed, self._tokens)

    def ask(self, context: GeminiContext) -> Ask:
        body = context.body
        before = context.continued[1] if context.continued else Progress()
        prompt_turns = turns(body)
        first = prompt_turns[0].text if prompt_turns else ""
        # The rest of the limit after earlier hops. Add the tokens that the model generates again.
        left = context.limit - before.spent
        return Ask(
            [*prompt_turns, PromptTurn("assistant", before.text)] if before.text else prompt_turns,
            0 if left <= 0 else left + before.repeated,
            context.room(context.input_tokens),
            [str(word) for word in as_list(get(context.config, "stopSequences"))],
            context.thinks and before.only_thought,
            context.shows_thinking,
            conversation_key(get(body, "systemInstruction"), first),
            "candidatesTokenCount",
            {"aborted": "MALFORMED_FUNCTION_CALL"},
        )

    def write(self, context: GeminiContext, reply: Reply) -> Json | Iterable[Event]:
        before, room = Progress(), math.inf if context.hop_room is None else context.hop_room
        if context.continued:
            before = context.continued[1]
            room = min(room, max(0, context.limit - before.spent))
        portion = Portion(reply.blocks, before, room)
        if portion.cut:  # the answer has more than this hop's share
            whole = context.limit <= portion.progress.spent
            stop = "max_tokens" if whole else "CONTINUATION"
            reply = replace(reply, stop=stop, stop_sequence=None)
        writer = GeminiReplyWriter(context, reply, portion, self.new_id("", ""))
        if not context.streamed:
            return writer.response()
        return (Event(None, compact(chunk)) for chunk in writer.chunks())

    def stream(
        self, context: GeminiContext, events: Sequence[Event], headers: Mapping[str, str]
    ) -> Answer:
        """Return a stream in Google's framing: as lines that end in CRLF, or as one JSON array."""
        listed, framed = not _wants_events(context.request), list[Event]()
        for event in events:
            text = f"data: {event.data}\r\n\r\n"
            if listed:
                text = (",\r\n" if framed else "[") + f"{event.data}\n"
            framed.append(replace(event, name=None, framed=text.encode()))
        if listed:
            framed.append(Event(None, "", b"]" if framed else b"[]"))
        kind = self.json_type if listed else "text/event-stream"
        return Answer(200, {"content-type": kind, **headers}, events=framed)

    def unknown_caller(self, request: Recorded) -> Refusal | None:
        """Return the refusal of a request without a key, or None. The query may have the key."""
        refusal = super().unknown_caller(request)
        return None if any(parse_qs(request.query).get("key", [])) else refusal

    def refused(
        self, refusal: Refusal, request: Recorded, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Return a refusal. It is an array if the answer would have been one."""
        answer = super().refused(refusal, request, headers)
        listed = _target(request).verb == "streamGenerateContent" and not _wants_events(request)
        return replace(answer, body=b"[" + answer.body + b"]") if listed else answer

    def error_body(self, refusal: Refusal, scenario: Scenario) -> Any:
        status = self.kind_of(refusal)
        return {"error": {"code": refusal.status, "message": refusal.text, "status": status}}

    def other(self, request: Recorded) -> Answer:
        parsed = _target(request)
        if request.method == "GET" and not parsed.verb:
            return self._described(self.context(request))
        return self.refused(Refusal("Requested entity was not found.", 404), request)

    def _described(self, context: GeminiContext) -> Answer:
        target, model = context.target, context.model
        if not (context.known and context.scenario.models_endpoint):
            return self.refused(not_found(target), context.request)
        if target.vertex:  # Vertex reports no limits
            name = f"publishers/google/models/{target.model}"
            return self.json(200, {"name": name, "versionId": "default"})
        limits = {"inputTokenLimit": model.window, "outputTokenLimit": model.ceiling}
        described = {
            "name": f"models/{target.model}",
            "version": "001",
            "displayName": target.model,
            **{name: value for name, value in limits.items() if value is not None},
            "supportedGenerationMethods": ["generateContent"],
            "thinking": model.thinking != "none",
        }
        return self.json(200, described)


def _target(request: Recorded) -> Target:
    parsed = target(request.path)
    assert parsed is not None, "another path is not routed here"
    return parsed


def _wants_events(request: Recorded) -> bool:
    return parse_qs(request.query).get("alt") == ["sse"]
