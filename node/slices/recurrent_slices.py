"""Which slices the matrices and vectors of a recurrent layer consist of."""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.recurrent import DeltaNetSpec, Mamba2Spec, RecurrentSpec
from node.slices.feed_forward_slices import Slices
from node.slices.sides import Side, Sides
from node.slices.tensor_source import TensorSlice


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentSlices:
    """Those of a layer beside its second matrix; of the first several, one below the other.

    `conv` has the taps of each channel. `decay` and `step_bias` say how heads forget, `skip` what of a row they let
    past, `norm` norms what they make. Empty: the layer has none of it.
    """

    made: Slices
    made_bias: Slices
    conv: Slices
    conv_bias: Slices
    decay: Slices = ()
    step_bias: Slices = ()
    skip: Slices = ()
    norm: Slices = ()

    @classmethod
    def of(cls, spec: RecurrentSpec, sides: Sides, prefix: str) -> RecurrentSlices:
        """Those of a layer whose tensors are called `prefix` and so on."""
        if isinstance(spec, DeltaNetSpec):
            return cls._of_delta_net(sides, prefix)
        if isinstance(spec, Mamba2Spec):
            return cls._of_mamba2(spec, sides, prefix)

        def vector(name: str, rows: Side) -> TensorSlice:
            return TensorSlice(name=prefix + name, rows=rows)

        parts = ("b", "c", "x")
        return cls(
            made=tuple(TensorSlice(name=prefix + name, rows=sides.attended, columns=sides.hidden) for name in parts),
            made_bias=tuple(vector(f"{name}_bias", sides.attended) for name in parts if spec.bias),
            conv=(TensorSlice(name=f"{prefix}conv", rows=sides.convolved, columns=sides.taps),),
            conv_bias=(vector("conv_bias", sides.convolved),) * spec.bias,
        )

    @classmethod
    def _of_delta_net(cls, sides: Sides, prefix: str) -> RecurrentSlices:
        convolved = {"q": sides.queries, "k": sides.keys, "v": sides.values}
        made = {**convolved, "z": sides.attended, "b": sides.heads, "a": sides.heads}

        def matrix(name: str, rows: Side, columns: Side) -> TensorSlice:
            return TensorSlice(name=prefix + name, rows=rows, columns=columns)

        return cls(
            made=tuple(matrix(name, rows, sides.hidden) for name, rows in made.items()),
            made_bias=(),
            conv=tuple(matrix(f"{name}_conv", rows, sides.taps) for name, rows in convolved.items()),
            conv_bias=(),
            decay=(TensorSlice(name=f"{prefix}decay", rows=sides.heads),),
            step_bias=(TensorSlice(name=f"{prefix}step_bias", rows=sides.heads),),
            norm=(TensorSlice(name=f"{prefix}gate_norm", rows=sides.head),),
        )

    @classmethod
    def _of_mamba2(cls, spec: Mamba2Spec, sides: Sides, prefix: str) -> RecurrentSlices:
        convolved = {"x": sides.attended, "b": sides.keys, "c": sides.keys}
        made = {"z": sides.attended, **convolved, "dt": sides.heads}

        def matrix(name: str, rows: Side, columns: Side) -> TensorSlice:
            return TensorSlice(name=prefix + name, rows=rows, columns=columns)

        def vector(name: str, rows: Side) -> TensorSlice:
            return TensorSlice(name=prefix + name, rows=rows)

        return cls(
            made=tuple(matrix(name, rows, sides.hidden) for name, rows in made.items()),
            made_bias=(),
            conv=tuple(matrix(f"{name}_conv", rows, sides.taps) for name, rows in convolved.items()),
            conv_bias=tuple(vector(f"{name}_conv_bias", rows) for name, rows in convolved.items() if spec.conv_bias),
            decay=(vector("decay", sides.heads),),
            step_bias=(vector("step_bias", sides.heads),),
            skip=(vector("skip", sides.heads),),
            norm=(vector("gate_norm", sides.attended),),
        )
