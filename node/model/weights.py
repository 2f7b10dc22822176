"""Loading a stage: from the model's files straight into the matrices it computes with.

Owns which tensors a stage holds and how those that are multiplied together lie in one matrix. Every block of
rows is converted into its place as it is read, so that beside what is held there is never more than a block a
thread, and one matrix a thread while it is packed. Knows neither containers nor quantisation.

Shapes: C hidden, V vocabulary, O outputs, I inputs.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from layerline.errors import ModelCorruptError
from layerline.models.card import ModelCard
from layerline.models.read import TensorReader
from layerline.models.sizes import stage_weights_bytes
from node.model.attention import attention_pass
from node.model.decoder import Decoder, Layer, Output
from node.model.linear import Linear, owned_linear, shared_linear
from node.model.norm import Norm
from node.model.rope import Rope, pair_

BLOCK_NUMBERS = 1 << 20  # 4 MiB of float32 a block: large enough for numpy, small beside any matrix
LOADING_THREADS = 2
Progress = Callable[[int, int], None]
"""(done_bytes, total_bytes) of the weights as they are held."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What is loaded: layers first_layer..last_layer in `dtype` on `device`."""

    first_layer: int
    last_layer: int
    dtype: torch.dtype
    device: torch.device


def load_decoder(card: ModelCard, path: Path, held: Held, progress: Progress) -> Decoder:
    """The decoder of those layers; embedding and output only where the model's first and last layer are.

    Raises ModelCorruptError if a tensor is missing, has another shape, or its bytes have changed.
    """
    with TensorReader(path, card) as reader, torch.inference_mode():
        decoder = _StageLoader(card, reader, held, progress).load()
    _return_free_memory()
    return decoder


class _StageLoader:
    """One loading; several threads fill different matrices."""

    def __init__(self, card: ModelCard, reader: TensorReader, held: Held, progress: Progress) -> None:
        self._card = card
        self._spec = card.spec
        self._reader = reader
        self._held = held
        self._progress = progress
        self._progress_lock = Lock()
        self._done_bytes = 0
        dtype = str(held.dtype).removeprefix("torch.")
        self._total_bytes = stage_weights_bytes(card.spec, held.first_layer, held.last_layer, dtype)

    def load(self) -> Decoder:
        """The largest matrices come first, so that packing them needs no memory beyond what the stage takes."""
        spec, held = self._spec, self._held
        embedding_VC = self._embedding() if held.first_layer == 0 else None
        output = self._output(embedding_VC) if held.last_layer == spec.layers - 1 else None
        with ThreadPoolExecutor(LOADING_THREADS, "load") as threads:
            layers = range(held.first_layer, held.last_layer + 1)
            loading = [threads.submit(self._layer, layer) for layer in layers]
            return Decoder(
                spec,
                layers=_all_or_none(loading),
                embedding_VC=embedding_VC,
                output=output,
                rope=Rope.of(spec.rope, spec.head_dim, held.device),
                attend_pass=attention_pass(held.device),
            )

    def _embedding(self) -> Tensor:
        return self._matrix(["embedding"], [self._spec.vocabulary], self._spec.hidden)

    def _output(self, embedding_VC: Tensor | None) -> Output:
        norm = self._norm("final_norm")
        if self._spec.tied_output and embedding_VC is not None:
            return Output(norm=norm, matrix=shared_linear(embedding_VC))
        name = "embedding" if self._spec.tied_output else "output"
        weight_VC = self._matrix([name], [self._spec.vocabulary], self._spec.hidden)
        return Output(norm=norm, matrix=owned_linear(weight_VC))

    def _layer(self, index: int) -> Layer:
        with torch.inference_mode():  # holds for one thread only
            spec, prefix = self._spec, f"layers.{index}."
            gate_up_OI = self._matrix([prefix + "gate", prefix + "up"], [spec.intermediate] * 2, spec.hidden)
            down_OI = self._matrix([prefix + "down"], [spec.hidden], spec.intermediate)
            attention_output = [prefix + "attention_output"], [spec.hidden], spec.heads * spec.head_dim
            return Layer(
                attention_norm=self._norm(prefix + "attention_norm"),
                qkv=self._qkv(prefix),
                attention_output=owned_linear(self._matrix(*attention_output)),
                ffn_norm=self._norm(prefix + "ffn_norm"),
                gate_up=owned_linear(gate_up_OI),
                down=owned_linear(down_OI),
            )

    def _qkv(self, prefix: str) -> Linear:
        spec = self._spec
        q_size, kv_size = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        names, sizes = [prefix + "q", prefix + "k", prefix + "v"], [q_size, kv_size, kv_size]
        weight_OI = self._matrix(names, sizes, spec.hidden)
        pair_(weight_OI[: q_size + kv_size], spec.head_dim)
        if not spec.qkv_bias:
            return owned_linear(weight_OI)
        bias_O = self._vector([f"{name}_bias" for name in names], sizes)
        pair_(bias_O[: q_size + kv_size], spec.head_dim)
        return owned_linear(weight_OI, bias_O)

    def _norm(self, name: str) -> Norm:
        return Norm(self._vector([name], [self._spec.hidden]), self._spec.norm_epsilon)

    def _matrix(self, names: list[str], outputs: list[int], inputs: int) -> Tensor:
        """The named tensors as one matrix [sum(outputs), inputs], below each other."""
        weight_OI = self._empty(sum(outputs), inputs)
        for name, part_OI in zip(names, torch.split(weight_OI, outputs), strict=True):
            self._fill(name, part_OI)
        return weight_OI

    def _vector(self, names: list[str], sizes: list[int]) -> Tensor:
        vector = self._empty(sum(sizes))
        for name, part in zip(names, torch.split(vector, sizes), strict=True):
            self._fill(name, part)
        return vector

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self._held.dtype, device=self._held.device)

    def _fill(self, name: str, place: Tensor) -> None:
        entry = self._card.tensor(name)
        if entry is None:
            raise self._corrupt(f"has no tensor {name}")
        if entry.shape != tuple(place.shape):
            raise self._corrupt(f"has tensor {name} with shape {entry.shape}, not {tuple(place.shape)}")
        rows_per_block = max(1, BLOCK_NUMBERS // entry.shape[-1])
        for first_row, numbers in self._reader.blocks(entry, rows_per_block):
            rows = place[first_row : first_row + len(numbers)]
            rows.copy_(torch.from_numpy(numbers))
            self._report(rows.nbytes)

    def _report(self, more_bytes: int) -> None:
        with self._progress_lock:
            self._done_bytes += more_bytes
            self._progress(self._done_bytes, self._total_bytes)

    def _corrupt(self, what: str) -> ModelCorruptError:
        return ModelCorruptError(f"Model {self._card.name} {what}.", remedy="Fetch the model anew.")


def _all_or_none(loading: Iterable[Future[Layer]]) -> list[Layer]:
    """The layers in order; at the first failure the ones not begun are given up."""
    futures = list(loading)
    try:
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        raise


def _return_free_memory() -> None:
    """Gives what loading freed back to the system; glibc would keep it for later."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)
