"""The configs of published models, as their checkpoints say them, in brief.

https://huggingface.co/meta-llama, google, LiquidAI and Qwen
"""

from __future__ import annotations

from collections.abc import Mapping

Config = Mapping[str, object]

SENSES: dict[str, object] = {"vision_config": {"model_type": "vision"}}

LLAMA4_TEXT: dict[str, object] = {
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

SCOUT: dict[str, object] = {
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

MAVERICK: dict[str, object] = {
    **LLAMA4_TEXT,
    "interleave_moe_layer_step": 2,
    "max_position_embeddings": 1048576,
    "moe_layers": list(range(1, 48, 2)),
    "no_rope_layers": [],
    "num_local_experts": 128,
    "use_qk_norm": False,
    "rope_scaling": None,
}

GEMMA4_TEXT: dict[str, object] = {
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

E2B: dict[str, object] = {
    "hidden_size": 1536,
    "hidden_size_per_layer_input": 256,
    "intermediate_size": 6144,
    "num_key_value_heads": 1,
    "num_kv_shared_layers": 20,
    "use_double_wide_mlp": True,
}

LARGE: dict[str, object] = {
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "max_position_embeddings": 262144,
    "sliding_window": 1024,
    "use_bidirectional_attention": "vision",
}

A4B: dict[str, object] = {
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

DENSE_31B: dict[str, object] = {
    **LARGE,
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_global_key_value_heads": 4,
    "num_key_value_heads": 16,
}

LFM2: dict[str, object] = {
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

LFM2_8B_A1B: dict[str, object] = {
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

QWEN3_NEXT: dict[str, object] = {
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

QWEN3_5_TEXT: dict[str, object] = {
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


def llama4(text: Config) -> Config:
    return {"model_type": "llama4", **SENSES, "text_config": text, "tie_word_embeddings": False}


def gemma4(layers: int, every: int, text: Config) -> Config:
    kinds = ["sliding_attention" if (layer + 1) % every else "full_attention" for layer in range(layers)]
    own = {**GEMMA4_TEXT, "num_hidden_layers": layers, "layer_types": kinds, **text}
    return {"model_type": "gemma4", **SENSES, "text_config": own, "tie_word_embeddings": True}


def qwen3_5(model_type: str, layers: int, *, tied: bool = False, **text: object) -> Config:
    own = {**QWEN3_5_TEXT, "model_type": f"{model_type}_text", "num_hidden_layers": layers, **text}
    own["layer_types"] = [("linear" if (layer + 1) % 4 else "full") + "_attention" for layer in range(layers)]
    return {"model_type": model_type, **SENSES, "text_config": own, "tie_word_embeddings": tied}


PUBLISHED: dict[str, Config] = {
    "Llama 4 Scout": llama4(SCOUT),
    "Llama 4 Maverick": llama4(MAVERICK),
    "Gemma 4 E2B": gemma4(35, 5, E2B),
    "Gemma 4 26B-A4B": gemma4(30, 6, A4B),
    "Gemma 4 31B": gemma4(60, 6, DENSE_31B),
    "LFM2 350M": {
        **LFM2,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "block_ff_dim": 6656,
        "full_attn_idxs": ATTENTION_OF_16,
    },
    "LFM2 8B-A1B": LFM2_8B_A1B,
    "Qwen3-Next 80B-A3B": QWEN3_NEXT,
    "Qwen3.5 27B": qwen3_5(
        "qwen3_5",
        64,
        hidden_size=5120,
        intermediate_size=17408,
        num_attention_heads=24,
        num_key_value_heads=4,
        linear_num_value_heads=48,
    ),
    "Qwen3.5 35B-A3B": qwen3_5(
        "qwen3_5_moe",
        40,
        hidden_size=2048,
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
        num_experts=256,
        num_experts_per_tok=8,
        num_attention_heads=16,
        num_key_value_heads=2,
        linear_num_value_heads=32,
    ),
}
