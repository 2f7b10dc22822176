"""Reading the files of a model's folder but the weights: bounded, strict about names twice, with clear errors."""

from __future__ import annotations

import json
from pathlib import Path

from layerline.errors import ModelCorruptError
from layerline.models.unreadable import open_model_file, unreadable

REMEDY = "Fetch the model anew."
MAX_JSON_BYTES = 16 << 20


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """All of a file of bounded size; ModelCorruptError if it is larger, or not there."""
    try:
        with open_model_file(path) as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) > most_bytes:
        raise ModelCorruptError(f"{path} is larger than {most_bytes >> 20} MiB.", remedy=REMEDY)
    return data


def read_text(path: Path, most_bytes: int = MAX_JSON_BYTES) -> str:
    """The UTF-8 text of a file of bounded size; ModelCorruptError if there is none."""
    try:
        return read_bytes(path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise ModelCorruptError(f"{path} is not UTF-8 text.", remedy=REMEDY) from error


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file; ModelCorruptError if it holds none."""
    try:
        value = json.loads(read_text(path), object_pairs_hook=strict_object)
    except (ValueError, RecursionError) as error:
        raise ModelCorruptError(f"{path} is not JSON: {error}.", remedy=REMEDY) from error
    if not isinstance(value, dict):
        raise ModelCorruptError(f"{path} does not hold a JSON object.", remedy=REMEDY)
    return value


def strict_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A hook for json.loads that refuses an object with the same name twice."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r} appears twice")
        found[name] = value
    return found
