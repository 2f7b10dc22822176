"""Loading a stage: from the model's files straight into the matrices it computes with.

Owns which tensors a stage holds, of each only the part that this rank has, and how those that are multiplied together
lie in one matrix. Every block of
rows is converted into its place as it is read, so that beside what is held there is never more than a block a
thread, and one matrix a thread while it is packed. Knows neither containers nor quantisation.

Shapes: C hidden, V vocabulary, O outputs, I inputs.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from layerline.errors import ModelCorruptError
from layerline.models.card import ModelCard
from layerline.models.read import TensorReader
from layerline.models.shares import RankShare
from layerline.models.sizes import stage_weights_bytes
from layerline.models.spec import AttentionSpec, ModelSpec, RopeSpec
from node.model.attention.backend import LayerAttention
from node.model.decoder import Decoder, Layer, Output
from node.model.embedding import PlainEmbedding
from node.model.feed_forward import GatedFeedForward
from node.model.linear import Linear, owned_linear, shared_linear
from node.model.norm import Norm
from node.model.rope import Rope, pair_
from node.model.self_attention import SelfAttention
from node.model.sides import Side, Sides

BLOCK_NUMBERS = 1 << 20  # 4 MiB of float32 a block: large enough for numpy, small beside any matrix
LOADING_THREADS = 2
Progress = Callable[[int, int], None]
"""(done_bytes, total_bytes) of the weights as they are held."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What is loaded: of layers first_layer..last_layer the part `share`, in `dtype` on `device`."""

    first_layer: int
    last_layer: int
    share: RankShare
    dtype: torch.dtype
    device: torch.device


def load_decoder(card: ModelCard, path: Path, held: Held, progress: Progress) -> Decoder:
    """The decoder of those layers; embedding and output only where the model's first and last layer are.

    The decoder of a part is that of the smaller model which the part is. Raises ModelCorruptError if a tensor is
    missing, has another shape, or its bytes have changed.
    """
    with TensorReader(path, card) as reader, torch.inference_mode():
        decoder = _StageLoader(card, reader, held, progress).load()
    _return_free_memory()
    return decoder


class _StageLoader:
    """One loading; each of its threads fills other matrices, for which inference mode is entered anew."""

    def __init__(self, card: ModelCard, reader: TensorReader, held: Held, progress: Progress) -> None:
        self._card = card
        self._part = held.share.part_of(card.spec)
        self._hidden = Side(length=card.spec.hidden, part=range(card.spec.hidden))
        self._reader = reader
        self._ropes = _ropes(self._part, held)
        self._held = held
        self._progress = progress
        self._progress_lock = Lock()
        self._done_bytes = 0
        dtype = str(held.dtype).removeprefix("torch.")
        self._total_bytes = stage_weights_bytes(self._part, held.first_layer, held.last_layer, dtype)

    def load(self) -> Decoder:
        """The largest matrices come first, so that packing them needs no memory beyond what the stage takes."""
        part, held = self._part, self._held
        with ThreadPoolExecutor(LOADING_THREADS, "load") as threads:
            embedding = threads.submit(self._embedding)
            output = threads.submit(self._own_output)
            layers = [threads.submit(self._layer, n) for n in range(held.first_layer, held.last_layer + 1)]
            _wait_for([embedding, output, *layers])
        embedding_VC = embedding.result()
        return Decoder(
            spec=part,
            layers=[layer.result() for layer in layers],
            embedding=None if embedding_VC is None else PlainEmbedding(embedding_VC),
            output=self._output(output.result(), embedding_VC),
        )

    @property
    def _has_first(self) -> bool:
        return self._held.first_layer == 0

    @property
    def _has_last(self) -> bool:
        return self._held.last_layer == self._part.layers - 1

    @torch.inference_mode()
    def _embedding(self) -> Tensor | None:
        if not self._has_first:
            return None
        return self._end_matrix("embedding")

    @torch.inference_mode()
    def _own_output(self) -> Linear | None:
        """The output matrix, unless it is that of the embedding which this stage has as well."""
        if not self._has_last or (self._has_first and self._part.tied_output):
            return None
        name = "embedding" if self._part.tied_output else "output"
        return owned_linear(self._end_matrix(name))

    def _end_matrix(self, name: str) -> Tensor:
        sides = self._sides(self._held.first_layer)
        return self._matrix([name], [sides.vocabulary], sides.hidden)

    def _sides(self, layer: int) -> Sides:
        return Sides.of(self._card.spec, self._held.share, layer)

    def _output(self, own: Linear | None, embedding_VC: Tensor | None) -> Output | None:
        if not self._has_last:
            return None
        if own is None:
            assert embedding_VC is not None, "a tied output has a matrix of its own or shares one"
            own = shared_linear(embedding_VC)
        return Output(norm=self._norm("final_norm"), matrix=own)

    @torch.inference_mode()
    def _layer(self, index: int) -> Layer:
        sides, prefix, attention = self._sides(index), f"layers.{index}.", self._part.layer(index).attention
        gate_up_OI = self._matrix([prefix + "gate", prefix + "up"], [sides.feed_forward] * 2, sides.hidden)
        down_OI = self._matrix([prefix + "down"], [sides.hidden], sides.feed_forward)
        output_OI = self._matrix([prefix + "attention_output"], [sides.hidden], sides.attended)
        return Layer(
            attention_norm=self._norm(prefix + "attention_norm"),
            attention=SelfAttention(
                core=LayerAttention(spec=attention),
                rope=None if attention.rope is None else self._ropes[attention.rope, attention.head_dim],
                qkv=self._qkv(prefix, attention, sides),
                output=owned_linear(output_OI),
            ),
            feed_forward_norm=self._norm(prefix + "ffn_norm"),
            feed_forward=GatedFeedForward(gate_up=owned_linear(gate_up_OI), down=owned_linear(down_OI)),
        )

    def _qkv(self, prefix: str, attention: AttentionSpec, sides: Sides) -> Linear:
        names, outputs = [prefix + "q", prefix + "k", prefix + "v"], [sides.queries, sides.keys, sides.values]
        turned = attention.query_numbers + attention.key_numbers if attention.rope else 0
        weight_OI = self._matrix(names, outputs, sides.hidden)
        pair_(weight_OI[:turned], attention.head_dim)
        if not attention.qkv_bias:
            return owned_linear(weight_OI)
        bias_O = self._vector([f"{name}_bias" for name in names], outputs)
        pair_(bias_O[:turned], attention.head_dim)
        return owned_linear(weight_OI, bias_O)

    def _norm(self, name: str) -> Norm:
        return Norm(self._vector([name], [self._hidden]), self._part.norm_epsilon)

    def _matrix(self, names: list[str], outputs: list[Side], inputs: Side) -> Tensor:
        """The named tensors as one matrix, below each other: of each the rows and columns that are held."""
        sizes = [len(side.part) for side in outputs]
        weight_OI = self._empty(sum(sizes), len(inputs.part))
        for name, side, part_OI in zip(names, outputs, torch.split(weight_OI, sizes), strict=True):
            self._fill(name, part_OI, side, inputs)
        return weight_OI

    def _vector(self, names: list[str], sides: list[Side]) -> Tensor:
        sizes = [len(side.part) for side in sides]
        vector = self._empty(sum(sizes))
        for name, side, part in zip(names, sides, torch.split(vector, sizes), strict=True):
            self._fill(name, part, side)
        return vector

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self._held.dtype, device=self._held.device)

    def _fill(self, name: str, place: Tensor, *sides: Side) -> None:
        entry, shape = self._card.tensor(name), tuple(side.length for side in sides)
        if entry is None:
            raise self._corrupt(f"has no tensor {name}")
        if entry.shape != shape:
            raise self._corrupt(f"has tensor {name} with shape {entry.shape}, not {shape}")
        rows_per_block = max(1, BLOCK_NUMBERS // entry.shape[-1])
        for first_row, numbers in self._reader.blocks(entry, rows_per_block, *(side.part for side in sides)):
            rows = place[first_row : first_row + len(numbers)]
            rows.copy_(torch.from_numpy(numbers))
            self._report(rows.nbytes)

    def _report(self, more_bytes: int) -> None:
        with self._progress_lock:
            self._done_bytes += more_bytes
            self._progress(self._done_bytes, self._total_bytes)

    def _corrupt(self, what: str) -> ModelCorruptError:
        return ModelCorruptError(f"Model {self._card.name} {what}.", remedy="Fetch the model anew.")


def _ropes(part: ModelSpec, held: Held) -> dict[tuple[RopeSpec, int], Rope]:
    """One for each rotation that a layer has, by its description and the size of a head."""
    layers = [part.layer(index).attention for index in range(held.first_layer, held.last_layer + 1)]
    wanted = {(layer.rope, layer.head_dim) for layer in layers if layer.rope is not None}
    return {(rope, head_dim): Rope.of(rope, head_dim, held.device) for rope, head_dim in wanted}


def _wait_for(loading: Sequence[Future[Any]]) -> None:
    """Waits for all; at the first failure gives up those not begun, and raises it."""
    done, pending = wait(loading, return_when=FIRST_EXCEPTION)
    for future in pending:
        future.cancel()
    for future in done:
        future.result()


def _return_free_memory() -> None:
    """Gives what loading freed back to the system; glibc would keep it for later."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)
