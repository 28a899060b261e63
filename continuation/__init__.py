"""Finish model turns that ran out of output tokens.

client = continuation.wrap(anthropic.Anthropic())
"""

from continuation.override import override
from continuation.policy import Policy
from continuation.report import (
    Escalating,
    Event,
    Finished,
    Recovering,
    Report,
    Retrying,
    Truncated,
    last_report,
    report,
    watch,
)
from continuation.wrap import async_http_client, http_client, wrap

__version__ = "0.1.0"

__all__ = [
    "Escalating",
    "Event",
    "Finished",
    "Policy",
    "Recovering",
    "Report",
    "Retrying",
    "Truncated",
    "__version__",
    "async_http_client",
    "http_client",
    "last_report",
    "override",
    "report",
    "watch",
    "wrap",
]
