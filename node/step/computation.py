"""What computes the layers of a stage: torch on any device, or the kernels on a CPU. The one seam beneath `Stage`.

A computation has the weights and the pages of its layers. It is handed frames that have been checked, and gives what
the rows are after the layers; whoever has those asks them for what the stage is to hand on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from layerline.frames import Frame, Span, TensorBytes
from layerline.models.expert_placement import ExpertPlacement
from layerline.models.workspace import LOGITS_ROWS
from layerline.step_result import SampledToken
from node.step.sampled_token import WantedToken
from node.step.span_scores import KnownToken
from node.step.token_scores import Likelihoods

Wanted = TypeVar("Wanted")


class PassedRows(Protocol):
    """The rows of one step after the layers, until the next step. Of several ranks each is asked the same."""

    def to_bytes(self) -> TensorBytes:
        """As the next stage takes them."""

    def finite(self) -> NDArray[np.bool_]:
        """Of each row whether all of it is numbers."""

    def drawn(self, wanted: Sequence[tuple[int, WantedToken]]) -> list[SampledToken]:
        """The tokens after rows of these numbers, in order; none after a row whose logits are not numbers."""

    def scored(self, known: Sequence[tuple[int, KnownToken]]) -> list[Likelihoods]:
        """How likely known tokens are after rows of these numbers; NaN where logits are not numbers."""

    def summed(self, ranges: Sequence[range]) -> list[NDArray[np.float32]]:
        """The sum [hidden] of the rows of each range, each row after the last norm."""


class StageExperts(Protocol):
    """The experts of a stage's layers, or those that a rank has of them."""

    def rows(self) -> dict[int, tuple[int, ...]]:
        """How many rows have chosen each expert of each layer that has some, by the layers' numbers."""

    def prepared(self, layer: int, placement: ExpertPlacement) -> Callable[[], None]:
        """Loads what this rank lacks of a placement, while others compute; what is returned puts it into effect.

        That is called between two steps, and does not fail. ValueError if it is no placement for this stage,
        ModelCorruptError, OSError, MemoryError or RuntimeError if something cannot be loaded: nothing has changed then.
        """


class Computation(Protocol):
    """The layers of a stage in memory, or one rank's part of them."""

    @property
    def experts(self) -> StageExperts:
        """The layers' experts, if they have any."""

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights."""

    @property
    def kv_bytes(self) -> int:
        """Bytes of the pages."""

    def passed(self, frame: Frame) -> PassedRows:
        """The frame's rows after the layers; their keys and values are in the pages then."""


def in_blocks(wanted: Sequence[tuple[int, Wanted]]) -> Iterator[tuple[list[int], list[Wanted]]]:
    """Rows and what is wanted after each, so many at a time that their logits have room."""
    for first in range(0, len(wanted), LOGITS_ROWS):
        block = wanted[first : first + LOGITS_ROWS]
        yield [row for row, _ in block], [each for _, each in block]


def wanted_tokens(spans: Sequence[Span]) -> list[tuple[int, WantedToken]]:
    """The rows after which a token is drawn, each with what is wanted there."""
    wanted: list[tuple[int, WantedToken]] = []
    for end, span in zip(itertools.accumulate(span.count for span in spans), spans, strict=True):
        if span.sampling:
            draws = (
                WantedToken(sequence=span.sequence, position=p, sampling=span.sampling) for p in span.sampled_positions
            )
            wanted += zip(range(end - span.draws, end), draws, strict=True)
    return wanted


def wanted_rows(spans: Sequence[Span]) -> list[int]:
    """The rows after which a token is drawn or, in a step that draws none, scored: as `Stage` will ask for them."""
    ends = list(itertools.accumulate(span.count for span in spans))
    drawn = [row for end, span in zip(ends, spans, strict=True) for row in range(end - span.draws, end)]
    return drawn or [row for end, span in zip(ends, spans, strict=True) for row in range(end - len(span.next_ids), end)]
