"""Llama 4: most layers see chunks of the context, rotated and normed after that; the others see all of it, unrotated.

A row has one expert, which gets it weighed, beside a shared one; some layers may be dense, and wider. A folder has all
experts of a layer in one tensor, transposed, or each by itself where they are quantised.
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
from layerline.models.config_rope import rope_from_config
from layerline.models.decoder_rules import decoder_tensors
from layerline.models.expert_rules import ExpertNames, expert_tensors
from layerline.models.families.smollm3 import rotated_layers
from layerline.models.family import Family
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.gguf_experts import experts_from_gguf, sparse_layers_of_gguf, with_shared
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    layer_count_of_gguf,
    model_from_gguf,
)
from layerline.models.layer_kinds import FULL
from layerline.models.quantised.transposed import TRANSPOSED
from layerline.models.query_growth import QueryGrowth
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule, renamed

NAME, ARCHITECTURE = "llama4_text", "llama4"
CHUNKED, CHUNK_SIZE, TUNING = "chunked_attention", "attention_chunk_size", "attn_temperature_tuning"
CHUNK_TOKENS, FULL_EVERY = 8192, 4
GROWTH = QueryGrowth(factor=0.1, length=8192, offset=1)
EXPERTS_WITHOUT_NORM = 128  # llama.cpp tells Maverick, whose queries and keys are not normed, by them

_PARTS = ("gate", "up", "down")
_DENSE = {part: f"feed_forward.{part}_proj.weight" for part in _PARTS}
_NAMES = ExpertNames(
    router="feed_forward.router.weight",
    expert="feed_forward.experts.{e}",
    stacks=(("feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"),),
    stacked_as=TRANSPOSED,
    shared="feed_forward.shared_expert",
)


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 1 << 17)
    attention = attention_from_config(
        config,
        kv_heads=8,
        head_dim=128,
        rope=replace(rope_from_config(config, context_tokens, theta=500000.0), interleaved=True),
        qkv_bias=config.flag("attention_bias", False),
    )
    attention = replace(
        attention,
        output_bias=attention.qkv_bias,
        qk_norm="turned_heads" if config.flag("use_qk_norm", True) else "none",
        query_growth=_growth(config),
    )
    rotated = rotated_layers(config)
    attentions = zip(rotated, _chunks(config, rotated, context_tokens), strict=True)
    return model_from_config(
        config,
        NAME,
        [
            LayerSpec(mixer=_of_layer(attention, is_rotated=own, chunk_tokens=chunk), feed_forward=feed_forward)
            for (own, chunk), feed_forward in zip(attentions, _feed_forwards(config), strict=True)
        ],
        context_tokens,
        norm_epsilon=1e-5,
    )


def _of_layer(attention: AttentionSpec, *, is_rotated: bool, chunk_tokens: int) -> AttentionSpec:
    """Layers that are not rotated have no norm; queries of the others do not grow."""
    attention = replace(attention, chunk_tokens=chunk_tokens)
    if is_rotated:
        return replace(attention, query_growth=None)
    return replace(attention, rope=None, qk_norm="none")


def _growth(config: ConfigFields) -> QueryGrowth | None:
    """Whether it is switched on early configs say by a number."""
    switch = config.raw(TUNING)
    is_on = bool(switch) if isinstance(switch, int) else config.flag(TUNING, True)
    if not is_on or config.raw("attn_scale") == 0:
        return None
    factor = config.positive("attn_scale", GROWTH.factor)
    return QueryGrowth(factor=factor, length=config.integer("floor_scale", GROWTH.length), offset=GROWTH.offset)


def _chunks(config: ConfigFields, rotated: Sequence[bool], context_tokens: int) -> list[int]:
    """Of each layer the length of its chunks; 0 if it sees all, as where one chunk is the whole context."""
    size = config.nullable_integer(CHUNK_SIZE, missing=CHUNK_TOKENS, null=0)
    if size < 0 or (size == 0 and config.raw(CHUNK_SIZE) is not None):
        raise config.wrong(CHUNK_SIZE, "at least 1")
    kinds = [CHUNKED if own and size else FULL for own in rotated]
    if config.raw("layer_types") is not None:
        kinds = config.list_of(str, "layer_types")
        if len(kinds) != len(rotated) or not set(kinds) <= {FULL, CHUNKED}:
            raise unsupported(config, f"layer_types other than {FULL} or {CHUNKED} for each layer")
    if CHUNKED in kinds and not size:
        raise unsupported(config, f"layer_types with {CHUNKED} but without {CHUNK_SIZE}")
    return [size if kind == CHUNKED and size < context_tokens else 0 for kind in kinds]


def _feed_forwards(config: ConfigFields) -> list[FeedForwardSpec]:
    own = feed_forward_from_config(config)
    dense = replace(own, intermediate=config.integer("intermediate_size_mlp", 16384))
    is_sparse = _sparse_layers(config)
    if not any(is_sparse):
        return [dense] * len(is_sparse)
    experts = experts_from_config(config, count=16, chosen=1, scoring="sigmoid_of_chosen")
    sparse = replace(own, experts=replace(experts, weighs_input=True, shared_intermediate=own.intermediate))
    return [sparse if each else dense for each in is_sparse]


def _sparse_layers(config: ConfigFields) -> list[bool]:
    layers = range(layer_count(config))
    if config.raw("moe_layers") is not None:
        listed = frozenset(config.list_of(int, "moe_layers"))
        return [layer in listed for layer in layers]
    step = config.integer("interleave_moe_layer_step", 1)
    if step < 1:
        raise config.wrong("interleave_moe_layer_step", "at least 1")
    return [(layer + 1) % step == 0 for layer in layers]


def from_gguf(gguf: GgufModel) -> ModelSpec:
    """Chunks, growth and which layers are rotated are those that llama.cpp has for every file."""
    check_gguf(gguf, experts=True)
    _refuse_other_chunks(gguf)
    attention = replace(
        attention_from_gguf(gguf, interleaved=True),
        qk_norm="none" if gguf.integer("expert_count") == EXPERTS_WITHOUT_NORM else "turned_heads",
        query_growth=GROWTH,
    )
    chunk_tokens = CHUNK_TOKENS if gguf.integer("context_length") > CHUNK_TOKENS else 0
    full, chunked = (
        _of_layer(attention, is_rotated=own, chunk_tokens=chunk) for own, chunk in ((False, 0), (True, chunk_tokens))
    )
    attentions = [chunked if (layer + 1) % FULL_EVERY else full for layer in range(layer_count_of_gguf(gguf))]
    sparse = experts_from_gguf(gguf, scoring="sigmoid_of_chosen")
    sparse = with_shared(gguf, sparse, sparse.intermediate)
    assert sparse.experts is not None, "it is of experts"
    sparse = replace(sparse, experts=replace(sparse.experts, weighs_input=True))
    layers = [
        LayerSpec(mixer=own, feed_forward=feed_forward)
        for own, feed_forward in zip(attentions, sparse_layers_of_gguf(gguf, sparse), strict=True)
    ]
    return model_from_gguf(gguf, NAME, layers)


def _refuse_other_chunks(gguf: GgufModel) -> None:
    """A length of 0 switches chunks off, and leaves open which layers are rotated; llama.cpp reads no other one."""
    for name, known in (("attention.sliding_window", CHUNK_TOKENS), ("attention.sliding_window_pattern", FULL_EVERY)):
        if gguf.metadata.raw(gguf.key(name)) not in (None, known):
            raise gguf.unsupported(f"chunks of attention other than Llama 4's ({name})")
    theta = gguf.number("rope.freq_base", 10000.0)
    if gguf.number("rope.freq_base_swa", theta) != theta:
        raise gguf.unsupported("another rotation in layers with chunks (rope.freq_base_swa)")


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return (*renamed(decoder_tensors(layer), _DENSE), *expert_tensors(layer.feed_forward, _NAMES))


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture=ARCHITECTURE,
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
)
