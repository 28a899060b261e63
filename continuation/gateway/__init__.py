"""One base URL for any agent: a raw ASGI application over the engine and its shells."""

from continuation.gateway.asgi import Gateway, app

__all__ = ["Gateway", "app"]
