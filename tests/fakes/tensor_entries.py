"""Entries of a card as they should not be."""

from __future__ import annotations

import dataclasses

from layerline.models.tensor_table import RowRange, StoredTensor, TensorEntry


def stored_of(entry: TensorEntry) -> StoredTensor:
    """The one stored tensor that the entry is."""
    (part,) = entry.ranges
    return part.tensor


def falsified(entry: TensorEntry) -> TensorEntry:
    """The same with another hash."""
    parts = [
        dataclasses.replace(part, tensor=dataclasses.replace(part.tensor, sha256="0" * 64)) for part in entry.ranges
    ]
    return dataclasses.replace(entry, ranges=tuple(parts))


def shortened(entry: TensorEntry) -> TensorEntry:
    """A vector of three numbers in its place."""
    stored = dataclasses.replace(stored_of(entry), storage="F32", shape=(3,), nbytes=12)
    return dataclasses.replace(entry, shape=(3,), ranges=(RowRange.whole(stored),))
