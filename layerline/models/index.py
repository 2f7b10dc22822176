"""Making a model's card: reads its headers, hashes every tensor, and computes the digest that names the weights.

Two machines that hold the same weights get the same digest, whatever the files are called and wherever they lie.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

from layerline.errors import ModelCorruptError
from layerline.models.card import ModelCard
from layerline.models.digest import model_digest
from layerline.models.headers import read_headers
from layerline.models.stored import tensor_corrupt
from layerline.models.tensor_table import StoredBytes, TensorEntry, stored_places, stored_tensors
from layerline.models.tied_output import without_copied_output
from layerline.models.unreadable import open_model_file

READ_BYTES = 4 << 20
HASH_THREADS = 16
KEPT_SHARE = 0.5  # of free memory; a model that takes no more stays in the cache, since it is loaded next

Progress = Callable[[int, int], None]


def index_model(path: Path, name: str, progress: Progress) -> ModelCard:
    """The card of the GGUF file or safetensors folder at `path`, called `name`.

    Reads every weight once; calls `progress(done_bytes, total_bytes)` from several threads, one at a time.
    Raises a ModelError that says what is wrong with the files, or that they changed meanwhile.
    """
    headers = read_headers(path)
    before = _versions(headers.files)
    tensors = _hashed(headers.tensors, headers.files, progress)
    if _versions(headers.files) != before:
        raise ModelCorruptError(f"{path} changed while it was indexed.", remedy="Try again once it is complete.")
    spec = headers.spec
    notes = headers.notes
    if headers.output_may_be_copy:
        spec, tensors, further = without_copied_output(spec, tensors)
        notes += further
    return ModelCard(
        name=name,
        digest=model_digest(spec, tensors, headers.tokenizer),
        container=headers.container,
        size_bytes=sum(before[file].size_bytes for file in {place.file for place in stored_places(tensors)}),
        spec=spec,
        tensors=tensors,
        tokenizer=headers.tokenizer,
        notes=notes,
    )


class _Version(NamedTuple):
    size_bytes: int
    changed_ns: int


def _versions(files: Mapping[str, Path]) -> dict[str, _Version]:
    stats = {name: path.stat() for name, path in files.items()}
    return {name: _Version(stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


def _hashed(entries: tuple[TensorEntry, ...], files: Mapping[str, Path], progress: Progress) -> tuple[TensorEntry, ...]:
    """The same entries with the hash of every stored tensor, each of which is read once."""
    places = stored_places(entries)
    total_bytes = sum(place.nbytes for place in places)
    meter = _Meter(total_bytes, progress)
    keep = total_bytes <= KEPT_SHARE * psutil.virtual_memory().available
    with ThreadPoolExecutor(min(HASH_THREADS, os.cpu_count() or 1), "hash") as pool:
        work = [pool.submit(_hash, place, files[place.file], meter, keep=keep) for place in places]
        try:
            hashes = [future.result() for future in work]
        finally:
            for future in work:
                future.cancel()
    known = dict(zip(places, hashes, strict=True))
    hashed = {tensor: tensor.hashed(known) for tensor in stored_tensors(entries)}
    return tuple(
        dataclasses.replace(
            entry, ranges=tuple(dataclasses.replace(part, tensor=hashed[part.tensor]) for part in entry.ranges)
        )
        for entry in entries
    )


class _Meter:
    """Adds up what several threads have done and tells it to one callback at a time."""

    def __init__(self, total_bytes: int, progress: Progress) -> None:
        self._total_bytes = total_bytes
        self._progress = progress
        self._done_bytes = 0
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> None:
        with self._lock:
            self._done_bytes += nbytes
            self._progress(self._done_bytes, self._total_bytes)


def _hash(tensor: StoredBytes, path: Path, meter: _Meter, *, keep: bool) -> str:
    """SHA-256 of a tensor's bytes.

    What was read stays in the system's cache only if it is to be kept: a model may be larger than memory, and would
    push everything else out.
    """
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(READ_BYTES, tensor.nbytes)))
    with open_model_file(path) as file:
        file.seek(tensor.offset)
        left_bytes = tensor.nbytes
        while left_bytes:
            count = file.readinto(buffer[: min(READ_BYTES, left_bytes)])
            if not count:
                raise tensor_corrupt(tensor.name, tensor.file, "could not be read whole: the file shrank")
            digest.update(buffer[:count])
            left_bytes -= count
            meter.add(count)
        if not keep and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), tensor.offset, tensor.nbytes, os.POSIX_FADV_DONTNEED)
    return digest.hexdigest()
