"""opencode's storage: a folder of messages, each with a folder of parts, one JSON file apiece.

A tool call and its result are one part there, so an open call is a part that is still `pending` or
`running`, and closing it means giving it the state `error`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from continuation.history.tree import text_of
from continuation.sessions.lines import Problem, before_the_cut, written
from continuation.wire.json_values import as_map

_Parts: TypeAlias = list[tuple[Path, Mapping[str, Any]]]
"""Parts, each with the file that it was read from."""


def find_sessions(path: Path) -> list[tuple[Path, Path]]:
    """Pairs of a session's message folder and the folder that holds all parts; [] if none is here.

    `path` may be the storage folder, one that holds it, or a session's folder below `message`.
    """
    if path.parent.name == "message":
        return [(path, storage_of(path) / "part")]
    for root in (path, path / "storage"):
        if (root / "message").is_dir():
            folders = sorted(each for each in (root / "message").iterdir() if each.is_dir())
            return [(folder, root / "part") for folder in folders]
    return []


def storage_of(path: Path) -> Path:
    """The folder that holds all there is of a session, or the one given."""
    return path.parent.parent if path.parent.name == "message" else path


def _beside_text(parts: _Parts) -> list[dict[str, Any]] | None:
    """What a message says that has no text: an image, a thought. None: nothing."""
    said = [dict(part) for _, part in parts if part.get("type") in ("file", "reasoning")]
    return said or None


@dataclass(slots=True)
class Storage:
    """One session of opencode's storage, read as Chat messages."""

    messages: Path
    parts: Path
    problems: list[Problem] = field(default_factory=list[Problem])
    body: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    owners: list[Path] = field(default_factory=list[Path])
    """For each message of `body` the message file it came from."""
    calls: dict[tuple[int, str], Path] = field(default_factory=dict[tuple[int, str], Path])
    """Part files of calls, by place in `body` and call id: some models begin to count anew."""
    damaged: dict[Path, bytes | None] = field(default_factory=dict[Path, "bytes | None"])
    """Files that are not JSON, with what a repaired copy has instead; None: nothing."""

    def read(self) -> None:
        """Read all files that are whole; report the others."""
        for path in sorted(self.messages.glob("*.json")):
            info = self._load(path)
            folder = self.parts / str(as_map(info).get("id", path.stem))
            files = sorted(folder.glob("*.json")) if folder.is_dir() else []
            parts = [(file, part) for file in files if (part := self._load(file)) is not None]
            if info is None and parts:
                info = self._rebuilt(path, parts)
            if info is not None and info.get("role") == "user":
                texts = [str(p.get("text", "")) for _, p in parts if p.get("type") == "text"]
                content = "\n".join(texts) or _beside_text(parts)
                self.body.append({"role": "user", "content": content})
                self.owners.append(path)
            elif info is not None:
                steps: list[_Parts] = [[]]
                for file, part in parts:
                    if part.get("type") == "step-start" and steps[-1]:
                        steps.append([])
                    steps[-1].append((file, part))
                for step in steps:
                    self._read_step(path, step, failed="error" in info)

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

    def _rebuilt(self, path: Path, parts: _Parts) -> Mapping[str, Any]:
        """A message's own file is lost, its parts are not: they say whose they are."""
        read = as_map(before_the_cut(path.read_bytes()))
        kinds = {part.get("type") for _, part in parts}
        role = "user" if kinds <= {"text", "file"} else "assistant"
        info = {"role": role, **read, "id": path.stem, "sessionID": self.messages.name}
        self.damaged[path] = written(info, indent=2)
        return info

    def _read_step(self, path: Path, step: _Parts, *, failed: bool) -> None:
        kinds = {part.get("type") for _, part in step}
        if failed and kinds <= {"step-start", "step-finish"}:
            return  # the provider's error is kept beside; the agent sends nothing for it
        states = [as_map(part.get("state")) for _, part in step if part.get("type") == "tool"]
        waits = any(state.get("status") in ("pending", "running") for state in states)
        if waits and "step-start" in kinds and "step-finish" not in kinds:
            words = f"a step of {path.stem} begins and never ends; the program died in it."
            self.problems.append(Problem("step_unfinished", 0, words))
        text = text_of([dict(part) for _, part in step if part.get("type") == "text"])
        content = text or _beside_text(step)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        results: list[dict[str, Any]] = []
        for file, part in step:
            if part.get("type") != "tool":
                continue
            call, state = part.get("callID", ""), as_map(part.get("state"))
            self.calls[len(self.body), str(call)] = file
            arguments = json.dumps(as_map(state.get("input")), ensure_ascii=False)
            function = {"name": str(part.get("tool", "")), "arguments": arguments}
            made = {"id": str(call), "type": "function", "function": function}
            message.setdefault("tool_calls", []).append(made)
            if state.get("status") in ("completed", "error"):
                output = str(state.get("output") or state.get("error") or "")
                results.append({"role": "tool", "tool_call_id": call, "content": output})
        self.body += [message, *results]
        self.owners += [path] * (1 + len(results))

    def rewrite(self, messages: list[Any], origins: tuple[int, ...]) -> dict[Path, bytes | None]:
        """New contents of the files that a repair changes; None for a file that goes."""
        files, asked = dict(self.damaged), -1
        for message, origin in zip(messages, origins, strict=True):
            if message.get("role") == "assistant":
                asked = origin
            if origin < 0 and message.get("role") == "tool":
                file = self.calls.get((asked, message["tool_call_id"]))
                if file is None:
                    continue
                part = json.loads(file.read_bytes())  # its call ended in an error
                state = as_map(part.get("state"))
                start = as_map(state.get("time")).get("start", 0)
                closed = {
                    "status": "error",
                    "input": as_map(state.get("input")),
                    "error": message["content"],
                    "time": {"start": start, "end": start},
                }
                files[file] = written({**part, "state": closed}, indent=2)
        kept = {self.owners[origin] for origin in origins if origin >= 0}
        return files | {path: None for path in self.owners if path not in kept}
