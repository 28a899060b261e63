"""What is probably a mistake, and yet no error: globs of unknown models, environment variables.

A model that we do not know must pass unharmed, and so must its glob. A glob that is nearly that of
a known family is logged as a warning, any other one as information. New versions of a known family
are no misspellings.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache

from continuation.limits import spellings, table
from continuation.policy import ALIASES, KEYS

logger = logging.getLogger("continuation")

VARIABLES = ("CONTINUATION_CONFIG", "CONTINUATION_TOKEN")
"""The environment variables that are read."""
_PREFIX = "CONTINUATION_"
_CLOSE = 0.7
_logged = set[str]()


def log(doubts: Iterable[tuple[str, bool]]) -> None:
    """Log doubts, each once in this process: a warning if it is probably a misspelling."""
    for text, misspelled in doubts:
        if text not in _logged:
            _logged.add(text)
            logger.log(logging.WARNING if misspelled else logging.INFO, text)


def about_glob(title: str, glob: str) -> Iterator[tuple[str, bool]]:
    """Yield a doubt about the glob of a table, and whether the glob is probably misspelled."""
    known = [row.match for row in table()]
    names = {glob.lower(), *spellings(glob)}
    if any(_overlap(name, match) for name in names for match in known):
        return
    near = _near(names)
    hint = f"; did you mean {near!r}?" if near else ""
    yield f"{title}: no known model matches{hint}", bool(near)


def _near(names: Iterable[str]) -> str:
    """Return the family of a misspelled name; `""`: it is like none, or a new version of one."""
    for name in names:
        plain = re.split(r"[*?\[]", name, maxsplit=1)[0].rstrip("-.")
        if found := difflib.get_close_matches(plain, _families(), n=1, cutoff=0.8):
            (letters, digits), (their_letters, their_digits) = map(_parts, (plain, found[0]))
            newer = letters == their_letters and digits != their_digits
            return "" if newer else f"{found[0]}*"
    return ""


def _parts(name: str) -> tuple[str, str]:
    """Return a name's letters, and its digits."""
    return re.sub(r"[^a-z]", "", name), re.sub(r"\D", "", name)


@cache
def _families() -> tuple[str, ...]:
    """Return the beginnings of all known names, up to each hyphen."""
    parts = (row.prefix.rstrip("-.").split("-") for row in table())
    return tuple({"-".join(each[:count]) for each in parts for count in range(1, len(each) + 1)})


def _overlap(one: str, other: str) -> bool:
    """Whether some name fits both globs."""
    one, other = (re.sub(r"\[[^\]]+\]", "?", glob) for glob in (one, other))
    # For each beginning of `other`: whether it has a name in common with the part of `one` so far.
    common = [not other[:end].strip("*") for end in range(len(other) + 1)]
    for char in one:
        before, common = common, [common[0] and char == "*"]
        for index, wanted in enumerate(other):
            if "*" in (char, wanted):
                common.append(before[index + 1] or common[index])
            else:
                common.append(before[index] and (char == wanted or "?" in (char, wanted)))
    return common[-1]


@cache
def log_environment() -> None:
    """Log what is doubtful in the environment, once."""
    log(about_environment())


def about_environment() -> Iterator[tuple[str, bool]]:
    """Yield a doubt about each environment variable that is probably meant for us."""
    for name in os.environ:
        if name in VARIABLES:
            continue
        rest = name.removeprefix(_PREFIX)
        if rest != name and rest.lower() in (*KEYS, *ALIASES):
            hint = f"policies are not read from it; write {rest.lower()} into the file that"
            yield f"environment variable {name}: {hint} {VARIABLES[0]} names", True
        elif near := _variable(name, rest):
            yield (
                f"environment variable {name}: it is not read; did you mean {near}?",
                True,
            )


def _variable(name: str, rest: str) -> str:
    if rest == name:  # another beginning: only a misspelled one is meant
        return next(iter(difflib.get_close_matches(name, VARIABLES, n=1, cutoff=0.9)), "")
    for known in VARIABLES:
        if rest.startswith(known.removeprefix(_PREFIX)):
            return known
    found = difflib.get_close_matches(
        rest, [known.removeprefix(_PREFIX) for known in VARIABLES], n=1, cutoff=_CLOSE
    )
    return f"{_PREFIX}{found[0]}" if found else ""
