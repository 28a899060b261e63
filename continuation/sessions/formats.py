"""Recognizes files that cannot be a session's text, and names what they are."""

from __future__ import annotations

from typing import Final

from continuation.sessions.lines import Problem

_PACKED: Final = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "a ZIP archive"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"\x04\x22\x4d\x18", "compressed with lz4"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
)
"""First bytes of packed files -> their kind."""
_TAR: Final = (257, b"ustar")
_UTF = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_LOOKED_AT: Final = 4096
"""How many bytes of a file are examined to distinguish text from other data."""
_JSON_STARTS: Final = b"{["


def no_text(data: bytes) -> Problem | None:
    """Return a problem with the remedy if a file is not text in UTF-8; `None`: it may be."""
    what = next((name for start, name in _PACKED if data.startswith(start)), "")
    if not what and data[_TAR[0] :].startswith(_TAR[1]):
        what = "a tar archive"
    if what:
        return _problem(f"this file is {what}, not a session; unpack it, and name a file from it.")
    encoding = next((name for start, name in _UTF if data.startswith(start)), "")
    if not encoding and _is_wide(data[:_LOOKED_AT]):
        encoding = "UTF-16"
    if encoding:
        return _problem(
            f"this file is text in {encoding}; sessions are UTF-8, so convert it first."
        )
    if not data.strip(b"\0 \t\r\n\xef\xbb\xbf"):
        return Problem("no_session", 0, "this file is empty." if not data else _BLANK)
    if _is_binary(data[:_LOOKED_AT]):
        return _problem("this file is binary data, not a session; name the session's own file.")
    return None


_BLANK: Final = "this file has only white space or NUL bytes."


def _problem(text: str) -> Problem:
    return Problem("not_text", 0, text)


def _is_wide(head: bytes) -> bool:
    """Whether it looks like UTF-16 without a mark: every other byte at its beginning is NUL."""
    start = head[:64]
    for zeros, letters in ((start[1::2], start[::2]), (start[::2], start[1::2])):
        if len(zeros) > 1 and not zeros.strip(b"\0") and b"\0" not in letters:
            return letters.lstrip()[:1] in _JSON_STARTS
    return False


def _is_binary(head: bytes) -> bool:
    """Whether most of it is not text. A damaged log still has its braces and letters."""
    if b'{"' in head or b'"}' in head or head.lstrip(b"\0 \t\r\n\xef\xbb\xbf")[:1] in _JSON_STARTS:
        return False
    control = sum(byte < 9 or 13 < byte < 32 for byte in head)
    broken = head.decode("utf-8", "replace").count("\ufffd")
    return control + broken > len(head) / 10
