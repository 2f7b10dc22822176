"""The tensors of recurrent layers: their canonical names, and where either container has them.

The first matrix of such a layer has one name for each part of a row that it makes, the second is called as that of
attention. What a convolution multiplies rows by has a name for each part of a row, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from layerline.models.recurrent import Mamba2Spec, ShortConvSpec
from layerline.models.tensor_rules import (
    ATTENDED,
    CONVOLVED,
    HEADS,
    HIDDEN,
    KEYS,
    TAPS,
    TensorRule,
    layer_rule,
    stacked,
)

_SHORT_CONV_MADE = dict.fromkeys(("b", "c", "x"), ATTENDED)
_MAMBA2_CONVOLVED = {"x": ATTENDED, "b": KEYS, "c": KEYS}
_MAMBA2_MADE = {"z": ATTENDED, **_MAMBA2_CONVOLVED, "dt": HEADS}  # the gate, what the convolution gets, steps


def short_conv_tensors(spec: ShortConvSpec) -> tuple[TensorRule, ...]:
    """Those of a short convolution."""
    rules = (
        *_below_each_other("", _SHORT_CONV_MADE, "conv.in_proj.weight", "shortconv.in_proj.weight", HIDDEN),
        layer_rule("conv", "conv.conv.weight", "shortconv.conv.weight", CONVOLVED, TAPS),
        layer_rule("attention_output", "conv.out_proj.weight", "shortconv.out_proj.weight", HIDDEN, ATTENDED),
    )
    if not spec.bias:
        return rules
    return (
        *rules,
        *_below_each_other("_bias", _SHORT_CONV_MADE, "conv.in_proj.bias", "shortconv.in_proj.bias"),
        layer_rule("conv_bias", "conv.conv.bias", "shortconv.conv.bias", CONVOLVED),
        layer_rule("attention_output_bias", "conv.out_proj.bias", "shortconv.out_proj.bias", HIDDEN),
    )


def mamba2_tensors(spec: Mamba2Spec, prefix: str) -> tuple[TensorRule, ...]:
    """Those of a Mamba 2 layer, which a folder calls `prefix` and so on."""
    decay = layer_rule("decay", f"{prefix}A_log", "ssm_a", HEADS)
    return (
        *_below_each_other("", _MAMBA2_MADE, f"{prefix}in_proj.weight", "ssm_in.weight", HIDDEN),
        *_below_each_other("_conv", _MAMBA2_CONVOLVED, f"{prefix}conv1d.weight", "ssm_conv1d.weight", TAPS),
        *(
            _below_each_other("_conv_bias", _MAMBA2_CONVOLVED, f"{prefix}conv1d.bias", "ssm_conv1d.bias")
            if spec.conv_bias
            else ()
        ),
        replace(decay, safetensors=replace(decay.safetensors, minus_exponential=True)),
        layer_rule("skip", f"{prefix}D", "ssm_d", HEADS),
        layer_rule("step_bias", f"{prefix}dt_bias", "ssm_dt.bias", HEADS),
        layer_rule("gate_norm", f"{prefix}norm.weight", "ssm_norm.weight", ATTENDED),
        layer_rule("attention_output", f"{prefix}out_proj.weight", "ssm_out.weight", HIDDEN, ATTENDED),
    )


def _below_each_other(
    ending: str, rows: Mapping[str, str], safetensors: str, gguf: str, *columns: str
) -> tuple[TensorRule, ...]:
    """A tensor for each part of a row and its side, in one of either container in that order."""
    rules = tuple(layer_rule(part + ending, "", "", side, *columns) for part, side in rows.items())
    sides = tuple(rows.values())
    return stacked(rules, safetensors, gguf, {part + ending: sides[:number] for number, part in enumerate(rows)})
