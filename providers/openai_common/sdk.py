"""What the drivers of OpenAI's two formats share."""

from __future__ import annotations

from continuation.providers.sdk import SCHEMA, TOOL, SdkFacts

FUNCTION = {**TOOL, "parameters": SCHEMA}
MODELS = ("gpt-", "chatgpt-", "o1", "o3", "o4", "codex-")
"""The beginnings of the names of OpenAI's models."""
OPENAI = SdkFacts(
    "openai",
    "openai",
    extra="openai",
    client="OpenAI",
    keys=("OPENAI_API_KEY",),
    base_url="OPENAI_BASE_URL",
    own_errors=("openai:OpenAIError",),
    server="https://api.openai.com",
    path="/v1",
)
