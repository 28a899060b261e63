"""opencode's storage: a folder of messages, each with a folder of parts, one JSON file apiece.

A tool call and its result are one part there, so an open call is a part that is still `pending` or
`running`, and closing it means giving it the state `error`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jiter

from continuation.history.tree import text_of
from continuation.sessions.lines import Problem
from continuation.wire.json_values import as_map

__all__ = ["Storage", "find_sessions"]


def find_sessions(path: Path) -> list[tuple[Path, Path]]:
    """Pairs of a session's message folder and the folder that holds all parts; [] if none is here.

    `path` may be the storage folder, one that holds it, or a session's folder below `message`.
    """
    if path.parent.name == "message":
        return [(path, path.parent.parent / "part")]
    for root in (path, path / "storage"):
        if (root / "message").is_dir():
            folders = sorted(each for each in (root / "message").iterdir() if each.is_dir())
            return [(folder, root / "part") for folder in folders]
    return []


@dataclass(slots=True)
class Storage:
    """One session of opencode's storage, read as Chat messages."""

    messages: Path
    parts: Path
    problems: list[Problem] = field(default_factory=list[Problem])
    body: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    owners: list[Path] = field(default_factory=list[Path])
    """For each message of `body` the message file it came from."""
    calls: dict[str, Path] = field(default_factory=dict[str, Path])
    """Part files of calls, by call id."""
    damaged: dict[Path, bytes | None] = field(default_factory=dict[Path, "bytes | None"])
    """Files that are not JSON, with what a repaired copy has instead; None: nothing."""

    def read(self) -> None:
        """Read all files that are whole; report the others."""
        for path in sorted(self.messages.glob("*.json")):
            info = self._load(path)
            parts = self._load_parts(str(as_map(info).get("id", path.stem)))
            if info is None and parts:
                info = self._rebuilt(path, parts)
            if info is not None:
                self._read_message(path, info, parts)

    def _load_parts(self, message: str) -> list[tuple[Path, Mapping[str, Any]]]:
        folder = self.parts / message
        files = sorted(folder.glob("*.json")) if folder.is_dir() else []
        return [(file, part) for file in files if (part := self._load(file)) is not None]

    def _rebuilt(
        self, path: Path, parts: list[tuple[Path, Mapping[str, Any]]]
    ) -> Mapping[str, Any]:
        """A message's own file is lost, its parts are not: they say whose they are."""
        given = _salvaged(path)
        kinds = {part.get("type") for _, part in parts}
        role = "user" if kinds <= {"text", "file"} else "assistant"
        info = {"role": role, **given, "id": path.stem, "sessionID": self.messages.name}
        self.damaged[path] = json.dumps(info, ensure_ascii=False, indent=2).encode()
        return info

    def _load(self, path: Path) -> Mapping[str, Any] | None:
        try:
            value = json.loads(path.read_bytes().replace(b"\0", b""))
        except ValueError:
            words = (
                f"{path.name} is not JSON (cut off, or lost by the file system). It is left out."
            )
            self.problems.append(Problem("bad_file", 0, words))
            self.damaged[path] = None
            return None
        return as_map(value)

    def _read_message(
        self, path: Path, info: Mapping[str, Any], loaded: list[tuple[Path, Mapping[str, Any]]]
    ) -> None:
        if info.get("role") == "user":
            texts = [str(part.get("text", "")) for _, part in loaded if part.get("type") == "text"]
            self._add(path, {"role": "user", "content": "\n".join(texts) or None})
        else:
            self._read_steps(path, loaded)

    def _read_steps(self, path: Path, parts: list[tuple[Path, Mapping[str, Any]]]) -> None:
        steps: list[list[tuple[Path, Mapping[str, Any]]]] = [[]]
        for file, part in parts:
            if part.get("type") == "step-start" and steps[-1]:
                steps.append([])
            steps[-1].append((file, part))
        for step in steps:
            self._read_step(path, step)

    def _read_step(self, path: Path, step: list[tuple[Path, Mapping[str, Any]]]) -> None:
        kinds = {part.get("type") for _, part in step}
        if "step-start" in kinds and "step-finish" not in kinds:
            words = f"a step of {path.stem} begins and never ends; the program died in it."
            self.problems.append(Problem("step_unfinished", 0, words))
        said = text_of([dict(part) for _, part in step if part.get("type") == "text"])
        tools = [(file, part) for file, part in step if part.get("type") == "tool"]
        message: dict[str, Any] = {"role": "assistant", "content": said or None}
        if tools:
            message["tool_calls"] = [self._call(file, part) for file, part in tools]
        self._add(path, message)
        for _, part in tools:
            state = as_map(part.get("state"))
            if state.get("status") in ("completed", "error"):
                output = str(state.get("output") or state.get("error") or "")
                call = part.get("callID", "")
                self._add(path, {"role": "tool", "tool_call_id": call, "content": output})

    def _call(self, file: Path, part: Mapping[str, Any]) -> dict[str, Any]:
        call = str(part.get("callID", ""))
        self.calls[call] = file
        given = as_map(part.get("state")).get("input")
        arguments = json.dumps(as_map(given), ensure_ascii=False)
        function = {"name": str(part.get("tool", "")), "arguments": arguments}
        return {"id": call, "type": "function", "function": function}

    def _add(self, path: Path, message: dict[str, Any]) -> None:
        self.body.append(message)
        self.owners.append(path)

    def rewrite(self, messages: list[Any], origins: tuple[int, ...]) -> dict[Path, bytes | None]:
        """New contents of the files that a repair changes; None for a file that goes."""
        files = dict(self.damaged)
        for message, origin in zip(messages, origins, strict=True):
            if origin < 0 and message.get("role") == "tool":
                file = self.calls.get(message["tool_call_id"])
                if file is not None:
                    files[file] = _closed(file, message["content"])
        kept = {self.owners[origin] for origin in origins if origin >= 0}
        for path in dict.fromkeys(self.owners):
            if path not in kept:
                files[path] = None
        return files


def _salvaged(path: Path) -> dict[str, Any]:
    """What a cut file still says before the cut."""
    data = path.read_bytes().replace(b"\0", b"").decode("utf-8", "ignore").encode()
    try:
        return dict(as_map(jiter.from_json(data, partial_mode=True)))
    except ValueError:
        return {}


def _closed(file: Path, text: str) -> bytes:
    """A tool part whose call ended in an error."""
    part = json.loads(file.read_bytes())
    state = as_map(part.get("state"))
    start = as_map(state.get("time")).get("start", 0)
    time = {"start": start, "end": start}
    closed = {"status": "error", "input": as_map(state.get("input")), "error": text, "time": time}
    made = json.dumps({**part, "state": closed}, ensure_ascii=False, indent=2)
    return made.encode()
