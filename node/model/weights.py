"""Loading a stage: its matrices and vectors, made of slices of a model's tensors.

Owns the order in which they are loaded and the threads that do it. Which slices they are `node.slices.layer_slices`
knows; how a matrix is made of slices is its own business (`node.model.linear`). Knows neither containers nor
quantisation.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import torch

from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.read import TensorReader
from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec
from node.model.attention_load import AttentionLoading
from node.model.branched_feed_forward import BranchedFeedForward
from node.model.decoder import Branch, Decoder, Layer, Output
from node.model.embedding import Embedding
from node.model.experts import ExpertsFeedForward, Router
from node.model.feed_forward import FeedForward
from node.model.latent_attention import LatentAttention
from node.model.linear.forms import Linear
from node.model.linear.load import HeldAs, load_embedding, load_linear, load_tensor, load_tied
from node.model.no_mixer import NoMixer
from node.model.norm import Norm
from node.model.recurrent.load import load_recurrence
from node.model.recurrent_layer import RecurrentLayer
from node.model.rope import Rope
from node.model.self_attention import SelfAttention
from node.model.stage_experts import LoadsBeside, TorchStageExperts, load_gated
from node.model.token_inputs import TokenBranch, TokenInputs
from node.slices.feed_forward_slices import ExpertsSlices, FeedForwardSlices, Slices
from node.slices.layer_slices import EndSlices, LayerSlices
from node.slices.recurrent_slices import RecurrentSlices
from node.slices.stage_part import StagePart
from node.slices.tensor_source import Progress, TensorSlice, TensorSource
from node.slices.token_input_slices import TokenInputSlices

LOADING_THREADS = 2
Ends = tuple[Embedding | None, Linear | None]


def load_decoder(
    own: StagePart, held_as: HeldAs, progress: Progress, beside: LoadsBeside | None = None
) -> tuple[Decoder, TorchStageExperts]:
    """The decoder of those layers, and what it has of experts; embedding and output only where the model's ends are.

    The decoder of a part is that of the smaller model which the part is; experts may lie `beside` the device. Raises
    ModelCorruptError if a tensor is missing, has another shape, or its bytes have changed.
    """
    experts = TorchStageExperts(own, held_as, beside)
    with TensorReader(own.path, own.card) as reader:
        source = TensorSource(own.card, reader, own.weights_bytes, progress)
        decoder = _StageLoader(source, own, held_as, experts).load()
    _return_free_memory()
    return decoder, experts


class _StageLoader:
    """One loading; each of its threads fills other matrices, for which inference mode is entered anew."""

    def __init__(self, source: TensorSource, own: StagePart, held_as: HeldAs, experts: TorchStageExperts) -> None:
        self._own = own
        self._model = own.model
        self._part = own.own
        self._source = source
        self._held_as = held_as
        self._stage_experts = experts
        self._ropes = _ropes(self._part, own.layers, held_as)
        self._has_first = own.layers.start == 0
        self._has_last = own.layers.stop == own.model.layers

    def load(self) -> Decoder:
        """The largest matrices come first, so that packing them needs no memory beyond what the stage takes."""
        with ThreadPoolExecutor(LOADING_THREADS, "load") as threads:
            ends = threads.submit(self._ends)
            inputs = threads.submit(self._token_inputs)
            layers = [threads.submit(self._layer, number) for number in self._own.layers]
            final_norm = threads.submit(self._final_norm)
            _wait_for([ends, inputs, *layers, final_norm])
        embedding, matrix = ends.result()
        norm = final_norm.result()
        return Decoder(
            spec=self._part,
            layers=[layer.result() for layer in layers],
            embedding=embedding,
            output=Output(norm=norm, matrix=matrix) if norm and matrix else None,
            token_inputs=inputs.result(),
        )

    @torch.inference_mode()
    def _ends(self) -> Ends:
        """Embedding and output matrix, as far as this stage has them; one matrix if they are tied."""
        slices = EndSlices.of(self._model, self._own.part)
        (matrix,) = slices.embedding
        if self._has_first and self._has_last and self._part.tied_output:
            return load_tied(self._source, matrix, self._held_as)
        embedding = load_embedding(self._source, matrix, self._held_as) if self._has_first else None
        output = self._linear(slices.output) if self._has_last else None
        return embedding, output

    @torch.inference_mode()
    def _token_inputs(self) -> TokenInputs | None:
        if not self._model.token_input:
            return None
        slices = TokenInputSlices.of(self._model, self._own.part, self._own.layers)
        return TokenInputs(
            size=self._model.token_input,
            table=load_embedding(self._source, slices.table, self._held_as),
            projection=self._linear(slices.projection),
            norm=self._norm(slices.norm),
        )

    @torch.inference_mode()
    def _final_norm(self) -> Norm | None:
        return self._norm(EndSlices.of(self._model, self._own.part).final_norm) if self._has_last else None

    @torch.inference_mode()
    def _layer(self, number: int) -> Layer:
        slices = LayerSlices.of(self._model, self._own.part, number)
        layer = self._part.layer(number)
        first = self._branch(slices.attention_norm, slices.attention_after_norm, layer.branch_scale)
        made = self._feed_forward(number, layer.feed_forward, slices)
        before = () if isinstance(made, BranchedFeedForward) else slices.feed_forward_norm
        second = self._branch(before, slices.feed_forward_after_norm, layer.branch_scale)
        return Layer(
            mixer_branch=first,
            mixer=self._mixer(layer, slices) if self._own.part.has_heads else NoMixer(),
            feed_forward_branch=None if layer.parallel else second,
            feed_forward=made,
            output_scale=load_tensor(self._source, slices.output_scale, self._held_as) if layer.output_scale else None,
            token_branch=self._token_branch(layer, slices) if layer.token_input else None,
        )

    def _token_branch(self, layer: LayerSpec, slices: LayerSlices) -> TokenBranch:
        return TokenBranch(
            activation=layer.feed_forward.activation,
            gate=self._linear(slices.token_gate),
            output=self._linear(slices.token_output),
            after=self._norm(slices.token_after_norm),
        )

    def _mixer(self, layer: LayerSpec, slices: LayerSlices) -> SelfAttention | LatentAttention | RecurrentLayer:
        output, own = self._linear(slices.attention_output, slices.attention_output_bias), slices.mixer
        if isinstance(own, RecurrentSlices):
            assert layer.recurrent is not None, "it has slices of a recurrent layer"
            made = self._linear(own.made, own.made_bias)
            epsilon = self._part.norm_epsilon
            recurrence = load_recurrence(self._source, layer.recurrent, own, self._held_as, epsilon)
            return RecurrentLayer(made=made, recurrence=recurrence, output=output)
        loading = AttentionLoading(self._source, self._held_as, self._part.norm_epsilon, self._ropes)
        return loading.attention(layer.attention, own, output)

    def _feed_forward(self, number: int, spec: FeedForwardSpec, layer: LayerSlices) -> FeedForward:
        slices = layer.feed_forward
        if isinstance(slices, FeedForwardSlices):
            return load_gated(self._source, spec, slices, self._held_as)
        if slices.norms is None:
            return self._experts(number, spec, slices)
        assert slices.shared is not None, "experts are apart from a shared one"
        dense = load_gated(self._source, spec, slices.shared, self._held_as)
        chosen = self._experts(number, spec, replace(slices, shared=None))
        router_norm_C = load_tensor(self._source, slices.norms.router, self._held_as) / math.sqrt(self._part.hidden)
        router = replace(chosen.router, norm=Norm(router_norm_C, self._part.norm_epsilon))
        return BranchedFeedForward(
            dense=dense,
            dense_before=self._norm(layer.feed_forward_norm),
            dense_after=self._norm(slices.norms.shared_after),
            experts=replace(chosen, router=router),
            experts_before=self._norm(slices.norms.before),
            experts_after=self._norm(slices.norms.after),
        )

    def _experts(self, layer: int, spec: FeedForwardSpec, slices: ExpertsSlices) -> ExpertsFeedForward:
        """Those of these slices, of which the shared one may be beside the chosen."""
        assert spec.experts is not None, "it has slices of experts"
        as_stored = replace(self._held_as, weights="stored")
        router = Router(
            spec=spec.experts,
            logits=load_linear(self._source, slices.router, as_stored, slices.router_bias),
            choice_bias_N=load_tensor(self._source, slices.choice_bias, self._held_as) if slices.choice_bias else None,
            scales_N=load_tensor(self._source, slices.expert_scales, self._held_as) if slices.expert_scales else None,
        )
        shared = None if slices.shared is None else load_gated(self._source, spec, slices.shared, self._held_as)
        held = self._stage_experts.load(self._source, layer, spec, slices)
        return ExpertsFeedForward(router=router, held=held, shared=shared)

    def _branch(self, before: Slices, after: Slices, scale: float) -> Branch:
        norms = [self._norm(slices) if slices else None for slices in (before, after)]
        return Branch(before=norms[0], after=norms[1], scale=scale)

    def _linear(self, slices: Sequence[TensorSlice], bias: Sequence[TensorSlice] = ()) -> Linear:
        return load_linear(self._source, slices, self._held_as, bias)

    def _norm(self, slices: Sequence[TensorSlice]) -> Norm:
        return Norm(load_tensor(self._source, slices, self._held_as), self._part.norm_epsilon, self._part.norm)


def _ropes(part: ModelSpec, layers: range, held_as: HeldAs) -> dict[tuple[RopeSpec, int], Rope]:
    """One for each rotation that a layer has, by its description and the size of a head."""
    mixers = [part.layer(index).mixer for index in layers]
    attentions = [mixer for mixer in mixers if isinstance(mixer, AttentionSpec)]
    wanted = {(attention.rope, attention.head_dim) for attention in attentions if attention.rope is not None}
    return {(rope, head_dim): Rope.of(rope, head_dim, held_as.device) for rope, head_dim in wanted}


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
