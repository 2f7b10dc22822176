"""Models of families whose every layer has one feed-forward, a row each."""

from __future__ import annotations

from tests.fakes.made_models import HEAD_DIM, LAYERS, WINDOWED, FamilyModel, InGguf, norms_from_zero, pairs_interleaved

DENSE_FAMILIES: dict[str, FamilyModel] = {
    "llama": FamilyModel(
        config={"model_type": "llama"}, gguf=InGguf(architecture="llama", converted=pairs_interleaved)
    ),
    "mistral": FamilyModel(config={"model_type": "mistral", "sliding_window": 9}),
    "phi3": FamilyModel(config={"model_type": "phi3"}, gguf=InGguf(architecture="phi3")),
    "qwen2": FamilyModel(config={"model_type": "qwen2"}, gguf=InGguf(architecture="qwen2")),
    "qwen2 with windows": FamilyModel(
        config={"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 9, "layer_types": WINDOWED}
    ),
    "qwen3": FamilyModel(config={"model_type": "qwen3"}, gguf=InGguf(architecture="qwen3")),
    "gemma": FamilyModel(
        config={"model_type": "gemma", "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
        gguf=InGguf(architecture="gemma", converted=norms_from_zero),
    ),
    "gemma2": FamilyModel(
        config={
            "model_type": "gemma2",
            "hidden_activation": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
            "query_pre_attn_scalar": 16,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
            "sliding_window": 9,
        },
        gguf=InGguf(
            architecture="gemma2",
            keys={
                "attn_logit_softcapping": 5.0,
                "final_logit_softcapping": 3.0,
                "attention.sliding_window": 9,
            },
            converted=norms_from_zero,
        ),
    ),
    "granite": FamilyModel(
        config={
            "model_type": "granite",
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.3,
            "logits_scaling": 2.5,
        },
        gguf=InGguf(
            architecture="granite",
            keys={"embedding_scale": 3.0, "residual_scale": 0.4, "attention.scale": 0.3, "logit_scale": 2.5},
            converted=pairs_interleaved,
        ),
    ),
    "olmo2": FamilyModel(config={"model_type": "olmo2"}, gguf=InGguf(architecture="olmo2"), most_ranks=1),
    "seed_oss": FamilyModel(
        config={"model_type": "seed_oss", "attention_bias": True, "attention_out_bias": True},
    ),
    "seed_oss as it is": FamilyModel(config={"model_type": "seed_oss"}, gguf=InGguf(architecture="seed_oss")),
    "llama with biases": FamilyModel(
        config={"model_type": "llama", "attention_bias": True, "mlp_bias": True},
        gguf=InGguf(architecture="llama", converted=pairs_interleaved),
    ),
    "smollm3": FamilyModel(
        config={"model_type": "smollm3"},
        gguf=InGguf(architecture="smollm3", keys={"rope.freq_base": 2000000.0}, converted=pairs_interleaved),
    ),
    "smollm3 by layers": FamilyModel(config={"model_type": "smollm3", "no_rope_layers": [1, 0, 0, 1]}),
    "gemma3_text": FamilyModel(
        config={
            "model_type": "gemma3_text",
            "num_hidden_layers": 6,
            "hidden_activation": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
            "query_pre_attn_scalar": 16,
            "sliding_window": 9,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
        gguf=InGguf(
            architecture="gemma3",
            keys={
                "block_count": 6,
                "attention.sliding_window": 9,
                "rope.freq_base": 1000000.0,
                "rope.scaling.type": "linear",
                "rope.scaling.factor": 8.0,
            },
            converted=norms_from_zero,
        ),
    ),
    "olmo3": FamilyModel(
        config={
            "model_type": "olmo3",
            "sliding_window": 9,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "rope_theta": 500000.0,
                    "original_max_position_embeddings": 32,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
            },
        },
        most_ranks=1,
    ),
    "cohere2": FamilyModel(
        config={"model_type": "cohere2", "sliding_window": 9, "layer_norm_eps": 1e-5, "tie_word_embeddings": True},
        gguf=InGguf(
            architecture="cohere2",
            keys={
                "attention.sliding_window": 9,
                "attention.layer_norm_epsilon": 1e-5,
                "attention.layer_norm_rms_epsilon": None,
                "logit_scale": 0.0625,
            },
        ),
    ),
    "glm": FamilyModel(
        config={"model_type": "glm", "partial_rotary_factor": 0.5},
        gguf=InGguf(architecture="chatglm", keys={"rope.dimension_count": HEAD_DIM // 2}),
    ),
    "glm4": FamilyModel(
        config={"model_type": "glm4", "partial_rotary_factor": 0.5},
        gguf=InGguf(architecture="glm4", keys={"rope.dimension_count": HEAD_DIM // 2}),
    ),
    "exaone4": FamilyModel(
        config={"model_type": "exaone4", "sliding_window": 9, "sliding_window_pattern": 4},
        gguf=InGguf(architecture="exaone4", keys={"attention.sliding_window": 9}),
    ),
    "exaone4 without windows": FamilyModel(
        config={"model_type": "exaone4", "sliding_window": None, "layer_types": ["full_attention"] * LAYERS},
        gguf=InGguf(architecture="exaone4"),
    ),
    "ministral": FamilyModel(config={"model_type": "ministral", "sliding_window": 9, "layer_types": WINDOWED}),
    "ministral3": FamilyModel(
        config={
            "model_type": "ministral3",
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 32,
                "llama_4_scaling_beta": 0.3,
            },
        },
        gguf=InGguf(
            architecture="mistral3",
            keys={
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 32,
                "rope.scaling.yarn_log_multiplier": 1.0,
                "attention.temperature_scale": 0.3,
            },
            converted=pairs_interleaved,
        ),
    ),
}
