"""Loading a stage for the kernels: its matrices in panels, its vectors and rotations as float32."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.read import TensorReader
from layerline.models.spec import AttentionSpec, LayerSpec
from node.kernels.library import Library
from node.native.attention import NativeAttention
from node.native.expert_load import ExpertLoading, LayerExperts
from node.native.experts import NativeBranches, NativeExperts, experts_of
from node.native.feed_forward import NativeFeedForward
from node.native.latent import NativeLatent, load_latent
from node.native.matrices import NativeMatrix, load_matrix, load_vector
from node.native.program import NativeLayer, NativeMixing
from node.native.recurrent import NativeRecurrent, load_recurrent
from node.native.token_inputs import NativeTokenBranch, NativeTokenInputs
from node.slices.feed_forward_slices import ExpertsSlices, FeedForwardSlices
from node.slices.latent_slices import LatentSlices
from node.slices.layer_slices import EndSlices, LayerSlices, MixerSlices
from node.slices.recurrent_slices import RecurrentSlices
from node.slices.rope_frequencies import frequencies, value_order
from node.slices.stage_part import StagePart
from node.slices.tensor_source import Progress, TensorSlice, TensorSource
from node.slices.token_input_slices import TokenInputSlices

MOST_LOADING_THREADS = 16  # more only wait for the disk


@dataclass(frozen=True, slots=True)
class NativeRotation:
    """A rotation: radians per position of each pair, and what cosines and sines are multiplied by."""

    frequencies_P: NDArray[np.float32]
    amplitude: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeWeights:
    """Of some layers, and of the model's ends as far as they belong to them; one matrix if the two are tied."""

    layers: tuple[NativeLayer, ...]
    rotations: tuple[NativeRotation, ...]
    embedding: NativeMatrix | None
    output: NativeMatrix | None
    final_norm_C: NDArray[np.float32] | None
    token_inputs: NativeTokenInputs | None
    experts: Mapping[int, LayerExperts]  # of the layers that have some, by their numbers


def load_weights(library: Library, wanted: StagePart, progress: Progress) -> NativeWeights:
    """Raises ModelCorruptError if a tensor is missing, has another shape, or its bytes have changed."""
    with _opened(wanted, wanted.weights_bytes, progress) as source:
        return _Loading(library, source, wanted).load()


@contextmanager
def _opened(wanted: StagePart, total_bytes: int, progress: Progress) -> Iterator[TensorSource]:
    with TensorReader(wanted.path, wanted.card) as reader:
        yield TensorSource(wanted.card, reader, total_bytes, progress)


class _Loading:
    """One loading, by several threads: what they spend their time with are hashes and copies, without Python's lock."""

    def __init__(self, library: Library, source: TensorSource, wanted: StagePart) -> None:
        self._library = library
        self._source = source
        self._model = wanted.model
        self._wanted = wanted
        self._weights = wanted.spec.held_weights
        self._part = wanted.own
        self._numbers = wanted.layers
        self._experts: dict[int, LayerExperts] = {}
        mixers = [self._part.layer(number).mixer for number in self._numbers]
        attentions = [mixer for mixer in mixers if isinstance(mixer, AttentionSpec)]
        wanted_ropes = ((spec.rope, spec.head_dim) for spec in attentions if spec.rope is not None)
        self._rotations = list(dict.fromkeys(wanted_ropes))

    def load(self) -> NativeWeights:
        ends = EndSlices.of(self._model, self._wanted.part)
        has_first, has_last = self._numbers.start == 0, self._numbers.stop == self._model.layers
        tied = has_first and has_last and self._model.tied_output
        with ThreadPoolExecutor(_loading_threads(), "load") as threads:
            embedding = threads.submit(self._matrix, ends.embedding) if has_first else None
            output = threads.submit(self._matrix, ends.output) if has_last and not tied else None
            inputs = threads.submit(self._token_inputs)
            begun = threads.map(self._layer, self._numbers)
            for end in filter(None, (embedding, output)):
                end.result()  # what is wrong with it is told before all layers have been read
            layers = tuple(begun)
        own_output = embedding if tied else output
        return NativeWeights(
            layers=layers,
            rotations=tuple(
                NativeRotation(frequencies(rope, head_dim), rope.amplitude) for rope, head_dim in self._rotations
            ),
            embedding=embedding.result() if embedding else None,
            output=own_output.result() if own_output else None,
            final_norm_C=load_vector(self._source, ends.final_norm) if has_last else None,
            token_inputs=inputs.result(),
            experts=self._experts,
        )

    def _token_inputs(self) -> NativeTokenInputs | None:
        if not self._model.token_input:
            return None
        slices = TokenInputSlices.of(self._model, self._wanted.part, self._numbers)
        return NativeTokenInputs(
            table=self._matrix((slices.table,)),
            projection=self._matrix(slices.projection),
            norm_P=load_vector(self._source, slices.norm),
        )

    def _token_branch(self, slices: LayerSlices) -> NativeTokenBranch:
        return NativeTokenBranch(
            gate=self._matrix(slices.token_gate),
            output=self._matrix(slices.token_output),
            after_C=load_vector(self._source, slices.token_after_norm),
        )

    def _layer(self, number: int) -> NativeLayer:
        slices, spec = LayerSlices.of(self._model, self._wanted.part, number), self._part.layer(number)
        output_scale = self._vector(slices.output_scale)
        return NativeLayer(
            spec=spec,
            attention_norm_C=self._vector(slices.attention_norm),
            mixing=self._mixing(spec, slices) if self._wanted.part.has_heads else None,
            attention_after_norm_C=self._vector(slices.attention_after_norm),
            feed_forward_norm_C=self._vector(slices.feed_forward_norm),
            feed_forward=self._feed_forward(number, spec.feed_forward, slices.feed_forward),
            feed_forward_after_norm_C=self._vector(slices.feed_forward_after_norm),
            output_scale=None if output_scale is None else float(output_scale[0]),
            token_branch=self._token_branch(slices) if spec.token_input else None,
        )

    def _mixing(self, layer: LayerSpec, slices: LayerSlices) -> NativeMixing:
        return NativeMixing(
            mixer=self._mixer(layer, slices.mixer),
            output=self._matrix(slices.attention_output, slices.attention_output_bias),
        )

    def _mixer(self, layer: LayerSpec, own: MixerSlices) -> NativeAttention | NativeLatent | NativeRecurrent:
        if isinstance(own, RecurrentSlices):
            assert layer.recurrent is not None, "it has slices of a recurrent layer"
            return load_recurrent(layer.recurrent, own, self._matrix, self._vector, self._part.norm_epsilon)
        spec = layer.attention
        rotation = None if spec.rope is None else self._rotations.index((spec.rope, spec.head_dim))
        if isinstance(own, LatentSlices):
            assert rotation is not None, "the key beside a latent is turned"
            return load_latent(self._library, self._source, spec, rotation, own, self._weights, self._matrix)
        order = value_order(spec)
        return NativeAttention(
            spec=spec,
            norm_epsilon=self._part.norm_epsilon,
            qkv=self._matrix(own.qkv, own.qkv_bias),
            q_norm=self._vector(own.q_norm),
            k_norm=self._vector(own.k_norm),
            rotation=rotation,
            sinks=self._vector(own.sinks),
            value_order_E=np.array(order, np.int32) if order else None,
        )

    def _feed_forward(
        self, layer: int, spec: FeedForwardSpec, slices: FeedForwardSlices | ExpertsSlices
    ) -> NativeFeedForward | NativeExperts | NativeBranches:
        if isinstance(slices, FeedForwardSlices):
            return NativeFeedForward.of(slices, self._matrix)
        loading = ExpertLoading(library=self._library, source=self._source, weights=self._weights, slices=slices)
        placement, whole = self._wanted.placements.get(layer), self._wanted.of_layer(layer).whole_experts
        placed = None if placement is None else self._wanted.placed(layer, placement)
        made, slots = loading.experts(spec, placed, whole.room if whole else 0)
        experts = experts_of(made)
        assert experts is not None, "some have been made"
        further = functools.partial(_further_experts, self._wanted, loading)
        self._experts[layer] = LayerExperts(experts=experts, slots=slots, further=further)
        return made

    def _vector(self, slices: Sequence[TensorSlice]) -> NDArray[np.float32] | None:
        return load_vector(self._source, slices) if slices else None

    def _matrix(self, slices: Sequence[TensorSlice], bias: Sequence[TensorSlice] = ()) -> NativeMatrix:
        return load_matrix(self._library, self._source, slices, self._weights, bias)


def _further_experts(wanted: StagePart, loading: ExpertLoading, experts: Iterable[int]) -> dict[int, NativeFeedForward]:
    """These of a layer, read anew from its files."""
    with _opened(wanted, 0, lambda _done_bytes, _total_bytes: None) as source:
        anew = replace(loading, source=source)
        return {expert: anew.expert(expert) for expert in experts}


def _loading_threads() -> int:
    """One for each core that this process may run on: hashing and packing keep a core busy, a fast disk several."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_LOADING_THREADS)
