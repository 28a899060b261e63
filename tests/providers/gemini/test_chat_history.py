"""What a chat remembers of a streamed answer, of servers that differ from the usual one."""

from __future__ import annotations

from typing import Any

import pytest
from google import genai
from google.genai import types
from support.drive_gemini import FAST, NEW, Chunk, chunk, text
from support.servers import Answer, Asked, Canned

import continuation

BEFORE = "A captain of the line wrote his log by lamplight, and then the quick brown fo"
ANCHOR = "and then the quick brown fo"
COUNTS: Chunk = {"candidates": [], "usageMetadata": {"promptTokenCount": 10}, "responseId": "r1"}
"""A chunk without content amid the text: the SDK's chat forgets the whole turn for it."""
CUT = [chunk(text("So: ")), COUNTS, chunk(text(BEFORE)), chunk(reason="MAX_TOKENS", said=65_536)]
REST = [chunk(text(ANCHOR)), chunk(text("x jumps.")), chunk(text(""), reason="STOP")]


def unnamed(chunks: list[Chunk]) -> list[Chunk]:
    return [{k: v for k, v in c.items() if k != "responseId"} for c in chunks]


def remembered(
    first: list[Chunk], later: list[Chunk], **config: Any
) -> list[tuple[Any, list[Any]]]:
    """Return who said what in the history of a chat of one turn."""

    def rule(asked: Asked) -> Answer:
        return Answer(events=later if len(asked.body["contents"]) > 1 else first)

    with Canned(rule) as server:
        options = types.HttpOptions(base_url=server.url)
        with genai.Client(api_key="key", http_options=options) as bare:
            client = continuation.wrap(bare, config=FAST)
            wanted: Any = {"max_output_tokens": 65_536, **config}
            chat = client.chats.create(model=NEW, config=wanted)
            list(chat.send_message_stream("Go."))
            history = chat.get_history(curated=True)
    return [(c.role, [part.text for part in c.parts or []]) for c in history]


@pytest.mark.parametrize("named", [True, False])
def test_a_healed_turn_is_remembered_whether_or_not_its_answer_has_an_id(named: bool) -> None:
    # Without an id the last report counts.
    first, later = (CUT, REST) if named else (unnamed(CUT), unnamed(REST))
    said = "So: " + BEFORE + "x jumps."
    assert remembered(first, later) == [("user", ["Go."]), ("model", [said])]


def test_a_turn_that_stays_cut_is_remembered_as_well() -> None:
    # Such an end was written by us, too.
    schema = {"response_mime_type": "application/json"}
    half = [chunk(text('{"a":')), COUNTS, chunk(text(" 1")), CUT[-1]]
    assert remembered(half, half, **schema) == [("user", ["Go."]), ("model", ['{"a": 1'])]
