"""Count the files that spell a wire format outside of its folder.

    python scripts/count_formats.py            # list the files and what they spell
    python scripts/count_formats.py --most 4   # fail if there are more

A file spells a format if its code has a string that only one format's wire has (`finish_reason`,
`functionCall`), or a format's name. Docstrings, comments and longer messages do not count. Nor do
the words of block events: the engine has them from Anthropic's format
(design/decisions/0011-block-events.md).

Not read are `providers/`; the simulator, which is independent on purpose; `sessions/`, where the
formats are those of agents' files; and files that name Python packages, not formats.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = ("providers", "simulator", "sessions", "testing.py")
PACKAGES = ("attach/clients.py", "attach/instead.py", "cli/doctor.py")
"""Files with the names of SDKs and their classes."""
NAMES = frozenset({"anthropic", "openai-chat", "openai-responses", "gemini", "openai"})
KEYS = frozenset(
    {"tool_result", "max_tokens", "input_schema"}
    | {"choices", "finish_reason", "tool_calls", "tool_call_id", "max_completion_tokens"}
    | {"candidates", "contents", "functionCall", "functionResponse", "finishReason", "parts"}
    | {"thoughtSignature", "generationConfig", "maxOutputTokens", "usageMetadata"}
    | {"inlineData", "fileData", "file_url"}
    | {"previous_response_id", "function_call_output", "incomplete_details", "max_output_tokens"}
    | {"x-api-key", "x-goog-api-key", "messages.create", "responses.create"}
)


def spelled(path: Path) -> set[str]:
    """Return what a file spells."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return texts & (NAMES | KEYS)


def files() -> Iterator[Path]:
    """Yield the files that should spell none."""
    for path in sorted((ROOT / "continuation").rglob("*.py")):
        name = path.relative_to(ROOT / "continuation")
        if name.parts[0] not in ELSEWHERE and name.as_posix() not in PACKAGES:
            yield path


def main() -> int:
    """Print the files, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--most", type=int, metavar="N", help="fail if more than N files do")
    most: int | None = parser.parse_args().most
    found = {path: words for path in files() if (words := spelled(path))}
    for path, words in found.items():
        print(f"{path.relative_to(ROOT)}: {', '.join(sorted(words))}")
    print(f"{len(found)} files spell a format")
    return int(most is not None and len(found) > most)


if __name__ == "__main__":
    sys.exit(main())
