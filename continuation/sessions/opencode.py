"""opencode's sessions: messages with their parts, each a JSON value.

They are files in a folder, or rows of a SQLite database (`opencode_database`). Both are read and
repaired in the same way. A tool call and its result are one part. So an open call is a part that is
still `pending` or `running`, and a repair closes it with the state `error`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from continuation.history.tree import text_of
from continuation.sessions.lines import Problem, encoded, parse_cut, without_halves
from continuation.sessions.opencode_database import Database, ItemKey
from continuation.wire.json_values import as_list, as_map, as_text, dumps, loads


@dataclass(frozen=True, slots=True)
class Folder:
    """A storage folder: `message/SESSION/ID.json` and `part/MESSAGE/ID.json`."""

    root: Path
    only: str = ""
    """The only session to read; "": all."""
    named: bool = True
    """Whether a value has its own id and its session's. In a database they are columns."""

    @classmethod
    def find(cls, path: Path) -> Folder | None:
        """Return the storage if `path` is one, contains one, or is a session in one; else None."""
        if path.parent.name == "message":
            return cls(path.parent.parent, path.name)
        roots = [root for root in (path, path / "storage") if (root / "message").is_dir()]
        return cls(roots[0]) if roots else None

    def sessions(self) -> list[str]:
        folders = (each for each in (self.root / "message").iterdir() if each.is_dir())
        return [self.only] if self.only else sorted(each.name for each in folders)

    def messages(self, session: str) -> list[tuple[ItemKey, bytes]]:
        """Return the messages of a session in their order."""
        return self._files(f"message/{session}")

    def parts(self, message: str) -> list[tuple[ItemKey, bytes]]:
        """Return the parts of a message in their order."""
        return self._files(f"part/{message}")

    def _files(self, folder: str) -> list[tuple[ItemKey, bytes]]:
        files = sorted((self.root / folder).glob("*.json"))
        return [(ItemKey(folder, file.stem), file.read_bytes()) for file in files]


SessionStore: TypeAlias = Folder | Database
"""A place where sessions are stored."""


class _Part(NamedTuple):
    key: ItemKey
    value: Mapping[str, Any]
    kind: str


class _Message(NamedTuple):
    key: ItemKey
    info: Mapping[str, Any]
    parts: list[_Part]


_SENT = {
    "user": ("text", "file", "compaction", "subtask"),
    "assistant": ("text", "tool", "reasoning"),
}
"""Kinds of parts that are sent, by role. A message without any of them is not sent."""


def _sent(parts: list[_Part], role: str) -> list[_Part]:
    kinds = _SENT.get(role, ())
    visible = (part for part in parts if part.kind in kinds and not part.value.get("ignored"))
    return [part for part in visible if part.kind != "text" or part.value.get("text")]


@dataclass(slots=True)
class Storage:
    """One session of opencode, read as Chat messages."""

    store: SessionStore
    session: str
    problems: list[Problem] = field(default_factory=list[Problem])
    body: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    owners: list[ItemKey] = field(default_factory=list[ItemKey])
    """For each message of `body`, the key of its original message."""
    calls: dict[int, list[_Part]] = field(default_factory=dict[int, list[_Part]])
    """Parts that are calls, by index in `body`. Later messages may have the same ids."""
    thoughts: list[ItemKey] = field(default_factory=list[ItemKey])
    """The keys of all thinking that is sent."""
    damaged: dict[ItemKey, bytes | None] = field(default_factory=dict[ItemKey, "bytes | None"])
    """Damaged values by key, with the value of a repaired copy; None: it has none."""

    def read(self) -> None:
        """Read all that is complete into `body`. Report the rest in `problems`."""
        messages = list[_Message]()
        torn = list[tuple[int, bytes]]()
        for key, data in self.store.messages(self.session):
            info = self._load(key, data)
            parts = [
                _Part(own, part, as_text(part.get("type")))
                for own, text in self.store.parts(key.name)
                if (part := self._load(own, text)) is not None
            ]
            if info is None and parts:
                torn.append((len(messages), data))
            if info is not None or parts:
                messages.append(_Message(key, info or {}, parts))
        for at, data in torn:
            messages[at] = self._rebuilt(messages[at], data, messages)
        for message in _since_summary(messages):
            self._read_message(message)

    def _load(self, key: ItemKey, data: bytes) -> Mapping[str, Any] | None:
        try:
            value = loads(data.replace(b"\0", b""))
        except ValueError:
            name = "/".join(key)
            message = f"{name} is not JSON (incomplete, or lost by the file system). It is removed."
            self.problems.append(Problem("bad_file", 0, message))
            self.damaged[key] = None
            return None
        clean = without_halves(value, data)
        if clean is not value:
            message = (
                f"a character in {'/'.join(key)} is incomplete; it becomes a replacement mark."
            )
            self.problems.append(Problem("half_utf8", 0, message))
            self.damaged[key] = encoded(clean, indented=self.store.named)
        return as_map(clean)

    def _rebuilt(self, lost: _Message, data: bytes, messages: list[_Message]) -> _Message:
        """Return a message with a new value, because only its parts are left.

        Unknown fields (model, folder, …) are taken from another message, if there is one.
        """
        found = as_map(parse_cut(data))
        kinds = {part.kind for part in lost.parts}
        role = str(found.get("role") or ("user" if kinds <= {"text", "file"} else "assistant"))
        infos = [message.info for message in messages if message.info]
        peers = [info for info in infos if info.get("role") == role]
        above = [message.key.name for message in messages[: messages.index(lost)]]
        info = dict(peers[-1]) if peers else _minimal_message(role, infos[-1] if infos else {})
        for name in ("error", "summary", "finish", "structured"):
            info.pop(name, None)
        if role == "assistant" and above:
            info["parentID"] = above[-1]
        info |= found
        if self.store.named:
            info |= {"id": lost.key.name, "sessionID": self.session}
        self.damaged[lost.key] = encoded(info, indented=self.store.named)
        return lost._replace(info=info)

    def _read_message(self, message: _Message) -> None:
        key, info, parts = message
        role, error = str(info.get("role")), as_map(info.get("error"))
        sent = _sent(parts, role)
        if error and (error.get("name") != "MessageAbortedError" or not sent):
            return  # the agent shows it, but never sends it
        if role == "user" and sent:
            texts = [str(part.value["text"]) for part in sent if part.kind == "text"]
            self.body.append({"role": "user", "content": "\n".join(texts) or _other_parts(sent)})
            self.owners.append(key)
        elif role == "assistant":
            steps: list[list[_Part]] = [[]]
            for part in parts:
                if part.kind == "step-start" and steps[-1]:
                    steps.append([])
                steps[-1].append(part)
            for step in steps:
                self._read_step(key, step)

    def strip_thinking(self) -> list[ItemKey]:
        """Make `rewrite` delete all thinking; return the keys of the values that it deletes."""
        self.damaged |= dict.fromkeys(self.thoughts)
        return self.thoughts

    def _read_step(self, key: ItemKey, step: list[_Part]) -> None:
        kinds = {part.kind for part in step}
        if not _sent(step, "assistant"):
            return
        states = [as_map(part.value.get("state")) for part in step if part.kind == "tool"]
        is_waiting = any(state.get("status") in ("pending", "running") for state in states)
        if is_waiting and "step-start" in kinds and "step-finish" not in kinds:
            problem = f"a step of {key.name} begins and has no end; the program ended during it."
            self.problems.append(Problem("step_unfinished", 0, problem))
        text = text_of([dict(part.value) for part in step if part.kind == "text"])
        message: dict[str, Any] = {"role": "assistant", "content": text or _other_parts(step)}
        results: list[dict[str, Any]] = []
        for part in step:
            if part.kind != "tool":
                continue
            call, state = as_text(part.value.get("callID")), as_map(part.value.get("state"))
            self.calls.setdefault(len(self.body), []).append(part)
            arguments = dumps(as_map(state.get("input"))).decode()
            function = {"name": str(part.value.get("tool", "")), "arguments": arguments}
            call_fields = {"id": call, "type": "function", "function": function}
            message.setdefault("tool_calls", []).append(call_fields)
            if state.get("status") in ("completed", "error"):
                output = str(state.get("output") or state.get("error") or "")
                results.append({"role": "tool", "tool_call_id": call, "content": output})
        self.thoughts += [part.key for part in step if part.kind == "reasoning"]
        self.body += [message, *results]
        self.owners += [key] * (1 + len(results))

    def rewrite(self, messages: list[Any], origins: tuple[int, ...]) -> dict[ItemKey, bytes | None]:
        """Return the values that a repair changes, by key; None: the value is deleted."""
        files, values = dict(self.damaged), dict[ItemKey, dict[str, Any]]()
        waiting: dict[str, _Part] = {}
        for message, origin in zip(messages, origins, strict=True):
            answered = waiting.get(message.get("tool_call_id"))
            if message.get("role") == "assistant":
                parts, calls = self.calls.get(origin, []), as_list(message.get("tool_calls"))
                if len(calls) < len(parts):  # some were dropped
                    names = {call["id"] for call in calls}
                    dropped = [part for part in parts if part.value.get("callID") not in names]
                    files |= {part.key: None for part in dropped}
                    parts = [part for part in parts if part not in dropped]
                waiting = {call["id"]: part for call, part in zip(calls, parts, strict=False)}
                for name, own in waiting.items():
                    if own.value.get("callID") != name:
                        values[own.key] = {**own.value, "callID": name}
            elif answered and origin >= 0 and message is not self.body[origin]:
                value = values.get(answered.key, dict(answered.value))
                state = as_map(value.get("state"))
                field = "output" if state.get("output") else "error"
                values[answered.key] = {**value, "state": {**state, field: message["content"]}}
            elif answered and origin < 0:
                state = as_map(answered.value.get("state"))  # its call ended in an error
                start = as_map(state.get("time")).get("start", 0)
                closed = {
                    "status": "error",
                    "input": as_map(state.get("input")),
                    "error": message["content"],
                    "time": {"start": start, "end": start},
                }
                value = values.get(answered.key, dict(answered.value))
                values[answered.key] = {**value, "state": closed}
        files |= {key: encoded(value, indented=self.store.named) for key, value in values.items()}
        remaining = {self.owners[origin] for origin in origins if origin >= 0}
        return files | {key: None for key in self.owners if key not in remaining}


def _minimal_message(role: str, other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a message that the agent needs. `other`: one with the other role."""
    agent, model = other.get("agent", "build"), as_map(other.get("model", other))
    model_fields = {key: model.get(key, "") for key in ("providerID", "modelID")}
    created = as_map(other.get("time")).get("created", 0)
    message = {"role": role, "time": {"created": created}, "agent": agent}
    if role == "user":
        return {**message, "model": model_fields}
    tokens = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    answer_fields = {"parentID": "", "mode": agent, "path": {"cwd": "", "root": ""}, "cost": 0}
    return {**message, **model_fields, **answer_fields, "tokens": tokens}


def _since_summary(messages: list[_Message]) -> list[_Message]:
    """Return the messages that are sent: from the last summary on, or from the tail it kept."""
    summarized = {
        as_text(info.get("parentID"))
        for _, info, _ in messages
        if info.get("summary") is True and info.get("finish") and "error" not in info
    }
    names = [message.key.name for message in messages]
    for index in reversed(range(len(messages))):
        marks = [part.value for part in messages[index].parts if part.kind == "compaction"]
        if names[index] in summarized and marks:
            tail = marks[0].get("tail_start_id")
            return messages[names.index(tail) if tail in names[:index] else index :]
    return messages


def _other_parts(parts: list[_Part]) -> list[dict[str, Any]] | None:
    """Return the parts of a message that has no text, such as images; None without any."""
    kinds = ("file", "reasoning", "compaction", "subtask")
    # With types of their own, because a block of thinking is a violation in Chat.
    others = [
        {**part.value, "type": f"opencode-{part.kind}"} for part in parts if part.kind in kinds
    ]
    return others or None
