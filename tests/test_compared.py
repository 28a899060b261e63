"""The page that compares is what the script wrote, of the versions that it asks for today."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parent / "benchmarks"


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("peers")


@pytest.fixture
def page(peers: Any) -> str:
    return str(peers.PAGE.read_text(encoding="utf-8"))


def test_nobody_has_changed_what_the_script_wrote(peers: Any, page: str) -> None:
    _, begin, rest = page.partition(peers.BEGIN)
    text = rest.partition(peers.END.partition("{}")[0])[0]
    picture = peers.PICTURE.read_text(encoding="utf-8")
    assert begin + rest == peers.stamped(text, picture) + "\n"


def test_the_page_names_the_day_and_the_versions_of_today(peers: Any, page: str) -> None:
    assert re.search(r"^Measured on \d{4}-\d\d-\d\d, with Python 3\.", page, re.MULTILINE)
    for calls in peers.ENVIRONMENTS.values():
        *_, last = calls  # a later call lays its version over an earlier one's
        for pinned in (given for given in last if "==" in given):
            name, _, version = pinned.partition("==")
            assert f"{name.partition('[')[0]} {version}" in page


def test_each_peer_and_each_scene_has_its_place(peers: Any, page: str) -> None:
    assert peers.row("", *peers.COLUMNS) in page
    for peer in peers.PEERS:
        assert page.count(f"\n| {peer.title} |") == 3 + len(peers.FORMS)
        assert peer.setting in page


def test_the_picture_has_a_stripe_for_each_answer(peers: Any, page: str) -> None:
    drawn = ElementTree.parse(peers.PICTURE).iter("{http://www.w3.org/2000/svg}title")
    told = re.search(r": (\d+) answers\.$", page, re.MULTILINE)
    assert told is not None
    assert len(list(drawn)) == int(told[1])


def test_an_answer_is_counted_where_it_belongs(peers: Any) -> None:
    def cell(scene: str, outcome: str, **more: Any) -> Any:
        usual = {"halves": 0, "requests": 1, "billed": 10, "seconds": 1.0, "followed": True}
        named = {"peer": "sdk", "form": "chat", "kind": "text", "stream": False, "note": ""}
        return peers.Cell(scene=scene, outcome=outcome, **{**usual, **named, **more})

    cells = [
        cell("uncut text", peers.WHOLE),
        cell("text", peers.WHOLE, requests=3, billed=15, seconds=1.5),
        cell("text", peers.HALF, halves=1, followed=False),
        cell("drop", peers.TOLD, billed=5, followed=None),
    ]
    _, _, counted, *_ = peers.outcomes(cells)
    assert counted.startswith("| plain SDKs | **1 complete** | 1 complete, 1 half run | – |")
    _, _, cost, *_ = peers.costs(cells)
    row = (
        "| plain SDKs | 1 of 3 | 1 | 0 | 1 | 1 of 2 | 2.0 | 1.50 | 3.00 | 0 ms | 500 ms | 500 ms |"
    )
    assert cost == row
