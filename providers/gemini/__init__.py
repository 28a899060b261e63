"""The wire format `gemini`: `DIALECT` is what the registry takes."""

from continuation.providers.gemini.request import DIALECT

__all__ = ["DIALECT"]
