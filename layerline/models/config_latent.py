"""Reading latent attention from a config.json, as all families of it have it."""

from __future__ import annotations

import math
from dataclasses import replace

from layerline.models.config_fields import ConfigFields, check_config, unsupported
from layerline.models.config_rope import rope_from_config, score_factor_from_config
from layerline.models.latent import LatentSpec
from layerline.models.rope_factors import rounded
from layerline.models.spec import AttentionSpec

NORM_EPSILON = 1e-6  # of the norms of latents; the config's is that of the others


def latent_from_config(config: ConfigFields, context_tokens: int, *, interleaved: bool) -> AttentionSpec:
    """The attention of every layer. Whether the numbers of a pair are neighbours in the file, the family says."""
    check_config(config, "attention_bias", "mlp_bias")
    heads, turned = config.integer("num_attention_heads"), config.integer("qk_rope_head_dim", 64)
    if config.nullable_integer("num_key_value_heads", missing=heads, null=heads) != heads:
        raise unsupported(config, "latent attention with fewer key-value heads than heads (num_key_value_heads)")
    rope = rope_from_config(config, context_tokens)
    if rope.scaling == "proportional":
        raise unsupported(config, "rope scaling 'proportional' beside a latent")
    latent = LatentSpec(
        query_rank=config.nullable_integer("q_lora_rank", missing=1536, null=0),
        plain_dim=config.integer("qk_nope_head_dim", 128),
        value_dim=config.integer("v_head_dim", 128),
        norm_epsilon=NORM_EPSILON,
    )
    return latent_attention(
        AttentionSpec(
            heads=heads,
            kv_heads=1,
            head_dim=turned + config.integer("kv_lora_rank", 512),
            value_dim=config.integer("kv_lora_rank", 512),
            rope=replace(rope, rotated=turned, interleaved=interleaved),
            latent=latent,
        ),
        score_factor_from_config(config),
    )


def latent_attention(attention: AttentionSpec, score_factor: float) -> AttentionSpec:
    """The same with its scores scaled: by the size of queries as they are made, and as yarn asks for."""
    return replace(attention, scale=rounded(score_factor / math.sqrt(attention.made_query_dim)))
