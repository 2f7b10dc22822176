"""A stage: some layers of a model in memory, obeying frames.

Owns the weights and pages of its layers on one device. Keeps no state about sequences: a frame says where its
rows are, what they read and where the product goes. Knows nothing of transports, plans or other stages.

Shapes: T rows, N rows that are sampled, C hidden, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from layerline.errors import ModelMismatchError, PlanInvalidError, StageFailedError
from layerline.frames import Frame, SampledToken, Span, StageTiming, StepResult
from layerline.models.card import ModelCard
from layerline.models.sizes import LOGITS_ROWS, stage_weights_bytes
from layerline.plan import StageSpec
from node.model.admission import check_frame
from node.model.decoder import Decoder
from node.model.kv_pool import KVPool
from node.model.sampler import draw
from node.model.step import Step
from node.model.tensors import TORCH_DTYPES, bytes_from_tensor, tensor_from_bytes
from node.model.weights import Held, Progress, load_decoder


class Stage:
    """The layers that `spec` names, ready to compute."""

    def __init__(self, card: ModelCard, spec: StageSpec, decoder: Decoder, pool: KVPool) -> None:
        self._model = card.spec
        self._spec = spec
        self._decoder = decoder
        self._pool = pool
        self._device = torch.device(spec.devices[0])
        self._windows = {card.spec.window_of(layer) for layer in range(spec.first_layer, spec.last_layer + 1)}
        self._is_first = spec.first_layer == 0
        self._is_last = spec.last_layer == card.spec.layers - 1

    @classmethod
    def load(cls, card: ModelCard, path: Path, spec: StageSpec, progress: Progress) -> Stage:
        """Loads the layers' weights, then allocates their pages.

        Raises PlanInvalidError for a spec that no stage can be, StageFailedError for a device that is not there,
        ModelMismatchError and ModelCorruptError for files that are not what `spec` or `card` say, and RuntimeError
        if the device is full.
        """
        _check_spec(card, spec)
        dtype, device = TORCH_DTYPES[spec.dtype], _device(spec.devices[0])
        held = Held(first_layer=spec.first_layer, last_layer=spec.last_layer, dtype=dtype, device=device)
        decoder = load_decoder(card, path, held, progress)
        layers, slots = spec.last_layer - spec.first_layer + 1, spec.pages * spec.page_tokens
        pool = KVPool.allocate(card.spec, layers, slots, spec.held_kv_dtype, dtype=dtype, device=device)
        return cls(card, spec, decoder, pool)

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
        step = Step.of(
            frame.spans,
            self._spec.page_tokens,
            windows=self._windows,
            most_slots=self._pool.most_slots,
            device=self._device,
        )
        self._decoder.layers_(x_TC, step, self._pool)
        product = self._product(frame, x_TC)
        compute_us = (time.perf_counter_ns() - started_ns) // 1000
        timings = (*frame.timings, StageTiming(stage_index=stage_index, compute_us=compute_us))
        return dataclasses.replace(product, timings=timings)

    def _product(self, frame: Frame, x_TC: Tensor) -> Frame | StepResult:
        if not self._is_last:
            return dataclasses.replace(frame, tensor=bytes_from_tensor(x_TC))
        return StepResult(epoch=frame.epoch, step=frame.step, sampled=tuple(self._sample(frame, x_TC)))

    def _sample(self, frame: Frame, x_TC: Tensor) -> Iterator[SampledToken]:
        """Draws after the last row of each span that asks for it; logits of other rows are never computed."""
        ends = itertools.accumulate(span.count for span in frame.spans)
        wanted = [(end - 1, span) for end, span in zip(ends, frame.spans, strict=True) if span.sampling]
        for first in range(0, len(wanted), LOGITS_ROWS):
            block = wanted[first : first + LOGITS_ROWS]
            x_NC = x_TC[[row for row, _ in block]]
            logits_NV = self._decoder.logits(x_NC).cpu()
            for logits_V, (_, span) in zip(logits_NV, block, strict=True):
                yield _drawn(logits_V.float(), span)


def _drawn(logits_V: Tensor, span: Span) -> SampledToken:
    assert span.sampling is not None, "only spans that ask for a token come here"
    token_id = draw(logits_V.numpy(), span.sampling, span.start + span.count)
    logits = bytes_from_tensor(logits_V) if span.sampling.return_logits else None
    return SampledToken(sequence=span.sequence, token_id=token_id, logits=logits)


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


def _device(name: str) -> torch.device:
    kind, _, index = name.partition(":")
    visible = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    known = index.isdecimal() if index else kind == name
    if not known or int(index or 0) >= visible.get(kind, 0):
        message = f"Device {name} is not there for torch {torch.__version__}."
        raise StageFailedError(message, remedy="Give the node another --device, or install torch for this one.")
    return torch.device(name)
