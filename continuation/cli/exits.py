"""The exit statuses of commands, the error that has one, and checks of arguments."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from continuation.policy import is_url, without_password


class Commands(Protocol):
    """The object to which a command adds its parser; `ArgumentParser.add_subparsers` returns it."""

    def add_parser(self, name: str, *, help: str, description: str) -> argparse.ArgumentParser: ...  # noqa: A002 - argparse's own word


class Exit(IntEnum):
    """The exit statuses of every command."""

    WHOLE = 0
    NOT_WHOLE = 1
    USAGE = 2
    MISSING = 3
    PROVIDER = 4
    CRASH = 70
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends the command with one line for the user, and an exit status."""

    def __init__(self, message: str, status: Exit) -> None:
        super().__init__(message)
        self.exit = status


def positive(text: str) -> int:
    """Read a positive whole number, for argparse."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number above 0")
    return int(text)


def port(text: str) -> int:
    """Read a port, for argparse."""
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} must be a port from 0 to 65535")
    return int(text)


def free(path: Path, *, force: bool) -> Path:
    """Return `path`. Raises `CommandError` if a file with content is there, without `force`."""
    if path.is_file() and path.stat().st_size and not force:
        message = f"--out {path}: the file exists; choose another, or replace it with --force"
        raise CommandError(message, Exit.USAGE)
    return path


def needs(given: object, flag: str, other: object, needed: str) -> None:
    """Raise `CommandError` for a flag that has no effect without another argument."""
    if given and not other:
        raise CommandError(f"{flag}: has no effect without {needed}; add {needed}", Exit.USAGE)


def check_url(url: str | None) -> None:
    """Raise `CommandError` for a `--base-url` that is not a URL."""
    if url is None:
        return
    if not url.startswith(("http://", "https://")):
        raise CommandError(f"--base-url {url}: must begin with http:// or https://", Exit.USAGE)
    try:
        parts = urlsplit(url)
        sound = bool(parts.hostname) and (parts.port is None or parts.port > 0) and " " not in url
    except ValueError:  # an incomplete IPv6 address, or a port that is not a number
        sound = False
    if not sound:
        message = "is not a URL; write it as in http://127.0.0.1:8080/v1"
        raise CommandError(f"--base-url {without_password(url)}: {message}", Exit.USAGE)


def check_out(out: Path | None, read: Mapping[str, str | Path | None]) -> None:
    """Raise `CommandError` if `--out` names a file that is used for something else.

    `read`: the other files and URLs, each by the argument that names it.
    """
    for name, other in read.items():
        if out is not None and other is not None and not is_url(str(other)):
            if not _same(Path(other), out):
                continue
            message = f"--out {out}: this would overwrite the file of {name}; choose another"
            raise CommandError(message, Exit.USAGE)


def _same(one: Path, other: Path) -> bool:
    """Whether two paths name the same file, even if it does not exist."""
    with contextlib.suppress(OSError):
        return one.samefile(other)
    with contextlib.suppress(OSError, RuntimeError):  # Python 3.11: a link to itself
        return one.resolve() == other.resolve()
    return one.absolute() == other.absolute()


def reason(error: Exception) -> str:
    """Return an exception's text. For an `OSError` it has the file but not the error number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
