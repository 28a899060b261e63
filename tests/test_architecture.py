"""The rooms of design/architecture.md: which room may know which."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict

import draw_rooms
from draw_rooms import imports, modules, room

# What a room may import, besides itself. "words" are the modules at the top that all share, "doors"
# what a user imports. A room that is not named here, on either side, is a mistake.
# `+lazy`: only inside a function.
ROOMS: dict[str, set[str]] = {
    "words": {"seams", "history+lazy"},
    "seams": set(),
    "stores": set(),
    "limits": {"stores"},
    "wire": {"words"},
    "providers/contract": {"words", "wire"},
    "providers/sdk": set(),
    "providers/request": {"words", "wire"},
    "answer": {"words", "wire", "seams", "providers/contract"},
    "reports": {"words", "seams"},
    "config": {"words", "limits"},
    "engine": {
        *("words", "seams", "limits", "config", "reports", "history+lazy", "providers/contract"),
    },
    "attach": {"words", "engine", "config", "reports", "providers/contract"},
    "bulk": {
        "words",
        "providers/contract",
        "attach",
        "config",
        "engine",
        "reports",
        "answer",
        "wire",
        "doors+lazy",
        "journal+lazy",
    },
    "gateway": {
        "words",
        "providers/contract",
        "attach",
        "engine",
        "config",
        "reports",
        "answer",
        "wire",
        "journal+lazy",
    },
    "history": {"words", "wire", "seams", "limits+lazy", "providers/contract"},
    "journal": {"words", "wire", "answer", "history", "stores", "providers/contract"},
    "durable": {"journal"},
    "chains": {"history", "stores", "wire"},
    "sessions": {"history", "wire"},
    # Not history: the simulator has rules of its own, against which those of repairs are tested.
    "simulator": {"limits", "wire"},
    "cli": {
        "doors",
        "bulk",
        "gateway+lazy",
        "limits",
        "config",
        "reports",
        "history",
        "journal+lazy",
        "sessions",
        "simulator",
        "stores+lazy",
        "words",
        "providers/sdk",
    },
    "doors": {
        "attach",
        "bulk",
        "config",
        "engine",
        "reports",
        "simulator",
        "words",
        "history+lazy",
        "journal+lazy",
    },
    **{
        f"providers/{room}": {
            *("words", "wire", "answer", "history", "chains+lazy"),
            *("providers/contract", "providers/openai_common", "providers/request"),
            *("providers/sdk", "limits"),
        }
        for room in ("anthropic_messages", "openai_chat", "openai_responses", "gemini")
    },
    "providers/openai_common": {
        *("words", "wire", "providers/contract", "providers/request", "providers/sdk"),
    },
    "providers": set(),
}
SDKS = {"anthropic", "openai", "google"}
TRANSPORT = {"httpx2", "anyio"}


def test_a_room_knows_only_its_neighbours() -> None:
    for module, path in modules():
        mine = room(module)
        for name, lazy in imports(path):
            if name.split(".")[0] == "continuation" and (theirs := room(name)) != mine:
                allowed = ROOMS[mine]
                assert theirs in allowed or (lazy and f"{theirs}+lazy" in allowed), (module, name)


def test_the_page_shows_the_rooms_as_they_are() -> None:
    """`python scripts/draw_rooms.py --write` mends it."""
    page = draw_rooms.PAGE.read_text(encoding="utf-8")
    assert draw_rooms.page_with(draw_rooms.drawing()) == page


def test_no_underscore_stands_for_a_folder() -> None:
    for module, _ in modules():
        leaf = module.rsplit(".", 1)[-1]
        assert not leaf.startswith("_") or leaf == "__main__", module


def test_a_class_name_stands_for_one_thing() -> None:
    places = defaultdict[str, list[str]](list)
    for module, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_a_name_says_what_it_holds() -> None:
    """Words that once meant nine things each; `design/internals/words.md` has one for each."""
    for module, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = {getattr(node, key, None) for key in ("id", "attr", "arg", "name")}
            assert not {"told", "said", "_told", "_said"} & named, (module, named)


def test_the_engine_does_no_io_and_knows_no_provider() -> None:
    forbidden = TRANSPORT | SDKS | {"socket", "asyncio", "threading", "time", "urllib"}
    for module, path in modules():
        if room(module) in {"engine", "seams", "answer"}:
            known = {name.split(".")[0] for name, _ in imports(path)}
            assert not known & forbidden, module
            assert not any(".learned_" in name for name, _ in imports(path)), module
        if room(module) in {"engine", "seams"}:
            text = path.read_text(encoding="utf-8").lower()
            assert not any(name in text for name in ("anthropic", "openai", "gemini")), module


def test_only_the_shells_know_the_transport_and_the_sdks() -> None:
    for module, path in modules():
        known = {name.split(".")[0] for name, lazy in imports(path) if not lazy}
        if room(module) not in {"attach", "bulk", "cli", "doors", "gateway", "journal"}:
            assert not known & (TRANSPORT | SDKS), module
        if room(module) not in {"attach", "gateway"}:
            assert not known & {"aiohttp", "uvicorn"}, module


def test_only_the_room_for_stores_connects_to_databases() -> None:
    """The room `sessions` opens the databases of other programs."""
    for module, path in modules():
        if room(module) not in {"stores", "sessions"}:
            text = path.read_text(encoding="utf-8")
            calls = re.findall(r"(?:sqlite3|psycopg|Connection)\.connect\(", text)
            assert calls == [], module


def test_the_core_imports_without_any_sdk() -> None:
    code = (
        "import sys\n"
        "for name in ('anthropic', 'openai', 'google.genai'): sys.modules[name] = None\n"
        "import continuation\n"
        "assert 'rich' not in sys.modules and 'tiktoken' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- circles --------------------------------------------------------------------------------------


def files_by_import(*, types: bool) -> dict[str, set[str]]:
    """Return what each file imports when it is imported; `types`: for annotations too."""
    known, found = dict(modules()), dict[str, set[str]]()
    for module, path in known.items():
        imported, waiting = set[str](), [*ast.parse(path.read_text(encoding="utf-8")).body]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not types:
                waiting += node.orelse
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                names = {f"{node.module}.{alias.name}" for alias in node.names} & known.keys()
                imported |= names or {node.module}
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                waiting += [
                    each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)
                ]
        found[module] = (imported & known.keys()) - {module}
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of files each of which reaches all others of its set."""

    def reached(start: str) -> set[str]:
        seen, waiting = set[str](), [start]
        while waiting:
            for name in graph[waiting.pop()] - seen:
                seen.add(name)
                waiting.append(name)
        return seen

    reach = {name: reached(name) for name in graph}
    found = list[set[str]]()
    for name, others in reach.items():
        if name in others and not any(name in circle for circle in found):
            found.append({other for other in others if name in reach[other]})
    return found


def test_no_files_import_each_other_and_few_name_each_others_types() -> None:
    assert circles(files_by_import(types=False)) == []
    assert len(circles(files_by_import(types=True))) <= 3
