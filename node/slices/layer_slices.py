"""Which slices of a model's tensors each matrix and vector of a stage consists of, in whatever form they are held.

Owns the names of the tensors, and the order of rows in stacked matrices. Rows of what is rotated are in the order of
pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.model_parts import ModelPart
from layerline.models.spec import ModelSpec
from node.slices.rope_frequencies import pair_order
from node.slices.sides import Side, Sides
from node.slices.tensor_source import TensorSlice

Slices = tuple[TensorSlice, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSlices:
    """Those of a layer; of stacked matrices several, one below the other."""

    attention_norm: Slices
    qkv: Slices
    qkv_bias: Slices
    q_norm: Slices
    k_norm: Slices
    attention_output: Slices
    feed_forward_norm: Slices
    gate_up: Slices
    down: Slices

    @classmethod
    def of(cls, model: ModelSpec, part: ModelPart, layer: int) -> LayerSlices:
        """Those of one layer, of which a rank has `part`."""
        spec, sides, prefix = model.layer(layer).attention, Sides.of(model, part, layer), f"layers.{layer}."
        order = pair_order(spec.rope, spec.head_dim) if spec.rope else ()
        rows = {"q": (sides.queries, order), "k": (sides.keys, order), "v": (sides.values, ())}

        def matrix(name: str, rows: Side, columns: Side) -> TensorSlice:
            return TensorSlice(name=prefix + name, rows=rows, columns=columns)

        def stacked(ending: str, columns: Side | None) -> Slices:
            return tuple(
                TensorSlice(name=prefix + name + ending, rows=side, columns=columns, head_order=head_order)
                for name, (side, head_order) in rows.items()
            )

        def head_norm(name: str) -> Slices:
            return (TensorSlice(name=prefix + name, rows=sides.head, head_order=order),) if spec.qk_norm else ()

        return cls(
            attention_norm=(TensorSlice(name=prefix + "attention_norm", rows=sides.hidden),),
            qkv=stacked("", sides.hidden),
            qkv_bias=stacked("_bias", None) if spec.qkv_bias else (),
            q_norm=head_norm("q_norm"),
            k_norm=head_norm("k_norm"),
            attention_output=(matrix("attention_output", sides.hidden, sides.attended),),
            feed_forward_norm=(TensorSlice(name=prefix + "ffn_norm", rows=sides.hidden),),
            gate_up=tuple(matrix(name, sides.feed_forward, sides.hidden) for name in ("gate", "up")),
            down=(matrix("down", sides.hidden, sides.feed_forward),),
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
