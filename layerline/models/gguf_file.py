"""The header of a GGUF file: metadata and tensor table, every count checked before it is believed.

A reader of our own beside the `gguf` library's constants: the library's takes seconds for a vocabulary of
150,000 tokens and checks neither counts nor the end of the file. Does not know what any key means, except
those that say how the file itself is laid out.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from gguf import GGUF_DEFAULT_ALIGNMENT, GGUF_MAGIC, GGMLQuantizationType, GGUFValueType

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.stored import MAX_TENSORS, check_places, float_bytes, tensor_corrupt
from layerline.models.tensor_table import StoredTensor
from layerline.models.unreadable import open_model_file

REMEDY = "Fetch the model anew."
MAX_METADATA_KEYS = 1 << 16
MAX_ITEMS = 1 << 22  # of all arrays together; the largest vocabularies have a quarter of that, in some 16 MiB
MAX_STRING_BYTES = 1 << 24
MAX_HEADER_BYTES = 1 << 26
MAX_DIMENSIONS = 4

_SCALARS: dict[GGUFValueType, np.dtype[Any]] = {
    GGUFValueType.UINT8: np.dtype("<u1"),
    GGUFValueType.INT8: np.dtype("<i1"),
    GGUFValueType.UINT16: np.dtype("<u2"),
    GGUFValueType.INT16: np.dtype("<i2"),
    GGUFValueType.UINT32: np.dtype("<u4"),
    GGUFValueType.INT32: np.dtype("<i4"),
    GGUFValueType.FLOAT32: np.dtype("<f4"),
    GGUFValueType.BOOL: np.dtype("?"),
    GGUFValueType.UINT64: np.dtype("<u8"),
    GGUFValueType.INT64: np.dtype("<i8"),
    GGUFValueType.FLOAT64: np.dtype("<f8"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufFile:
    """What the headers of its files say. Numbers and lists in `metadata` are Python's own."""

    files: tuple[Path, ...]
    metadata: Mapping[str, object]
    tensors: tuple[StoredTensor, ...]


def read_gguf(path: Path) -> GgufFile:
    """The header of the GGUF file at `path`; ModelCorruptError names what is wrong with it."""
    with open_model_file(path) as file:
        size_bytes = file.seek(0, 2)
        file.seek(0)
        header = _Header(file, path.name, size_bytes)
        tensor_count, key_count = _read_preamble(header)
        metadata = _read_metadata(header, key_count)
        tensors = _read_tensors(header, tensor_count, _alignment(header, metadata))
    return GgufFile(files=(path,), metadata=metadata, tensors=tensors)


class _Header:
    """Reads numbers and strings in order and never past the end of the file or the bound of a header."""

    def __init__(self, file: BinaryIO, name: str, size_bytes: int) -> None:
        self._file = file
        self._left = min(size_bytes, MAX_HEADER_BYTES)
        self._items_left = MAX_ITEMS
        self.name = name
        self.size_bytes = size_bytes

    @property
    def position(self) -> int:
        return self._file.tell()

    def take(self, count: int, what: str) -> bytes:
        if count > self._left:
            bound = "" if self.size_bytes <= MAX_HEADER_BYTES else f", which can have {MAX_HEADER_BYTES >> 20} MiB"
            raise self.corrupt(f"{what} goes past the end of the header{bound}: the file is truncated or damaged")
        self._left -= count
        taken = self._file.read(count)
        if len(taken) != count:
            raise self.corrupt(f"{what} could not be read whole: the file shrank while it was read")
        return taken

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def count(self, most: int, what: str) -> int:
        count = self.u64(what)
        if count > most:
            raise self.corrupt(f"{what} is {count}, more than the {most} that can be")
        return count

    def string(self, what: str) -> str:
        length = self.count(MAX_STRING_BYTES, f"the length of {what}")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError as error:
            raise self.corrupt(f"{what} is not UTF-8") from error

    def strings(self, count: int, what: str) -> list[str]:
        """So many strings: as `string` reads them, but in one loop, since a vocabulary has hundreds of thousands."""
        read, strings, end = self._file.read, [], self.position + self._left
        place = self.position
        for _ in range(count):
            length = int.from_bytes(read(8), "little")
            if length > MAX_STRING_BYTES or place + 8 + length > end:
                break
            try:
                strings.append(read(length).decode())
            except UnicodeDecodeError:
                break
            place += 8 + length
        self._left = end - place
        if len(strings) < count or self.position != place:
            self._file.seek(place)
            self.string(what)  # says what is wrong with it
            raise self.corrupt(f"{what} changed while it was read")
        return strings

    def items(self, what: str) -> int:
        """The length of an array."""
        count = self.count(self._items_left, what)
        self._items_left -= count
        return count

    def corrupt(self, reason: str) -> ModelCorruptError:
        return ModelCorruptError(f"{self.name} is not a sound GGUF file: {reason}.", remedy=REMEDY)


def _read_preamble(header: _Header) -> tuple[int, int]:
    if header.u32("the magic number") != GGUF_MAGIC:
        raise header.corrupt("it does not begin with the letters GGUF")
    version = header.u32("the version")
    if version not in (2, 3):
        raise ModelUnsupportedError(
            f"{header.name} is a GGUF file of version {version} or of other byte order; layerline reads "
            "versions 2 and 3, little-endian.",
            remedy="Convert it with a current llama.cpp.",
        )
    return header.count(MAX_TENSORS, "the number of tensors"), header.count(MAX_METADATA_KEYS, "the number of keys")


def _read_metadata(header: _Header, key_count: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for index in range(key_count):
        key = header.string(f"the name of key {index}")
        if key in metadata:
            raise header.corrupt(f"the key {key} appears twice")
        metadata[key] = _read_value(header, key)
    return metadata


def _read_value(header: _Header, key: str) -> object:
    kind = _value_type(header, key)
    if kind == GGUFValueType.STRING:
        return header.string(f"the value of {key}")
    if kind == GGUFValueType.ARRAY:
        return _read_array(header, key)
    return _numbers(header, key, kind, 1)[0]


def _read_array(header: _Header, key: str) -> list[object]:
    kind = _value_type(header, key)
    count = header.items(f"the length of {key}")
    if kind == GGUFValueType.ARRAY:
        raise header.corrupt(f"{key} is an array of arrays")
    if kind == GGUFValueType.STRING:
        return [*header.strings(count, key)]
    return _numbers(header, key, kind, count)


def _value_type(header: _Header, key: str) -> GGUFValueType:
    number = header.u32(f"the type of {key}")
    try:
        return GGUFValueType(number)
    except ValueError as error:
        raise header.corrupt(f"{key} has the unknown type {number}") from error


def _numbers(header: _Header, key: str, kind: GGUFValueType, count: int) -> list[object]:
    dtype = _SCALARS[kind]
    numbers = np.frombuffer(header.take(count * dtype.itemsize, f"the value of {key}"), dtype)
    if kind == GGUFValueType.FLOAT32 and count == 1:
        return [float(str(numbers[0]))]  # the shortest decimal: 1e-05 as the model's author wrote it
    values: list[object] = numbers.tolist()
    return values


def _alignment(header: _Header, metadata: Mapping[str, object]) -> int:
    alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise header.corrupt(f"general.alignment is {alignment!r}, not a power of two")
    return alignment


def _read_tensors(header: _Header, count: int, alignment: int) -> tuple[StoredTensor, ...]:
    table = [_read_tensor(header, index, alignment) for index in range(count)]
    data_start = -(-header.position // alignment) * alignment
    tensors: dict[str, StoredTensor] = {}
    for name, storage, shape, offset in table:
        if name in tensors:
            raise tensor_corrupt(name, header.name, "appears twice")
        nbytes = float_bytes(name, header.name, storage, shape)
        tensors[name] = StoredTensor(
            name=name,
            file=header.name,
            storage=storage,
            shape=shape,
            offset=data_start + offset,
            nbytes=nbytes,
        )
    check_places(tensors.values(), header.name, data_start, header.size_bytes)
    return tuple(tensors.values())


def _read_tensor(header: _Header, index: int, alignment: int) -> tuple[str, str, tuple[int, ...], int]:
    name = header.string(f"the name of tensor {index}")
    dimensions = header.u32(f"the number of dimensions of tensor {name}")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise tensor_corrupt(name, header.name, f"has {dimensions} dimensions")
    sides = struct.unpack(f"<{dimensions}Q", header.take(8 * dimensions, f"the shape of tensor {name}"))
    number = header.u32(f"the type of tensor {name}")
    offset = header.u64(f"the offset of tensor {name}")
    if offset > header.size_bytes:
        reason = f"begins at byte {offset}, but the file has only {header.size_bytes}: it is truncated"
        raise tensor_corrupt(name, header.name, reason)
    if offset % alignment:
        raise tensor_corrupt(name, header.name, f"begins at {offset}, which is not aligned to {alignment} bytes")
    return name, _storage(header, name, number), sides[::-1], offset


def _storage(header: _Header, name: str, number: int) -> str:
    try:
        return GGMLQuantizationType(number).name
    except ValueError as error:
        raise ModelUnsupportedError(
            f"Tensor {name} of {header.name} has the storage type {number}, which layerline does not know.",
            remedy="Use another quantisation of the model.",
        ) from error
