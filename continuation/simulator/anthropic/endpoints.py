"""Anthropic's endpoints that do not ask the model, in their smallest honest form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from continuation.simulator.anthropic.body import Json, items

if TYPE_CHECKING:
    from continuation.limits import ModelLimits

_EPOCH = "1970-01-01T00:00:00Z"


def model_info(name: str, limits: ModelLimits) -> Json:
    """Describe a model; what the table does not know is left out."""
    return {
        "id": name,
        "type": "model",
        "display_name": name,
        "created_at": _EPOCH,
        "lifecycle": "active",
        "max_tokens": limits.ceiling,
        "max_input_tokens": limits.window,
    }


def model_page(models: Mapping[str, ModelLimits]) -> Json:
    """List the models the simulator was given."""
    listed = [model_info(name, limits) for name, limits in models.items()]
    names: list[str | None] = [*models] or [None]
    return {"data": listed, "has_more": False, "first_id": names[0], "last_id": names[-1]}


def batch(name: str, body: Json) -> Json:
    """Accept a batch that will never be processed: nothing in it could be continued."""
    counts = dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0)
    return {
        "id": name,
        "type": "message_batch",
        "processing_status": "in_progress",
        "request_counts": {"processing": len(items(body.get("requests"))), **counts},
        "created_at": _EPOCH,
        "expires_at": _EPOCH,
        "ended_at": None,
        "archived_at": None,
        "cancel_initiated_at": None,
        "results_url": None,
    }
