"""A folder for temporary files, for the time of a block."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from layerline.errors import UsageError


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder that only this user can enter; UsageError if there is no place for one."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="layerline-")
    except OSError as error:  # Python has tried whether a file can be written in each of them
        remedy = "Free space there, or set TMPDIR to a folder that can be written to."
        raise UsageError(f"There is no folder for temporary files: {error.strerror}.", remedy=remedy) from error
    with folder as path:
        yield Path(path)
