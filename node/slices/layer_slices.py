"""Which slices of a model's tensors each matrix and vector of a stage consists of, in whatever form they are held.

Owns the names of the tensors, and the order of rows in stacked matrices. Rows of what is rotated are in the order of
pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.model_parts import ModelPart
from layerline.models.spec import ModelSpec
from node.slices.feed_forward_slices import ExpertsSlices, FeedForwardSlices, Slices, feed_forward_slices
from node.slices.latent_slices import LatentSlices
from node.slices.rope_frequencies import pair_order
from node.slices.sides import Side, Sides
from node.slices.tensor_source import TensorSlice


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSlices:
    """Those of a layer; of stacked matrices several, one below the other. Empty: the layer has none of it.

    What every rank adds to a sum is not a bias of the sum: only the first rank has those.
    """

    attention_norm: Slices
    latent: LatentSlices | None  # in the place of those from `qkv` to `k_norm`
    qkv: Slices
    qkv_bias: Slices
    q_norm: Slices
    k_norm: Slices
    sinks: Slices
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
        spec, is_first = whole.attention, part.vocabulary.start == 0
        order = pair_order(spec.rope, spec.head_dim) if spec.rope else ()
        rows = {"q": (sides.queries, order), "k": (sides.keys, order), "v": (sides.values, ())}
        if spec.source is not None:
            rows = {"q": rows["q"]}
        if spec.keys_as_values:
            del rows["v"]

        def matrix(name: str, rows: Side, columns: Side) -> TensorSlice:
            return TensorSlice(name=prefix + name, rows=rows, columns=columns)

        def stacked(ending: str, columns: Side | None) -> Slices:
            return tuple(
                TensorSlice(name=prefix + name + ending, rows=side, columns=columns, head_order=head_order)
                for name, (side, head_order) in rows.items()
            )

        def vector(name: str, rows: Side, *, wanted: bool) -> Slices:
            return (TensorSlice(name=prefix + name, rows=rows),) if wanted else ()

        def qk_norm(name: str, side: Side) -> Slices:
            own, wanted = sides.head if spec.qk_norm == "heads" else side, name[0] in rows and spec.qk_norm != "none"
            return (TensorSlice(name=prefix + name, rows=own, head_order=order),) if wanted else ()

        before, after = whole.norms != "after", whole.norms != "before"
        return cls(
            attention_norm=vector("attention_norm", sides.hidden, wanted=before),
            latent=LatentSlices.of(spec, sides, prefix) if spec.latent else None,
            qkv=stacked("", sides.hidden) if spec.latent is None else (),
            qkv_bias=stacked("_bias", None) if spec.qkv_bias else (),
            q_norm=qk_norm("q_norm", sides.queries),
            k_norm=qk_norm("k_norm", sides.keys),
            sinks=vector("sinks", sides.heads, wanted=spec.sinks),
            attention_output=(matrix("attention_output", sides.hidden, sides.attended),),
            attention_output_bias=vector("attention_output_bias", sides.hidden, wanted=spec.output_bias and is_first),
            attention_after_norm=vector("attention_after_norm", sides.hidden, wanted=after),
            feed_forward_norm=vector("ffn_norm", sides.hidden, wanted=before and not whole.parallel),
            feed_forward=feed_forward_slices(whole.feed_forward, sides, prefix, is_first=is_first),
            feed_forward_after_norm=vector("ffn_after_norm", sides.hidden, wanted=after),
            output_scale=vector("output_scale", sides.one, wanted=whole.output_scale),
            token_gate=(matrix("token_gate", sides.token_input, sides.hidden),) if whole.token_input else (),
            token_output=(matrix("token_output", sides.hidden, sides.token_input),) if whole.token_input else (),
            token_after_norm=vector("token_after_norm", sides.hidden, wanted=whole.token_input > 0),
        )


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
