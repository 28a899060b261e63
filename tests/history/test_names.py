"""Tools' names that a server refuses: such a call was never run, and poisons its session."""

from __future__ import annotations

from typing import Any

import pytest

from continuation.history import RepairPolicy, repair, validate

DEAD = RepairPolicy(live=False)
STRICT = RepairPolicy(live=False, strict=True)
ANSWER = {"type": "tool_result", "tool_use_id": "a", "content": "Tool not found"}


def _body(name: str, **more: Any) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "a", "name": name, "input": {}}
    said = [("user", "x"), ("assistant", [call]), ("user", [ANSWER])]
    return {"messages": [{"role": role, "content": content} for role, content in said], **more}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("", "unknown_tool"),
        ('view" path="a.php"' * 20, ("view__path__a_php_" * 20)[:64]),
    ],
)
def test_a_name_that_is_refused_is_made_one_that_is_taken(name: str, wanted: str) -> None:
    done = repair(_body(name), "anthropic", policy=DEAD)
    assert [change.what for change in done.changes] == ["rename_tool"]
    assert done.body["messages"][1]["content"][0]["name"] == wanted
    assert done.body["messages"][2] == _body(name)["messages"][2]
    assert validate(done.body, "anthropic", strict=True, live=False) == []


def test_other_letters_are_minded_by_strict_servers_alone_and_not_where_they_are_declared() -> None:
    body = _body("browser.tabs.open")
    assert repair(body, "anthropic", policy=DEAD).body is body
    made = repair(body, "anthropic", policy=STRICT).body
    assert made["messages"][1]["content"][0]["name"] == "browser_tabs_open"
    declared = _body("browser.tabs.open", tools=[{"name": "browser.tabs.open", "input_schema": {}}])
    assert repair(declared, "anthropic", policy=STRICT).body is declared


def test_a_result_gets_the_name_of_its_call() -> None:
    calls: list[Any] = [
        {"functionCall": {"name": name, "args": {}}} for name in ("look", "default:go", "")
    ]
    answers = [{"functionResponse": {"response": {"output": str(n)}}} for n in range(3)]
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "x"}]},
            {"role": "model", "parts": calls},
            {"role": "user", "parts": answers},
        ]
    }
    made = repair(body, "gemini", policy=DEAD).body["contents"]
    names = [part["functionCall"]["name"] for part in made[1]["parts"]]
    assert names == ["look", "default:go", "unknown_tool"]
    told = [part["functionResponse"] for part in made[2]["parts"]]
    assert [(answer["name"], answer["response"]["output"]) for answer in told] == [
        ("look", "0"),
        ("default:go", "1"),
        ("unknown_tool", "2"),
    ]
