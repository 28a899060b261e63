"""The tables of `vendors.toml`: how each server that speaks OpenAI's formats behaves.

The beginning of the file explains each key. Three rooms read it. The dialects
(`providers/openai_common/vendors.py`) read the keys of the table itself. The simulator
(`simulator/openai_chat/vendors.py`) also reads those of `server`, and `history` those of `history`.
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
    """Return every vendor's table by name, in the order of the file. It is read on first use.

    A table contains all keys of the table that its `like` names, except for the URLs.
    """
    import tomllib  # a program that uses only other formats does not need it

    read: dict[str, Json] = {}
    for name, table in tomllib.loads(source()).items():
        base = read[table.pop(LIKE)] if LIKE in table else {}
        read[name] = _laid_over({**base, "urls": []}, table)
    return read


def source() -> str:
    """Return the text of the shipped `vendors.toml`."""
    from importlib.resources import files

    return files("continuation.wire").joinpath("vendors.toml").read_text(encoding="utf-8")


@lru_cache(maxsize=1024)
def vendor_of_model(model: str) -> str:
    """Return the vendor with the history rules for a model, by the model's name; `""`: none."""
    name = model.lower()
    for vendor, table in tables().items():
        globs = as_list(as_json(table.get(HISTORY)).get("models"))
        if any(fnmatchcase(name, glob) for glob in globs):
            return vendor
    return ""


def _laid_over(base: Json, table: Json) -> Json:
    """Return `base` updated with `table`; nested tables are merged, except for `ceilings`."""
    merged = dict(base)
    for key, value in table.items():
        below = as_json(merged.get(key))
        merged[key] = _laid_over(below, as_json(value)) if below and key != "ceilings" else value
    return merged
