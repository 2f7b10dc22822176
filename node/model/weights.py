"""Loading a stage: which slices of a model's tensors each of its matrices and vectors consists of.

Owns the order in which they are loaded and the threads that do it. How a matrix is made of slices is its own business
(`node.model.linear`). Knows neither containers nor quantisation.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from layerline.models.card import ModelCard
from layerline.models.model_parts import ModelPart
from layerline.models.read import TensorReader
from layerline.models.sizes import ModelSizes
from layerline.models.spec import AttentionSpec, ModelSpec, RopeSpec
from node.model.attention.backend import LayerAttention
from node.model.decoder import Decoder, Layer, Output
from node.model.embedding import Embedding
from node.model.feed_forward import GatedFeedForward
from node.model.linear.forms import Linear
from node.model.linear.load import HeldAs, load_embedding, load_linear, load_tensor, load_tied
from node.model.linear.tensor_source import Progress, TensorSlice, TensorSource
from node.model.norm import Norm
from node.model.rope import Rope, pair_order
from node.model.self_attention import SelfAttention
from node.model.sides import Side, Sides

LOADING_THREADS = 2
Ends = tuple[Embedding | None, Linear | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What is loaded: of layers first_layer..last_layer the part `part`, in `dtype` on `device`."""

    first_layer: int
    last_layer: int
    part: ModelPart
    dtype: torch.dtype
    device: torch.device


def load_decoder(card: ModelCard, path: Path, held: Held, progress: Progress) -> Decoder:
    """The decoder of those layers; embedding and output only where the model's first and last layer are.

    The decoder of a part is that of the smaller model which the part is. Raises ModelCorruptError if a tensor is
    missing, has another shape, or its bytes have changed.
    """
    part, dtype = held.part.part_of(card.spec), str(held.dtype).removeprefix("torch.")
    sizes = ModelSizes.of(card, dtype=dtype, kv_dtype=dtype).of_rank(held.part)
    total_bytes = sizes.weights_bytes(range(held.first_layer, held.last_layer + 1))
    with TensorReader(path, card) as reader:
        source = TensorSource(card, reader, total_bytes, progress)
        decoder = _StageLoader(card.spec, part, source, held).load()
    _return_free_memory()
    return decoder


class _StageLoader:
    """One loading; each of its threads fills other matrices, for which inference mode is entered anew."""

    def __init__(self, model: ModelSpec, part: ModelSpec, source: TensorSource, held: Held) -> None:
        self._model = model
        self._part = part
        self._source = source
        self._held = held
        self._held_as = HeldAs(dtype=held.dtype, device=held.device)
        self._ropes = _ropes(part, held)
        self._has_first = held.first_layer == 0
        self._has_last = held.last_layer == model.layers - 1

    def load(self) -> Decoder:
        """The largest matrices come first, so that packing them needs no memory beyond what the stage takes."""
        numbers = range(self._held.first_layer, self._held.last_layer + 1)
        with ThreadPoolExecutor(LOADING_THREADS, "load") as threads:
            ends = threads.submit(self._ends)
            layers = [threads.submit(self._layer, number) for number in numbers]
            final_norm = threads.submit(self._final_norm)
            _wait_for([ends, *layers, final_norm])
        embedding, matrix = ends.result()
        norm = final_norm.result()
        return Decoder(
            spec=self._part,
            layers=[layer.result() for layer in layers],
            embedding=embedding,
            output=Output(norm=norm, matrix=matrix) if norm and matrix else None,
        )

    @torch.inference_mode()
    def _ends(self) -> Ends:
        """Embedding and output matrix, as far as this stage has them; one matrix if they are tied."""
        sides = self._sides(self._held.first_layer)
        matrix = TensorSlice(name="embedding", rows=sides.vocabulary, columns=sides.hidden)
        own = TensorSlice(name="output", rows=sides.vocabulary, columns=sides.hidden)
        if self._has_first and self._has_last and self._part.tied_output:
            return load_tied(self._source, matrix, self._held_as)
        embedding = load_embedding(self._source, matrix, self._held_as) if self._has_first else None
        output = self._linear([matrix if self._part.tied_output else own]) if self._has_last else None
        return embedding, output

    @torch.inference_mode()
    def _final_norm(self) -> Norm | None:
        return self._norm("final_norm") if self._has_last else None

    @torch.inference_mode()
    def _layer(self, number: int) -> Layer:
        sides, prefix = self._sides(number), f"layers.{number}."

        def matrix(name: str, rows: Side, columns: Side) -> TensorSlice:
            return TensorSlice(name=prefix + name, rows=rows, columns=columns)

        gate, up = (matrix(name, sides.feed_forward, sides.hidden) for name in ("gate", "up"))
        feed_forward = GatedFeedForward(
            gate_up=self._linear([gate, up]), down=self._linear([matrix("down", sides.hidden, sides.feed_forward)])
        )
        spec = self._part.layer(number).attention
        attention = SelfAttention(
            core=LayerAttention(spec=spec),
            rope=None if spec.rope is None else self._ropes[spec.rope, spec.head_dim],
            qk_norm=self._qk_norm(prefix, spec, sides) if spec.qk_norm else None,
            qkv=self._qkv(prefix, spec, sides),
            output=self._linear([matrix("attention_output", sides.hidden, sides.attended)]),
        )
        return Layer(
            attention_norm=self._norm(prefix + "attention_norm"),
            attention=attention,
            feed_forward_norm=self._norm(prefix + "ffn_norm"),
            feed_forward=feed_forward,
        )

    def _qkv(self, prefix: str, spec: AttentionSpec, sides: Sides) -> Linear:
        """Queries, keys and values in one matrix; rows of what is rotated are in the order of pairs."""
        order = pair_order(spec.head_dim) if spec.rope else ()

        def parts(ending: str, columns: Side | None) -> list[TensorSlice]:
            rows = {"q": (sides.queries, order), "k": (sides.keys, order), "v": (sides.values, ())}
            return [
                TensorSlice(name=prefix + name + ending, rows=side, columns=columns, head_order=head_order)
                for name, (side, head_order) in rows.items()
            ]

        return self._linear(parts("", sides.hidden), bias=parts("_bias", None) if spec.qkv_bias else [])

    def _linear(self, slices: Sequence[TensorSlice], bias: Sequence[TensorSlice] = ()) -> Linear:
        return load_linear(self._source, slices, self._held_as, bias)

    def _qk_norm(self, prefix: str, spec: AttentionSpec, sides: Sides) -> Norm:
        """The heads of q and k share a weight each, whose numbers have the order of a head's rows."""
        order = pair_order(spec.head_dim) if spec.rope else ()
        q_D, k_D = (
            load_tensor(
                self._source, [TensorSlice(name=prefix + name, rows=sides.head, head_order=order)], self._held_as
            )
            for name in ("q_norm", "k_norm")
        )
        weights = [q_D.expand(spec.heads, -1), k_D.expand(spec.kv_heads, -1)]
        return Norm(torch.cat(weights), self._part.norm_epsilon)

    def _norm(self, name: str) -> Norm:
        hidden = self._sides(self._held.first_layer).hidden
        return Norm(
            load_tensor(self._source, [TensorSlice(name=name, rows=hidden)], self._held_as), self._part.norm_epsilon
        )

    def _sides(self, layer: int) -> Sides:
        return Sides.of(self._model, self._held.part, layer)


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
