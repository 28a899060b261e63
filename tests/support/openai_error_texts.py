"""Error texts of OpenAI-compatible servers that refuse a request, from files beside this."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_TEXTS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
CEILINGS: dict[str, tuple[str, int | None]] = {
    name: (text, most) for name, (text, most) in _TEXTS["ceilings"].items()
}
ROOMS: dict[str, tuple[str, int | None]] = {
    **{name: (text, room) for name, (text, room) in _TEXTS["rooms"].items()},
    **{name: (text, None) for name, text in _TEXTS["roomless"].items()},
}
FINALS: dict[str, str] = _TEXTS["finals"]
PREFILLS: dict[str, str] = _TEXTS["prefills"]
TPM: str = _TEXTS["tpm"]
SPENT: str = _TEXTS["spent"]
