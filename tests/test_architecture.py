"""The rooms of design/architecture.md: which room may know which."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# What a room may import, besides itself. "words" are the modules at the top that all share
# (types, policy, dialect, ledger, prompts, registry). A room
# that is not named here, on either side, is a mistake. `+lazy`: only inside a function.
ROOMS: dict[str, set[str]] = {
    "words": {"seams", "history+lazy"},
    "seams": set(),
    "limits": set(),
    "wire": {"words"},
    "answer": {"words", "wire", "seams"},
    "reports": {"words", "seams"},
    "config": {"words", "limits"},
    "engine": {"words", "seams", "limits", "config", "reports", "history+lazy"},
    "attach": {"words", "engine", "config", "reports"},
    "history": {"words", "wire", "seams", "limits+lazy"},
    "chains": {"history", "wire"},
    "sessions": {"history", "wire"},
    "simulator": {"limits", "history", "wire"},
    "cli": {"doors", "limits", "config", "reports", "history", "sessions", "simulator", "words"},
    "doors": {"attach", "cli", "config", "engine", "reports", "simulator", "words", "history+lazy"},
    **{
        f"providers/{room}": {"words", "wire", "answer", "providers/openai_common", "chains+lazy"}
        for room in ("anthropic_messages", "openai_chat", "openai_responses", "gemini")
    },
    "providers/openai_common": {"words", "wire"},
    "providers": set(),
}
WORDS = {"types", "policy", "dialect", "ledger", "prompts", "registry"}
DEBTS = {
    "continuation.attach.google_chats": "joins parts by Gemini's own rules",
    "continuation.config.vendors": "asks the vendors' reader about a table",
}
SDKS = {"anthropic", "openai", "google"}
TRANSPORT = {"httpx2", "anyio"}


def room(module: str) -> str:
    """Return the room of a module of ours, or of a name imported from the top."""
    first, *rest = module.removeprefix("continuation").lstrip(".").split(".")
    if first == "providers":
        return f"providers/{rest[0]}" if rest else "providers"
    if (ROOT / "continuation" / first).is_dir() and first:
        return first
    if first in WORDS or first == "__version__":
        return "words"
    return "doors"


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every module of ours: its dotted name and its file."""
    for top, prefix in (("continuation", ""), ("providers", "continuation.")):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[:2] != ("continuation", "providers"):
                yield prefix + ".".join(p for p in parts if p != "__init__"), path


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the modules a file imports, and whether it does so inside a function.

    What only type checkers read is left out.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = [n for n in tree.body if isinstance(n, ast.If)]
    unseen = {id(inner) for block in blocks for inner in ast.walk(block)}
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) not in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            split = node.module in {"continuation", "continuation.providers"}
            for alias in node.names:
                name = f"{node.module}.{alias.name}" if split else node.module
                yield name, id(node) not in top


@pytest.mark.parametrize(("module", "path"), [pytest.param(*m, id=m[0]) for m in modules()])
def test_a_room_knows_only_its_neighbours(module: str, path: Path) -> None:
    mine = room(module)
    if module in DEBTS:
        pytest.xfail(DEBTS[module])
    for name, lazy in imports(path):
        if name.split(".")[0] == "continuation" and (theirs := room(name)) != mine:
            allowed = ROOMS[mine]
            assert theirs in allowed or (lazy and f"{theirs}+lazy" in allowed), name


def test_no_underscore_stands_for_a_folder() -> None:
    for module, _ in modules():
        leaf = module.rsplit(".", 1)[-1]
        assert not leaf.startswith("_") or leaf == "__main__", module


def test_the_engine_does_no_io_and_knows_no_provider() -> None:
    forbidden = TRANSPORT | SDKS | {"socket", "asyncio", "threading", "time", "urllib"}
    for module, path in modules():
        if room(module) in {"engine", "seams", "answer"}:
            known = {name.split(".")[0] for name, _ in imports(path)}
            assert not known & forbidden or module == "continuation.engine.backoff", module
        if room(module) in {"engine", "seams"}:
            text = path.read_text(encoding="utf-8").lower()
            assert not any(name in text for name in ("anthropic", "openai", "gemini")), module


def test_only_the_shells_know_the_transport_and_the_sdks() -> None:
    for module, path in modules():
        if room(module) not in {"attach", "cli", "doors"}:
            known = {name.split(".")[0] for name, lazy in imports(path) if not lazy}
            assert not known & (TRANSPORT | SDKS), module


def test_the_core_imports_without_any_sdk() -> None:
    code = (
        "import sys\n"
        "for name in ('anthropic', 'openai', 'google.genai'): sys.modules[name] = None\n"
        "import continuation\n"
        "assert 'rich' not in sys.modules and 'tiktoken' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
