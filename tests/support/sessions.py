"""Saved sessions, all at once: what the commands take one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from continuation.sessions import SavedSession, checked, read, repairing


def load(path: Path) -> list[SavedSession]:
    return list(read(path))


def check(path: Path, **more: Any) -> list[SavedSession]:
    return list(checked(path, **more))


def write_repaired(path: Path, **more: Any) -> list[SavedSession]:
    return list(repairing(path, **more))
