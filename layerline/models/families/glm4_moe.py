"""GLM-4.5 to 4.7: experts beside a shared one in all but the first layers; half of each head is turned."""

from dataclasses import replace

from layerline.models.config_experts import experts_from_config
from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    head_dim_from_config,
    layer_count,
    model_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.expert_rules import ExpertNames, with_experts
from layerline.models.family import Family
from layerline.models.feed_forward_spec import ExpertsSpec
from layerline.models.gguf_experts import experts_from_gguf, sparse_layers_of_gguf, with_shared
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    layer_count_of_gguf,
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
    dense, width = feed_forward_from_config(config), config.integer("moe_intermediate_size", 1408)
    sparse = replace(dense, intermediate=width, experts=_experts(config, width))
    first_sparse = config.integer("first_k_dense_replace", 1)
    layers = [
        LayerSpec(attention=attention, feed_forward=dense if layer < first_sparse else sparse)
        for layer in range(layer_count(config))
    ]
    return model_from_config(config, NAME, layers, context_tokens, norm_epsilon=1e-5)


def _experts(config: ConfigFields, width: int) -> ExpertsSpec:
    count = config.integer("n_routed_experts", 128)
    normalised = config.flag("norm_topk_prob", True)
    experts = experts_from_config(config, count=count, chosen=8, scoring="sigmoid", normalised=normalised)
    return replace(
        experts,
        count=count,
        scale=config.positive("routed_scaling_factor", 1.0),
        choice_bias=True,
        groups=config.integer("n_group", 1),
        chosen_groups=config.integer("topk_group", 1),
        shared_intermediate=width * config.integer("n_shared_experts", 1),
    )


def from_gguf(gguf: GgufModel) -> ModelSpec:
    """The file counts the layers that guess further tokens with the others."""
    check_gguf(gguf, experts=True)
    refuse_window(gguf)
    has_bias, has_norm = (f"blk.0.attn_q{name}" in gguf.tensors for name in (".bias", "_norm.weight"))
    attention = attention_from_gguf(gguf, qkv_bias=has_bias, may_be_partial=True)
    sparse = experts_from_gguf(
        gguf, scoring="sigmoid", normalised=gguf.metadata.flag(gguf.key("expert_weights_norm"), True)
    )
    assert sparse.experts is not None, "it is of experts"
    sparse = replace(sparse, experts=replace(sparse.experts, choice_bias=True))
    sparse = with_shared(gguf, sparse, sparse.intermediate * gguf.integer("expert_shared_count", 1))
    further = gguf.integer("nextn_predict_layers", 0)
    if not 0 <= further < layer_count_of_gguf(gguf):
        raise gguf.metadata.wrong(gguf.key("nextn_predict_layers"), "fewer than the layers")
    attention = replace(attention, qk_norm="heads" if has_norm else "none")
    layers = [LayerSpec(attention=attention, feed_forward=each) for each in sparse_layers_of_gguf(gguf, sparse)]
    return model_from_gguf(gguf, NAME, layers[: len(layers) - further])


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
