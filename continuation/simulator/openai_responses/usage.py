"""What a Responses request costs: an estimate of its input, and how much of it was cached."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

from continuation.simulator.model import tokens
from continuation.simulator.wire import Json

_SMALLEST = 1024
_STEP = 128


def input_tokens(body: Json, items: list[Any]) -> int:
    """Estimate the input: the four-character tokens of instructions, tools and items as JSON."""
    return sum(tokens(part) for part in _parts(body, items))


def _parts(body: Json, items: list[Any]) -> list[str]:
    heads = [body[name] for name in ("instructions", "tools") if body.get(name)]
    return [json.dumps(part, sort_keys=True, ensure_ascii=False) for part in (*heads, *items)]


class PrefixCache:
    """Remembers every prefix it has seen, as the API does by itself; none expires."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._lock = threading.Lock()

    def forget(self) -> None:
        with self._lock:
            self._seen.clear()

    def usage(self, credential: str, body: Json, items: list[Any]) -> Json:
        """Return the input side of `usage`, and remember this request's prefixes."""
        parts = _parts(body, items)
        digest = hashlib.sha256(f"{credential} {body['model']}".encode(errors="surrogatepass"))
        count = cached = 0
        for part in parts:
            digest.update(part.encode(errors="surrogatepass"))
            count += tokens(part)
            with self._lock:
                cached = count if digest.digest() in self._seen else cached
                self._seen.add(digest.digest())
        whole_steps = cached // _STEP * _STEP if cached >= _SMALLEST else 0
        details = {"cached_tokens": whole_steps, "cache_write_tokens": 0}
        return {"input_tokens": count, "input_tokens_details": details}
