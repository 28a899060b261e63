"""The file that `--out` names. The ids in its lines are done, and new lines are appended."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from continuation.bulk.lines import object_in
from continuation.cli.exits import CommandError, Exit, free, reason
from continuation.types import Json


class Output:
    """The file of answers. Only its owner can read it, and only one run at a time appends to it.

    Before the first new line is written, the file is truncated: an incomplete last line is removed,
    or with `force` everything.
    """

    def __init__(
        self,
        path: Path,
        *,
        force: bool,
        id_of: Callable[[Json], str],
        begins: bytes,
    ) -> None:
        """Open the file.

        `id_of`: returns a line's id, or `""` for a line that this command did not write. `begins`:
        the first bytes of each line that this command writes.

        Raises `CommandError` for a file that cannot be written, is in use, or has other lines.
        """
        self.done = set[str]()
        """The ids of the lines that the file had when it was opened."""
        self._id_of, self._begins = id_of, begins
        self._lock = threading.Lock()
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            message = f"--out {reason(error)}; choose a path that can be written"
            raise CommandError(message, Exit.USAGE) from error
        self._file = os.fdopen(file, "r+b", buffering=0)
        self._size: int | None = None
        """The number of bytes that are kept; `None` if it is not a regular file."""
        self._begun, self._before = False, b""
        try:
            if stat.S_ISREG(os.fstat(file).st_mode):
                _lock(file, path)
                self._size = 0 if force else self._read_done(path)
        except CommandError:
            self._file.close()
            raise

    def _read_done(self, path: Path) -> int:
        """Return the number of bytes in complete lines.

        Raises `CommandError` if the file has a line that this command did not write.
        """
        size = 0
        with path.open("rb") as file:
            for line in file:
                ended = line.endswith(b"\n")
                record = object_in(line)
                if record is None and line.strip() and not ended:
                    begun = line.startswith(self._begins) or self._begins.startswith(line)
                    if self.done or begun:
                        break  # an incomplete line, left by a kill
                if line.strip():
                    if not (line_id := self._id_of(record or {})):
                        free(path, force=False)
                    self.done.add(line_id)
                size += len(line)
                self._before = b"" if ended else b"\n"
        return size

    def write(self, line: bytes) -> None:
        """Append a line completely, or raise `OSError` and append nothing."""
        with self._lock:
            if not self._begun:
                self._cut()
                line, self._begun = self._before + line, True
            line = line if line.endswith(b"\n") else line + b"\n"
            left = memoryview(line)
            try:
                while left:  # if the disk is nearly full, `write` writes only a part
                    left = left[self._file.write(left) :]
            except OSError:
                with contextlib.suppress(OSError):
                    self._cut()
                raise
            if self._size is not None:
                self._size += len(line)

    def _cut(self) -> None:
        if self._size is not None:
            self._file.truncate(self._size)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _lock(file: int, path: Path) -> None:
    """Lock a file against other runs while it is open, if the system has locks.

    Raises `CommandError` if another run has locked it: both would pay for the same answers.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        message = f"--out {path}: another run writes to it; wait for that, or choose another"
        raise CommandError(message, Exit.USAGE) from error
    except OSError:  # a file system that has no locks
        return
