"""The models in this node's folder, and the cards of those that somebody has asked for.

A card is made by a child process, once for all who ask for it at the same time, and stays in a file that the
worker reads, too. The daemon itself never reads weights.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from pathlib import Path

from layerline.errors import LayerlineError, ModelCorruptError, OverloadedError
from layerline.facts import ModelListing
from layerline.models.card_cache import CardCache
from layerline.models.folder import find_model, list_models
from layerline.models.indexer import IndexCommand, OnProgress, card_at, index_apart, index_command
from layerline.models.spec import ModelSpec
from layerline.models.tensor_table import TensorEntry

MAX_INDEXINGS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedModel:
    """A model whose card is known; `card_path` is a file with the card."""

    name: str
    digest: str
    spec: ModelSpec
    tensors: tuple[TensorEntry, ...]
    path: Path
    card_path: Path


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
        await index_apart(path, name, self._cache, fresh, tell, self._command)
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


def _opened(name: str, path: Path, fresh: Path) -> OpenedModel:
    """Reads the card in `fresh` and keeps the file under its digest."""
    card = card_at(fresh, name)
    card_path = fresh.with_name(f"{card.digest}.card")
    try:
        fresh.replace(card_path)
    except OSError as error:
        message = f"The card of model {name} cannot be kept: {error}."
        raise ModelCorruptError(message, remedy="Check the disk.") from error
    return OpenedModel(
        name=name, digest=card.digest, spec=card.spec, tensors=card.tensors, path=path, card_path=card_path
    )
