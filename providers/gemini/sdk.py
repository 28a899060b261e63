"""How commands call a model in the generateContent format, through Google's SDK."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from continuation.providers.sdk import SCHEMA, TOOL, End, OnDelta, Prompt, SdkDriver, SdkFacts

if TYPE_CHECKING:
    import httpx2


def _content(prompt: Prompt) -> dict[str, Any]:
    config: dict[str, Any] = {"max_output_tokens": prompt.limit}
    if prompt.system is not None:
        config["system_instruction"] = prompt.system
    if prompt.tool:
        declared = [{**TOOL, "parameters_json_schema": SCHEMA}]
        config["tools"] = [{"function_declarations": declared}]
    return {"model": prompt.model, "contents": prompt.text, "config": config}


def _gemini(client: Any, prompt: Prompt, on_delta: OnDelta) -> End:
    stop: str | None = None
    calls: list[Mapping[str, Any]] = []
    with contextlib.closing(client.models.generate_content_stream(**_content(prompt))) as chunks:
        for candidate in (candidate for chunk in chunks for candidate in chunk.candidates or ()):
            stop = candidate.finish_reason.value if candidate.finish_reason else stop
            for part in (candidate.content and candidate.content.parts) or ():
                if part.text and not part.thought:
                    on_delta.text(part.text)
                if part.function_call:
                    calls.append(part.function_call.args or {})
                    on_delta.arguments(json.dumps(calls[-1], ensure_ascii=False))
    return End(stop, calls)


def _make(module: ModuleType, name: str, base_url: str | None, options: Mapping[str, Any]) -> Any:
    """Make a client. The base URL and the HTTP client are in its `http_options`."""
    rest = dict(options)
    http = {**rest.pop("http_options", {}), **({"base_url": base_url} if base_url else {})}
    return getattr(module, name)(http_options=http or None, **rest)


def _simulated_options(http: httpx2.Client) -> dict[str, Any]:
    return {"api_key": "simulated", "vertexai": False, "http_options": {"httpx_client": http}}


def _shown(sdk: SdkFacts, url: str) -> str:
    options = f'api_key="any", http_options={{"base_url": "{url}"}}'
    return f"{sdk.module}.{sdk.client}({options})"


GOOGLE = SdkFacts(
    "google.genai",
    "google-genai",
    extra="google",
    client="Client",
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    base_url="GOOGLE_GEMINI_BASE_URL",
    own_errors=("google.genai.errors:APIError", "google.auth.exceptions:GoogleAuthError"),
    server="https://generativelanguage.googleapis.com",
    make=_make,
    simulated_options=_simulated_options,
    shown=_shown,
)
DRIVER = SdkDriver(
    "gemini",
    title="Gemini",
    sdk=GOOGLE,
    method=".models",
    model="gemini-3.1-pro",
    prefixes=("gemini", "gemma"),
    stop_name="finish_reason",
    ends=("STOP",),
    called="STOP",
    body=_content,
    stream=_gemini,
    sends_truncated_calls=False,
    rank=3,
)
