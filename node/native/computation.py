"""The layers of a stage computed by the kernels.

Shapes: T rows, C hidden, V the tokens of this rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from layerline.errors import StageFailedError
from layerline.frames import Frame, TensorBytes
from layerline.models.model_parts import ModelPart
from layerline.models.recurrent import DeltaNetSpec, RecurrentSpec
from layerline.models.row_layout import StageRows
from layerline.models.slot_sizes import slots_of
from layerline.models.spec import AttentionSpec, ModelSpec
from layerline.models.workspace import LOGITS_ROWS
from layerline.step_result import SampledToken
from node.kernels.engine import Engine
from node.kernels.library import KernelsMissingError, chosen_instruction_set, library
from node.native.attention import NativeAttention
from node.native.delta_net import delta_net_bytes
from node.native.kv_pages import KvPages
from node.native.layers import Carried, NativeLayers, RankSums, Sizes
from node.native.program import NativeLayer
from node.native.stage_experts import NativeStageExperts
from node.native.weights import load_weights
from node.ranks.group import RankGroup
from node.slices.carried_heads import CarriedHeads
from node.slices.stage_part import StagePart
from node.slices.tensor_source import Progress
from node.step.computation import StageExperts, in_blocks, wanted_rows
from node.step.sampled_token import WantedToken, sampled_token
from node.step.span_scores import KnownToken
from node.step.token_scores import Likelihoods, likelihoods

Logits = NDArray[np.float32]


class LogitsUse(Protocol):
    """What becomes of logits [N, V], of which another rank may have the rest: `AloneUse`, or that of several ranks."""

    def after(self, blocks: Iterable[tuple[Logits, Sequence[WantedToken]]]) -> list[SampledToken]:
        """The tokens that are drawn; none after a row whose logits are not numbers."""

    def scores(self, blocks: Iterable[tuple[Logits, Sequence[KnownToken]]]) -> list[Likelihoods]:
        """How likely known tokens are."""


class AloneUse:
    """The `LogitsUse` of a rank that has them all."""

    def after(self, blocks: Iterable[tuple[Logits, Sequence[WantedToken]]]) -> list[SampledToken]:
        """The tokens that are drawn."""
        drawn = [
            sampled_token(row, each) for logits, wanted in blocks for row, each in zip(logits, wanted, strict=True)
        ]
        return [token for token in drawn if token is not None]

    def scores(self, blocks: Iterable[tuple[Logits, Sequence[KnownToken]]]) -> list[Likelihoods]:
        """How likely known tokens are."""
        return [
            likelihoods(row, token.id, token.likeliest)
            for logits, tokens in blocks
            for row, token in zip(logits, tokens, strict=True)
        ]


class NativeComputation:
    """The `Computation` of `layers`."""

    def __init__(
        self, layers: NativeLayers, use: LogitsUse, experts: StageExperts, *, weights_bytes: int, kv_bytes: int
    ) -> None:
        self.experts = experts
        self.weights_bytes = weights_bytes
        self.kv_bytes = kv_bytes
        self._layers = layers
        self._use = use

    def passed(self, frame: Frame) -> NativeRows:
        """The frame's rows after the layers, and the logits of the first that are wanted."""
        x_TC = self._layers.passed(frame.tensor, frame.spans, wanted_rows(frame.spans)[:LOGITS_ROWS], frame.ids)
        return NativeRows(x_TC, self._layers, self._use)


class NativeRows:
    """The `PassedRows` of a `NativeComputation`."""

    def __init__(self, x_TC: NDArray[np.float32], layers: NativeLayers, use: LogitsUse) -> None:
        self._x_TC = x_TC
        self._layers = layers
        self._use = use

    def to_bytes(self) -> TensorBytes:
        """As the next stage takes them."""
        return self._layers.to_bytes(self._x_TC)

    def finite(self) -> NDArray[np.bool_]:
        """Of each row whether all of it is numbers: its sum says so."""
        with np.errstate(invalid="ignore", over="ignore"):
            finite: NDArray[np.bool_] = np.isfinite(self._x_TC.sum(axis=1))
        return finite

    def drawn(self, wanted: Sequence[tuple[int, WantedToken]]) -> list[SampledToken]:
        """The tokens after these rows; logits of other rows are never computed."""
        return self._use.after((self._layers.logits(rows), each) for rows, each in in_blocks(wanted))

    def scored(self, known: Sequence[tuple[int, KnownToken]]) -> list[Likelihoods]:
        """How likely known tokens are after these rows."""
        return self._use.scores((self._layers.logits(rows), each) for rows, each in in_blocks(known))

    def summed(self, ranges: Sequence[range]) -> list[NDArray[np.float32]]:
        """The sum of the rows of each range, after the last norm."""
        return [self._layers.normed(self._x_TC[rows.start : rows.stop]).sum(axis=0) for rows in ranges]


def load_computation(own: StagePart, progress: Progress, group: RankGroup, threads: int) -> NativeComputation:
    """Loads the layers' weights, then allocates their pages; it computes with `threads` threads.

    Raises StageFailedError where there are no kernels, ModelCorruptError for files that are not what the card says, and
    MemoryError if memory is short.
    """
    spec, part = own.spec, own.own
    engine = _engine(threads, part)
    weights = load_weights(library(), own, progress)
    rows = StageRows.of(own.model, own.layers)
    pages = KvPages(
        [*map(_mixer_spec, weights.layers), *(part.layer(each).attention for each in rows.outside)],
        pages=spec.pages,
        page_tokens=spec.page_tokens,
        kv_dtype=spec.held_kv_dtype,
        sinks=[*(_sinks(layer) for layer in weights.layers), *(None for _ in rows.outside)],
        page_numbers=rows.all_page_numbers,
        slots=slots_of(own.model, spec.held_kv_dtype, spec.pages * spec.page_tokens),
    )
    heads = {source: CarriedHeads.of(own.model, own.part, source) for source in {*rows.outside, *rows.made}}
    sums, use = _among(own.part, group)
    held = Sizes(max_rows=spec.max_rows, precision=spec.precision, dtype=spec.dtype)
    layers = NativeLayers(engine, part, weights, pages, held, Carried(rows=rows, heads=heads), sums)
    return NativeComputation(
        layers, use, NativeStageExperts(own, weights.experts), weights_bytes=own.weights_bytes, kv_bytes=pages.nbytes
    )


def _mixer_spec(layer: NativeLayer) -> AttentionSpec | RecurrentSpec | None:
    return None if layer.mixing is None else layer.spec.mixer


def _sinks(layer: NativeLayer) -> NDArray[np.float32] | None:
    mixer = None if layer.mixing is None else layer.mixing.mixer
    return mixer.sinks if isinstance(mixer, NativeAttention) else None


def _among(part: ModelPart, group: RankGroup) -> tuple[RankSums | None, LogitsUse]:
    """How a rank works together with the others of its group, if there are any."""
    if group.count == 1:
        return None, AloneUse()
    from node.native.ranks import GroupSums, GroupUse  # noqa: PLC0415  # it imports torch

    return GroupSums(part.vocabulary, group), GroupUse(part.vocabulary.start, group)


def _engine(threads: int, model: ModelSpec) -> Engine:
    """With room for the attention of every layer of `model`, and for a head of every delta net."""
    try:
        wanted = {
            (kind.attention.heads, kind.attention.kv_heads, kind.attention.head_dim, kind.attention.value_dim)
            for kind in model.kinds
            if kind.recurrent is None
        }
        scratch_bytes = max(library().calls.layerline_attention_bytes(*sizes) for sizes in wanted)
        deltas = {kind.recurrent for kind in model.kinds if isinstance(kind.recurrent, DeltaNetSpec)}
        scratch_bytes = max([scratch_bytes, *map(delta_net_bytes, deltas)])
        return Engine(library(), chosen_instruction_set(), threads, scratch_bytes)
    except KernelsMissingError as missing:
        message = f"The plan has the kernels compute here, but there are none: {missing}"
        raise StageFailedError(message, remedy="Restart the node, and plan again.") from missing
