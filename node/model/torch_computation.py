"""The layers of a stage computed by torch, on any device.

Shapes: T rows, C hidden, N numbers of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerline.errors import StageFailedError
from layerline.frames import Frame, TensorBytes
from layerline.models.row_layout import StageRows
from layerline.models.slot_sizes import slots_of
from layerline.step_result import SampledToken
from node.model.attention.backend import LayerAttention, PagedAttention
from node.model.attention.row_choice import row_attention_on
from node.model.attention.run_attention import RunAttention
from node.model.captured_steps import CapturedSteps, capture_on
from node.model.carrying import CarryingPass
from node.model.decoder import Decoder
from node.model.latent_attention import LatentAttention
from node.model.linear.load import HeldAs
from node.model.no_mixer import NoMixer
from node.model.parallel import joined
from node.model.recurrent.slots import Slots
from node.model.recurrent_layer import RecurrentLayer
from node.model.self_attention import SelfAttention
from node.model.stage_experts import LoadsBeside, TorchStageExperts
from node.model.stored.products import block_kernels_on
from node.model.tensors import TORCH_DTYPES, bytes_from_tensor, tensor_from_bytes
from node.model.token_sampling import TokenSampling
from node.model.weights import load_decoder
from node.ranks.group import RankGroup
from node.slices.carried_heads import CarriedHeads
from node.slices.stage_part import StagePart
from node.slices.tensor_source import Progress
from node.step.computation import in_blocks
from node.step.sampled_token import WantedToken
from node.step.span_scores import KnownToken
from node.step.token_scores import Likelihoods


class TorchComputation:
    """The `Computation` of a decoder."""

    def __init__(
        self,
        decoder: Decoder,
        attention: PagedAttention,
        slots: Slots,
        sampling: TokenSampling,
        device: torch.device,
        experts: TorchStageExperts,
        weights_bytes: int,
        captured: CapturedSteps | None = None,
        carrying: CarryingPass | None = None,
    ) -> None:
        self.experts = experts
        self._are_spread = experts.are_spread
        self.weights_bytes = weights_bytes
        self._captured = captured
        self._carrying = carrying
        self._decoder = decoder
        self._attention = attention
        self._slots = slots
        self._sampling = sampling
        self._device = device

    @property
    def kv_bytes(self) -> int:
        """Bytes of pages and slots."""
        return self._attention.nbytes + self._slots.nbytes

    @torch.inference_mode()
    def passed(self, frame: Frame) -> TorchRows:
        """The frame's rows after the layers."""
        x_TC = tensor_from_bytes(frame.tensor, self._device)
        if self._are_spread:
            self.experts.positions.take(frame.spans)
        if self._carrying is not None:
            ids_T = None if frame.ids is None else tensor_from_bytes(frame.ids, self._device)
            x_TC, row_TN = self._carrying.passed(x_TC, ids_T, frame.spans, self._slots.plan(frame.spans))
            return TorchRows(x_TC, row_TN, self._decoder, self._sampling)
        if self._decoder.embedding is not None:
            x_TC = self._decoder.embed(x_TC)
        if self._captured is not None and self._captured.takes(frame.spans):
            x_TC = self._captured.passed(x_TC, frame.spans)
        else:
            self._decoder.layers_(x_TC, self._attention.plan(frame.spans), self._slots.plan(frame.spans))
        return TorchRows(x_TC, x_TC, self._decoder, self._sampling)


class TorchRows:
    """The `PassedRows` of a `TorchComputation`; the next stage gets `row_TN`, with what it carries."""

    def __init__(self, x_TC: Tensor, row_TN: Tensor, decoder: Decoder, sampling: TokenSampling) -> None:
        self._x_TC = x_TC
        self._row_TN = row_TN
        self._decoder = decoder
        self._sampling = sampling

    @torch.inference_mode()
    def to_bytes(self) -> TensorBytes:
        """As the next stage takes them."""
        return bytes_from_tensor(self._row_TN)

    @torch.inference_mode()
    def finite(self) -> NDArray[np.bool_]:
        """Of each row whether all of it is numbers: its sum says so."""
        finite: NDArray[np.bool_] = self._x_TC.sum(dim=1, dtype=torch.float32).isfinite().cpu().numpy()
        return finite

    @torch.inference_mode()
    def drawn(self, wanted: Sequence[tuple[int, WantedToken]]) -> list[SampledToken]:
        """The tokens after these rows; logits of other rows are never computed."""
        return self._sampling.after(
            (self._decoder.logits(self._x_TC[rows]), draws) for rows, draws in in_blocks(wanted)
        )

    @torch.inference_mode()
    def scored(self, known: Sequence[tuple[int, KnownToken]]) -> list[Likelihoods]:
        """How likely known tokens are after these rows; only rank 0 gets any."""
        return self._sampling.scores((self._decoder.logits(self._x_TC[rows]), each) for rows, each in in_blocks(known))

    @torch.inference_mode()
    def summed(self, ranges: Sequence[range]) -> list[NDArray[np.float32]]:
        """The sum of the rows of each range, after the last norm."""
        return [
            self._decoder.normed(self._x_TC[rows.start : rows.stop]).float().sum(dim=0).cpu().numpy() for rows in ranges
        ]


def load_computation(
    own: StagePart, progress: Progress, group: RankGroup, threads: int, beside: LoadsBeside | None = None
) -> TorchComputation:
    """Loads the layers' weights, then allocates their pages; on the CPU it computes with `threads` threads.

    Experts may lie `beside` the device. Raises StageFailedError for a device that is not there, ModelCorruptError for
    files that are not what the card says, and RuntimeError if the device is full.
    """
    torch.set_num_threads(threads)
    spec = own.spec
    dtype, device = TORCH_DTYPES[spec.dtype], _device(spec.devices[group.rank])
    held_as = HeldAs(dtype=dtype, device=device, weights=spec.held_weights, kernels=block_kernels_on(device))
    decoder, experts = load_decoder(own, held_as, progress, beside)
    rows, part = StageRows.of(own.model, own.layers), own.own
    outside = [LayerAttention(spec=part.layer(source).attention) for source in rows.outside]
    attention = RunAttention.allocate(
        [*(_core(layer.mixer) for layer in decoder.layers), *outside],
        pages=spec.pages,
        page_tokens=spec.page_tokens,
        kv_dtype=spec.held_kv_dtype,
        dtype=dtype,
        device=device,
        rows=row_attention_on(device),
        page_numbers=rows.all_page_numbers,
    )
    recurrent = [part.layer(number).recurrent if own.part.has_heads else None for number in own.layers]
    slots = Slots(recurrent, slots_of(own.model, spec.held_kv_dtype, spec.pages * spec.page_tokens), device)
    has_experts = any(kind.feed_forward.experts for kind in own.model.kinds)
    # Which experts are launched is another each time, and which slots are used; rows that carry something come from
    # elsewhere each time.
    varies = has_experts or own.model.is_recurrent or rows.needs_more
    capture = None if varies else capture_on(device)
    if group.count > 1:
        decoder, capture = joined(decoder, own.part.vocabulary, group), None  # what ranks do together is not captured
    captured = None if capture is None else CapturedSteps(decoder, attention, capture)
    sampling = TokenSampling(own.part.vocabulary.start, group)
    carrying = None
    if rows.needs_more:
        heads = {source: CarriedHeads.of(own.model, own.part, source) for source in {*rows.outside, *rows.made}}
        carrying = CarryingPass(decoder, attention, rows, heads, group)
    return TorchComputation(decoder, attention, slots, sampling, device, experts, own.weights_bytes, captured, carrying)


def _core(mixer: SelfAttention | LatentAttention | RecurrentLayer | NoMixer) -> LayerAttention | None:
    return None if isinstance(mixer, RecurrentLayer | NoMixer) else mixer.core


def _device(name: str) -> torch.device:
    kind, _, index = name.partition(":")
    visible = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    known = index.isdecimal() if index else kind == name
    if known and kind == "cpu":
        return torch.device(kind)  # the ranks of a CPU are numbered, but torch knows only the one
    if not known or int(index or 0) >= visible.get(kind, 0):
        message = f"Device {name} is not there for torch {torch.__version__}."
        raise StageFailedError(message, remedy="Give the node another --device, or install torch for this one.")
    return torch.device(name)
