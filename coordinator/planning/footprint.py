"""The memory that a stage takes: weights, KV pages, slots and workspace, for any range of layers.

Made once for a model and for each part of it that a rank may have; how many KV pages there are is told when asking.
Owns the choice of page size and of the rows of a step. Knows no nodes.

Shapes: P positions between layers, 0 to the number of layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerline.models.model_parts import ModelPart
from layerline.models.row_layout import read_outside, widest_row
from layerline.models.sizes import ModelSizes
from layerline.models.spec import ModelSpec
from layerline.plan import DTYPE_BYTES, MAX_PAGES

PAGE_TOKENS = 16
MOST_ROWS = 512
MOST_FRAME_BYTES = 4 << 20  # of the activations of one step; the limit of a message is above


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """Whether a stage has the embedding (first) and the output matrix (last)."""

    first: bool
    last: bool


FIRST = Ends(first=True, last=False)
MIDDLE = Ends(first=False, last=False)
LAST = Ends(first=False, last=True)


class Footprint:
    """The memory of the stages of a model, or of one rank's part of them, in steps of `max_rows` rows."""

    def __init__(self, sizes: ModelSizes, max_rows: int) -> None:
        self.sizes = sizes
        self.max_rows = max_rows
        self._weights_P = _summed([layer.held_bytes for layer in sizes.layers])
        self._page_P = _summed([PAGE_TOKENS * kv_bytes for kv_bytes in sizes.kv_bytes])
        self._shares = sizes.model.shares_pages
        self._slots_P = _summed(list(sizes.slot_bytes))
        self._workspace = {has: sizes.workspace_bytes(max_rows, has_output=has) for has in (False, True)}

    def of_rank(self, part: ModelPart) -> Footprint:
        """That of the part that one rank has."""
        return Footprint(self.sizes.of_rank(part), self.max_rows)

    @property
    def layers(self) -> range:
        """All layers of the model."""
        return range(len(self.sizes.layers))

    def ends(self, layers: range) -> Ends:
        """The ends of the model that `layers` have."""
        return Ends(first=layers.start == 0, last=layers.stop == len(self.sizes.layers))

    def weights_bytes(self, layers: range) -> int:
        """Bytes of the weights of `layers` and of the matrices at the ends."""
        return self.sizes.weights_bytes(layers)

    def kv_bytes(self, layers: range, pages: int) -> int:
        """Bytes of all KV pages and of the slots of recurrent layers."""
        held_P = self._held_by_sequences(pages)
        return int(held_P[layers.stop] - held_P[layers.start]) + pages * self._outside_bytes(layers)

    def beside_bytes(self, layers: range) -> int:
        """Bytes of the experts that lie beside the device."""
        return self.sizes.beside_bytes(layers)

    def beside_starts(self, budget_bytes: int) -> NDArray[np.int64]:
        """Where the longest stage up to each position begins whose experts beside the device have room there."""
        beside_P = _summed([layer.beside_bytes for layer in self.sizes.layers])
        return np.searchsorted(beside_P, beside_P - max(0, budget_bytes - self.sizes.coming_beside_bytes))

    def repeats(self, free_bytes: int, layers: range) -> int:
        """For how many more experts in each of `layers` so many bytes have room."""
        a_repeat = sum(layer.expert_bytes for layer in self.sizes.layers[layers.start : layers.stop])
        return max(0, free_bytes) // a_repeat if a_repeat else 0

    def workspace_bytes(self, ends: Ends) -> int:
        """Bytes that computing a step takes beside."""
        return self._workspace[ends.last]

    def needed_bytes(self, layers: range, pages: int) -> int:
        """All that a stage of `layers` takes."""
        held = self.weights_bytes(layers) + self.kv_bytes(layers, pages)
        return held + self.workspace_bytes(self.ends(layers))

    def least_bytes(self, pages: int) -> int:
        """What a node must offer to be of any use: the smallest layer, between two others."""
        held = np.diff(self._weights_P + self._held_by_sequences(pages))
        if self._shares:
            held = held + [pages * self._outside_bytes(range(layer, layer + 1)) for layer in self.layers]
        return int(np.min(held)) + self.workspace_bytes(MIDDLE)

    def starts(self, budget_bytes: int, ends: Ends, pages: int) -> NDArray[np.int64]:
        """Where the longest stage up to each position begins that fits; the position itself where none does."""
        held_P = self._weights_P + self._held_by_sequences(pages)
        fixed_bytes = self.sizes.ends_bytes(first=ends.first, last=ends.last) + self.workspace_bytes(ends)
        least_P = held_P + (fixed_bytes - budget_bytes)
        starts_P = np.searchsorted(held_P, least_P)
        if self._shares:  # the later a stage begins, the more it has of earlier layers, but never more than it has less
            starts_P = np.array([self._start(held_P, end, least, pages) for end, least in enumerate(least_P)])
        return np.minimum(starts_P, np.arange(len(held_P)))

    def _start(self, held_P: NDArray[np.int64], end: int, least: int, pages: int) -> int:
        """The first position from which what lies before is at least `least`, of a stage up to `end`."""
        before = [
            held - pages * self._outside_bytes(range(start, end))
            for start, held in enumerate(held_P[: end + 1].tolist())
        ]
        return int(np.searchsorted(before, least))

    def _outside_bytes(self, layers: range) -> int:
        """Bytes of a page of the earlier layers whose keys and values some of `layers` read."""
        if not self._shares:
            return 0
        return PAGE_TOKENS * sum(self.sizes.kv_bytes[source] for source in read_outside(self.sizes.model, layers))

    def most_pages(self, budget_bytes: int, layers: range) -> int:
        """The most KV pages that `budget_bytes` have room for beside the rest of a stage of `layers`."""
        page_bytes = int(self._page_P[layers.stop] - self._page_P[layers.start]) + self._outside_bytes(layers)
        free_bytes = max(0, budget_bytes - self.needed_bytes(layers, 0))
        return free_bytes // page_bytes if page_bytes else MAX_PAGES  # a rank without heads keeps none

    def _held_by_sequences(self, pages: int) -> NDArray[np.int64]:
        """What the layers before each position hold of sequences: some slots always, the rest with each page."""
        return self._slots_P + pages * self._page_P


def rows_of_a_step(spec: ModelSpec, dtype: str) -> int:
    """The most rows of a step: the largest power of two whose activations fit a frame."""
    rows = MOST_FRAME_BYTES // (widest_row(spec) * DTYPE_BYTES[dtype])
    return min(MOST_ROWS, 1 << max(0, rows.bit_length() - 1))


def _summed(sizes: list[int]) -> NDArray[np.int64]:
    """For each position the sum of what lies before it."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
