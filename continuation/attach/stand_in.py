"""A client that stands for another client: it has that client's settings, and sends through it."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Shares the settings of `origin`: what one of the two changes, both have.

    A subclass also derives from the class of httpx2 that `origin` is of, and does not call its
    `__init__`, which would open a second pool of connections. So the attributes that httpx2's own
    methods read and set are found on `origin`. The subclass lists its own in `__slots__`.
    """

    __slots__ = ("origin",)

    def __init__(self, origin: Any) -> None:
        self.origin = origin
        """The client this one stands for."""

    def __getattr__(self, name: str) -> Any:
        # Called for what neither this object nor its class has.
        return getattr(object.__getattribute__(self, "origin"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # What the class has is this object's alone: a method that is patched on it for a while.
        if hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            setattr(self.origin, name, value)
