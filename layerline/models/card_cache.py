"""Model cards kept on disk, so that a model is hashed once and not at every start.

A card is kept under a key made of path, size, time of change and inode of every file it came from; a changed file
is another key. The folder is bounded, and nothing in it is needed: whatever is damaged is made again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from layerline.models.card import CARD_VERSION, ModelCard
from layerline.models.digest import model_digest
from layerline.models.part_names import part_paths

KEPT_CARDS = 64
_DESCRIBING = (".json", ".jinja", ".safetensors")


class CardCache:
    """The cards in `folder`, at most `kept_cards` of them. Several processes may use one folder."""

    def __init__(self, folder: Path, kept_cards: int = KEPT_CARDS) -> None:
        self._folder = folder
        self._kept_cards = kept_cards

    def card(self, path: Path, name: str, make: Callable[[], ModelCard]) -> ModelCard:
        """The card of the model at `path`, called `name`: the kept one, or what `make` gives, kept from now on.

        A folder that cannot be written costs only the keeping.
        """
        kept = self.card_cached(path)
        if kept is not None:
            return dataclasses.replace(kept, name=name)
        key = _key(path)
        card = make()
        if key is not None and key == _key(path):
            with contextlib.suppress(OSError):
                self._keep(key, card)
        return card

    def card_cached(self, path: Path) -> ModelCard | None:
        """The kept card of the model at `path`, if there is one, by the name it had when it was made."""
        kept = self._entry(path)
        if kept is None:
            return None
        try:
            card = ModelCard.from_bytes(kept.read_bytes())
            os.utime(kept)
        except (OSError, ValueError):
            return None
        sound = model_digest(card.spec, card.tensors, card.tokenizer) == card.digest
        return card if sound else None

    def digest_cached(self, path: Path) -> str:
        """The digest of the model at `path` if its card is kept, else empty. Reads no card."""
        kept = self._entry(path)
        return kept.stem.rpartition("-")[2] if kept else ""

    def _entry(self, path: Path) -> Path | None:
        key = _key(path)
        if key is None:
            return None
        return next(iter(sorted(self._folder.glob(f"{key}-*.card"))), None)

    def _keep(self, key: str, card: ModelCard) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for stale in self._folder.glob(f"{key}-*.card"):
            stale.unlink(missing_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=self._folder, suffix=".partial")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(card.to_bytes())
            os.replace(temporary, self._folder / f"{key}-{card.digest}.card")
        finally:
            Path(temporary).unlink(missing_ok=True)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Files of writers that were killed count as cards, so that they go in their time too."""
        files = [*self._folder.glob("*.card"), *self._folder.glob("*.partial")]
        files.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in files[self._kept_cards :]:
            path.unlink(missing_ok=True)


def _key(path: Path) -> str | None:
    """The key of the model at `path` as it is now; None if its files cannot be looked at."""
    try:
        resolved = path.resolve()
        files = [file.resolve() for file in part_paths(path)]
        if resolved.is_dir():
            files = sorted(
                file for file in resolved.iterdir() if file.suffix in _DESCRIBING and not file.name.startswith(".")
            )
        stats = [(str(file), file.stat()) for file in files]
    except OSError:
        return None
    facts = [(name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats]
    return hashlib.sha256(repr((CARD_VERSION, facts)).encode()).hexdigest()[:32]
