"""A stage: some layers of a model in memory, obeying frames.

Owns the weights and pages of its layers on one device: those of the whole layers or, where a stage spans several
devices, the part of one rank. Keeps no state about sequences: a frame says where its rows are, what they read and
how tokens are drawn. Knows nothing of transports, plans, clocks or other stages.

Shapes: T rows, N rows that are sampled, C hidden, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import torch
from torch import Tensor

from layerline.errors import ModelMismatchError, PlanInvalidError, StageFailedError
from layerline.frames import Frame, SampledToken, StepResult
from layerline.models.card import ModelCard
from layerline.models.model_parts import model_parts
from layerline.models.sizes import LOGITS_ROWS, ModelSizes
from layerline.plan import StageSpec
from node.model.admission import check_frame
from node.model.attention.backend import PagedAttention
from node.model.attention.run_attention import RunAttention
from node.model.decoder import Decoder
from node.model.linear.tensor_source import Progress
from node.model.parallel import joined
from node.model.tensors import TORCH_DTYPES, bytes_from_tensor, tensor_from_bytes
from node.model.token_sampling import TokenSampling, WantedToken
from node.model.weights import Held, load_decoder
from node.ranks.group import Alone, RankGroup


class Stage:
    """The layers that `spec` names, ready to compute: all of them, or what this rank of `group` has of them."""

    def __init__(
        self,
        card: ModelCard,
        spec: StageSpec,
        *,
        decoder: Decoder,
        attention: PagedAttention,
        sampling: TokenSampling,
        device: torch.device,
        weights_bytes: int,
    ) -> None:
        self._model = card.spec
        self._weights_bytes = weights_bytes
        self._spec = spec
        self._decoder = decoder
        self._attention = attention
        self._sampling = sampling
        self._device = device
        self._is_first = spec.first_layer == 0
        self._is_last = spec.last_layer == card.spec.layers - 1

    @classmethod
    def load(
        cls,
        card: ModelCard,
        path: Path,
        spec: StageSpec,
        progress: Progress,
        group: RankGroup = Alone(),  # noqa: B008  # it has no state
    ) -> Stage:
        """Loads the layers' weights, then allocates their pages; of a stage on several devices one rank's part of both.

        Raises PlanInvalidError for a spec that no stage can be, StageFailedError for a device that is not there,
        ModelMismatchError and ModelCorruptError for files that are not what `spec` or `card` say, and RuntimeError
        if the device is full.
        """
        assert group.count == len(spec.devices), "a rank for each device"
        _check_spec(card, spec)
        part = model_parts(card.spec, group.count, spec.proportions)[group.rank]
        dtype, device = TORCH_DTYPES[spec.dtype], _device(spec.devices[group.rank])
        held = Held(first_layer=spec.first_layer, last_layer=spec.last_layer, part=part, dtype=dtype, device=device)
        decoder = load_decoder(card, path, held, progress)
        attention = RunAttention.allocate(
            [layer.attention.core for layer in decoder.layers],
            pages=spec.pages,
            page_tokens=spec.page_tokens,
            kv_dtype=spec.held_kv_dtype,
            dtype=dtype,
            device=device,
        )
        if group.count > 1:
            decoder = joined(decoder, part.vocabulary, group)
        sampling = TokenSampling(part.vocabulary.start, group)
        sizes = ModelSizes.of(card, dtype=spec.dtype, kv_dtype=spec.held_kv_dtype).of_rank(part)
        return cls(
            card,
            spec,
            decoder=decoder,
            attention=attention,
            sampling=sampling,
            device=device,
            weights_bytes=sizes.weights_bytes(range(spec.first_layer, spec.last_layer + 1)),
        )

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights that this rank has."""
        return self._weights_bytes

    @property
    def kv_bytes(self) -> int:
        """Bytes of the pages that this rank has."""
        return self._attention.nbytes

    @torch.inference_mode()
    def run(self, frame: Frame) -> Frame | StepResult:
        """Computes one step: the frame for the next stage or, from the last one, the tokens that were drawn.

        Of several ranks this is for rank 0. Neither output has timings. Raises ProtocolError for a frame that is not
        for this stage, before anything is allocated.
        """
        x_TC = self._passed(frame)
        if self._is_last:
            return self._result(frame, x_TC)
        return dataclasses.replace(frame, tensor=bytes_from_tensor(x_TC), timings=())

    @torch.inference_mode()
    def follow(self, frame: Frame) -> None:
        """Does the part of the same step that another rank than 0 has; raises what `run` raises there."""
        x_TC = self._passed(frame)
        if self._is_last:
            self._sample(frame, x_TC)

    def _passed(self, frame: Frame) -> Tensor:
        """The residual of the frame's rows after the layers."""
        check_frame(frame, self._spec, self._model)
        x_TC = tensor_from_bytes(frame.tensor, self._device)
        if self._is_first:
            x_TC = self._decoder.embed(x_TC)
        self._decoder.layers_(x_TC, self._attention.plan(frame.spans))
        return x_TC

    def _result(self, frame: Frame, x_TC: Tensor) -> StepResult:
        """What was drawn. A sequence has failed if any of its rows is not numbers, even if no token is wanted yet:
        what was written to its pages must not be read by others."""
        drawn = self._sample(frame, x_TC)
        wanted = {(span.sequence, position) for span in frame.spans for position in span.sampled_positions}
        missing = wanted - {(token.sequence, token.position) for token in drawn}
        failed = _not_numbers(frame, x_TC) | {sequence for sequence, _ in missing}
        sampled = tuple(token for token in drawn if token.sequence not in failed)
        return StepResult(epoch=frame.epoch, step=frame.step, sampled=sampled, failed=tuple(sorted(failed)))

    def _sample(self, frame: Frame, x_TC: Tensor) -> list[SampledToken]:
        """Draws after the last rows of the spans that ask for it; logits of other rows are never computed."""
        wanted = _wanted_draws(frame)
        blocks = (wanted[first : first + LOGITS_ROWS] for first in range(0, len(wanted), LOGITS_ROWS))
        return self._sampling.after(
            (self._decoder.logits(x_TC[[row for row, _ in block]]), [draw for _, draw in block]) for block in blocks
        )


def _not_numbers(frame: Frame, x_TC: Tensor) -> set[int]:
    """The sequences of which a row is not finite; a row's sum says so of all its numbers."""
    finite_T = x_TC.sum(dim=1, dtype=torch.float32).isfinite()
    if bool(finite_T.all()):
        return set()
    of_spans = torch.split(finite_T, [span.count for span in frame.spans])
    return {span.sequence for span, rows in zip(frame.spans, of_spans, strict=True) if not bool(rows.all())}


def _wanted_draws(frame: Frame) -> list[tuple[int, WantedToken]]:
    """The rows after which a token is drawn, each with what is wanted there."""
    wanted: list[tuple[int, WantedToken]] = []
    for end, span in zip(itertools.accumulate(span.count for span in frame.spans), frame.spans, strict=True):
        if span.sampling:
            draws = (
                WantedToken(sequence=span.sequence, position=p, sampling=span.sampling) for p in span.sampled_positions
            )
            wanted += zip(range(end - span.draws, end), draws, strict=True)
    return wanted


def _check_spec(card: ModelCard, spec: StageSpec) -> None:
    if spec.digest != card.digest:
        message = f"Model {card.name} has digest {card.digest}, but the plan is for {spec.digest}."
        raise ModelMismatchError(message, remedy="Copy the same model files to every node.")
    if spec.last_layer >= card.spec.layers:
        message = f"Layer {spec.last_layer} of {card.name} was asked for, which has {card.spec.layers} layers."
        raise PlanInvalidError(message, remedy="Plan again.")


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
