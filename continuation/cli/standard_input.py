"""Reads a prompt from standard input."""

from __future__ import annotations

import sys
import threading

from continuation.cli.exits import CommandError, Exit, reason
from continuation.cli.screen import is_terminal, screen

_PATIENCE = 3.0
"""After so many seconds without input, a note on standard error says what the command awaits."""


def with_input(prompt: str | None) -> str:
    """Return the prompt of a command: standard input, a blank line, and the argument.

    Standard input or the argument may be missing. `"-"` stands for no argument. A terminal is read
    only for `"-"`. Raises `CommandError` if there is no prompt, or if the input is not text.
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
    """Read standard input to its end, or return `""` if it is closed.

    `needed`: there is no other prompt. Raises `CommandError` if the input is not text, or if it is
    needed and cannot be read.
    """
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
        if error.errno is not None:  # a program that calls `main` may have replaced `sys.stdin`
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
