"""Reads a prompt from standard input."""

from __future__ import annotations

import sys
import threading

from continuation.cli.exits import CommandError, Exit, reason
from continuation.cli.screen import is_terminal, screen

_PATIENCE = 3.0
"""Seconds of waiting for input after which standard error says what the command waits for."""


def with_input(prompt: str | None) -> str:
    """Return the prompt of a command: standard input, a blank line, and the argument.

    One of the two may be missing, and `"-"` stands for no argument. A terminal is only read for
    `"-"`. Raises `CommandError` if there is no prompt, or the input is not text.
    """
    typed = prompt == "-"
    words = "" if prompt is None or typed else prompt
    piped = _read(needed=not words) if typed or not is_terminal(sys.stdin) else ""
    if not piped.strip():
        piped = ""
    if piped and words:
        breaks = "\n" * max(0, 2 - (len(piped) - len(piped.rstrip("\n"))))
        return f"{piped}{breaks}{words}"
    if not (piped or words.strip()):
        message = "PROMPT is missing; write it as an argument, or pipe it in"
        if prompt is not None:
            message = f"PROMPT is empty{', and so is standard input' * typed}; write a prompt"
        raise CommandError(message, Exit.USAGE)
    return piped or words


def _read(*, needed: bool) -> str:
    """Read standard input to its end; `""` if it is closed."""
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by `<&-`
        return ""
    notes = screen(sys.stderr)
    late = "continuation: waiting for standard input to end; add < /dev/null if there is none"
    waiting = threading.Timer(_PATIENCE, notes.line, (late, "dim"))
    waiting.daemon = True
    waiting.start()
    try:
        data = sys.stdin.buffer.read()
    except OSError as error:
        message = f"standard input cannot be read ({reason(error)})"
        if needed:
            raise CommandError(f"{message}; write PROMPT as an argument", Exit.USAGE) from error
        if error.errno is not None:  # else a stand-in for it, in a program that calls `main`
            notes.line(f"continuation: {message}; only PROMPT is sent", "yellow")
        return ""
    finally:
        waiting.cancel()
    try:
        text = data.decode("utf-8-sig")
        where = text.find("\0")
        fault = f"a NUL character at position {where}" if where >= 0 else ""
    except UnicodeDecodeError as error:
        text, fault = "", f"{error.reason} at byte {error.start}"
    if fault:
        message = f"standard input: not UTF-8 text ({fault}); convert it, or add < /dev/null"
        raise CommandError(message, Exit.USAGE)
    return text
