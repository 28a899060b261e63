"""A client that stands for another client: it has that client's settings, and sends through it."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Shares the settings of `origin`: a setting changed on one of the two changes on both.

    A subclass also derives from `httpx2.Client` or `httpx2.AsyncClient`, as `origin` does. It does
    not call that class's `__init__`, which would open a second pool of connections. So httpx2's
    methods read and set attributes of `origin`. The subclass lists its own attributes in
    `__slots__`.
    """

    __slots__ = ("origin",)

    def __init__(self, origin: Any) -> None:
        self.origin = origin
        """The client that this one stands for."""

    def __getattr__(self, name: str) -> Any:
        # Python calls this if neither this object nor its class has the attribute.
        return getattr(object.__getattribute__(self, "origin"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Attributes of the class are not shared. So a method can be patched on this object alone.
        if hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            setattr(self.origin, name, value)
