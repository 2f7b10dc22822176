"""A models folder: which models it holds, and finding one by name without ever leaving the folder."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from layerline.checks import MAX_NAME_LENGTH
from layerline.errors import ModelNotFoundError

MAX_MODELS = 1000
GGUF_SUFFIX = ".gguf"
SAFETENSORS_SUFFIX = ".safetensors"

Listing = tuple[str, Path, int]


def list_models(folder: Path) -> tuple[Listing, ...]:
    """(name, path, size in bytes) of every model at the top of `folder` or one level down, by name.

    A model is a GGUF file, or a folder with config.json and safetensors. What cannot be read is left out.
    """
    found = sorted(_models_in(folder, depth=2))[:MAX_MODELS]
    return tuple((path.relative_to(folder).as_posix(), path, size_bytes) for path, size_bytes in found)


def find_model(folder: Path, name: str) -> Path:
    """The model that `list_models` calls `name`, a GGUF file's with or without its suffix.

    Raises ModelNotFoundError that names the folder and the models in it, the most similar first.
    """
    models = {listed: path for listed, path, _ in list_models(folder)}
    if _is_inside(name):
        for candidate in (name, name + GGUF_SUFFIX):
            if candidate in models:
                return models[candidate]
    raise _not_found(folder, name, list(models))


def _is_inside(name: str) -> bool:
    """Whether `name` is a relative path of one or two plain parts, as every listed name is."""
    parts = PurePosixPath(name).parts
    plain = all(part not in ("..", "/") and "\\" not in part and part.isprintable() for part in parts)
    return plain and 1 <= len(parts) <= 2 and len(name) <= MAX_NAME_LENGTH


def _models_in(folder: Path, depth: int) -> Iterator[tuple[Path, int]]:
    for path in _entries(folder):
        size_bytes = _model_bytes(path)
        if size_bytes is not None and len(path.name) <= MAX_NAME_LENGTH // 2 and path.name.isprintable():
            yield path, size_bytes
        elif depth > 1 and path.is_dir():
            yield from _models_in(path, depth - 1)


def _model_bytes(path: Path) -> int | None:
    """The bytes of the model's weights; None if there is no model at `path`."""
    try:
        if path.suffix == GGUF_SUFFIX and path.is_file():
            return path.stat().st_size
        if (path / "config.json").is_file():
            weights = [file for file in _entries(path) if file.suffix == SAFETENSORS_SUFFIX]
            return sum(file.stat().st_size for file in weights) if weights else None
    except OSError:
        return None
    return None


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


def _not_found(folder: Path, name: str, models: list[str]) -> ModelNotFoundError:
    if not models:
        remedy = "The folder holds no models; put a GGUF file there, or name another folder with --models."
        return ModelNotFoundError(f"There is no model {name!r} in {folder}.", remedy=remedy)
    closest = difflib.get_close_matches(name, models, n=len(models), cutoff=0.0)
    return ModelNotFoundError(f"There is no model {name!r} in {folder}.", remedy=f"It holds {', '.join(closest)}.")
