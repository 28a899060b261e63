"""A small file that keeps what a client learned about limits for later processes.

It is used only if the configuration's `learned_file` names it. It has numbers by upstream, model
and a salted digest of the credential. If a file is damaged or no learned file, it is not changed,
and a warning is logged.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from continuation.limits import NUMBERS, Learned

logger = logging.getLogger("continuation")

MOST = 1000
"""The most lessons in a file. The least recently used is dropped first."""
LONGEST = 300
"""The most characters of an upstream, digest or model. A lesson with more is not kept."""
_LARGEST = 2_000_000
"""The most bytes of a file that is read. `MOST` lessons with the longest names have fewer."""
_MARK = "continuation-learned"
_VERSION = 1
_NAMES = ("upstream", "credential", "model")

Key: TypeAlias = "tuple[str, str, str]"
"""Upstream, digest of the credential, model."""


class LearnedFile(NamedTuple):
    """The content of a file."""

    salt: bytes
    """The salt of the credentials' digests."""
    lessons: dict[Key, dict[str, Any]]
    """The facts by key. The least recently used is first."""


class LearnedFileSync:
    """Loads the file's facts into a `Learned`, and saves its changes to the file."""

    def __init__(self, path: Path, learned: Learned) -> None:
        self._path = path
        self._learned = learned
        self._lock = threading.Lock()
        self._usable = True
        self._kept = set[Key]()
        """The keys of the facts that this process has read or written."""

    def attach(self) -> None:
        """Read the file, or create it, and save every later change. Never raises.

        The file's folder is created too. It is not created if the path still begins with a `~`,
        because then `~NAME` is not the home of a user.
        """
        try:
            if not self._path.exists():
                if not str(self._path).startswith("~"):
                    self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # It is created atomically: processes that start together must use one salt.
                with contextlib.suppress(FileExistsError):
                    _write(self._path, LearnedFile(self._learned.salt, {}), new=True)
            content = read(self._path)
        except (OSError, ValueError) as error:
            self._give_up(error)
            return
        self._learned.salt = content.salt
        for key, facts in content.lessons.items():
            self._learned.learn(key, **facts)
        self._kept = set(content.lessons)
        self._learned.on_change = self._save

    def _save(self) -> None:
        """Write our facts, and those of other processes for other keys."""
        with self._lock:
            if not self._usable:
                return
            try:
                current = read(self._path)
                if current.salt != self._learned.salt:
                    self._give_up(ValueError("another process replaced it"))
                    return
                local = cast("dict[Key, dict[str, Any]]", self._learned.facts())
                own = {key: facts for key, facts in local.items() if max(map(len, key)) <= LONGEST}
                ours = own.keys() | self._kept  # a key that is not in `own` was forgotten
                others = {key: facts for key, facts in current.lessons.items() if key not in ours}
                self._kept = set(own)
                merged = [*others.items(), *own.items()][-MOST:]
                _write(self._path, LearnedFile(current.salt, dict(merged)), new=False)
            except (OSError, ValueError) as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._usable = False
        reason = error.strerror if isinstance(error, OSError) else error
        if not self._path.parent.is_dir():
            reason = f"the folder {self._path.parent} does not exist and cannot be created"
        logger.warning('learned file unavailable: path=%s reason="%s"', self._path, reason)


def read(path: Path) -> LearnedFile:
    """Return the content of a file.

    Raises `OSError`, and `ValueError` if the file is too large, damaged, or no learned file.
    """
    if path.stat().st_size > _LARGEST:
        raise ValueError("it is too large to be a learned file")
    try:
        document: Any = json.loads(path.read_bytes())
        if document[_MARK] != _VERSION:
            raise ValueError
        salt, items = bytes.fromhex(document["salt"]), document["lessons"][-MOST:]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError("it is damaged or not a learned file; delete it to start again") from error
    lessons: dict[Key, dict[str, Any]] = {}
    for item in items:
        # An invalid lesson is skipped.
        with contextlib.suppress(ValueError, LookupError, TypeError):
            upstream, credential, model = (str(item[name])[:LONGEST] for name in _NAMES)
            if facts := valid_facts(item):
                lessons[upstream, credential, model] = facts
    return LearnedFile(salt, lessons)


def valid_facts(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return those facts of a stored lesson that have valid values."""
    facts: dict[str, Any] = {
        name: item[name]
        for name in NUMBERS
        if type(item.get(name)) is int and 0 < item[name] <= 10_000_000
    }
    if item.get("no_prefill") is True:
        facts["no_prefill"] = True
    return facts


def _write(path: Path, content: LearnedFile, *, new: bool) -> None:
    """Write the file atomically. `new`: raise `FileExistsError` if it exists already."""
    lessons: list[Mapping[str, Any]] = [
        {**dict(zip(_NAMES, key, strict=True)), **facts} for key, facts in content.lessons.items()
    ]
    document = {_MARK: _VERSION, "salt": content.salt.hex(), "lessons": lessons}
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
        if new:
            Path(path).hardlink_to(name)
        else:
            Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
