"""Has a child process make a model's card; the headers, which may be forged, in bounded memory and time.

For nodes and coordinators, which stay small and answer meanwhile. What the child does is in `index_child`.
"""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from pathlib import Path

from layerline.errors import DeadlineError, InternalError, ModelCorruptError, error_from_code
from layerline.hosting.child import LastWords, child, python_module, reaped
from layerline.models.card import ModelCard

SILENCE_DEADLINE_S = 60.0
OVER_LIMITS = (-signal.SIGABRT, -getattr(signal, "SIGXCPU", 0))  # a failed allocation in a library, and the system

OnProgress = Callable[[int, int], None]
IndexCommand = Callable[[Path, str, Path, Path], Sequence[str]]


def index_command(path: Path, name: str, cache: Path, card_path: Path) -> Sequence[str]:
    """The command that indexes the model at `path` and leaves its card at `card_path`."""
    return python_module("layerline.models.index_child", str(path), name, str(cache), str(card_path))


async def index_apart(
    path: Path,
    name: str,
    cache: Path,
    card_path: Path,
    tell: OnProgress,
    command: IndexCommand = index_command,
    *,
    silence_deadline_s: float = SILENCE_DEADLINE_S,
) -> None:
    """Leaves the card of the model at `path`, called `name`, at `card_path`; the one kept in `cache` if there is one.

    `tell(done_bytes, total_bytes)` while weights are hashed. Raises what the child has against the model,
    ModelCorruptError too if its headers are over the child's limits; DeadlineError if it makes no progress
    for `silence_deadline_s`.
    """
    async with child(command(path, name, cache, card_path)) as (process, words):
        await _follow(process, words, name, tell, silence_deadline_s)


def card_at(card_path: Path, name: str) -> ModelCard:
    """The card that a child has left there; ModelCorruptError if there is none."""
    try:
        return ModelCard.from_bytes(card_path.read_bytes())
    except (OSError, ValueError) as error:
        message = f"The card of model {name} cannot be kept: {error}."
        raise ModelCorruptError(message, remedy="Check the disk.") from error


async def _follow(process: Process, words: LastWords, name: str, tell: OnProgress, silence_deadline_s: float) -> None:
    """Takes what the child says until it has made the card; raises what it has against the model."""
    hashing = False
    while True:
        said = await _next_words(process, name, silence_deadline_s)
        match said:
            case ["progress", int(done_bytes), int(total_bytes)]:
                hashing = True
                tell(done_bytes, total_bytes)
            case ["error", str(code), str(message), str(remedy)]:
                raise error_from_code(code, message, remedy=remedy)
            case ["card"]:
                return
            case None:
                if not await reaped(process, silence_deadline_s):
                    raise _no_progress(name, silence_deadline_s)
                if not hashing and process.returncode in OVER_LIMITS:
                    message = f"The headers of model {name} take more memory or processor time than reading them may."
                    raise ModelCorruptError(message, remedy="Fetch the model anew.")
                raise _bug(name, f"exit code {process.returncode}", words)
            case _:
                raise _bug(name, f"the words {said!r}", words)


async def _next_words(process: Process, name: str, silence_deadline_s: float) -> object:
    """The next line as JSON, None at the end."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(silence_deadline_s):
            line = await process.stdout.readline()
    except TimeoutError:
        raise _no_progress(name, silence_deadline_s) from None
    try:
        return json.loads(line) if line else None
    except ValueError:
        return line


def _no_progress(name: str, silence_deadline_s: float) -> DeadlineError:
    message = f"Indexing model {name} made no progress for {silence_deadline_s:.0f} s."
    return DeadlineError(message, remedy="Check that the disk is not stuck.")


def _bug(name: str, ending: str, words: LastWords) -> InternalError:
    message = f"Indexing model {name} ended with {ending} ({words.last})."
    return InternalError(message, remedy="This is a bug; please report it.")
