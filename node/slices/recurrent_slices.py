"""Which slices the matrices and vectors of a recurrent layer consist of."""

from __future__ import annotations

from collections.abc import Mapping
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
        made = dict.fromkeys(("b", "c", "x"), sides.attended)
        return cls(
            made=_slices(prefix, made, "", sides.hidden),
            made_bias=_slices(prefix, made, "_bias") if spec.bias else (),
            conv=_slices(prefix, {"conv": sides.convolved}, "", sides.taps),
            conv_bias=_slices(prefix, {"conv": sides.convolved}, "_bias") if spec.bias else (),
        )

    @classmethod
    def _of_delta_net(cls, sides: Sides, prefix: str) -> RecurrentSlices:
        convolved = {"q": sides.queries, "k": sides.keys, "v": sides.values}
        made = {**convolved, "z": sides.attended, "b": sides.heads, "a": sides.heads}
        return cls(
            made=_slices(prefix, made, "", sides.hidden),
            made_bias=(),
            conv=_slices(prefix, convolved, "_conv", sides.taps),
            conv_bias=(),
            decay=_slices(prefix, {"decay": sides.heads}),
            step_bias=_slices(prefix, {"step_bias": sides.heads}),
            norm=_slices(prefix, {"gate_norm": sides.head}),
        )

    @classmethod
    def _of_mamba2(cls, spec: Mamba2Spec, sides: Sides, prefix: str) -> RecurrentSlices:
        convolved = {"x": sides.attended, "b": sides.keys, "c": sides.keys}
        made = {"z": sides.attended, **convolved, "dt": sides.heads}
        return cls(
            made=_slices(prefix, made, "", sides.hidden),
            made_bias=(),
            conv=_slices(prefix, convolved, "_conv", sides.taps),
            conv_bias=_slices(prefix, convolved, "_conv_bias") if spec.conv_bias else (),
            decay=_slices(prefix, {"decay": sides.heads}),
            step_bias=_slices(prefix, {"step_bias": sides.heads}),
            skip=_slices(prefix, {"skip": sides.heads}),
            norm=_slices(prefix, {"gate_norm": sides.attended}),
        )


def _slices(prefix: str, rows: Mapping[str, Side], ending: str = "", columns: Side | None = None) -> Slices:
    """One of each part of a row, which is called `prefix`, its own name and `ending`."""
    return tuple(TensorSlice(name=f"{prefix}{name}{ending}", rows=side, columns=columns) for name, side in rows.items())
