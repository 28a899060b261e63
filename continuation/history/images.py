"""Converts images between dialects, for histories that began with another provider."""

from __future__ import annotations

from typing import Any

from continuation.wire.json_values import as_map, as_text


def image_url(block: Any) -> str:
    """Return the URL of an image, a `data:` URL if the block has the data.

    The result is `""` for an image without a URL, and for a block that is not an image.
    """
    given = as_map(block)
    source, url = as_map(given.get("source")), given.get("image_url")
    if given.get("type") in ("image_url", "input_image"):
        return as_text(as_map(url).get("url", url))
    if given.get("type") != "image":
        return ""
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return as_text(source.get("url"))


def anthropic_image(url: str) -> dict[str, Any]:
    """Return an image as a block of Anthropic's format."""
    kind, encoded, data = url.partition(";base64,")
    if encoded and kind.startswith("data:"):
        source = {"type": "base64", "media_type": kind.removeprefix("data:"), "data": data}
    else:
        source = {"type": "url", "url": url}
    return {"type": "image", "source": source}
