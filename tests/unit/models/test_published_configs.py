"""What the configs of published models are read as: their fields as the checkpoints say them, in brief."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from layerline.models.config_fields import ConfigFields
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.known_families import family_of_config
from layerline.models.query_growth import QueryGrowth
from layerline.models.recurrent import DeltaNetSpec, ShortConvSpec
from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import AttentionSpec, ModelSpec
from layerline.models.text_part import text_config

SENSES: dict[str, object] = {"vision_config": {"model_type": "vision"}}


def spec_of(config: Mapping[str, object]) -> ModelSpec:
    fields = text_config(ConfigFields(config, "config.json"))
    return family_of_config(fields.text("model_type")).from_config(fields)


def width_of(feed_forward: FeedForwardSpec) -> int:
    return feed_forward.intermediate


def every_fourth(layers: int, usual: str) -> list[str]:
    return [usual if (layer + 1) % 4 else "full_attention" for layer in range(layers)]


# Llama 4: https://huggingface.co/meta-llama
LLAMA4_TEXT = {
    "model_type": "llama4_text",
    "attention_bias": False,
    "attention_chunk_size": 8192,
    "bos_token_id": 200000,
    "eos_token_id": [200001, 200007, 200008],
    "for_llm_compressor": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "num_attention_heads": 40,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "vocab_size": 202048,
    "attn_temperature_tuning": 4,
    "floor_scale": 8192,
    "attn_scale": 0.1,
}
SCOUT = {
    **LLAMA4_TEXT,
    "interleave_moe_layer_step": 1,
    "max_position_embeddings": 10485760,
    "moe_layers": list(range(48)),
    "no_rope_layers": [1, 1, 1, 0] * 12,
    "num_local_experts": 16,
    "use_qk_norm": True,
    "rope_scaling": {
        "factor": 16.0,
        "high_freq_factor": 1.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}
MAVERICK = {
    **LLAMA4_TEXT,
    "interleave_moe_layer_step": 2,
    "max_position_embeddings": 1048576,
    "moe_layers": list(range(1, 48, 2)),
    "no_rope_layers": [],
    "num_local_experts": 128,
    "use_qk_norm": False,
    "rope_scaling": None,
}


@pytest.mark.parametrize("text", [SCOUT, MAVERICK], ids=["Scout", "Maverick"])
def test_llama4(text: dict[str, object]) -> None:
    whole = {"model_type": "llama4", **SENSES, "text_config": text, "tie_word_embeddings": False}
    spec, is_scout = spec_of(whole), text is SCOUT
    chunked, full = spec.layer(2).attention, spec.layer(3).attention
    assert (spec.layers, spec.hidden, spec.vocabulary, spec.norm_epsilon) == (48, 5120, 202048, 1e-5)
    assert not spec.tied_output
    assert [layer for layer in range(48) if spec.layer(layer).attention.rope is None] == list(range(3, 48, 4))
    assert (chunked.heads, chunked.kv_heads, chunked.head_dim, chunked.chunk_tokens) == (40, 8, 128, 8192)
    assert chunked.qk_norm == ("turned_heads" if is_scout else "none")
    assert chunked.query_growth is None
    assert chunked.rope is not None
    assert (chunked.rope.interleaved, chunked.rope.theta) == (True, 500000.0)
    assert (chunked.rope.scaling, chunked.rope.factor) == (("llama3", 16.0) if is_scout else ("none", 1.0))
    assert (full.chunk_tokens, full.qk_norm) == (0, "none")
    assert full.query_growth == QueryGrowth(factor=0.1, length=8192, offset=1)
    sparse = [layer for layer in range(48) if spec.layer(layer).feed_forward.experts is not None]
    assert sparse == list(range(48) if is_scout else range(1, 48, 2))
    experts = spec.layer(1).feed_forward.experts
    assert experts is not None
    assert (experts.count, experts.chosen, experts.shared_intermediate) == (16 if is_scout else 128, 1, 8192)
    assert (experts.scoring, experts.weighs_input, experts.normalised) == ("sigmoid_of_chosen", True, False)
    assert width_of(spec.layer(0).feed_forward) == (8192 if is_scout else 16384)


# Gemma 4: https://huggingface.co/google
GEMMA4_TEXT = {
    "model_type": "gemma4_text",
    "attention_bias": False,
    "attention_k_eq_v": False,
    "bos_token_id": 2,
    "enable_moe_block": False,
    "eos_token_id": 1,
    "expert_intermediate_size": None,
    "final_logit_softcapping": 30.0,
    "global_head_dim": 512,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131072,
    "moe_intermediate_size": None,
    "num_attention_heads": 8,
    "num_experts": None,
    "num_global_key_value_heads": None,
    "num_kv_shared_layers": 0,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "sliding_window": 512,
    "tie_word_embeddings": True,
    "top_k_experts": None,
    "use_bidirectional_attention": None,
    "use_double_wide_mlp": False,
    "vocab_size": 262144,
    "vocab_size_per_layer_input": 262144,
}


def gemma4(layers: int, every: int, **text: object) -> ModelSpec:
    kinds = ["sliding_attention" if (layer + 1) % every else "full_attention" for layer in range(layers)]
    own = {**GEMMA4_TEXT, "num_hidden_layers": layers, "layer_types": kinds, **text}
    return spec_of({"model_type": "gemma4", **SENSES, "text_config": own, "tie_word_embeddings": True})


E2B = {
    "hidden_size": 1536,
    "hidden_size_per_layer_input": 256,
    "intermediate_size": 6144,
    "num_key_value_heads": 1,
    "num_kv_shared_layers": 20,
    "use_double_wide_mlp": True,
}
LARGE = {
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "max_position_embeddings": 262144,
    "sliding_window": 1024,
    "use_bidirectional_attention": "vision",
}
A4B = {
    **LARGE,
    "enable_moe_block": True,
    "hidden_size": 2816,
    "intermediate_size": 2112,
    "moe_intermediate_size": 704,
    "num_attention_heads": 16,
    "num_experts": 128,
    "num_global_key_value_heads": 2,
    "num_key_value_heads": 8,
    "top_k_experts": 8,
}
DENSE_31B = {
    **LARGE,
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_global_key_value_heads": 4,
    "num_key_value_heads": 16,
}


def sizes_of(attention: AttentionSpec) -> tuple[int, int, int, int]:
    return attention.heads, attention.kv_heads, attention.head_dim, attention.window_tokens


def test_gemma4_with_inputs_of_each_layer() -> None:
    spec = gemma4(35, 5, **E2B)
    assert (spec.token_input, spec.tied_output, spec.logit_cap) == (256, True, 30.0)
    assert spec.embedding_scale == pytest.approx(1536**0.5)
    assert sizes_of(spec.layer(0).attention) == (8, 1, 256, 512)
    assert sizes_of(spec.layer(4).attention) == (8, 1, 512, 0)
    assert [spec.source_of(layer) for layer in (13, 14, 15, 18, 19, 34)] == [None, None, 13, 13, 14, 14]
    assert [width_of(spec.layer(layer).feed_forward) for layer in (14, 15)] == [6144, 12288]
    assert spec.layer(4).attention.rope == RopeSpec(theta=1e6, rotated=128, scaling="proportional")
    assert spec.layer(0).attention.rope == RopeSpec(theta=1e4)


def test_gemma4_with_experts() -> None:
    spec = gemma4(30, 6, **A4B)
    sliding, full = spec.layer(0), spec.layer(5)
    assert (sizes_of(sliding.attention), sizes_of(full.attention)) == ((16, 8, 256, 1024), (16, 2, 512, 0))
    assert (sliding.attention.keys_as_values, full.attention.keys_as_values) == (False, True)
    experts = full.feed_forward.experts
    assert experts is not None
    assert (experts.count, experts.chosen, experts.shared_intermediate) == (128, 8, 2112)
    assert (width_of(full.feed_forward), experts.apart, experts.expert_scales) == (704, True, True)
    assert spec.token_input == 0


def test_gemma4_that_is_dense() -> None:
    spec = gemma4(60, 6, **DENSE_31B)
    assert sizes_of(spec.layer(0).attention) == (32, 16, 256, 1024)
    assert sizes_of(spec.layer(59).attention) == (32, 4, 512, 0)
    assert (spec.context_tokens, spec.shares_pages, spec.layer(0).attention.score_scale) == (262144, False, 1.0)


# LFM2: https://huggingface.co/LiquidAI
LFM2 = {
    "model_type": "lfm2",
    "block_auto_adjust_ff_dim": True,
    "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 256,
    "block_norm_eps": 1e-05,
    "bos_token_id": 1,
    "conv_L_cache": 3,
    "conv_bias": False,
    "eos_token_id": 7,
    "max_position_embeddings": 128000,
    "norm_eps": 1e-05,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rope_theta": 1000000.0,
    "tie_embedding": True,
    "vocab_size": 65536,
}
ATTENTION_OF_16 = [2, 5, 8, 10, 12, 14]


@pytest.mark.parametrize(
    ("hidden", "heads", "said", "width"), [(1024, 16, 6656, 4608), (1536, 24, 10240, 6912), (2048, 32, 12288, 8192)]
)
@pytest.mark.parametrize("key", ["block_ff_dim", "intermediate_size"])
@pytest.mark.parametrize("listed", [True, False])
def test_lfm2(hidden: int, heads: int, said: int, width: int, key: str, *, listed: bool) -> None:
    kinds = ["full_attention" if layer in ATTENTION_OF_16 else "conv" for layer in range(16)]
    layers: dict[str, object] = {"layer_types": kinds} if listed else {"full_attn_idxs": ATTENTION_OF_16}
    spec = spec_of({**LFM2, "hidden_size": hidden, "num_attention_heads": heads, key: said, **layers})
    assert [layer for layer in range(16) if not spec.layer(layer).recurrent] == ATTENTION_OF_16
    assert spec.layer(0).recurrent == ShortConvSpec(channels=hidden, taps=3)
    attention = spec.layer(2).attention
    assert (attention.heads, attention.kv_heads, attention.head_dim, attention.qk_norm) == (heads, 8, 64, "heads")
    assert attention.rope == RopeSpec(theta=1e6)
    assert width_of(spec.layer(0).feed_forward) == width
    assert (spec.tied_output, spec.norm_epsilon) == (True, 1e-5)


def test_an_lfm2_whose_width_is_not_rounded() -> None:
    sizes = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 1000}
    assert width_of(spec_of({**LFM2, **sizes, "block_ffn_dim_multiplier": None}).layer(0).feed_forward) == 666
    assert width_of(spec_of({**LFM2, **sizes, "block_auto_adjust_ff_dim": False}).layer(0).feed_forward) == 1000


LFM2_8B_A1B = {
    "model_type": "lfm2_moe",
    "bos_token_id": 1,
    "conv_L_cache": 3,
    "conv_bias": False,
    "eos_token_id": 7,
    "hidden_size": 2048,
    "intermediate_size": 7168,
    "layer_types": ["full_attention" if layer in (2, 6, 10, 14, 18, 21) else "conv" for layer in range(24)],
    "max_position_embeddings": 128000,
    "moe_intermediate_size": 1792,
    "norm_eps": 1e-05,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_dense_layers": 2,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "rope_theta": 1000000.0,
    "routed_scaling_factor": 1.0,
    "use_expert_bias": True,
    "vocab_size": 65536,
}


def test_lfm2_with_experts() -> None:
    spec = spec_of(LFM2_8B_A1B)
    assert [spec.layer(layer).feed_forward.intermediate for layer in (0, 1, 2, 23)] == [7168, 7168, 1792, 1792]
    experts = spec.layer(2).feed_forward.experts
    assert experts is not None
    assert (experts.count, experts.chosen, experts.scoring, experts.normalised) == (32, 4, "sigmoid", True)
    assert (experts.choice_bias, experts.scale, experts.shared_intermediate) == (True, 1.0, 0)
    assert spec.tied_output


@pytest.mark.parametrize("config", [{**LFM2, "hidden_size": 1024, "num_attention_heads": 16}, LFM2_8B_A1B])
@pytest.mark.parametrize("tied", [True, False])
def test_an_lfm2_is_tied_as_tie_embedding_says(config: dict[str, object], *, tied: bool) -> None:
    assert spec_of({**config, "tie_embedding": tied, "tie_word_embeddings": not tied}).tied_output is tied


# Qwen3-Next and Qwen3.5: https://huggingface.co/Qwen
QWEN3_NEXT = {
    "model_type": "qwen3_next",
    "attention_bias": False,
    "bos_token_id": 151643,
    "decoder_sparse_step": 1,
    "eos_token_id": 151645,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "mlp_only_layers": [],
    "moe_intermediate_size": 512,
    "norm_topk_prob": True,
    "num_attention_heads": 16,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 48,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000000,
    "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
NEW_ROPE = {
    "rope_scaling": None,
    "mlp_only_layers": None,
    "partial_rotary_factor": None,
    "rope_theta": None,
    "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"},
}


@pytest.mark.parametrize("more", [{}, NEW_ROPE], ids=["as published", "as saved anew"])
def test_qwen3_next(more: dict[str, object]) -> None:
    spec = spec_of({**QWEN3_NEXT, **more})
    attention, experts = spec.layer(3).attention, spec.layer(0).feed_forward.experts
    assert [layer for layer in range(48) if not spec.layer(layer).recurrent] == list(range(3, 48, 4))
    assert spec.layer(0).recurrent == DeltaNetSpec(value_heads=32, key_heads=16, key_dim=128, value_dim=128, taps=4)
    assert sizes_of(attention) == (16, 2, 256, 0)
    assert (attention.output_gate, attention.qk_norm, attention.qkv_bias) == (True, "heads", False)
    assert attention.rope == RopeSpec(theta=1e7, rotated=64)
    assert experts is not None
    assert (experts.count, experts.chosen, experts.normalised, experts.scoring) == (512, 10, True, "softmax")
    assert (experts.shared_intermediate, experts.shared_gate, width_of(spec.layer(0).feed_forward)) == (512, True, 512)
    assert (spec.tied_output, spec.context_tokens) == (False, 262144)


QWEN3_5_TEXT = {
    "attention_bias": False,
    "attn_output_gate": True,
    "dtype": "bfloat16",
    "eos_token_id": 248044,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144,
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
        "rope_type": "default",
    },
    "vocab_size": 248320,
}


def qwen3_5(model_type: str, layers: int, *, tied: bool = False, **text: object) -> ModelSpec:
    own = {**QWEN3_5_TEXT, "model_type": f"{model_type}_text", "num_hidden_layers": layers, **text}
    own["layer_types"] = every_fourth(layers, "linear_attention")
    return spec_of({"model_type": model_type, **SENSES, "text_config": own, "tie_word_embeddings": tied})


@pytest.mark.parametrize(
    ("layers", "hidden", "width", "heads", "kv_heads", "value_heads", "tied"),
    [
        (24, 1024, 3584, 8, 2, 16, True),  # 0.8B
        (32, 4096, 12288, 16, 4, 32, False),  # 9B
        (64, 5120, 17408, 24, 4, 48, False),  # 27B
    ],
)
def test_dense_qwen3_5(
    layers: int, hidden: int, width: int, heads: int, kv_heads: int, value_heads: int, *, tied: bool
) -> None:
    spec = qwen3_5(
        "qwen3_5",
        layers,
        tied=tied,
        hidden_size=hidden,
        intermediate_size=width,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        linear_num_value_heads=value_heads,
    )
    delta_net = spec.layer(0).recurrent
    assert isinstance(delta_net, DeltaNetSpec)
    assert (delta_net.value_heads, delta_net.key_heads, delta_net.tiled) == (value_heads, 16, False)
    assert sizes_of(spec.layer(3).attention) == (heads, kv_heads, 256, 0)
    assert spec.layer(3).attention.rope == RopeSpec(theta=1e7, rotated=64)
    assert (width_of(spec.layer(0).feed_forward), spec.layer(0).feed_forward.experts) == (width, None)
    assert spec.tied_output is tied


@pytest.mark.parametrize(
    ("layers", "hidden", "width", "count", "chosen", "heads", "value_heads"),
    [(40, 2048, 512, 256, 8, 16, 32), (48, 3072, 1024, 256, 8, 32, 64), (60, 4096, 1024, 512, 10, 32, 64)],
    ids=["35B-A3B", "122B-A10B", "397B-A17B"],
)
def test_qwen3_5_with_experts(
    layers: int, hidden: int, width: int, count: int, chosen: int, heads: int, value_heads: int
) -> None:
    spec = qwen3_5(
        "qwen3_5_moe",
        layers,
        hidden_size=hidden,
        moe_intermediate_size=width,
        shared_expert_intermediate_size=width,
        num_experts=count,
        num_experts_per_tok=chosen,
        num_attention_heads=heads,
        num_key_value_heads=2,
        linear_num_value_heads=value_heads,
    )
    feed_forward = spec.layer(1).feed_forward
    assert feed_forward.experts is not None
    assert (width_of(feed_forward), feed_forward.experts.count, feed_forward.experts.chosen) == (width, count, chosen)
    assert (feed_forward.experts.shared_intermediate, feed_forward.experts.shared_gate) == (width, True)
    assert (feed_forward.experts.normalised, feed_forward.experts.scoring) == (True, "softmax")
    assert sizes_of(spec.layer(3).attention) == (heads, 2, 256, 0)
