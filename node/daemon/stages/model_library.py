"""The models in this node's folder, and the cards of those that somebody has asked for.

A card is made by a child process, once for all who ask for it at the same time, and stays in a file that the
worker reads, too. The daemon itself never reads weights.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerline.errors import (
    DeadlineError,
    InternalError,
    LayerlineError,
    ModelCorruptError,
    OverloadedError,
    error_from_code,
)
from layerline.facts import ModelListing
from layerline.models.card import ModelCard
from layerline.models.card_cache import CardCache
from layerline.models.folder import find_model, list_models
from layerline.models.spec import ModelSpec
from layerline.models.tensor_table import TensorEntry
from node.daemon.child import LastWords, child, python_module

MAX_INDEXINGS = 4
SILENCE_DEADLINE_S = 60.0
OVER_LIMITS = (-signal.SIGABRT, -getattr(signal, "SIGXCPU", 0))  # a failed allocation in a library, and the system
OnProgress = Callable[[int, int], None]
IndexCommand = Callable[[Path, str, Path, Path], Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedModel:
    """A model whose card is known; `card_path` is a file with the card."""

    name: str
    digest: str
    spec: ModelSpec
    tensors: tuple[TensorEntry, ...]
    path: Path
    card_path: Path


def index_command(path: Path, name: str, cache: Path, card_path: Path) -> Sequence[str]:
    """The command that indexes the model at `path` and leaves its card at `card_path`."""
    return python_module("node.daemon.stages.index_child", str(path), name, str(cache), str(card_path))


class ModelLibrary:
    """The models of `folder`. Kept cards lie in `cache`, those in use in `work`, a folder of this node alone."""

    def __init__(
        self, folder: Path, *, node: str, cache: Path, work: Path, command: IndexCommand = index_command
    ) -> None:
        self.folder = folder
        self._node = node
        self._cache = cache
        self._kept = CardCache(cache)
        self._work = work
        self._command = command
        self._indexings: dict[str, _Indexing] = {}
        self._opened: dict[str, OpenedModel] = {}
        self._numbers = itertools.count(1)

    def listings(self) -> tuple[ModelListing, ...]:
        """Every model in the folder, by name."""
        return tuple(
            ModelListing(name=name, digest=self._kept.digest_cached(path), size_bytes=size_bytes)
            for name, path, size_bytes in list_models(self.folder)
        )

    async def open(self, name: str, on_progress: OnProgress) -> OpenedModel:
        """The model called `name`, indexed if need be, with `on_progress(done_bytes, total_bytes)` meanwhile.

        Raises a ModelError with this node named, OverloadedError if too much is being indexed already.
        """
        try:
            path = await asyncio.to_thread(find_model, self.folder, name)
            known = await asyncio.to_thread(self._still_good, name, path)
            return known or await self._index(name, path, on_progress)
        except LayerlineError as error:
            error.node = error.node or self._node
            raise

    def _still_good(self, name: str, path: Path) -> OpenedModel | None:
        """What is known of the model, unless its files have changed since or its card is gone."""
        known = self._opened.get(name)
        if known and known.path == path and known.digest == self._kept.digest_cached(path):
            return known if known.card_path.is_file() else None
        return None

    async def _index(self, name: str, path: Path, on_progress: OnProgress) -> OpenedModel:
        indexing = self._indexings.get(name)
        if indexing is None:
            if len(self._indexings) >= MAX_INDEXINGS:
                message = f"Node {self._node} is indexing {MAX_INDEXINGS} models already."
                raise OverloadedError(message, remedy="Try again in a while.")
            indexing = self._indexings[name] = _Indexing()
            indexing.task = asyncio.create_task(self._run(name, path, indexing.tell))
        try:
            return await indexing.heard_by(on_progress)
        finally:
            if indexing.over and self._indexings.get(name) is indexing:
                del self._indexings[name]

    async def _run(self, name: str, path: Path, tell: OnProgress) -> OpenedModel:
        fresh = self._work / f"{next(self._numbers)}.new"
        async with child(self._command(path, name, self._cache, fresh)) as (process, words):
            await _follow(process, words, name, tell)
        opened = await asyncio.to_thread(_opened, name, path, fresh)
        self._opened[name] = opened
        return opened


class _Indexing:
    """One indexing and all who wait for it; it is given up when the last of them has left."""

    def __init__(self) -> None:
        self.task: asyncio.Task[OpenedModel] | None = None
        self._listeners: list[OnProgress] = []

    @property
    def over(self) -> bool:
        return not self._listeners

    def tell(self, done_bytes: int, total_bytes: int) -> None:
        for listener in self._listeners:
            listener(done_bytes, total_bytes)

    async def heard_by(self, listener: OnProgress) -> OpenedModel:
        assert self.task is not None
        self._listeners.append(listener)
        try:
            return await asyncio.shield(self.task)
        finally:
            self._listeners.remove(listener)
            if self.over:
                self.task.cancel()


async def _follow(process: Process, words: LastWords, name: str, tell: OnProgress) -> None:
    """Takes what the child says until it has made the card; raises what it has against the model."""
    hashing = False
    while True:
        said = await _next_words(process, name)
        match said:
            case ["progress", int(done_bytes), int(total_bytes)]:
                hashing = True
                tell(done_bytes, total_bytes)
            case ["error", str(code), str(message), str(remedy)]:
                raise error_from_code(code, message, remedy=remedy)
            case ["card"]:
                return
            case None if not hashing and await process.wait() in OVER_LIMITS:
                message = f"The headers of model {name} take more memory or processor time than reading them may."
                raise ModelCorruptError(message, remedy="Fetch the model anew.")
            case _:
                ending = f"exit code {await process.wait()}" if said is None else f"the words {said!r}"
                message = f"Indexing model {name} ended with {ending} ({words.last})."
                raise InternalError(message, remedy="This is a bug; please report it.")


async def _next_words(process: Process, name: str) -> object:
    """The next line as JSON, None at the end."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SILENCE_DEADLINE_S):
            line = await process.stdout.readline()
    except TimeoutError:
        message = f"Indexing model {name} made no progress for {SILENCE_DEADLINE_S:.0f} s."
        raise DeadlineError(message, remedy="Check that the disk is not stuck.") from None
    try:
        return json.loads(line) if line else None
    except ValueError:
        return line


def _opened(name: str, path: Path, fresh: Path) -> OpenedModel:
    """Reads the card in `fresh` and keeps the file under its digest."""
    try:
        card = ModelCard.from_bytes(fresh.read_bytes())
        card_path = fresh.with_name(f"{card.digest}.card")
        fresh.replace(card_path)
    except (OSError, ValueError) as error:
        raise ModelCorruptError(
            f"The card of model {name} cannot be kept: {error}.", remedy="Check the disk."
        ) from error
    return OpenedModel(
        name=name, digest=card.digest, spec=card.spec, tensors=card.tensors, path=path, card_path=card_path
    )
