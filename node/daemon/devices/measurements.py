"""Measuring once what a later start would find the same: kept on disk by a key, taken in turn by a machine's daemons.

Daemons on one machine measure one after the other, since together each would find half of what there is.
What cannot be measured stays unmeasured, with a line in the log. Knows nothing of what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from node.daemon.held_file import FileHeldError, held_file

TURN_DEADLINE_S = 180.0
TURN_POLL_S = 0.1
MAX_FILE_BYTES = 1 << 20

log = logging.getLogger(__name__)
Measured = TypeVar("Measured")


class UnmeasuredError(Exception):
    """Something could not be measured; the text says why."""


class MeasuredFile(Generic[Measured]):
    """Measurements by key in one JSON file; a damaged one is as good as none. `from_json` may raise ValueError."""

    def __init__(
        self, path: Path, from_json: Callable[[object], Measured], to_json: Callable[[Measured], object]
    ) -> None:
        self.path = path
        self._from_json = from_json
        self._to_json = to_json

    def read(self) -> dict[str, Measured]:
        """What is known."""
        try:
            with open(self.path, "rb") as file:
                entries = json.loads(file.read(MAX_FILE_BYTES))
            return {str(key): self._from_json(value) for key, value in dict(entries).items()}
        except (OSError, ValueError, TypeError):
            return {}

    def write(self, known: Mapping[str, Measured]) -> None:
        """Replaces what is known, in one piece."""
        entries = {key: self._to_json(value) for key, value in known.items()}
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(entries, indent=1))
        os.replace(fresh, self.path)


async def measured_once(
    what: str,
    keys: Mapping[str, str],
    file: MeasuredFile[Measured],
    measure: Callable[[str], Awaitable[Measured]],
) -> dict[str, Measured]:
    """What is in `file` by the key of each name, or by `measure(name)`, which may raise UnmeasuredError."""
    return await _in_turn(what, keys, file, measure, None)


async def measured_again(
    what: str,
    keys: Mapping[str, str],
    file: MeasuredFile[Measured],
    measure: Callable[[str], Awaitable[Measured]],
    best_of: Callable[[Measured, Measured], Measured],
) -> dict[str, Measured]:
    """The same, measured anew; kept is `best_of` what was known and what is found now."""
    return await _in_turn(what, keys, file, measure, best_of)


async def _in_turn(
    what: str,
    keys: Mapping[str, str],
    file: MeasuredFile[Measured],
    measure: Callable[[str], Awaitable[Measured]],
    best_of: Callable[[Measured, Measured], Measured] | None,
) -> dict[str, Measured]:
    try:
        async with asyncio.timeout(TURN_DEADLINE_S):
            while True:
                known = file.read()
                if best_of is None and all(key in known for key in keys.values()):
                    return {name: known[key] for name, key in keys.items()}
                with contextlib.suppress(FileHeldError), held_file(file.path.with_name("measuring.lock"), ""):
                    return await _measured(what, keys, file, measure, best_of)
                await asyncio.sleep(TURN_POLL_S)
    except (TimeoutError, OSError) as error:
        log.warning("%s of the devices is not measured: %s.", what, str(error) or "it took too long")
        return {}


async def _measured(
    what: str,
    keys: Mapping[str, str],
    file: MeasuredFile[Measured],
    measure: Callable[[str], Awaitable[Measured]],
    best_of: Callable[[Measured, Measured], Measured] | None,
) -> dict[str, Measured]:
    known = file.read()
    for name, key in keys.items():
        if key in known and best_of is None:
            continue
        try:
            found = await measure(name)
            known[key] = best_of(known[key], found) if best_of and key in known else found
        except UnmeasuredError as error:
            log.warning("%s of %s is not measured: %s.", what, name, error)
    file.write(known)
    return {name: known[key] for name, key in keys.items() if key in known}
