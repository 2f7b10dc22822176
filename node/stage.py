"""A stage: some layers of a model in memory, obeying frames.

Owns the weights and pages of its layers on one device. Keeps no state about sequences: a frame says where its
rows are, what they read and where the product goes. Knows nothing of transports, plans or other stages.

Shapes: T rows, N rows that are sampled, C hidden, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import torch
from torch import Tensor

from layerline.errors import ModelMismatchError, PlanInvalidError
from layerline.frames import Frame, SampledToken, Sampling, StageTiming, StepResult
from layerline.models.card import ModelCard
from layerline.models.sizes import stage_weights_bytes
from layerline.plan import StageSpec
from node.model.admission import check_frame
from node.model.decoder import Decoder
from node.model.kv_pool import KVPool
from node.model.sampler import draw
from node.model.step import Step
from node.model.tensors import TORCH_DTYPES, bytes_from_tensor, tensor_from_bytes
from node.model.weights import Held, Progress, load_decoder

LOGITS_ROWS = 16  # rows whose logits are in memory at once; what sizes.workspace_bytes counts with


class Stage:
    """The layers that `spec` names, ready to compute."""

    def __init__(self, card: ModelCard, spec: StageSpec, decoder: Decoder, pool: KVPool) -> None:
        self._model = card.spec
        self._spec = spec
        self._decoder = decoder
        self._pool = pool
        self._device = torch.device(spec.devices[0])
        self._is_first = spec.first_layer == 0
        self._is_last = spec.last_layer == card.spec.layers - 1

    @classmethod
    def load(cls, card: ModelCard, path: Path, spec: StageSpec, progress: Progress) -> Stage:
        """Loads the layers' weights, then allocates their pages.

        Raises PlanInvalidError for a spec that no stage can be, ModelMismatchError and ModelCorruptError for files
        that are not what `spec` or `card` say, and RuntimeError if the device cannot be used or is full.
        """
        _check_spec(card, spec)
        dtype, device = TORCH_DTYPES[spec.dtype], torch.device(spec.devices[0])
        held = Held(first_layer=spec.first_layer, last_layer=spec.last_layer, dtype=dtype, device=device)
        decoder = load_decoder(card, path, held, progress)
        layers, slots = spec.last_layer - spec.first_layer + 1, spec.pages * spec.page_tokens
        return cls(card, spec, decoder, KVPool.allocate(card.spec, layers, slots, dtype, device))

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights."""
        return stage_weights_bytes(self._model, self._spec.first_layer, self._spec.last_layer, self._spec.dtype)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the pages."""
        return self._pool.nbytes

    @torch.inference_mode()
    def run(self, frame: Frame, stage_index: int) -> Frame | StepResult:
        """Computes one step: the frame for the next stage or, from the last one, the tokens that were drawn.

        `stage_index` is only what the step's timing is filed under. Raises ProtocolError for a frame that is not for
        this stage, before anything is allocated, and StageFailedError if the logits are not numbers.
        """
        started_ns = time.perf_counter_ns()
        check_frame(frame, self._spec, self._model)
        x_TC = tensor_from_bytes(frame.tensor, self._device)
        if self._is_first:
            x_TC = self._decoder.embed(x_TC)
        step = Step.of(frame.spans, self._spec.page_tokens, self._device)
        self._decoder.layers_(x_TC, step, self._pool)
        sampled = self._sample(frame, x_TC) if self._is_last else ()
        tensor = frame.tensor if self._is_last else bytes_from_tensor(x_TC)
        compute_us = (time.perf_counter_ns() - started_ns) // 1000
        timings = (*frame.timings, StageTiming(stage_index=stage_index, compute_us=compute_us))
        if self._is_last:
            return StepResult(epoch=frame.epoch, step=frame.step, sampled=sampled, timings=timings)
        return dataclasses.replace(frame, tensor=tensor, timings=timings)

    def _sample(self, frame: Frame, x_TC: Tensor) -> tuple[SampledToken, ...]:
        """Draws after the last row of each span that asks for it; logits of other rows are never computed."""
        wanted: list[tuple[int, int, int, Sampling]] = []
        end_row = 0
        for span in frame.spans:
            end_row += span.count
            if span.sampling:
                wanted.append((end_row - 1, span.sequence, span.start + span.count, span.sampling))
        sampled: list[SampledToken] = []
        for first in range(0, len(wanted), LOGITS_ROWS):
            block = wanted[first : first + LOGITS_ROWS]
            x_NC = x_TC[[row for row, *_ in block]]
            logits_NV = self._decoder.logits(x_NC).float().cpu()
            for logits_V, (_, sequence, position, sampling) in zip(logits_NV, block, strict=True):
                token_id = draw(logits_V.numpy(), sampling, position)
                returned = bytes_from_tensor(logits_V) if sampling.return_logits else None
                sampled.append(SampledToken(sequence=sequence, token_id=token_id, logits=returned))
        return tuple(sampled)


def _check_spec(card: ModelCard, spec: StageSpec) -> None:
    if spec.digest != card.digest:
        message = f"Model {card.name} has digest {card.digest}, but the plan is for {spec.digest}."
        raise ModelMismatchError(message, remedy="Copy the same model files to every node.")
    if spec.last_layer >= card.spec.layers:
        message = f"Layer {spec.last_layer} of {card.name} was asked for, which has {card.spec.layers} layers."
        raise PlanInvalidError(message, remedy="Plan again.")
    if len(spec.devices) > 1:
        message = f"One stage cannot yet span several devices ({', '.join(spec.devices)})."
        raise PlanInvalidError(message, remedy="Give the node one device with --device.")
