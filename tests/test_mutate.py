"""The faults of `scripts/mutate.py`, and those that `tests/mutants.md` explains."""

from __future__ import annotations

from pathlib import Path

import mutate
import pytest

SOURCE = '''"""Text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

ROWS = (
    dict(a=1),
    dict(b=2),
)


def f(self, a: int = 1) -> bool:
    """Text."""
    self.x = a
    if a < 2 and not self.y:
        self.go()
    return True if a == 3 else a is None
'''


def test_each_kind_of_fault_is_made_and_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    path = tmp_path / "a.py"
    path.write_text(SOURCE, encoding="utf-8")
    made = list(mutate.mutants(path))
    for mutant in made:
        compile(mutant.text, "a.py", "exec")
        assert mutant.text != mutant.source
    names = "\n".join(mutant.name for mutant in made)
    for fault in (
        "`dict(a=1),` | `removed`",
        "`dict(b=2),` | `dict(b=3),`",
        "`self.x = a` | `pass`",
        "`if a < 2 and not self.y:` | `if not (a < 2 and (not self.y)):`",
        "`if a < 2 and not self.y:` | `if (a <= 2) and not self.y:`",
        "`if a < 2 and not self.y:` | `if ((a < 2) or (not self.y)):`",
        "`if a < 2 and not self.y:` | `if a < 2 and bool(self.y):`",
        "`self.go()` | `pass`",
        "`return True if a == 3 else a is None` | `return False if a == 3 else a is None`",
        "`return True if a == 3 else a is None` | `return True if a == 3 else (a is not None)`",
    ):
        assert fault in names
    assert "TYPE_CHECKING" not in names


def test_each_explained_fault_can_still_be_made() -> None:
    made = {
        mutant.name
        for path in sorted((mutate.ROOT / "continuation").rglob("*.py"))
        if str(path.relative_to(mutate.ROOT)) in mutate.KNOWN.read_text(encoding="utf-8")
        for mutant in mutate.mutants(path)
    }
    assert mutate.known() <= made
