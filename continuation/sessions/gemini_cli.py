"""gemini-cli's saved chats: a log from which messages are built, or (older) one JSON document.

A line is one of three things. It is a message, which replaces an earlier one with the same id. Or
it is `$set` with fields of the chat, which can include all `messages`. Or it is `$rewindTo` with
the id of the first message to delete. A message of the model contains its calls with their results,
so it becomes two contents of a request. A repaired log ends with a line that sets all messages, as
the agent itself writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

from continuation.sessions.lines import Record, encoded
from continuation.sessions.logs import stable_uuid
from continuation.wire.json_values import as_list, as_map, as_text, is_map

_NOTES: Final = ("/", "?", "<session_context>", "<hook_context>")
"""A user's message that begins with one of these is for the agent, and is not sent."""


class SavedChat:
    """A chat, and the contents that the agent makes from it when it resumes."""

    def __init__(self, records: list[Record], *, is_document: bool = False) -> None:
        self._records = records
        self._is_document = is_document
        self._messages = list(_fold(records).values())
        self.contents: list[dict[str, Any]] = []
        self._owners: list[int] = []
        """For each content the index of its message."""
        for at, message in enumerate(self._messages):
            contents = _contents(message)
            self.contents += contents
            self._owners += [at] * len(contents)
        self._sent = set(self._owners)

    @staticmethod
    def fits(value: Mapping[str, Any]) -> bool:
        """Whether this is the first line of a saved chat's log, or its complete document."""
        return "sessionId" in value and "projectHash" in value

    def rewritten(self, contents: list[Any], origins: tuple[int, ...]) -> bytes:
        """Return the file with these contents. `origins`: their previous index, -1 if new."""
        lines = [record.raw for record in self._records]
        if [id(content) for content in contents] != [id(content) for content in self.contents]:
            messages = self._rewritten(contents, origins)
            if self._is_document:
                document = {**self._records[0].value, "messages": messages}
                return encoded(document, indented=True) + b"\n"
            lines.append(encoded({"$set": {"messages": messages}}))
        elif self._is_document:  # the document was truncated
            return encoded(self._records[0].value, indented=True) + b"\n"
        return b"".join(line + b"\n" for line in lines)

    def _rewritten(self, contents: list[Any], origins: tuple[int, ...]) -> list[dict[str, Any]]:
        messages, passed = list[dict[str, Any]](), 0
        calls = [as_map(call) for each in self._messages for call in as_list(each.get("toolCalls"))]
        answered = {as_text(call.get("id")) for call in calls if call.get("result")}
        unchanged = {id(content) for content in contents}
        changed = {
            owner
            for owner, content in zip(self._owners, self.contents, strict=True)
            if id(content) not in unchanged and not _is_content_of(self._messages[owner], content)
        }
        for number, (content, origin) in enumerate(zip(contents, origins, strict=True)):
            owner = self._owners[origin] if origin >= 0 else -1
            if 0 <= owner < passed and content is self.contents[origin]:
                continue  # results: they are part of the message of their calls
            before: Mapping[str, Any] = {}
            if owner >= passed:
                # Messages that are not sent, such as notices, keep their place.
                messages += self._aside(passed, owner)
                passed, before = owner + 1, self._messages[owner]
            if not _is_content_of(before, content):
                if _attach_results(messages, content, answered):
                    continue
                before = {}
            if before and content is self.contents[origin]:
                messages.append(dict(before))
            else:
                above = messages[-1] if messages else self._records[0].value
                messages.append(_message(content, before, above, number))
            if owner in changed and "toolCalls" in messages[-1]:
                calls = as_list(messages[-1]["toolCalls"])
                messages[-1]["toolCalls"] = [{**as_map(call), "result": None} for call in calls]
        return messages + self._aside(passed, len(self._messages))

    def _aside(self, start: int, stop: int) -> list[dict[str, Any]]:
        """Return the messages with these indices that are not sent."""
        return [dict(self._messages[at]) for at in range(start, stop) if at not in self._sent]


class Checkpoint:
    """A file that `/chat save` writes: one JSON document with the contents as they are sent."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def rewritten(self, contents: list[Any], origins: tuple[int, ...]) -> bytes:
        """Return the file with these contents."""
        del origins
        return encoded({**self._document, "history": contents}, indented=True) + b"\n"


def _fold(records: list[Record]) -> dict[str, Mapping[str, Any]]:
    """Return the messages that result from the records, by id, in order."""
    messages: dict[str, Mapping[str, Any]] = {}
    for value in (record.value for record in records):
        if "$rewindTo" in value:
            while messages and messages.popitem()[0] != value["$rewindTo"]:
                pass
        elif isinstance(value.get("id"), str):
            messages[value["id"]] = value
        else:
            fields = as_map(value.get("$set", value if SavedChat.fits(value) else None))
            if "messages" in fields:
                if "$set" in value:
                    messages.clear()
                listed = [as_map(each) for each in as_list(fields["messages"])]
                messages |= {each["id"]: each for each in listed if isinstance(each.get("id"), str)}
    return messages


def _contents(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the contents of a message that are sent: none, one, or one and its calls' results."""
    parts = _parts(message.get("content"))
    if message.get("type") == "user":
        text = "".join(as_text(part.get("text")) if "text" in part else "[…]" for part in parts)
        is_note = not text.strip() or text.lstrip().startswith(_NOTES)
        return [] if is_note else [{"role": "user", "parts": parts}]
    if message.get("type") != "gemini":
        return []
    calls = [as_map(call) for call in as_list(message.get("toolCalls"))]
    if not any("functionCall" in part or part.get("thought") for part in parts):
        thoughts = [as_map(thought) for thought in as_list(message.get("thoughts"))]
        parts = [_thought(thought) for thought in thoughts] + parts
        for call in calls:
            function_call = {key: call.get(key) for key in ("id", "name", "args")}
            parts.append({"functionCall": function_call})
    if not parts:
        return []
    results = [part for call in calls for part in _result(call)]
    answers = [{"role": "user", "parts": results}] if results else []
    return [{"role": "model", "parts": parts}, *answers]


def _parts(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"text": content}] if content else []
    items = as_list(content) or ([content] if is_map(content) else [])
    return [{"text": part} if isinstance(part, str) else dict(as_map(part)) for part in items]


def _thought(thought: Mapping[str, Any]) -> dict[str, Any]:
    subject, description = as_text(thought.get("subject")), as_text(thought.get("description"))
    return {"text": f"**{subject}** {description}" if subject else description, "thought": True}


def _result(call: Mapping[str, Any]) -> list[dict[str, Any]]:
    result = call.get("result")
    if isinstance(result, str) and result:
        named = {"id": call.get("id"), "name": call.get("name")}
        return [{"functionResponse": {**named, "response": {"output": result}}}]
    return _parts(result)


def _is_content_of(message: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    """Whether a content is the message itself, not its calls' results; its role decides."""
    return message.get("type") == ("gemini" if content.get("role") == "model" else "user")


def _attach_results(
    messages: list[dict[str, Any]], content: Mapping[str, Any], answered: Set[str]
) -> bool:
    """Put results into the last message; return False if that does not have their calls.

    `answered`: the ids of the calls that had results before the repair.
    """
    calls = [as_map(call) for call in as_list(messages[-1].get("toolCalls"))] if messages else []
    parts = [as_map(part) for part in as_list(content.get("parts"))]
    answers = [as_map(part.get("functionResponse")) for part in parts]
    answered_ids = {as_text(answer.get("id")) for answer in answers}
    names = {as_text(call.get("id")): as_text(call.get("name")) for call in calls}
    waiting = dict[str, list[str]]()
    for each in reversed([name for name in names if name not in answered_ids]):
        waiting.setdefault(names[each], []).append(each)
    results, name = dict[str, list[Any]](), ""
    for part, answer in zip(parts, answers, strict=True):
        if answer:
            # A result from a repair has no id. It belongs to the next open call with its name.
            candidates = waiting.get(as_text(answer.get("name")))
            name = as_text(answer.get("id")) or (candidates.pop() if candidates else "")
        numbered = {**part, "functionResponse": {**answer, "id": name}} if answer else part
        results.setdefault(name, []).append(numbered)
    if "" in results or not results.keys() <= names.keys():
        return False
    order = {name: index for index, name in enumerate(results)}
    calls.sort(key=lambda call: order.get(as_text(call.get("id")), -1))
    messages[-1]["toolCalls"] = [
        {**call, "status": call.get("status") if as_text(call.get("id")) in answered else "error"}
        | {"result": results.get(as_text(call.get("id")), call.get("result"))}
        for call in calls
    ]
    return True


def _message(
    content: Mapping[str, Any], before: Mapping[str, Any], above: Mapping[str, Any], number: int
) -> dict[str, Any]:
    """Return a message with this content: a changed `before`, or a new one if that is empty."""
    parts = as_list(content.get("parts"))
    entry = dict(before)
    if not entry:
        name = stable_uuid(above.get("id", above.get("sessionId")), number)
        stamp = above.get("timestamp", above.get("startTime"))
        kind = "gemini" if content.get("role") == "model" else "user"
        entry = {"id": name, "timestamp": stamp, "type": kind}
    entry["content"] = parts
    if entry["type"] == "gemini":  # the content now has its thoughts and calls
        calls = {as_text(as_map(as_map(part).get("functionCall")).get("id")) for part in parts}
        listed = as_list(entry.get("toolCalls"))
        entry["thoughts"] = []
        entry["toolCalls"] = [call for call in listed if as_text(as_map(call).get("id")) in calls]
    return entry
