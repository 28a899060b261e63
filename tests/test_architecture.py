"""The import arrows of design/architecture.md: who may know whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = ROOT / "continuation"
PROVIDERS = ROOT / "providers"

# module -> the modules of ours it may import (by prefix), besides what it may always: types.
ALLOWED: dict[str, tuple[str, ...]] = {
    "types": (),
    "policy": (),
    "config": ("limits", "policy"),
    "override": ("policy",),
    "prompts": ("_seam",),
    "limits": (),
    "tokens": ("limits",),
    "seam": ("_seam",),
    "retry": ("policy",),
    "decide": (),
    "memory": ("limits",),
    "recent": (),
    "report": ("decide", "recent", "seam"),
    "dialect": ("policy", "seam"),
    "commands": ("dialect",),
    "budget": ("decide", "dialect", "limits", "policy", "report"),
    "attempts": ("budget", "commands", "dialect", "policy", "recent", "report", "retry"),
    "evidence": ("dialect", "seam"),
    "closing": ("decide", "dialect", "policy", "report"),
    "opening": (
        "attempts",
        "budget",
        "commands",
        "decide",
        "dialect",
        "policy",
        "report",
    ),
    "turn": (
        "attempts",
        "budget",
        "closing",
        "commands",
        "decide",
        "dialect",
        "evidence",
        "limits",
        "opening",
        "policy",
        "prompts",
        "report",
        "seam",
        "tokens",
    ),
    "engine": (
        "config",
        "dialect",
        "limits",
        "memory",
        "override",
        "policy",
        "report",
        "tracing",
        "turn",
    ),
    "tracing": ("decide", "report"),
    "registry": ("dialect",),
}
SDKS = {"anthropic", "openai", "google"}


def imports(path: Path) -> set[str]:
    """Return the modules a file imports at its top level, type-checking blocks left out."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def ours(path: Path) -> set[str]:
    names = (name for name in imports(path) if name.startswith("continuation."))
    return {name.removeprefix("continuation.") for name in names}


@pytest.mark.parametrize("module", ALLOWED)
def test_the_core_keeps_its_arrows(module: str) -> None:
    allowed = ("types", *ALLOWED[module])
    strangers = {n for n in ours(CORE / f"{module}.py") if not n.startswith(allowed)}
    assert strangers == set()


@pytest.mark.parametrize("path", sorted(PROVIDERS.glob("*.py")), ids=lambda path: path.stem)
def test_a_dialect_translates_and_never_decides(path: Path) -> None:
    allowed = ("types", "policy", "prompts", "seam", "_seam", "dialect", "providers")
    assert {n for n in ours(path) if not n.startswith(allowed)} == set()


def test_the_engine_does_no_io_and_knows_no_provider() -> None:
    forbidden = {"httpx2", "socket", "asyncio", "anyio", "threading", "time", "urllib"}
    for module in ("turn", "opening", "decide", "budget", "attempts", "engine", "seam", "report"):
        path = CORE / f"{module}.py"
        assert not imports(path) & (forbidden | SDKS), module
        text = path.read_text(encoding="utf-8").lower()
        assert not any(name in text for name in ("anthropic", "openai", "gemini")), module


def test_no_module_of_the_core_imports_an_sdk() -> None:
    for path in [*CORE.glob("*.py"), *PROVIDERS.glob("*.py")]:
        assert not {name.split(".")[0] for name in imports(path)} & SDKS, path.name


def test_the_core_imports_without_any_sdk() -> None:
    code = (
        "import sys\n"
        "for name in ('anthropic', 'openai', 'google.genai'): sys.modules[name] = None\n"
        "import continuation\n"
        "assert 'rich' not in sys.modules and 'tiktoken' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
