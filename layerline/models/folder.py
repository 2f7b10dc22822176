"""A models folder: which models it holds, and finding one by name without ever leaving the folder.

A model is a GGUF file, several that are its parts, or a folder with config.json and safetensors. The folder may be
one model itself, or a cache of the Hugging Face hub, whose `models--AUTHOR--NAME/snapshots/REVISION` are called
AUTHOR/NAME.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from layerline.checks import MAX_NAME_LENGTH
from layerline.errors import ModelNotFoundError
from layerline.models.names import GGUF_SUFFIX, composed
from layerline.models.part_names import GgufPart, first_part, is_later_part, part_paths
from layerline.models.unreadable import why_unreadable

MAX_MODELS = 1000
MAX_DEPTH = 4  # folders below the models folder that are looked into
MAX_ENTRIES = 20_000  # that are looked at in all
SAFETENSORS_SUFFIX = ".safetensors"
HUB_PREFIX, SNAPSHOTS = "models--", "snapshots"

Listing = tuple[str, Path, int]


def list_models(folder: Path) -> tuple[Listing, ...]:
    """(name, path, size in bytes) of every model in `folder`, by name. What cannot be read is left out.

    The name is the path below `folder`, in NFC; of models in a cache of the hub the name that the hub gives them. Of
    two models with one name the first is listed, and a file of that name before parts.
    """
    found: dict[str, tuple[Path, int]] = {}
    listed = sorted(_Search().models_in(folder), key=lambda listing: GgufPart.of(listing[1].name) is not None)
    for name, path, size_bytes in listed:
        if 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable():
            found.setdefault(name, (path, size_bytes))
    return tuple((name, *found[name]) for name in sorted(found)[:MAX_MODELS])


def is_model(path: Path) -> bool:
    """Whether there is a model at `path`: a GGUF file, or a folder with config.json and safetensors."""
    return _model_bytes(path) is not None


def find_model(folder: Path, name: str) -> Path:
    """The model that `list_models` calls `name`, a GGUF file's with or without its suffix.

    Raises ModelNotFoundError that names the folder and the models in it, the most similar first.
    """
    models = {listed: path for listed, path, _ in list_models(folder)}
    wanted = composed(name)
    for candidate in (wanted, wanted + GGUF_SUFFIX):
        if candidate in models:
            return models[candidate]
    raise _not_found(folder, name, list(models))


class _Search:
    """One look through a folder: bounded in depth and in entries, each folder once, whatever links lead to it."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()
        self._entries = 0

    def models_in(self, folder: Path) -> Iterator[Listing]:
        """The models of a models folder with their names."""
        size_bytes = _folder_model_bytes(folder)
        if size_bytes is not None:
            yield _own_name(folder), folder, size_bytes
            return
        for path, size_bytes in self._below(folder, MAX_DEPTH):
            yield _name_below(folder, path), path, size_bytes

    def _below(self, folder: Path, depth: int) -> Iterator[tuple[Path, int]]:
        folders = []
        for path in self._entries_of(folder):
            size_bytes = _model_bytes(path)
            if size_bytes is not None:
                yield path, size_bytes
            elif depth > 1 and path.is_dir():
                folders.append(path)
        for path in folders:
            yield from self._below(path, depth - 1)

    def _entries_of(self, folder: Path) -> Iterator[Path]:
        try:
            status = folder.stat()
            entries = sorted(folder.iterdir())
        except OSError:
            return
        if (status.st_dev, status.st_ino) in self._seen:
            return
        self._seen.add((status.st_dev, status.st_ino))
        for path in entries:
            self._entries += 1
            if self._entries > MAX_ENTRIES:
                return
            if not path.name.startswith("."):
                yield path


def _model_bytes(path: Path) -> int | None:
    if path.suffix != GGUF_SUFFIX:
        return _folder_model_bytes(path)
    own_bytes, paths = _regular_bytes(path), part_paths(path)
    if own_bytes is None or (is_later_part(path) and os.path.lexists(first_part(path))):
        return None
    return sum(_regular_bytes(part) or 0 for part in paths)


def _folder_model_bytes(folder: Path) -> int | None:
    """The bytes of the weights in a model's folder; None if it is none."""
    if _regular_bytes(folder / "config.json") is None:
        return None
    try:
        weights = [file for file in folder.iterdir() if file.suffix == SAFETENSORS_SUFFIX and file.name[0] != "."]
    except OSError:
        return None
    sizes = [size_bytes for file in weights if (size_bytes := _regular_bytes(file)) is not None]
    return sum(sizes) if sizes else None


def _regular_bytes(path: Path) -> int | None:
    """The bytes of a regular file, or of the one that a link leads to; None of anything else, which might block."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _own_name(folder: Path) -> str:
    """What a models folder that is a model itself is called."""
    absolute = Path(os.path.abspath(folder))
    return composed(str(_hub_name(absolute) or absolute.name))


def _name_below(folder: Path, path: Path) -> str:
    for place in (path, *path.parents):
        if place == folder:
            break
        if hub_name := _hub_name(Path(os.path.abspath(place))):
            return composed((hub_name / path.relative_to(place)).as_posix())
    return composed(path.relative_to(folder).as_posix())


def _hub_name(snapshot: Path) -> PurePosixPath | None:
    """AUTHOR/NAME of a snapshot in the hub's cache, with @REVISION if it is not the current one; None of all else."""
    repository = snapshot.parent.parent
    if snapshot.parent.name != SNAPSHOTS or not repository.name.startswith(HUB_PREFIX):
        return None
    name = repository.name.removeprefix(HUB_PREFIX).replace("--", "/", 1)
    try:
        current = (repository / "refs" / "main").read_text().strip()
    except (OSError, ValueError):
        current = snapshot.name
    return PurePosixPath(name if current == snapshot.name else f"{name}@{snapshot.name[:8]}")


def _not_found(folder: Path, name: str, models: list[str]) -> ModelNotFoundError:
    message = f"There is no model {name!r} in {folder}."
    if not models:
        remedy = why_unreadable(folder) or (
            "The folder holds no models; put a GGUF file there, or name another folder with --models."
        )
        return ModelNotFoundError(message, remedy=remedy)
    closest = difflib.get_close_matches(name, models, n=len(models), cutoff=0.0)
    return ModelNotFoundError(message, remedy=f"It holds {', '.join(closest)}.")
