"""What config.json says of the quantised matrices of a folder. What is not known is refused by name.

Which matrices are quantised it need not say: those whose pieces are stored. How activations would be rounded is read
over: here they are as exact as the precision that is asked for.

Source: `quantization_config.py` of transformers 5, and of compressed-tensors `quant_args.py` and `quant_scheme.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from layerline.errors import ModelUnsupportedError
from layerline.models.fields import Fields
from layerline.models.grouped import GROUP_UNIT, MAX_GROUP

REMEDY = (
    "layerline reads fp8, gptq and compressed-tensors with 4 or 8 bits, awq (gemm) with 4, and mxfp4. Take another"
    " quantisation of the model."
)
BITS = (4, 8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantisation:
    """How the quantised matrices of a folder are stored: by `recipe`, in codes of `bits`.

    `group` is how many columns share a scale, 0 if all of a row do; `ordered` that they are not neighbours; `zeros`
    that each group says which code stands for zero.
    """

    recipe: str
    bits: int = 8
    group: int = 0
    ordered: bool = False
    zeros: bool = False


def quantisation_of(config: Fields) -> Quantisation | None:
    """What a config.json says; None if nothing. Raises a ModelError for what cannot be read."""
    key = next((key for key in ("quantization_config", "compression_config") if key in config), None)
    if key is None:
        return None
    values = config.raw(key)
    if not isinstance(values, Mapping):
        raise config.wrong(key, "an object")
    said = Fields(values, f"{config.where}, {key}")
    method = said.text("quant_method", "compressed-tensors" if "config_groups" in said else None)
    match method:
        case "gptq":
            return _gptq(said)
        case "awq":
            return _awq(said)
        case "fp8" | "fbgemm_fp8":
            return _fp8(said)
        case "compressed-tensors":
            return _compressed(said)
        case "mxfp4":
            return Quantisation(recipe="mxfp4", bits=4, group=32)
    raise refused(said, f"quant_method {method!r}")


def refused(said: Fields, feature: str) -> ModelUnsupportedError:
    """The error for matrices that are stored in a way that is not known."""
    return ModelUnsupportedError(f"{said.where} asks for {feature}, which layerline cannot read.", remedy=REMEDY)


def _gptq(said: Fields) -> Quantisation:
    layout = said.text("checkpoint_format", said.text("format", "gptq"))
    if layout not in ("gptq", "gptq_v2"):
        raise refused(said, f"checkpoint_format {layout!r}")
    if said.flag("is_marlin_format", False):
        raise refused(said, "is_marlin_format")
    if said.text("pack_dtype", "int32") != "int32":
        raise refused(said, f"pack_dtype {said.text('pack_dtype')!r}")
    dynamic = said.raw("dynamic") or {}
    if not isinstance(dynamic, Mapping) or not all(str(pattern).startswith("-:") for pattern in dynamic):
        raise refused(said, "dynamic, other settings for some matrices,")
    return Quantisation(
        recipe=layout,
        bits=_bits(said, "bits"),
        group=_group(said, "group_size"),
        ordered=said.flag("desc_act", False),
    )


def _awq(said: Fields) -> Quantisation:
    layout = said.text("version", said.text("checkpoint_format", "gemm"))
    if layout.lower() != "gemm":
        raise refused(said, f"version {layout!r}")
    bits = "w_bit" if "w_bit" in said else "bits"
    if said.integer(bits) != 4:
        raise refused(said, f"{bits} {said.integer(bits)}")
    if not said.flag("zero_point", True):
        raise refused(said, "zero_point false")
    group = _group(said, "q_group_size" if "q_group_size" in said else "group_size")
    return Quantisation(recipe="awq", bits=4, group=group)


def _fp8(said: Fields) -> Quantisation:
    if "weight_block_size" not in said:
        return Quantisation(recipe="fp8")
    return Quantisation(recipe="fp8_blocks", group=_block(said, "weight_block_size"))


def _compressed(said: Fields) -> Quantisation:
    for key in ("kv_cache_scheme", "transform_config"):
        if said.raw(key):
            raise refused(said, key)
    if said.section("sparsity_config").text("format", "dense") != "dense":
        raise refused(said, "sparsity_config")
    groups = said.section("config_groups")
    names = said.raw("config_groups")
    if not isinstance(names, Mapping) or not names:
        raise said.wrong("config_groups", "an object that names groups")
    found = {_compressed_group(groups.section(str(name)), said.text("format", "")) for name in names}
    if len(found) > 1:
        raise refused(said, "config_groups that are stored in different ways")
    return found.pop()


def _compressed_group(said: Fields, format_of_all: str) -> Quantisation:
    if "weights" not in said:
        raise refused(said, "no quantised weights")
    if said.raw("output_activations"):
        raise refused(said, "output_activations")
    layout, weights = said.text("format", format_of_all), said.section("weights")
    kind, strategy = weights.text("type", "int"), weights.text("strategy", "tensor")
    if (layout, kind) in (("float-quantized", "float"), ("naive-quantized", "float")):
        if weights.integer("num_bits") != 8:
            raise refused(weights, f"num_bits {weights.integer('num_bits')}")
        if strategy == "block":
            return Quantisation(recipe="fp8_blocks", group=_block(weights, "block_structure"))
        return Quantisation(recipe="fp8", group=_strategy_group(weights, strategy))
    recipe = {"pack-quantized": "packed", "int-quantized": "bytes", "naive-quantized": "bytes"}.get(layout)
    if recipe is None or kind != "int":
        raise refused(said, f"format {layout!r} with weights of type {kind!r}")
    bits = _bits(weights, "num_bits")
    return Quantisation(
        recipe=recipe,
        bits=bits if recipe == "packed" else 8,
        group=_strategy_group(weights, strategy),
        ordered=recipe == "packed" and _is_ordered(weights),
        zeros=not weights.flag("symmetric", True),
    )


def _is_ordered(weights: Fields) -> bool:
    """Whether columns lie in another order than their groups: with "weight" they were put back."""
    order = weights.raw("actorder")
    if order not in (None, False, True, "group", "dynamic", "weight", "static"):
        raise refused(weights, f"actorder {order!r}")
    return order in (True, "group", "dynamic")


def _strategy_group(weights: Fields, strategy: str) -> int:
    if strategy == "group":
        return _group(weights, "group_size")
    if strategy not in ("tensor", "channel"):
        raise refused(weights, f"strategy {strategy!r}")
    return 0


def _bits(said: Fields, key: str) -> int:
    bits = said.integer(key)
    if bits not in BITS:
        raise refused(said, f"{key} {bits}")
    return bits


def _group(said: Fields, key: str) -> int:
    group = said.integer(key, 128)
    if group == -1:
        return 0
    if not 0 < group <= MAX_GROUP or group % GROUP_UNIT:
        raise refused(said, f"{key} {group}")
    return group


def _block(said: Fields, key: str) -> int:
    """The columns of a square block."""
    sides = said.list_of(int, key)
    if len(sides) != 2 or sides[0] != sides[1] or not 0 < sides[0] <= MAX_GROUP or sides[0] % GROUP_UNIT:
        raise refused(said, f"{key} {sides}")
    return sides[0]
