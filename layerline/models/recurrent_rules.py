"""The tensors of recurrent layers: their canonical names, and where either container has them.

The first matrix of such a layer has one name for each part of a row that it makes, the second is called as that of
attention. What a convolution multiplies rows by has a name for each part of a row, too.
"""

from __future__ import annotations

from layerline.models.recurrent import ShortConvSpec
from layerline.models.tensor_rules import ATTENDED, CONVOLVED, HIDDEN, TAPS, TensorRule, layer_rule, stacked

_SHORT_CONV_PARTS = {"b": (), "c": (ATTENDED,), "x": (ATTENDED, ATTENDED)}


def short_conv_tensors(spec: ShortConvSpec) -> tuple[TensorRule, ...]:
    """Those of a short convolution."""
    made = tuple(layer_rule(name, "", "", ATTENDED, HIDDEN) for name in _SHORT_CONV_PARTS)
    rules = (
        *stacked(made, "conv.in_proj.weight", "shortconv.in_proj.weight", _SHORT_CONV_PARTS),
        layer_rule("conv", "conv.conv.weight", "shortconv.conv.weight", CONVOLVED, TAPS),
        layer_rule("attention_output", "conv.out_proj.weight", "shortconv.out_proj.weight", HIDDEN, ATTENDED),
    )
    if not spec.bias:
        return rules
    parts = {f"{name}_bias": after for name, after in _SHORT_CONV_PARTS.items()}
    biases = tuple(layer_rule(name, "", "", ATTENDED) for name in parts)
    return (
        *rules,
        *stacked(biases, "conv.in_proj.bias", "shortconv.in_proj.bias", parts),
        layer_rule("conv_bias", "conv.conv.bias", "shortconv.conv.bias", CONVOLVED),
        layer_rule("attention_output_bias", "conv.out_proj.bias", "shortconv.out_proj.bias", HIDDEN),
    )
