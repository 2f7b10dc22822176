"""What rotary settings are computed with, whichever container they are in.

llama.cpp's converter writes, for each frequency of Llama 3's scaling, what it is divided by (rope_freqs.weight) and not
its settings. All models that use this scaling share its settings but the factor, which is the largest divisor, and
Llama 4 has no pairs between fast and slow ones; so the settings can be told, and proved by computing the divisors from
them again.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace

from layerline.errors import ModelUnsupportedError
from layerline.models.rope_spec import RopeSpec


def rounded(number: float) -> float:
    """The float32 nearest to `number`, which is what models compute with and GGUF files hold."""
    (nearest,) = struct.unpack("<f", struct.pack("<f", number))
    return float(nearest)


def yarn_amplitude(factor: float, scale: float = 1.0, divided_by_scale: float = 0.0) -> float:
    """What cosines and sines are multiplied by in a context of `factor` times the original one.

    `scale` and `divided_by_scale` are what DeepSeek calls mscale and mscale_all_dim. Source: Peng et al., YaRN (2023);
    DeepSeek-V2 model code.
    """
    growth = 0.1 * math.log(factor) if factor > 1 else 0.0
    return (scale * growth + 1.0) / (divided_by_scale * growth + 1.0)


def llama3_from_factors(theta: float, head_dim: int, factors: Sequence[float]) -> RopeSpec:
    """The settings that give `factors` [head_dim / 2]; ModelUnsupportedError if none of Llama's do."""
    of_llama3 = RopeSpec(theta=theta, scaling="llama3", factor=max(factors))
    for spec in (of_llama3, replace(of_llama3, high_frequency_factor=of_llama3.low_frequency_factor)):
        wanted = llama3_factors(spec, head_dim)
        if len(factors) == len(wanted) and all(map(_same, factors, wanted)):
            return spec
    raise ModelUnsupportedError("The tensor rope_freqs.weight is not that of Llama 3 or 4, the only ones known.")


def llama3_factors(spec: RopeSpec, head_dim: int) -> list[float]:
    """What each of the head_dim / 2 rotary frequencies is divided by. Source: Llama 3.1 model code."""
    factors = []
    for index in range(head_dim // 2):
        wavelength = 2 * math.pi * spec.theta ** (2 * index / head_dim)
        turns = spec.original_context_tokens / wavelength
        if turns >= spec.high_frequency_factor:
            factors.append(1.0)
        elif turns < spec.low_frequency_factor:
            factors.append(spec.factor)
        else:
            span = spec.high_frequency_factor - spec.low_frequency_factor
            smooth = (turns - spec.low_frequency_factor) / span
            factors.append(1 / ((1 - smooth) / spec.factor + smooth))
    return factors


def _same(stored: float, wanted: float) -> bool:
    """Whether a number of the file, in float32, is the one that was computed."""
    return math.isclose(stored, wanted, rel_tol=1e-5)
