"""Random histories in each dialect, and the damage that crashes and agents do to them."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from support.notation import DIALECTS, Json, write

FIELDS = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Return the line of a valid history; texts are numbered, so that each is unique."""
    tokens, count = ["U:u0"], 0
    for turn in range(draw(st.integers(0, 5))):
        thinks = "th+," if draw(st.booleans()) else ""
        for _ in range(draw(st.integers(0, 2))):
            calls = [f"k{count + n}" for n in range(draw(st.integers(1, 3)))]
            count += len(calls)
            says = f"t:a{count}," if draw(st.booleans()) else ""
            tokens.append(f"A[{thinks}{says}{','.join(f'c:{call}' for call in calls)}]")
            tokens += [f"R:{call}" for call in calls]
        tokens += [f"A[{thinks}t:z{turn}]", f"U:u{turn + 1}"]
    return " ".join(tokens)


@st.composite
def broken(draw: st.DrawFn) -> tuple[str, Json, Json]:
    """Return a dialect, a valid body of it, and the same with some damage."""
    dialect = draw(st.sampled_from(DIALECTS))
    whole = write(dialect, draw(lines()))
    body = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 5))):
        draw(st.sampled_from(_DAMAGES))(draw, dialect, body[FIELDS[dialect]])
    return dialect, whole, body


# -- damage --------------------------------------------------------------------------------------


def _at(draw: st.DrawFn, messages: list[Any]) -> int:
    return draw(st.integers(0, max(len(messages) - 1, 0)))


def _drop(draw: st.DrawFn, dialect: str, messages: list[Any]) -> None:
    del messages[_at(draw, messages) : _at(draw, messages) + 1]


def _duplicate(draw: st.DrawFn, dialect: str, messages: list[Any]) -> None:
    if messages:
        again = copy.deepcopy(messages[_at(draw, messages)])
        messages.insert(_at(draw, messages), again)


def _move(draw: st.DrawFn, dialect: str, messages: list[Any]) -> None:
    if messages:
        moved = messages.pop(_at(draw, messages))
        messages.insert(_at(draw, messages), moved)


def _truncate(draw: st.DrawFn, dialect: str, messages: list[Any]) -> None:
    del messages[_at(draw, messages) + 1 :]


def _inner(message: Any) -> list[Any] | None:
    for key in ("tool_calls", "parts", "content"):
        if isinstance(message, dict) and isinstance(message.get(key), list):
            return list[Any](message[key]) and message[key]
    return None


def _drop_part(draw: st.DrawFn, dialect: str, messages: list[Any]) -> None:
    inner = _inner(messages[_at(draw, messages)]) if messages else None
    if inner:
        del inner[_at(draw, inner)]


def _swap_parts(draw: st.DrawFn, dialect: str, messages: list[Any]) -> None:
    inner = _inner(messages[_at(draw, messages)]) if messages else None
    if inner:
        inner.insert(_at(draw, inner), inner.pop(_at(draw, inner)))


def _empty(draw: st.DrawFn, dialect: str, messages: list[Any]) -> None:
    """A message whose text never arrived."""
    if not messages:
        return
    blank = draw(st.sampled_from(["", "  \n"]))
    made: dict[str, Json] = {
        "anthropic": {"role": "assistant", "content": [{"type": "text", "text": blank}]},
        "openai-chat": {"role": "assistant", "content": blank or None},
        "openai-responses": {"role": "assistant", "content": blank},
        "gemini": {"role": "model", "parts": [{"text": blank}] if blank else []},
    }
    messages.insert(_at(draw, messages), made[dialect])


def _foreign(draw: st.DrawFn, dialect: str, messages: list[Any]) -> None:
    """Signatures, ids and roles of another provider, as a change of model leaves them."""
    old, new = draw(
        st.sampled_from(
            [
                ('"Zm9v"', '"skip me!"'),
                ('"Zm9v"', '""'),
                ('"k1"', '"fc_1|k 1"'),
                ('"rs_', '"x_'),
                ('"assistant"', '"model"'),
                ('"model"', '"assistant"'),
                ('"{\\"n\\": 1}"', '"{\\"n\\": "'),
                ('{"n": 1}', '"{\\"n\\": "'),
                ('"id": "k0", ', ""),
            ]
        )
    )
    messages[:] = json.loads(json.dumps(messages).replace(old, new))


def _garbage(draw: st.DrawFn, dialect: str, messages: list[Any]) -> None:
    every: list[Any] = [None, 5, "plain words", {}, [], {"role": "tool"}, {"role": "user"}]
    junk = draw(st.sampled_from(every))
    messages.insert(_at(draw, messages), junk)


_DAMAGES: list[Callable[[st.DrawFn, str, list[Any]], None]] = [
    _drop,
    _duplicate,
    _move,
    _truncate,
    _drop_part,
    _swap_parts,
    _empty,
    _foreign,
    _garbage,
]


# -- what must not be lost -----------------------------------------------------------------------


def texts(body: Json, dialect: str) -> Counter[str]:
    """Return all texts of the user and the assistant, by their words."""
    return Counter(
        word for text in _texts(body[FIELDS[dialect]]) for word in text.split() if word[0] in "uaz"
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict) and not value.get("thought"):
        for key, each in value.items():
            if key in ("text", "content") and isinstance(each, str):
                if value.get("role") != "tool":
                    yield each
            elif key in ("content", "parts"):
                yield from _texts(each)


def sure_results(body: Json) -> set[str]:
    """Return the texts of results after the only call of their id: none may be lost."""
    flat = json.dumps(body)
    found: set[str] = set()
    for number in range(40):
        call, text = f'"k{number}"', f"ok k{number}"
        places = [at for at in range(len(flat)) if flat.startswith(call, at)]
        made = [at for at in places if _is_call(flat, at)]
        at = flat.find(f'"{text}"')
        if len(made) == 1 and flat.count(f'"{text}"') == 1 and made[0] < at and len(places) == 2:
            found.add(text)
    return found


def _is_call(flat: str, at: int) -> bool:
    before = flat[max(at - 40, 0) : at]
    return not before.endswith(('"tool_use_id": ', '"tool_call_id": ')) and (
        "functionCall" in before or '"id": ' in before[-7:] or '"function_call"' in before
    )
