"""The wire format `openai_responses`: `DIALECT` is what the registry takes."""

from continuation.providers.openai_responses.request import DIALECT

__all__ = ["DIALECT"]
