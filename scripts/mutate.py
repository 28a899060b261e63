"""Put small faults into rooms, and list those that no fast test of the rooms finds.

    python scripts/mutate.py engine                      # 20 faults, seed 1
    python scripts/mutate.py engine seams --count 40 --seed 7

A fault is a changed comparison, constant or `and`/`or`, a removed statement or table row, or a
swapped condition. The same seed and code give the same faults. They are put into a copy, so nothing
here changes.
`tests/mutants.md` lists faults that change no behaviour; they are left out.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KNOWN = ROOT / "tests" / "mutants.md"
LONGEST = 900
"""Seconds, after which a test run counts as failed: the fault made an endless loop."""
_SWAPS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


@dataclass(frozen=True)
class Mutant:
    """One fault: `new` replaces `source[start:end]` of a file."""

    file: str
    start: int
    end: int
    new: str
    source: bytes

    @property
    def text(self) -> bytes:
        """The file with the fault."""
        return self.source[: self.start] + self.new.encode() + self.source[self.end :]

    @property
    def line(self) -> int:
        """The number of the line where the fault begins."""
        return self.source.count(b"\n", 0, self.start) + 1

    @property
    def name(self) -> str:
        """The file, the first line of the code and of the fault, as in `tests/mutants.md`."""
        both = (text.splitlines()[self.line - 1] for text in (self.source, self.text))
        old, new = (line.decode().strip().replace("|", "\\|") for line in both)
        return f"| {self.file} | `{old}` | `{new or 'removed'}` |"


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every fault that can be put into a file."""
    source = path.read_bytes()
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    file = str(path.relative_to(ROOT))

    def place(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = lines[node.lineno - 1] + node.col_offset
        return begin, lines[node.end_lineno - 1] + node.end_col_offset

    for node in _runs(ast.parse(source)):
        if isinstance(node, ast.Tuple):
            for element in node.elts:
                if isinstance(element, ast.Call) and len(node.elts) > 1:
                    begin, end = place(element)
                    yield Mutant(file, begin, source.find(b",", end) + 1 or end, "", source)
        elif isinstance(node, ast.If):
            yield Mutant(file, *place(node.test), f"not ({ast.unparse(node.test)})", source)
        elif isinstance(node, (ast.expr, ast.stmt)):
            yield from (Mutant(file, *place(node), new, source) for new in _changed(node))


def _runs(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that do something: no annotations, decorators or declarations of fields."""
    yield tree
    for name, value in ast.iter_fields(tree):
        if name in {"annotation", "returns", "decorator_list", "format_spec"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            named = child.func if isinstance(child, ast.Call) else None
            declares = isinstance(named, ast.Name) and named.id in {"field", "TypeVar"}
            if isinstance(child, ast.AST) and not declares and not _is_type_check(child):
                yield from _runs(child)


def _is_type_check(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _changed(node: ast.expr | ast.stmt) -> Iterator[str]:
    """Yield the code with each fault that fits its kind."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _SWAPS:
            yield f"({ast.unparse(left)} {_SWAPS[type(op)]} {ast.unparse(right)})"
        case ast.BoolOp(op=op, values=values):
            word = " or " if isinstance(op, ast.And) else " and "
            yield f"({word.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"bool({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() | float() as number):
            yield str(number + 1)
        case ast.IfExp(test=test, body=body, orelse=other):
            yield f"({ast.unparse(other)} if {ast.unparse(test)} else {ast.unparse(body)})"
        case ast.Expr(value=value) if not isinstance(value, ast.Constant):
            yield "pass"
        case ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "pass"
        case _:
            return


def known() -> set[str]:
    """Return the faults that `tests/mutants.md` explains."""
    return set(re.findall(r"(?m)^(\| .+ \| `.+` \| `.+` \|) [^|]+ \|$", KNOWN.read_text("utf-8")))


def passes(copy: Path, rooms: list[str]) -> bool:
    """Whether the fast tests of the rooms pass; those without a server come first."""
    tests = [path for room in rooms for path in sorted((copy / "tests" / room).rglob("test_*.py"))]
    tests.sort(key=lambda path: "Simulator" in path.read_text(encoding="utf-8"))
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-n", "0"]
    command = [sys.executable, "-m", "pytest", *options, *map(str, tests)]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(
            command, cwd=copy, env=environment, timeout=LONGEST, capture_output=True, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return ran.returncode == 0


def main() -> int:
    """Run the tests with each fault; return 1 if one of them was not found."""
    parser = argparse.ArgumentParser(description="list faults that no fast test finds")
    parser.add_argument("rooms", nargs="+", help="folders of continuation/, such as `engine`")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="part of the names of the files to change")
    asked = parser.parse_args()
    files = [
        p for room in asked.rooms for p in sorted((ROOT / "continuation" / room).rglob("*.py"))
    ]
    every = [mutant for file in files if asked.only in str(file) for mutant in mutants(file)]
    explained, lost = known(), list[str]()
    fresh = [mutant for mutant in every if mutant.name not in explained and _compiles(mutant)]
    chosen = random.Random(asked.seed).sample(fresh, min(asked.count, len(fresh)))
    print(f"{len(chosen)} of {len(fresh)} faults, seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        left_out = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
        if not passes(copy, asked.rooms):
            sys.exit("the tests fail without a fault")
        for mutant in chosen:
            path = copy / mutant.file
            path.write_bytes(mutant.text)
            begun, found = time.monotonic(), not passes(copy, asked.rooms)
            path.write_bytes(mutant.source)
            lost += [] if found else [mutant.name]
            seconds, word = time.monotonic() - begun, "found" if found else "LOST"
            print(f"{word} {seconds:3.0f} s  {mutant.line}: {mutant.name}", flush=True)
    print(f"{len(lost)} of {len(chosen)} were not found:", *lost, sep="\n")
    return min(len(lost), 1)


def _compiles(mutant: Mutant) -> bool:
    try:
        compile(mutant.text, mutant.file, "exec")
    except SyntaxError:
        return False
    return mutant.text != mutant.source


if __name__ == "__main__":
    sys.exit(main())
