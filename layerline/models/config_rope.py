"""The rotary settings of a config.json, in the place of transformers 5 (rope_parameters) or of earlier ones.

"dynamic" is plain here: its frequencies are others only beyond `max_position_embeddings`, where transformers computes
them anew from how long a sequence has become. layerline serves no longer context, and a token never depends on that.
(llama.cpp leaves them plain too; vLLM serves `factor` times the context, all of it with the frequencies of its end.)

Source: `RotaryEmbeddingConfigMixin` and `ROPE_INIT_FUNCTIONS` of transformers 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from layerline.models.config_fields import ConfigFields, unsupported
from layerline.models.rope_factors import rounded, yarn_amplitude
from layerline.models.rope_spec import LARGEST_ROTARY, SMALLEST_ROTARY, RopeSpec

_ORIGINAL, _PARTIAL = "original_max_position_embeddings", "partial_rotary_factor"
_PLAIN = ("default", "dynamic", "mrope")  # mrope: the three positions of a text token are the same
_KNOWN = ("linear", "dynamic", "llama3", "yarn", "longrope", "proportional")


def rope_from_config(
    config: ConfigFields,
    context_tokens: int,
    *,
    head_dim: int | None = None,
    theta: float = 10000.0,
    original_tokens: int | None = None,
) -> RopeSpec:
    """What `config` says; `rope_scaling`, as earlier versions called it, goes before `rope_parameters`.

    Families that may turn a part of each head say how long a head is. `theta` is that of a config without one, and
    `original_tokens` the original context where it stands beside the settings and not among them.
    """
    key = _key(config)
    if _sections(config, key):
        raise unsupported(config, f"{key} that differ from layer to layer")
    return _Settings(config, rope_section(config), context_tokens, head_dim, theta, original_tokens).rope()


def rope_of_layer_type(
    config: ConfigFields,
    context_tokens: int,
    layer_type: str,
    *,
    head_dim: int | None = None,
    theta: float = 10000.0,
) -> RopeSpec | None:
    """What `config` says for layers of that type, where types may have settings of their own; None: no rotation.

    Without such settings that of `rope_from_config`.
    """
    key = _key(config)
    sections = _sections(config, key)
    if not sections:
        return rope_from_config(config, context_tokens, head_dim=head_dim, theta=theta)
    if layer_type not in sections:
        raise unsupported(config, f"{key} without those of {layer_type}")
    if sections[layer_type] is None:
        return None
    section = config.section(key).section(layer_type)
    return _Settings(config, section, context_tokens, head_dim, theta, None, of_layer_type=True).rope()


def score_factor_from_config(config: ConfigFields) -> float:
    """By what scores of attention are multiplied besides their scale, in families that have mscale_all_dim."""
    section = config.section(_key(config)) if config.raw(_key(config)) else ConfigFields({}, config.where)
    settings = _Settings(config, section, 0, None, 1.0, None)
    return settings.score_factor()


def has_layer_types(config: ConfigFields) -> bool:
    """Whether types of layers have rotary settings of their own."""
    return bool(_sections(config, _key(config)))


def rope_section(config: ConfigFields) -> ConfigFields:
    """The settings that `rope_from_config` reads, empty if there are none."""
    key = _key(config)
    return config.section(key) if config.raw(key) else ConfigFields({}, config.where)


def _key(config: ConfigFields) -> str:
    return "rope_scaling" if config.raw("rope_scaling") else "rope_parameters"


def _sections(config: ConfigFields, key: str) -> Mapping[str, object]:
    """The settings by type of layer; empty if they are those of all layers."""
    found = config.raw(key)
    nested = isinstance(found, Mapping) and any(isinstance(value, Mapping) for value in found.values())
    return found if nested and isinstance(found, Mapping) else {}


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings in `section`, and what `config` says beside them."""

    config: ConfigFields
    section: ConfigFields
    context_tokens: int
    head_dim: int | None
    default_theta: float
    original_tokens: int | None  # of a config that does not say it beside the settings
    of_layer_type: bool = False  # what is beside them is not looked at for the original context

    @property
    def _kind(self) -> str:
        return self.section.text("rope_type" if self.section.has("rope_type") else "type", "default")

    def rope(self) -> RopeSpec:
        """The embedding that they describe."""
        section, kind = self.section, self._kind
        place = section if section.has("rope_theta") else self.config
        plain = RopeSpec(theta=_rotary(place, "rope_theta", self.default_theta), rotated=self._rotated())
        if kind in _PLAIN:
            return plain
        if kind == "linear":
            return replace(plain, scaling="linear", factor=_rotary(section, "factor"))
        if kind == "llama3":
            return self._llama3(plain)
        if kind == "yarn":
            return self._yarn(plain)
        if kind in ("longrope", "su"):
            return self._longrope(plain)
        if kind == "proportional":
            return self._proportional(plain)
        raise unsupported(self.config, f"rope scaling {kind!r} (it knows {', '.join(_KNOWN)})")

    def score_factor(self) -> float:
        """The square of how far cosines and sines would be scaled by mscale_all_dim."""
        if self._kind == "default" or not self.section.raw("mscale_all_dim"):
            return 1.0
        growth = yarn_amplitude(_rotary(self.section, "factor"), self.section.positive("mscale_all_dim"))
        return growth * growth

    def _rotated(self) -> int:
        """How many numbers of each head are turned; 0: all."""
        place = self.section if self.section.has(_PARTIAL) else self.config
        if place.raw(_PARTIAL) in (None, 1.0):
            return 0
        if self.head_dim is None:
            raise unsupported(self.config, _PARTIAL)
        rotated = int(self.head_dim * place.between(_PARTIAL, 0.0, 1.0))
        if self._kind == "proportional":
            rotated -= rotated % 2
        if rotated == 0 or rotated % 2:
            raise place.wrong(_PARTIAL, f"a part of {self.head_dim} numbers that consists of pairs")
        return rotated % self.head_dim

    def _llama3(self, plain: RopeSpec) -> RopeSpec:
        section = self.section
        low, high = _rotary(section, "low_freq_factor"), _rotary(section, "high_freq_factor")
        if low > high:
            raise section.wrong("high_freq_factor", "no less than low_freq_factor")
        return replace(
            plain,
            scaling="llama3",
            factor=_rotary(section, "factor"),
            low_frequency_factor=low,
            high_frequency_factor=high,
            original_context_tokens=self._original(),
        )

    def _yarn(self, plain: RopeSpec) -> RopeSpec:
        section, factor = self.section, self._factor(required=True)
        fast = _rotary(section, "beta_fast") if section.raw("beta_fast") else 32.0
        slow = _rotary(section, "beta_slow") if section.raw("beta_slow") else 1.0
        if slow >= fast:
            raise section.wrong("beta_fast", "more than beta_slow")
        if plain.theta <= 1:
            raise self.config.wrong("rope_theta", "more than 1 for yarn")
        scales = [section.positive(key) for key in ("mscale", "mscale_all_dim") if section.raw(key)]
        own = yarn_amplitude(factor, *scales) if len(scales) == 2 else yarn_amplitude(factor)
        return replace(
            plain,
            scaling="yarn",
            factor=factor,
            amplitude=self._amplitude(own),
            original_context_tokens=self._original(),
            fast_turns=fast,
            slow_turns=slow,
            whole_bounds=section.flag("truncate", True),
        )

    def _longrope(self, plain: RopeSpec) -> RopeSpec:
        original, factor = self._original(), self._factor(required=False)
        if original <= 1:
            raise self.section.wrong(_ORIGINAL, "more than 1 for longrope")
        own = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        return replace(
            plain,
            scaling="longrope",
            amplitude=self._amplitude(own),
            original_context_tokens=original,
            divisors=self._divisors("short_factor"),
            long_divisors=self._divisors("long_factor"),
        )

    def _proportional(self, plain: RopeSpec) -> RopeSpec:
        return replace(plain, scaling="proportional", factor=_rotary(self.section, "factor", 1.0))

    def _original(self) -> int:
        """The original context: what stands beside the settings, else among them, else the whole context."""
        if self.config.has(_ORIGINAL) and not self.of_layer_type:
            return self.config.integer(_ORIGINAL)
        if self.original_tokens is not None:
            return self.original_tokens
        return self.section.integer(_ORIGINAL, self.context_tokens)

    def _factor(self, *, required: bool) -> float:
        """How many times the original context the whole one is, where that is not said."""
        if self.section.raw("factor") is None and (self.section.has("factor") or not required):
            return self.context_tokens / max(self._original(), 1)
        return _rotary(self.section, "factor")

    def _amplitude(self, own: float) -> float:
        """What is said, or what follows from the other settings."""
        key = "attention_factor"
        return rounded(own if self.section.raw(key) is None else _rotary(self.section, key))

    def _divisors(self, key: str) -> tuple[float, ...]:
        found = self.section.raw(key)
        if not isinstance(found, list | tuple) or not all(map(_is_divisor, found)) or not found:
            raise self.section.wrong(key, f"a list of numbers from {SMALLEST_ROTARY:g} to {LARGEST_ROTARY:g}")
        return tuple(map(rounded, found))


def _is_divisor(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return SMALLEST_ROTARY <= value <= LARGEST_ROTARY


def _rotary(fields: ConfigFields, key: str, default: float | None = None) -> float:
    return fields.between(key, SMALLEST_ROTARY, LARGEST_ROTARY, default)
