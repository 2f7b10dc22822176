"""Loading the experts of a layer for the kernels, and bringing further ones while others compute.

Every expert has a slot of the layer's memory. One that comes later is loaded beside these and put into a slot that is
free by then, so that what a stage takes does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.held import VECTOR_BYTES
from node.kernels.engine import aligned_bytes
from node.kernels.library import Library
from node.native.experts import ExpertSlots, NativeBranches, NativeExperts, NativeRouter, Vector
from node.native.feed_forward import NativeFeedForward
from node.native.matrices import NativeMatrix, Room, held_bytes, in_room, load_matrix, load_vector
from node.slices.feed_forward_slices import BranchNormSlices, ExpertsSlices, FeedForwardSlices, Slices
from node.slices.placed_experts import PlacedExperts
from node.slices.tensor_source import TensorSlice, TensorSource


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertLoading:
    """Loads the matrices of a layer's experts, held as `weights` says."""

    library: Library
    source: TensorSource
    weights: str
    slices: ExpertsSlices

    def experts(
        self, spec: FeedForwardSpec, placed: PlacedExperts | None, room: int
    ) -> tuple[NativeExperts | NativeBranches, ExpertSlots]:
        """Those of a layer that are here, of at most `room`, and their memory."""
        assert spec.experts is not None, "it has slices of experts"
        own = range(spec.experts.count) if placed is None else placed.own
        slots = ExpertSlots(list(map(self._slot_bytes, own)) if placed is None else [self.most_bytes] * room)
        loaded = {expert: self.expert(expert, slots.take(expert)) for expert in own}
        if placed is not None:  # slots of others that may come
            held = [sum(self._held_bytes(expert)) for expert in range(spec.experts.count)]
            self.source.count(room * max(held) - sum(held[expert] for expert in own))
        router = NativeRouter(
            logits=load_matrix(self.library, self.source, self.slices.router, "stored", self.slices.router_bias),
            choice_bias_N=self._vector(self.slices.choice_bias),
            scales_N=self._vector(self.slices.expert_scales),
        )
        shared = None if self.slices.shared is None else self._shared(self.slices.shared)
        norms = self.slices.norms
        if norms is None:
            return NativeExperts(spec, router, loaded, shared, placed), slots
        assert shared is not None, "experts are apart from a shared one"
        chosen = replace(spec, experts=replace(spec.experts, shared_intermediate=0, apart=False))
        return self._branches(norms, shared, NativeExperts(chosen, router, loaded, None, placed)), slots

    def expert(self, expert: int, room: Room | None = None) -> NativeFeedForward:
        """One of them, in that room or in memory of its own."""
        place = room or Room(aligned_bytes(self._slot_bytes(expert)))

        def load(own: Slices, bias: Slices) -> NativeMatrix:
            return load_matrix(self.library, self.source, own, self.weights, bias, place.take)

        return NativeFeedForward.of(self.slices.experts[expert], load)

    @property
    def most_bytes(self) -> int:
        """What the largest of the experts takes of a room."""
        return max(map(self._slot_bytes, range(len(self.slices.experts))))

    def _slot_bytes(self, expert: int) -> int:
        return sum(map(in_room, self._held_bytes(expert)[:-1]))

    def _held_bytes(self, expert: int) -> list[int]:
        """Of each matrix of an expert, and of its biases."""
        own = self.slices.experts[expert]
        biases = (*own.gate_up_bias, *own.down_bias)
        matrices = [held_bytes(self.source, each, self.weights) for each in _matrices(own)]
        return [*matrices, VECTOR_BYTES * sum(bias.shape[0] for bias in biases)]

    def _shared(self, slices: FeedForwardSlices) -> NativeFeedForward:
        sizes = (held_bytes(self.source, each, self.weights) for each in _matrices(slices))
        room = Room(aligned_bytes(sum(map(in_room, sizes))))

        def load(own: Slices, bias: Slices) -> NativeMatrix:
            return load_matrix(self.library, self.source, own, self.weights, bias, room.take)

        return NativeFeedForward.of(slices, load)

    def _branches(self, norms: BranchNormSlices, dense: NativeFeedForward, experts: NativeExperts) -> NativeBranches:
        of_router_C = load_vector(self.source, norms.router)
        return NativeBranches(
            dense=dense,
            dense_after_C=load_vector(self.source, norms.shared_after),
            router_norm_C=of_router_C / np.float32(math.sqrt(len(of_router_C))),
            experts_before_C=load_vector(self.source, norms.before),
            experts=experts,
            experts_after_C=load_vector(self.source, norms.after),
        )

    def _vector(self, slices: Slices) -> Vector | None:
        return load_vector(self.source, slices) if slices else None


def _matrices(own: FeedForwardSlices) -> Iterable[TensorSlice]:
    return (*own.gate_up, *own.down)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerExperts:
    """The experts of one layer and their memory; `further` loads some that are not here yet."""

    experts: NativeExperts
    slots: ExpertSlots
    further: Callable[[Iterable[int]], Mapping[int, NativeFeedForward]]

    def prepared(self, placed: PlacedExperts) -> Callable[[], None]:
        """Loads what is not here and will be; what is returned places the experts so, and takes no memory.

        Nothing that computes is changed before that is called, between two steps.
        """
        before = self.experts.own
        coming = self.further([expert for expert in placed.own if expert not in before])

        def take() -> None:
            staying = {expert: each for expert, each in before.items() if expert in placed.own}
            for expert in before.keys() - staying.keys():
                self.slots.leave(expert)
            moved = {expert: each.moved(self.slots.take(expert)) for expert, each in coming.items()}
            self.experts.place_({**staying, **moved}, placed)

        return take
