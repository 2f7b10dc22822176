"""The rotary settings of a GGUF file, as llama.cpp reads them and its converter writes them.

Which two numbers of a head make a pair a file does not say; its architecture does (`llama_model_rope_type`).

Source: `llama_model::load_hparams`, `llama_context` and `get_rope_factors` of llama.cpp; `set_gguf_parameters` of its
converter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.fields import REMEDY, Fields
from layerline.models.rope_factors import llama3_from_factors, rounded, yarn_amplitude
from layerline.models.rope_spec import LARGEST_ROTARY, SMALLEST_ROTARY, RopeSpec

_KNOWN = ("none", "linear", "yarn", "longrope")


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeTensors:
    """What a file has beside its metadata to divide frequencies by: of each pair, or none."""

    factors: Sequence[float] | None = None  # rope_freqs.weight
    short_factors: Sequence[float] | None = None  # rope_factors_short.weight
    long_factors: Sequence[float] | None = None  # rope_factors_long.weight


@dataclass(frozen=True, slots=True)
class GgufRope:
    """The settings of the keys `prefix`.rope.*, in a file with these tensors.

    `beside_latent`: of a model with latent attention, whose files have a tenth of mscale_all_dim in the place of it.
    """

    metadata: Fields
    prefix: str
    tensors: RopeTensors
    beside_latent: bool = False

    def rope(self, head_dim: int, *, may_be_partial: bool = False, interleaved: bool = False) -> RopeSpec:
        """The embedding of heads of that length, of which a part is turned where the family has that."""
        theta = self._rotary("freq_base", 10000.0)
        rotated = self._rotated(head_dim, may_be_partial=may_be_partial)
        plain = RopeSpec(
            theta=theta,
            rotated=rotated,
            interleaved=interleaved,
            amplitude=rounded(self._rotary("scaling.attn_factor", 1.0)),
        )
        return self._scaled(plain, head_dim)

    def _scaled(self, plain: RopeSpec, head_dim: int) -> RopeSpec:
        """Scaling is linear unless said otherwise, with a factor of 1; where it is "none" a factor is not looked at."""
        tensors, kind = self.tensors, self.metadata.text(self._key("scaling.type"), "linear")
        factor = self._factor() if kind != "none" else 1.0
        has_own = tensors.short_factors is not None or tensors.long_factors is not None
        if kind not in _KNOWN or (factor != 1.0 and (has_own or tensors.factors is not None)):
            raise self._unsupported(f"rope scaling {kind!r} (it knows {', '.join(_KNOWN)} and that of Llama 3)")
        if kind == "longrope" or has_own:
            return self._longrope(plain)
        if kind == "yarn":
            return self._yarn(plain, factor)
        if tensors.factors is not None:
            llama3 = llama3_from_factors(plain.theta, plain.turned_numbers(head_dim), tensors.factors)
            return replace(llama3, rotated=plain.rotated, interleaved=plain.interleaved, amplitude=plain.amplitude)
        return plain if factor == 1.0 else replace(plain, scaling="linear", factor=factor)

    def _rotated(self, head_dim: int, *, may_be_partial: bool) -> int:
        """How many numbers of each head are turned; 0: all."""
        key = self._key("dimension_count")
        rotated = self.metadata.integer(key, head_dim)
        if rotated == head_dim:
            return 0
        if not may_be_partial:
            raise self._unsupported("rotary embedding of a part of each head")
        if not 0 < rotated < head_dim or rotated % 2:
            raise self.metadata.wrong(key, f"a part of {head_dim} numbers that consists of pairs")
        return rotated

    def _yarn(self, plain: RopeSpec, factor: float) -> RopeSpec:
        """The multiplier stands for mscale_all_dim where mscale is 1 or, beside a latent, the same; the converter keeps
        an amplitude that was said.

        llama.cpp rounds the bounds of the pairs in any case.
        """
        if self.metadata.number(self._key("scaling.yarn_ext_factor"), 1.0) not in (1.0, -1.0):
            raise self._unsupported("rope scaling 'yarn' of another strength (rope.scaling.yarn_ext_factor)")
        if plain.theta <= 1:
            raise self.metadata.wrong(self._key("freq_base"), "more than 1 for yarn")
        fast, slow = (
            self._rotary(f"scaling.yarn_beta_{name}", turns) for name, turns in (("fast", 32.0), ("slow", 1.0))
        )
        if slow >= fast:
            raise self.metadata.wrong(self._key("scaling.yarn_beta_fast"), "more than yarn_beta_slow")
        scale = self.all_dim_scale if self.beside_latent and self.all_dim_scale else 1.0
        own = self._rotary("scaling.yarn_attn_factor", yarn_amplitude(factor, scale, self.all_dim_scale))
        return replace(
            plain,
            scaling="yarn",
            factor=factor,
            amplitude=rounded(own * plain.amplitude),
            original_context_tokens=self._original(),
            fast_turns=fast,
            slow_turns=slow,
        )

    @property
    def all_dim_scale(self) -> float:
        """What DeepSeek calls mscale_all_dim; 0: it is not said."""
        key = self._key("scaling.yarn_log_multiplier")
        multiplier = self.metadata.number(key, 0.0)
        if not 0 <= multiplier <= LARGEST_ROTARY:
            raise self.metadata.wrong(key, "a number that is not negative")
        return round(10 * multiplier, 6) if self.beside_latent else multiplier  # as it was before it was in float32

    def _longrope(self, plain: RopeSpec) -> RopeSpec:
        """The converter of Phi-3 says no kind, only the tensors and the amplitude."""
        short, long = self.tensors.short_factors, self.tensors.long_factors
        if short is None or long is None or self.tensors.factors is not None:
            message = (
                f"{self.metadata.where}: rope_factors_short.weight and rope_factors_long.weight must both be there"
            )
            raise ModelCorruptError(f"{message}, and no rope_freqs.weight.", remedy=REMEDY)
        return replace(
            plain,
            scaling="longrope",
            original_context_tokens=self._original(),
            divisors=tuple(short),
            long_divisors=tuple(long),
        )

    def _original(self) -> int:
        whole = self.metadata.integer(f"{self.prefix}.context_length")
        return self.metadata.integer(self._key("scaling.original_context_length"), whole)

    def _factor(self) -> float:
        """In either of two keys; 0 is as good as none."""
        key, older = self._key("scaling.factor"), self._key("scale_linear")
        key = key if self.metadata.has(key) else older
        if self.metadata.number(key, 0.0) == 0.0:
            return 1.0
        return self.metadata.between(key, SMALLEST_ROTARY, LARGEST_ROTARY)

    def _rotary(self, name: str, default: float) -> float:
        return self.metadata.between(self._key(name), SMALLEST_ROTARY, LARGEST_ROTARY, default)

    def _key(self, name: str) -> str:
        return f"{self.prefix}.rope.{name}"

    def _unsupported(self, feature: str) -> ModelUnsupportedError:
        return ModelUnsupportedError(f"{self.metadata.where} asks for {feature}, which layerline cannot do.")
