"""A step as the scheduler issues it, before it has a plan's epoch on it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from layerline.frames import Frame, Span, TensorBytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Rows for one pass through the pipeline: those of `spans`, one after the other, with their token ids."""

    number: int
    spans: tuple[Span, ...]
    token_ids: tuple[int, ...]

    def sampled_sequences(self) -> frozenset[int]:
        """The sequences that a token is to be drawn for."""
        return frozenset(span.sequence for span in self.spans if span.sampling is not None)

    def frame(self, epoch: int) -> Frame:
        """The frame that carries this step into stage 0: int32 token ids [rows]."""
        rows = len(self.token_ids)
        data = struct.pack(f"<{rows}i", *self.token_ids)
        tensor = TensorBytes(dtype="int32", shape=(rows,), data=data)
        return Frame(epoch=epoch, step=self.number, spans=self.spans, tensor=tensor)
