"""A tiny random model of each family, made by `transformers` from its config: a folder and, if `gguf` can, a file.

A family adds a row to FAMILIES. What distinguishes it is in its config; names in GGUF come from the `gguf` library.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.fakes.model_files import add_metadata, interleave_pairs, write_json
from tests.fakes.tiny_tokenizer import CHAT_TEMPLATE, tokenizer, tokenizer_metadata, tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Rows = NDArray[np.float32]
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, CONTEXT = 64, 4, 2, 16, 4, 128

SIZES: dict[str, object] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": len(tokens()),
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GGUF_SIZES: dict[str, object] = {
    "block_count": LAYERS,
    "context_length": CONTEXT,
    "embedding_length": HIDDEN,
    "feed_forward_length": 96,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
    "attention.key_length": HEAD_DIM,
    "attention.value_length": HEAD_DIM,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 10000.0,
}


def as_it_is(name: str, rows: Rows) -> Mapping[str, Rows]:
    """A tensor of a folder under its own name."""
    return {name: rows}


def norms_from_zero(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it for Gemma: its weights of norms are one less than what is multiplied."""
    return {name: rows + 1 if name.endswith("norm.weight") else rows}


def gate_as_vector(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: sides of 1 are left out."""
    return {name: rows.squeeze()}


def gpt_oss_experts(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: gate and up apart, and outputs as rows."""
    if name.endswith("sinks"):
        return {f"{name}.weight": rows}
    stack, _, part = name.partition(".experts.")
    if not part:
        return {name: rows}
    ending = ".bias" if part.endswith("_bias") else ".weight"
    own = rows if ending == ".bias" else rows.swapaxes(1, 2)
    if part.startswith("down"):
        return {f"{stack}.experts.down_proj{ending}": own}
    return {f"{stack}.experts.{half}_proj{ending}": own[:, first::2] for first, half in enumerate(("gate", "up"))}


def granite_experts(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: gate and up of all experts apart, and the rows of heads as Llama's."""
    for stack in ("block_sparse_moe.input_linear", "block_sparse_moe.experts.gate_up_proj"):
        if stack in name:
            layer, half = name.partition(".block_sparse_moe.")[0], rows.shape[1] // 2
            parts = {"gate": rows[:, :half], "up": rows[:, half:]}
            return {f"{layer}.mlp.experts.{part}_proj.weight": part_rows for part, part_rows in parts.items()}
    return pairs_interleaved(name, rows)


def pairs_interleaved(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it where it calls the rotation that of Llama."""
    for side, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
        if f".{side}." in name:
            return {name: interleave_pairs(rows, heads)}
    return {name: rows}


def latent_apart(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: of each head what makes keys, transposed, and what makes values."""
    if not name.endswith("kv_b_proj.weight"):
        return {name: rows}
    keys, values = np.split(rows.reshape(HEADS, -1, rows.shape[1]), [32], axis=1)
    return {name.replace("kv_b", "k_b"): keys.transpose(0, 2, 1), name.replace("kv_b", "v_b"): values}


_STACKED = re.compile(r"(.*experts)\.(\d+)\.(.*)")


def experts_stacked(tensors: Mapping[str, Rows]) -> dict[str, Rows]:
    """As llama.cpp's converter does it: the matrices of all experts in one."""
    stacks: dict[str, list[Rows]] = {}
    for name in sorted(tensors, key=lambda name: [int(part) if part.isdigit() else part for part in name.split(".")]):
        found = _STACKED.fullmatch(name)
        if found:
            stacks.setdefault(f"{found[1]}.{found[3]}", []).append(tensors[name])
    rest = {name: rows for name, rows in tensors.items() if not _STACKED.fullmatch(name)}
    return {**rest, **{name: np.stack(rows) for name, rows in stacks.items()}}


@dataclass(frozen=True, kw_only=True)
class InGguf:
    """How llama.cpp's converter writes a family: further keys, and what it makes of a tensor of the folder."""

    architecture: str
    keys: Mapping[str, object] = field(default_factory=dict)
    converted: Callable[[str, Rows], Mapping[str, Rows]] = as_it_is


@dataclass(frozen=True, kw_only=True)
class FamilyModel:
    """A model by what its config has besides SIZES; `gguf` is None where that has no such family.

    `most_ranks` is how many devices a stage can have.
    """

    config: Mapping[str, object]
    gguf: InGguf | None = None
    most_ranks: int = 2


def write_family(folder: Path, model: FamilyModel, *, dtype: str = "float32") -> Path:
    """The model as a folder, its tensors in `dtype`."""
    import torch  # noqa: PLC0415, since only whoever compares needs it
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    folder.mkdir(parents=True)
    write_json(folder / "config.json", {**SIZES, **model.config})
    config = AutoConfig.from_pretrained(folder)
    make: Callable[..., PreTrainedModel] = AutoModelForCausalLM.from_config
    made = make(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(5)
    for name, parameter in made.named_parameters():
        numbers = 0.2 * torch.randn(parameter.shape, generator=generator)
        parameter.data = numbers + (1.0 if name.endswith("norm.weight") else 0.0)
    for name, buffer in made.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))
    made.tie_weights()
    made.to(getattr(torch, dtype)).save_pretrained(folder)
    settings = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": CHAT_TEMPLATE}
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "generation_config.json", {"eos_token_id": [2]})
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def write_family_gguf(
    path: Path, folder: Path, model: FamilyModel, *, storage_of: Callable[[str], str] = lambda name: ""
) -> Path:
    """The folder's weights as a GGUF file: in float32, or in what `storage_of` says of a name."""
    from safetensors.numpy import load_file  # noqa: PLC0415

    assert model.gguf is not None
    architectures = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    layers = {**SIZES, **model.config}["num_hidden_layers"]
    assert isinstance(layers, int)
    names = gguf.get_tensor_name_map(architectures[model.gguf.architecture], layers)
    writer = gguf.GGUFWriter(path, model.gguf.architecture)
    keys = {f"{model.gguf.architecture}.{key}": value for key, value in {**GGUF_SIZES, **model.gguf.keys}.items()}
    for key, value in {**keys, **tokenizer_metadata()}.items():
        if value is not None:
            add_metadata(writer, key, value)
    for own_name, own_rows in experts_stacked(load_file(folder / "model.safetensors")).items():
        for name, rows in model.gguf.converted(own_name, own_rows).items():
            known = name.replace("e_score_correction_bias", "e_score_correction.bias")  # as the converter does
            stored_name = names.get_name(known, try_suffixes=(".weight", ".bias"))
            assert stored_name is not None, name
            kind = gguf.GGMLQuantizationType[storage_of(stored_name) or "F32"]
            writer.add_tensor(stored_name, gguf.quants.quantize(np.ascontiguousarray(rows), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def copied(folder: Path, target: Path, config: Mapping[str, Any]) -> Path:
    """The folder with another config."""
    shutil.copytree(folder, target)
    write_json(target / "config.json", config)
    return target


EXPERTS: dict[str, object] = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40}
EXPERTS_IN_GGUF: dict[str, object] = {
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_feed_forward_length": 40,
}
LATENT: dict[str, object] = {
    "num_key_value_heads": HEADS,
    "kv_lora_rank": 32,
    "q_lora_rank": 48,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 48,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
    "first_k_dense_replace": 1,
}
YARN_OF_DEEPSEEK: dict[str, object] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}
LATENT_IN_GGUF: dict[str, object] = {
    "leading_dense_block_count": 1,
    "attention.head_count_kv": 1,
    "attention.kv_lora_rank": 32,
    "attention.q_lora_rank": 48,
    "attention.key_length": 48,
    "attention.value_length": 32,
    "attention.key_length_mla": 48,
    "attention.value_length_mla": 48,
    "rope.dimension_count": 16,
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_feed_forward_length": 40,
    "expert_shared_count": 1,
}
OLDER_LATENT_IN_GGUF: dict[str, object] = {
    **LATENT_IN_GGUF,
    "attention.head_count_kv": HEADS,
    "attention.value_length": 48,
    "attention.key_length_mla": None,
    "attention.value_length_mla": None,
}
GROUPS_IN_GGUF: dict[str, object] = {"expert_group_count": 4, "expert_group_used_count": 2}
YARN_IN_GGUF: dict[str, object] = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32,
    "rope.scaling.yarn_log_multiplier": 0.0707,
}
GPT_OSS: dict[str, object] = {
    "model_type": "gpt_oss",
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "sliding_window": 9,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 4.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 32,
    },
}
WINDOWED = ["sliding_attention", "full_attention"] * (LAYERS // 2)
FAMILIES: dict[str, FamilyModel] = {
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
    "mixtral": FamilyModel(
        config={"model_type": "mixtral", "num_local_experts": 5, "sliding_window": 9, "rope_theta": 10000.0}
    ),
    "mixtral as llama": FamilyModel(
        config={"model_type": "mixtral", "num_local_experts": 5, "rope_theta": 10000.0},
        gguf=InGguf(
            architecture="llama",
            keys={"expert_count": 5, "expert_used_count": 2},
            converted=pairs_interleaved,
        ),
    ),
    "qwen2_moe": FamilyModel(
        config={"model_type": "qwen2_moe", **EXPERTS, "shared_expert_intermediate_size": 72},
        gguf=InGguf(
            architecture="qwen2moe",
            keys={**EXPERTS_IN_GGUF, "expert_shared_feed_forward_length": 72},
            converted=gate_as_vector,
        ),
    ),
    "qwen2_moe with windows": FamilyModel(
        config={
            "model_type": "qwen2_moe",
            **EXPERTS,
            "shared_expert_intermediate_size": 72,
            "norm_topk_prob": True,
            "use_sliding_window": True,
            "sliding_window": 9,
            "max_window_layers": 3,
            "qkv_bias": False,
            "decoder_sparse_step": 2,
        },
    ),
    "qwen3_moe": FamilyModel(
        config={"model_type": "qwen3_moe", **EXPERTS, "norm_topk_prob": True},
        gguf=InGguf(architecture="qwen3moe", keys=EXPERTS_IN_GGUF),
    ),
    "qwen3_moe with dense layers": FamilyModel(
        config={"model_type": "qwen3_moe", **EXPERTS, "mlp_only_layers": [0, 2], "attention_bias": True},
    ),
    "olmoe": FamilyModel(
        config={"model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": True},
        most_ranks=1,
    ),
    "olmoe as it is": FamilyModel(
        config={"model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 3},
        gguf=InGguf(architecture="olmoe", keys={"expert_count": 8, "expert_used_count": 3}),
        most_ranks=1,
    ),
    "granitemoe": FamilyModel(
        config={
            "model_type": "granitemoe",
            "num_local_experts": 6,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.3,
            "logits_scaling": 2.5,
        },
        gguf=InGguf(
            architecture="granitemoe",
            keys={
                "expert_count": 6,
                "expert_used_count": 2,
                "embedding_scale": 3.0,
                "residual_scale": 0.4,
                "attention.scale": 0.3,
                "logit_scale": 2.5,
            },
            converted=granite_experts,
        ),
    ),
    "gpt_oss": FamilyModel(config={**GPT_OSS, "layer_types": WINDOWED}),
    "gpt_oss in bounds": FamilyModel(
        config=GPT_OSS,
        gguf=InGguf(
            architecture="gpt-oss",
            keys={
                "expert_count": 6,
                "expert_used_count": 3,
                "expert_feed_forward_length": 96,
                "attention.sliding_window": 9,
                "rope.freq_base": 150000.0,
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 32,
            },
            converted=gpt_oss_experts,
        ),
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
    "glm": FamilyModel(config={"model_type": "glm"}),
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
    "deepseek_v2": FamilyModel(
        config={
            "model_type": "deepseek_v2",
            **LATENT,
            "n_shared_experts": 2,
            "n_group": 4,
            "topk_group": 2,
            "topk_method": "group_limited_greedy",
            "routed_scaling_factor": 2.5,
            "rope_parameters": YARN_OF_DEEPSEEK,
        },
        gguf=InGguf(
            architecture="deepseek2",
            keys={
                **OLDER_LATENT_IN_GGUF,
                **GROUPS_IN_GGUF,
                **YARN_IN_GGUF,
                "expert_shared_count": 2,
                "expert_weights_scale": 2.5,
            },
        ),
    ),
    "deepseek_v2 lite": FamilyModel(
        config={"model_type": "deepseek_v2", **LATENT, "q_lora_rank": None, "n_shared_experts": 2},
    ),
    "deepseek_v3": FamilyModel(
        config={
            "model_type": "deepseek_v3",
            **LATENT,
            "n_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "rope_parameters": YARN_OF_DEEPSEEK,
        },
        gguf=InGguf(
            architecture="deepseek2",
            keys={
                **LATENT_IN_GGUF,
                **GROUPS_IN_GGUF,
                **YARN_IN_GGUF,
                "expert_gating_func": 2,
                "expert_weights_scale": 2.5,
                "expert_weights_norm": True,
            },
            converted=latent_apart,
        ),
    ),
    "deepseek_v3 in halves": FamilyModel(
        config={
            "model_type": "deepseek_v3",
            **LATENT,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": False,
            "rope_interleave": False,
            "rope_parameters": {**YARN_OF_DEEPSEEK, "mscale": 0.5},
        },
    ),
    "glm4_moe_lite": FamilyModel(
        config={"model_type": "glm4_moe_lite", **LATENT, "n_shared_experts": 1, "routed_scaling_factor": 1.8},
        gguf=InGguf(
            architecture="deepseek2",
            keys={
                **LATENT_IN_GGUF,
                "expert_gating_func": 2,
                "expert_weights_scale": 1.8,
                "expert_weights_norm": True,
            },
            converted=latent_apart,
        ),
    ),
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
    "minimax_m2": FamilyModel(
        config={
            "model_type": "minimax_m2",
            "num_local_experts": 8,
            "num_experts_per_tok": 3,
            "partial_rotary_factor": 0.5,
        },
        gguf=InGguf(
            architecture="minimax-m2",
            keys={
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 96,
                "rope.dimension_count": HEAD_DIM // 2,
                "rope.freq_base": 5000000.0,
            },
        ),
        most_ranks=1,
    ),
    "glm4_moe": FamilyModel(
        config={
            "model_type": "glm4_moe",
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5,
            "n_group": 4,
            "topk_group": 2,
            "use_qk_norm": True,
            "attention_bias": True,
        },
    ),
    "glm4_moe in one group": FamilyModel(
        config={
            "model_type": "glm4_moe",
            **EXPERTS,
            "n_routed_experts": 8,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5,
        },
        gguf=InGguf(
            architecture="glm4moe",
            keys={
                **EXPERTS_IN_GGUF,
                "rope.dimension_count": HEAD_DIM // 2,
                "expert_shared_count": 2,
                "expert_weights_scale": 1.5,
                "expert_weights_norm": True,
                "leading_dense_block_count": 1,
            },
        ),
    ),
}
