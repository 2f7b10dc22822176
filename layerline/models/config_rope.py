"""The rotary settings of a config.json, in the place of transformers 5 (rope_parameters) or of earlier ones.

Source: `RotaryEmbeddingConfigMixin` of transformers 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from layerline.models.config_fields import ConfigFields, unsupported
from layerline.models.spec import LARGEST_ROTARY, SMALLEST_ROTARY, RopeSpec


def rope_from_config(config: ConfigFields, context_tokens: int, default_theta: float = 10000.0) -> RopeSpec:
    """What `config` says; `rope_scaling`, as earlier versions called it, goes before `rope_parameters`."""
    key = "rope_scaling" if config.raw("rope_scaling") else "rope_parameters"
    found = config.raw(key)
    if isinstance(found, Mapping) and any(isinstance(value, Mapping) for value in found.values()):
        raise unsupported(config, f"{key} that differ from layer to layer")
    section = config.section(key) if found else ConfigFields({}, config.where)
    if any(fields.raw("partial_rotary_factor") not in (None, 1.0) for fields in (config, section)):
        raise unsupported(config, "partial_rotary_factor")
    theta = _rotary(section if section.has("rope_theta") else config, "rope_theta", default_theta)
    kind = section.text("rope_type" if section.has("rope_type") else "type", "default")
    if kind == "default":
        return RopeSpec(theta=theta)
    if kind == "linear":
        return RopeSpec(theta=theta, scaling="linear", factor=_rotary(section, "factor"))
    if kind == "llama3":
        return _llama3(theta, config, section, context_tokens)
    raise unsupported(config, f"rope scaling {kind!r} (it knows linear and llama3)")


def _llama3(theta: float, config: ConfigFields, section: ConfigFields, context_tokens: int) -> RopeSpec:
    """The original context is that of the config itself, else that of the section, else the whole context."""
    low, high = _rotary(section, "low_freq_factor"), _rotary(section, "high_freq_factor")
    if low >= high:
        raise section.wrong("high_freq_factor", "more than low_freq_factor")
    key = "original_max_position_embeddings"
    return RopeSpec(
        theta=theta,
        scaling="llama3",
        factor=_rotary(section, "factor"),
        low_frequency_factor=low,
        high_frequency_factor=high,
        original_context_tokens=(config if config.has(key) else section).integer(key, context_tokens),
    )


def _rotary(fields: ConfigFields, key: str, default: float | None = None) -> float:
    return fields.between(key, SMALLEST_ROTARY, LARGEST_ROTARY, default)
