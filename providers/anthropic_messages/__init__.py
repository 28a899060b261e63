"""The wire format `anthropic_messages`: `DIALECT` is what the registry takes."""

from continuation.providers.anthropic_messages.request import DIALECT

__all__ = ["DIALECT"]
