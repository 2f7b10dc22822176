"""Steps of few rows, one of each sequence, whose pass through the layers is captured once and then replayed.

On a GPU the hundreds of launches of such a step take longer than what they launch. All that differs from one step to
the next of as many rows is written into buffers that stay where they are: the residual and the tables of pages.

Shapes: T rows, C hidden.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from layerline.frames import Span
from node.model.attention.row_pages import RowPages
from node.model.attention.run_attention import RunAttention
from node.model.decoder import Decoder
from node.model.recurrent.slots import StepSlots
from node.model.stored.products import MOST_ROWS

Work = Callable[[], None]
NO_SLOTS = StepSlots((), ())
log = logging.getLogger(__name__)


class Capture(Protocol):
    """What captures work on a device."""

    def __call__(self, work: Work) -> Work:
        """Does `work`, perhaps several times, and gives what does it again with whatever is in its memory then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Captured:
    x_TC: Tensor
    pages: RowPages
    replay: Work


class CapturedSteps:
    """The steps of up to MOST_ROWS rows through a decoder whose `attention` attends rows at once.

    None of its layers is recurrent: which slots those use is not in one place for every step.
    """

    def __init__(self, decoder: Decoder, attention: RunAttention, capture: Capture) -> None:
        self._decoder = decoder
        self._attention = attention
        self._capture = capture
        self._captured: dict[int, _Captured] = {}  # by the number of rows
        self._fails = False

    def takes(self, spans: Sequence[Span]) -> bool:
        """Whether a step is one of these."""
        return not self._fails and len(spans) <= MOST_ROWS and self._attention.attends_rows(spans)

    def passed(self, x_TC: Tensor, spans: Sequence[Span]) -> Tensor:
        """The rows after the layers, until the next step of as many."""
        pages = self._attention.row_pages(spans)
        try:
            captured = self._captured.get(len(spans)) or self._made(x_TC, pages)
        except RuntimeError as failure:
            log.warning("Steps of few rows cannot be captured here, so that each is launched anew. %s", failure)
            self._fails = True
            self._decoder.layers_(x_TC, self._attention.row_step(pages), NO_SLOTS)
            return x_TC
        self._captured[len(spans)] = captured
        captured.x_TC.copy_(x_TC)
        captured.pages.fill_(pages)
        captured.replay()
        return captured.x_TC

    def _made(self, x_TC: Tensor, pages: RowPages) -> _Captured:
        """Captured with a step that is then replayed, so that what is done meanwhile does no harm."""
        own_TC, own_pages = x_TC.clone(), pages.with_room_for(self._attention.most_pages)
        step = self._attention.row_step(own_pages)
        return _Captured(
            x_TC=own_TC, pages=own_pages, replay=self._capture(lambda: self._decoder.layers_(own_TC, step, NO_SLOTS))
        )


def capture_on(device: torch.device) -> Capture | None:
    """CUDA graphs, whose memory is one pool; None on other devices."""
    if device.type != "cuda":
        return None
    pool = torch.cuda.graph_pool_handle()

    def capture(work: Work) -> Work:
        with torch.cuda.device(device):
            beside, usual = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
            beside.wait_stream(usual)
            with torch.cuda.stream(beside):
                work()  # compiles what is not yet, and allocates what libraries keep: neither may be captured
            usual.wait_stream(beside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                work()
        return graph.replay

    return capture
