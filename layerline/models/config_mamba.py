"""Reading Mamba 2 layers as a config.json has them whose keys begin with mamba_."""

from __future__ import annotations

import math

from layerline.models.config_fields import ConfigFields, unsupported
from layerline.models.recurrent import Mamba2Spec

_LIMIT = "time_step_limit"
_UNBOUNDED = {"__float__": "Infinity"}  # as transformers writes it


def mamba2_from_config(config: ConfigFields) -> Mamba2Spec:
    """The layer, whose convolution goes through SiLU, and whose two matrices have no bias."""
    if _has_limit(config):
        raise unsupported(config, f"bounds of a Mamba layer's steps ({_LIMIT})")
    if config.flag("mamba_proj_bias", False):
        raise unsupported(config, "biases of a Mamba layer's matrices (mamba_proj_bias)")
    if config.text("hidden_act", "silu") not in ("silu", "swish"):
        raise unsupported(config, f"a Mamba layer with hidden_act {config.raw('hidden_act')!r}")
    heads = config.integer("mamba_n_heads", 128)
    numbers = config.integer("mamba_expand", 2) * config.integer("hidden_size")
    is_said = config.raw("mamba_d_head") not in (None, "auto")
    head_dim = config.integer("mamba_d_head") if is_said else numbers // max(heads, 1)
    if heads * head_dim != numbers:
        raise config.wrong("mamba_d_head", f"{numbers} numbers of a row shared by {heads} heads")
    return Mamba2Spec(
        heads=heads,
        head_dim=head_dim,
        groups=config.integer("mamba_n_groups", 1),
        state_dim=config.integer("mamba_d_state", 256),
        taps=config.integer("mamba_d_conv", 4),
        conv_bias=config.flag("mamba_conv_bias", True),
    )


def _has_limit(config: ConfigFields) -> bool:
    """Whether steps are kept within bounds, as transformers does it with the rows of a prompt, but not of an answer."""
    return config.raw(_LIMIT) is not None and config.list_of(object, _LIMIT) not in ([0, math.inf], [0, _UNBOUNDED])
