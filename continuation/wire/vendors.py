"""The tables of `vendors.toml`: what is known of each server that speaks OpenAI's formats.

The file says at its top what each key means. Three rooms read it, each the group of keys it needs:
the dialects (`providers/openai_common/vendors.py`) the keys of the table itself, the simulator
(`simulator/openai_chat/vendors.py`) those of `server` besides, and `history` those of `history`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Final

from continuation.types import Json
from continuation.wire.json_values import as_json, as_list

SERVER: Final = "server"
HISTORY: Final = "history"
LIKE: Final = "like"


@cache
def tables() -> Mapping[str, Json]:
    """Return every vendor's table by name, in the order of the file; read once, on first use.

    What a table takes over from the one it is `like` is in it, but for the URLs.
    """
    import tomllib  # not needed by a program that talks to other formats only

    read: dict[str, Json] = {}
    for name, table in tomllib.loads(source()).items():
        base = read[table.pop(LIKE)] if LIKE in table else {}
        read[name] = _laid_over({**base, "urls": []}, table)
    return read


def source() -> str:
    """Return the text of the file we ship."""
    from importlib.resources import files

    return files("continuation.wire").joinpath("vendors.toml").read_text(encoding="utf-8")


@lru_cache(maxsize=1024)
def vendor_of_model(model: str) -> str:
    """Return the vendor whose rules of histories a model's name speaks of; `""` if none does."""
    name = model.lower()
    for vendor, table in tables().items():
        globs = as_list(as_json(table.get(HISTORY)).get("models"))
        if any(fnmatchcase(name, glob) for glob in globs):
            return vendor
    return ""


def _laid_over(base: Json, table: Json) -> Json:
    """Lay a table over another, and the tables within it over those of the same key."""
    merged = dict(base)
    for key, value in table.items():
        below = as_json(merged.get(key))
        merged[key] = _laid_over(below, as_json(value)) if below and key != "ceilings" else value
    return merged
