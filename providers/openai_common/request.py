"""The common part of requests in OpenAI's two formats: the vendor, the model, its ceiling."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from continuation.providers.openai_common import errors
from continuation.providers.openai_common.vendors import profile
from continuation.providers.request import BaseRequest
from continuation.types import ClassifiedError, ErrorKind, Head, Json, Outgoing, Request, short

_DEPLOYMENT = re.compile(r"/deployments/([^/]+)/(?:chat/completions|responses)/?$")  # Azure
_UNARY = 21_333
"""The tokens that a model writes in ten minutes. After that time the SDK times out and retries."""


@dataclass(slots=True)
class Manners:
    """What was learned from a server's errors about its parameters, for later requests."""

    limit: str | None = None
    counts: bool = True
    """Whether it accepts `stream_options`."""
    streams: bool = True
    """Whether it allows this caller to stream this model."""


_KNOWN: Final = OrderedDict[tuple[str, int, str], Manners]()
"""The manners by host (and client), credential and model, of this process."""
_MOST: Final = 1024


def _manners(request: Request, model: str) -> Manners:
    asked = request.host + request.client, hash(request.credential), model
    manners = _KNOWN.setdefault(asked, Manners())
    _KNOWN.move_to_end(asked)
    while len(_KNOWN) > _MOST:
        _KNOWN.popitem(last=False)
    return manners


class OpenAIRequest(BaseRequest):
    """A request to a server with one of OpenAI's formats."""

    def __init__(self, request: Request, body: Json) -> None:
        super().__init__(request, body)
        vendor = self._vendor = profile(request.host + request.path, request.server)
        deployed = _DEPLOYMENT.search(request.path)
        self.model = self.model or (short(deployed[1]) if deployed else "")
        self.ceiling = vendor.ceiling(self.model)
        self.ceiling_field = vendor.ceiling_field
        self.unary_ceiling: int = min(_UNARY, vendor.stream_above or _UNARY)
        self._asked: int | None = None
        """The limit of the last request in tokens; `None`: it had none."""
        self._manners = _manners(request, self.model)

    @property
    def streams(self) -> bool:
        return self.streamed or self._manners.streams

    def refused(self, head: Head, body: bytes) -> ClassifiedError:
        classified = errors.refused(head.status, body, self._asked)
        if not (self.streams and errors.refuses("stream", head.status, body)):
            return classified
        asked, least = self._asked, self.limit or 0
        most = None if asked is None else max(least, min(asked, self.unary_ceiling))
        kind, form = ErrorKind.UNSUPPORTED_PARAMETER, {"streams": False}
        return ClassifiedError(kind, classified.error, most, form=form)

    def adapt(self, error: ClassifiedError) -> None:
        if "streams" in error.form:
            self._manners.streams = False  # later attempts request bodies

    def lookup(self) -> Outgoing | None:
        """Return a request to the server's models endpoint, or `None` if it reports no ceiling."""
        path = self._vendor.models_url(self._request.path, self.model)
        return Outgoing(b"", path=lambda _: path, method="GET") if path and self.model else None
