"""GLM-4.5 to 4.7: experts beside a shared one in all but the first layers; half of each head is turned."""

from dataclasses import replace

from layerline.models.config_experts import dense_first, grouped_experts_from_config
from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    head_dim_from_config,
    model_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.expert_rules import ExpertNames, with_experts
from layerline.models.family import Family
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.gguf_experts import experts_from_gguf, sparse_layers_of_gguf, with_shared, without_further
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    model_from_gguf,
    refuse_window,
)
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule, renamed_in_gguf

NAME = "glm4_moe"
PARTIAL = "partial_rotary_factor"
NAMES = ExpertNames(shared="mlp.shared_experts")


def from_config(config: ConfigFields) -> ModelSpec:
    config = config.with_missing({PARTIAL: 0.5})
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 1 << 17)
    head_dim = head_dim_from_config(config)
    attention = attention_from_config(
        config,
        kv_heads=8,
        head_dim=head_dim,
        rope=rope_from_config(config, context_tokens, head_dim=head_dim),
        qkv_bias=config.flag("attention_bias", False),
    )
    attention = replace(attention, qk_norm="heads" if config.flag("use_qk_norm", False) else "none")
    dense = feed_forward_from_config(config)
    feed_forwards = dense_first(config, dense, lambda: _sparse(config, dense), missing=1)
    layers = [LayerSpec(mixer=attention, feed_forward=each) for each in feed_forwards]
    return model_from_config(config, NAME, layers, context_tokens, norm_epsilon=1e-5)


def _sparse(config: ConfigFields, dense: FeedForwardSpec) -> FeedForwardSpec:
    return grouped_experts_from_config(config, dense, count=128, chosen=8, width=1408, scale=1.0)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf, experts=True)
    refuse_window(gguf)
    has_bias, has_norm = (f"blk.0.attn_q{name}" in gguf.tensors for name in (".bias", "_norm.weight"))
    attention = attention_from_gguf(gguf, qkv_bias=has_bias, may_be_partial=True)
    attention = replace(attention, qk_norm="heads" if has_norm else "none")
    normalised = gguf.metadata.flag(gguf.key("expert_weights_norm"), True)
    sparse = experts_from_gguf(gguf, scoring="sigmoid", normalised=normalised)
    sparse = with_shared(gguf, sparse, sparse.intermediate * gguf.integer("expert_shared_count", 1))
    layers = [LayerSpec(mixer=attention, feed_forward=each) for each in sparse_layers_of_gguf(gguf, sparse)]
    return model_from_gguf(gguf, NAME, without_further(gguf, layers))


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return renamed_in_gguf(with_experts(layer, NAMES), {"ffn_norm": "post_attention_norm.weight"})


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture="glm4moe",
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
    has_further_layers=True,
)
