"""Granite 4: Mamba 2 in most layers, attention that does not rotate in the others; all have a feed-forward, and may
have experts beside it.
"""

from collections.abc import Sequence
from dataclasses import replace

from layerline.models.config_experts import experts_from_config
from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    model_from_config,
    unsupported,
)
from layerline.models.config_mamba import mamba2_from_config
from layerline.models.config_rope import rope_from_config
from layerline.models.expert_rules import ExpertNames, with_experts
from layerline.models.family import Family
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.gguf_experts import experts_from_gguf, with_shared
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    feed_forward_from_gguf,
    model_from_gguf,
    recurrent_layers,
    refuse_window,
)
from layerline.models.gguf_mamba import mamba2_from_gguf
from layerline.models.layer_kinds import FULL, LINEAR
from layerline.models.recurrent import Mamba2Spec
from layerline.models.recurrent_rules import mamba2_tensors
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import Place, TensorRule, with_rope_pairs

NAME = "granitemoehybrid"
EXPERTS = "block_sparse_moe"
NAMES = ExpertNames(
    router=f"{EXPERTS}.router.layer.weight",
    routers_otherwise=(f"{EXPERTS}.router.weight",),
    stacks=(
        (f"{EXPERTS}.input_linear.weight", f"{EXPERTS}.output_linear.weight"),
        (f"{EXPERTS}.experts.gate_up_proj", f"{EXPERTS}.experts.down_proj"),
    ),
)
_KINDS = {"mamba": LINEAR, "attention": FULL, LINEAR: LINEAR, FULL: FULL}  # by the names of any year


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 2048)
    rotates = config.raw("position_embedding_type") == "rope"
    attention = attention_from_config(
        config,
        rope=rope_from_config(config, context_tokens) if rotates else None,
        qkv_bias=config.flag("attention_bias", False),
    )
    attention = replace(attention, output_bias=attention.qkv_bias, scale=config.positive("attention_multiplier", 1.0))
    full = LayerSpec(
        mixer=attention,
        feed_forward=_feed_forward(config),
        branch_scale=config.positive("residual_multiplier", 1.0),
    )
    kinds = _kinds(config)
    recurrent = replace(full, mixer=mamba2_from_config(config)) if LINEAR in kinds else full
    return model_from_config(
        config,
        NAME,
        [full if kind == FULL else recurrent for kind in kinds],
        context_tokens,
        embedding_scale=config.positive("embedding_multiplier", 1.0),
        logit_scale=1.0 / config.positive("logits_scaling", 1.0),
    )


def _kinds(config: ConfigFields) -> Sequence[str]:
    key = "layer_types" if config.raw("layer_types") is not None else "layers_block_type"
    layers = layer_count(config)
    kinds = config.list_of(str, key, [LINEAR] * layers)
    if len(kinds) != layers or not set(kinds) <= _KINDS.keys():
        raise unsupported(config, f"{key} other than {' or '.join(_KINDS)} for each layer")
    return [_KINDS[kind] for kind in kinds]


def _feed_forward(config: ConfigFields) -> FeedForwardSpec:
    """Without experts the shared one is all there is."""
    dense, shared = feed_forward_from_config(config), config.integer("shared_intermediate_size", 1024)
    if config.integer("num_local_experts", 8) == 0:
        return replace(dense, intermediate=shared)
    experts = experts_from_config(config, count=8, chosen=2, normalised=True)
    return replace(dense, experts=replace(experts, shared_intermediate=shared))


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf, experts=True, by_layer=True)
    refuse_window(gguf)
    recurrent, kv_heads = recurrent_layers(gguf)
    attention = attention_from_gguf(gguf, kv_heads=kv_heads)
    rotates = gguf.metadata.flag(gguf.key("rope.scaling.finetuned"), True)  # which llama.cpp takes for just that
    full = LayerSpec(
        mixer=replace(
            attention,
            rope=attention.rope if rotates else None,
            scale=gguf.number("attention.scale", attention.score_scale),
        ),
        feed_forward=_feed_forward_of_gguf(gguf),
        branch_scale=gguf.number("residual_scale", 1.0),
    )
    mamba = replace(full, mixer=mamba2_from_gguf(gguf))
    return model_from_gguf(
        gguf,
        NAME,
        [mamba if own else full for own in recurrent],
        embedding_scale=gguf.number("embedding_scale", 1.0),
        logit_scale=1.0 / gguf.number("logit_scale", 1.0),
    )


def _feed_forward_of_gguf(gguf: GgufModel) -> FeedForwardSpec:
    if gguf.integer("expert_count", 0) == 0:
        return feed_forward_from_gguf(gguf)
    return with_shared(
        gguf, experts_from_gguf(gguf, normalised=True), gguf.integer("expert_shared_feed_forward_length", 0)
    )


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    own = tuple(_in_shared_mlp(rule) for rule in with_experts(layer, NAMES))
    if isinstance(layer.recurrent, Mamba2Spec):
        return (*own, *mamba2_tensors(layer.recurrent, "mamba."))
    return with_rope_pairs(own, "q", "k", "q_bias", "k_bias")


def _in_shared_mlp(rule: TensorRule) -> TensorRule:
    """That of the shared expert, or of a dense feed-forward: a folder has its gate and its up in one."""
    after = {"gate": (), "up": rule.sides[:1], "down": ()}
    part = rule.name.removeprefix("layers.{n}.").removeprefix("shared.")
    if part not in after:
        return rule
    stored = "output_linear" if part == "down" else "input_linear"
    place = Place(name=f"model.layers.{{n}}.shared_mlp.{stored}.weight", after=after[part])
    return replace(rule, safetensors=place)


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture="granitehybrid",
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
)
