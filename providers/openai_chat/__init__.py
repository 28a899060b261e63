"""The wire format `openai_chat`: `DIALECT` is what the registry takes."""

from continuation.providers.openai_chat.request import DIALECT

__all__ = ["DIALECT"]
