"""A file that one process at a time may hold, with a word in it for the others."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_CONTENT_LENGTH = 512


class FileHeldError(Exception):
    """Another process holds the file; `content` is what it has written there."""

    def __init__(self, content: str) -> None:
        super().__init__(content)
        self.content = content


@contextmanager
def held_file(path: Path, content: str) -> Iterator[None]:
    """Holds `path` for the time of the block, or until this process dies; FileHeldError if another does.

    Child processes do not inherit the hold, since the descriptor closes when they start.
    """
    with open(path, "a+", encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise FileHeldError(file.read(MAX_CONTENT_LENGTH).strip()) from None
        file.truncate(0)
        file.write(content)
        file.flush()
        yield
