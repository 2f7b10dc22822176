"""gpt-oss: experts with biases, windows in every other layer, and heads with a learned sink.

A folder has all experts of a layer in one tensor, the rows of gate and up taking turns: quantised (MXFP4), as the
model is published, or transposed. In GGUF gate and up are apart.
"""

from dataclasses import replace

from layerline.models.config_experts import experts_from_config
from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    layer_types,
    model_from_config,
    unsupported,
    window_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.decoder_rules import decoder_tensors
from layerline.models.expert_rules import FOLDER_LAYER, GGUF_LAYER, router_tensors
from layerline.models.family import Family
from layerline.models.feed_forward_spec import CLAMPED_SWIGLU_ALPHA, CLAMPED_SWIGLU_LIMIT
from layerline.models.gguf_experts import experts_from_gguf
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    layer_count_of_gguf,
    model_from_gguf,
    window_from_gguf,
)
from layerline.models.layer_kinds import every_nth_full, windowed_layers
from layerline.models.quantised.transposed import TRANSPOSED
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import FEED_FORWARD, HIDDEN, Place, TensorRule, renamed_in_gguf

NAME, ARCHITECTURE = "gpt_oss", "gpt-oss"
_STACKS = {"gate": "gate_up_proj", "up": "gate_up_proj", "down": "down_proj"}
_THETA = 150000.0


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 1 << 17)
    for key, known in (("swiglu_alpha", CLAMPED_SWIGLU_ALPHA), ("swiglu_limit", CLAMPED_SWIGLU_LIMIT)):
        if config.number(key, known) != known:
            raise unsupported(config, f"a {key} of {config.number(key):g}")
    if not config.raw("rope_scaling") and not config.raw("rope_parameters"):
        raise unsupported(config, "a rotary scaling that it does not say")
    bias = config.flag("attention_bias", True)
    attention = attention_from_config(
        config,
        kv_heads=8,
        head_dim=64,
        rope=rope_from_config(config, context_tokens, theta=_THETA),
        qkv_bias=bias,
    )
    experts = replace(experts_from_config(config, count=128, chosen=4, scoring="softmax_of_chosen"), router_bias=True)
    feed_forward = replace(feed_forward_from_config(config), activation="clamped_swiglu", bias=True, experts=experts)
    layer = LayerSpec(mixer=replace(attention, output_bias=bias, sinks=True), feed_forward=feed_forward)
    kinds = layer_types(config, every_nth_full(layer_count(config), 2))
    layers = windowed_layers(layer, kinds, window_from_config(config, context_tokens, missing=128))
    return model_from_config(config, NAME, layers, context_tokens, norm_epsilon=1e-5)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    """Bounds of its rotation are not rounded, which a file does not say."""
    check_gguf(gguf, experts=True)
    attention = attention_from_gguf(gguf, qkv_bias="blk.0.attn_q.bias" in gguf.tensors)
    assert attention.rope is not None, "it is rotated"
    attention = replace(
        attention,
        output_bias="blk.0.attn_output.bias" in gguf.tensors,
        sinks=True,
        rope=replace(attention.rope, whole_bounds=attention.rope.scaling != "yarn"),
    )
    feed_forward = experts_from_gguf(gguf, scoring="softmax_of_chosen", activation="clamped_swiglu")
    layer, kinds = (
        LayerSpec(mixer=attention, feed_forward=feed_forward),
        every_nth_full(layer_count_of_gguf(gguf), 2),
    )
    return model_from_gguf(gguf, NAME, windowed_layers(layer, kinds, window_from_gguf(gguf)))


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    experts = layer.feed_forward.experts
    assert experts is not None, "every layer has experts"
    return (
        *renamed_in_gguf(decoder_tensors(layer), {"ffn_norm": "post_attention_norm.weight"}),
        *router_tensors(experts, "mlp.router.weight"),
        *(rule for expert in range(experts.count) for part in _STACKS for rule in _expert(expert, part)),
    )


def _expert(expert: int, part: str) -> tuple[TensorRule, TensorRule]:
    """A matrix of an expert, and its bias."""
    rows, columns = (HIDDEN, FEED_FORWARD) if part == "down" else (FEED_FORWARD, HIDDEN)
    stack = f"{FOLDER_LAYER}mlp.experts.{_STACKS[part]}"
    place = Place(name=f"{stack}.weight", expert=expert)
    turns = replace(place, groups=FEED_FORWARD, turns=(FEED_FORWARD, FEED_FORWARD))
    quantised = {"gate": turns, "up": replace(turns, after=(FEED_FORWARD,)), "down": place}[part]
    name, in_gguf = f"layers.{{n}}.experts.{expert}.{part}", f"{GGUF_LAYER}ffn_{part}_exps"
    matrix = TensorRule(
        name=name,
        sides=(rows, columns),
        safetensors=quantised,
        otherwise=(replace(quantised, name=stack, recipe=TRANSPOSED),),
        gguf=Place(name=f"{in_gguf}.weight", expert=expert),
        expert=expert,
    )
    bias = replace(
        matrix,
        name=f"{name}_bias",
        sides=(rows,),
        safetensors=replace(quantised, name=f"{stack}_bias"),
        otherwise=(),
        gguf=Place(name=f"{in_gguf}.bias", expert=expert),
    )
    return matrix, bias


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture=ARCHITECTURE,
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
)
