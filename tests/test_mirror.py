"""Tests lie where what they test lies: each folder here is a room of the house."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
HOUSE = TESTS.parent
BESIDE = {"benchmarks", "frameworks", "public", "real", "support"}
"""Folders that test no one room: the figures, frameworks, the API, a real server, the helpers."""

FOLDERS = sorted({path.parent.relative_to(TESTS) for path in TESTS.glob("*/**/test_*.py")})


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f.parts[0] not in BESIDE], ids=str)
def test_a_folder_of_tests_is_a_room(folder: Path) -> None:
    room = HOUSE if folder.parts[0] == "providers" else HOUSE / "continuation"
    assert list(room.joinpath(folder).glob("*.py")), f"there is no room {folder}"


def test_every_room_has_its_tests() -> None:
    rooms = {path.parent for path in (HOUSE / "continuation").glob("*/__init__.py")}
    rooms |= {path.parent for path in (HOUSE / "providers").glob("*/__init__.py")}
    named = {str(room.relative_to(HOUSE)).removeprefix("continuation/") for room in rooms}
    assert named - {str(folder) for folder in FOLDERS} == set(), "a room without tests"
