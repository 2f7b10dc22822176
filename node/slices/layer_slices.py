"""Which slices of a model's tensors each matrix and vector of a stage consists of, in whatever form they are held.

Owns the names of the tensors, and the order of rows in stacked matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.model_parts import ModelPart
from layerline.models.recurrent import ShortConvSpec
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec
from node.slices.attention_slices import AttentionSlices
from node.slices.feed_forward_slices import ExpertsSlices, FeedForwardSlices, Slices, feed_forward_slices
from node.slices.latent_slices import LatentSlices
from node.slices.recurrent_slices import RecurrentSlices
from node.slices.sides import Side, Sides
from node.slices.tensor_source import TensorSlice

MixerSlices = AttentionSlices | LatentSlices | RecurrentSlices


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSlices:
    """Those of a layer; of stacked matrices several, one below the other. Empty: the layer has none of it.

    What every rank adds to a sum is not a bias of the sum: only the first rank has those.
    """

    attention_norm: Slices
    mixer: MixerSlices
    attention_output: Slices
    attention_output_bias: Slices
    attention_after_norm: Slices
    feed_forward_norm: Slices
    feed_forward: FeedForwardSlices | ExpertsSlices
    feed_forward_after_norm: Slices
    output_scale: Slices
    token_gate: Slices
    token_output: Slices
    token_after_norm: Slices

    @classmethod
    def of(cls, model: ModelSpec, part: ModelPart, layer: int) -> LayerSlices:
        """Those of one layer, of which a rank has `part`."""
        whole, sides, prefix = model.layer(layer), Sides.of(model, part, layer), f"layers.{layer}."
        is_first, output_bias = part.vocabulary.start == 0, _has_output_bias(whole)
        own = part.kinds[model.layer_kinds[layer]]

        def matrix(name: str, rows: Side, columns: Side) -> TensorSlice:
            return TensorSlice(name=prefix + name, rows=rows, columns=columns)

        def vector(name: str, rows: Side, *, wanted: bool) -> Slices:
            return (TensorSlice(name=prefix + name, rows=rows),) if wanted else ()

        before, after = whole.norms != "after", whole.norms != "before"
        return cls(
            attention_norm=vector("attention_norm", sides.hidden, wanted=before),
            mixer=_mixer_slices(whole, sides, prefix),
            attention_output=(matrix("attention_output", sides.hidden, sides.attended),),
            attention_output_bias=vector("attention_output_bias", sides.hidden, wanted=output_bias and is_first),
            attention_after_norm=vector("attention_after_norm", sides.hidden, wanted=after),
            feed_forward_norm=vector("ffn_norm", sides.hidden, wanted=before and not whole.parallel),
            feed_forward=feed_forward_slices(
                whole.feed_forward,
                sides,
                prefix,
                is_first=is_first,
                has_whole_experts=own.whole_experts is not None,
                deals_shared=own.deals_shared,
            ),
            feed_forward_after_norm=vector("ffn_after_norm", sides.hidden, wanted=after),
            output_scale=vector("output_scale", sides.one, wanted=whole.output_scale),
            token_gate=(matrix("token_gate", sides.token_input, sides.hidden),) if whole.token_input else (),
            token_output=(matrix("token_output", sides.hidden, sides.token_input),) if whole.token_input else (),
            token_after_norm=vector("token_after_norm", sides.hidden, wanted=whole.token_input > 0),
        )


def _mixer_slices(layer: LayerSpec, sides: Sides, prefix: str) -> MixerSlices:
    if layer.recurrent is not None:
        return RecurrentSlices.of(layer.recurrent, sides, prefix)
    return (LatentSlices if layer.attention.latent else AttentionSlices).of(layer.attention, sides, prefix)


def _has_output_bias(layer: LayerSpec) -> bool:
    if isinstance(layer.mixer, AttentionSpec):
        return layer.mixer.output_bias
    return isinstance(layer.mixer, ShortConvSpec) and layer.mixer.bias


@dataclass(frozen=True, kw_only=True, slots=True)
class EndSlices:
    """Those of a model's ends; the output is the embedding if the two are tied."""

    embedding: Slices
    output: Slices
    final_norm: Slices

    @classmethod
    def of(cls, model: ModelSpec, part: ModelPart) -> EndSlices:
        """Those of the ends of which a rank has `part`."""
        sides = Sides.of(model, part, 0)
        embedding = (TensorSlice(name="embedding", rows=sides.vocabulary, columns=sides.hidden),)
        own = (TensorSlice(name="output", rows=sides.vocabulary, columns=sides.hidden),)
        return cls(
            embedding=embedding,
            output=embedding if model.tied_output else own,
            final_norm=(TensorSlice(name="final_norm", rows=sides.hidden),),
        )
