"""Which slices the matrix and the vectors of plain attention consist of. Rows of what is rotated are in pairs."""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.spec import AttentionSpec
from node.slices.feed_forward_slices import Slices
from node.slices.rope_frequencies import pair_order
from node.slices.sides import Side, Sides
from node.slices.tensor_source import TensorSlice


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionSlices:
    """Those of a layer beside its output matrix; q, k, v and the output's gate, as far as it has them, are one matrix.

    Empty: the layer has none of it.
    """

    qkv: Slices
    qkv_bias: Slices
    q_norm: Slices
    k_norm: Slices
    sinks: Slices

    @classmethod
    def of(cls, spec: AttentionSpec, sides: Sides, prefix: str) -> AttentionSlices:
        """Those of a layer whose tensors are called `prefix` and so on."""
        order = pair_order(spec.rope, spec.head_dim) if spec.rope else ()
        rows = {"q": (sides.queries, order), "k": (sides.keys, order), "v": (sides.values, ())}
        if spec.source is not None:
            rows = {"q": rows["q"]}
        if spec.keys_as_values:
            del rows["v"]
        if spec.output_gate:
            rows["output_gate"] = (sides.attended, ())

        def stacked(ending: str, columns: Side | None) -> Slices:
            return tuple(
                TensorSlice(name=prefix + name + ending, rows=side, columns=columns, head_order=head_order)
                for name, (side, head_order) in rows.items()
            )

        def qk_norm(name: str, side: Side) -> Slices:
            own, wanted = sides.head if spec.qk_norm == "heads" else side, name[0] in rows
            has_weight = wanted and spec.qk_norm in ("heads", "rows")
            return (TensorSlice(name=prefix + name, rows=own, head_order=order),) if has_weight else ()

        return cls(
            qkv=stacked("", sides.hidden),
            qkv_bias=stacked("_bias", None) if spec.qkv_bias else (),
            q_norm=qk_norm("q_norm", sides.queries),
            k_norm=qk_norm("k_norm", sides.keys),
            sinks=(TensorSlice(name=f"{prefix}sinks", rows=sides.heads),) if spec.sinks else (),
        )
