"""Tiny random models as files: the same weights as a GGUF file or as a safetensors folder, with a real tokenizer.

`TinyModel` holds weights by canonical name, logical shape and Hugging Face row order; the writers put them into
each container's names and order with the containers' own libraries, so that reading is tested against those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tests.fakes.family_traits import TRAITS
from tests.fakes.stored_rows import stored_rows
from tests.fakes.tiny_tokenizer import CHAT_TEMPLATE, tokenizer, tokenizer_metadata, tokens

ROPE_THETA = 10000.0
EPSILON = 1e-5

_CONTAINER_NAMES = {
    "embedding": ("model.embed_tokens.weight", "token_embd.weight"),
    "final_norm": ("model.norm.weight", "output_norm.weight"),
    "output": ("lm_head.weight", "output.weight"),
    "attention_norm": ("input_layernorm.weight", "attn_norm.weight"),
    "q": ("self_attn.q_proj.weight", "attn_q.weight"),
    "q_bias": ("self_attn.q_proj.bias", "attn_q.bias"),
    "k": ("self_attn.k_proj.weight", "attn_k.weight"),
    "k_bias": ("self_attn.k_proj.bias", "attn_k.bias"),
    "v": ("self_attn.v_proj.weight", "attn_v.weight"),
    "v_bias": ("self_attn.v_proj.bias", "attn_v.bias"),
    "q_norm": ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    "k_norm": ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    "attention_output": ("self_attn.o_proj.weight", "attn_output.weight"),
    "qkv": ("self_attn.qkv_proj.weight", "attn_qkv.weight"),
    "gate_up": ("mlp.gate_up_proj.weight", "ffn_up.weight"),
    "ffn_norm": ("post_attention_layernorm.weight", "ffn_norm.weight"),
    "gate": ("mlp.gate_proj.weight", "ffn_gate.weight"),
    "up": ("mlp.up_proj.weight", "ffn_up.weight"),
    "down": ("mlp.down_proj.weight", "ffn_down.weight"),
}


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """Sizes and weights of a model of a few thousand numbers."""

    family: str = "llama"
    layers: int = 2
    hidden: int = 64
    intermediate: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    context_tokens: int = 256
    tied_output: bool = True
    seed: int = 0
    spare_ids: int = 0  # token ids that the tokenizer does not have; only of a folder

    @property
    def vocabulary(self) -> int:
        return len(tokens()) + self.spare_ids

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Canonical name to logical shape."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"embedding": (self.vocabulary, self.hidden), "final_norm": (self.hidden,)}
        if not self.tied_output:
            shapes["output"] = (self.vocabulary, self.hidden)
        for n in range(self.layers):
            layer: dict[str, tuple[int, ...]] = {
                "attention_norm": (self.hidden,),
                "q": (queries, self.hidden),
                "k": (keys, self.hidden),
                "v": (keys, self.hidden),
                "attention_output": (self.hidden, queries),
                "ffn_norm": (self.hidden,),
                "gate": (self.intermediate, self.hidden),
                "up": (self.intermediate, self.hidden),
                "down": (self.hidden, self.intermediate),
            }
            if TRAITS[self.family].qkv_bias:
                layer |= {"q_bias": (queries,), "k_bias": (keys,), "v_bias": (keys,)}
            if TRAITS[self.family].qk_norm:
                layer |= {"q_norm": (self.head_dim,), "k_norm": (self.head_dim,)}
            shapes |= {f"layers.{n}.{name}": shape for name, shape in layer.items()}
        return shapes

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Canonical name to float32 numbers; norms lie around 1."""
        generator = np.random.default_rng(self.seed)
        weights = {}
        for name, shape in self.shapes().items():
            numbers = 0.2 * generator.standard_normal(shape, dtype=np.float32)
            weights[name] = numbers + 1 if name.endswith("norm") else numbers
        return weights

    def config(self) -> dict[str, object]:
        """The model's config.json."""
        return {
            "architectures": [TRAITS[self.family].class_name],
            "model_type": self.family,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context_tokens,
            "rms_norm_eps": EPSILON,
            "rope_theta": ROPE_THETA,
            "tie_word_embeddings": self.tied_output,
            "torch_dtype": "float32",
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
        }

    def metadata(self) -> dict[str, object]:
        """The model's GGUF keys without the tokenizer's."""
        return {
            f"{self.family}.{key}": value
            for key, value in {
                "block_count": self.layers,
                "context_length": self.context_tokens,
                "embedding_length": self.hidden,
                "feed_forward_length": self.intermediate,
                "attention.head_count": self.heads,
                "attention.head_count_kv": self.kv_heads,
                "attention.key_length": self.head_dim,
                "attention.value_length": self.head_dim,
                "attention.layer_norm_rms_epsilon": EPSILON,
                "rope.freq_base": ROPE_THETA,
            }.items()
        }


def stored_name(name: str, container: str) -> str:
    """The canonical name as "gguf" or "safetensors" has it."""
    part = name.rpartition(".")[2]
    in_safetensors, in_gguf = _CONTAINER_NAMES[part]
    if not name.startswith("layers."):
        return in_gguf if container == "gguf" else in_safetensors
    layer = name.split(".")[1]
    return f"blk.{layer}.{in_gguf}" if container == "gguf" else f"model.layers.{layer}.{in_safetensors}"


def interleave_pairs(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """The row order of `permute` in llama.cpp's conversion of llama models."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(
    path: Path,
    model: TinyModel,
    *,
    storage: str = "F32",
    metadata: Mapping[str, object | None] | None = None,
    tensors: Mapping[str, NDArray[np.float32] | None] | None = None,
    part_tensors: int = 0,
) -> Path:
    """Writes the model to `path`, matrices in `storage`.

    With `part_tensors` in parts of at most so many, of which the first is returned. `metadata` and `tensors` (by stored
    name) replace or add; a None takes away. Quantised storage needs rows of whole blocks; of a storage
    that the `gguf` library only reads they are random ones.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, model.family, split_max_tensors=part_tensors)
    for key, value in {**model.metadata(), **tokenizer_metadata(), **(metadata or {})}.items():
        if value is not None:
            add_metadata(writer, key, value)
    rows_of = {name: _gguf_rows(model, name, rows) for name, rows in model.weights().items()}
    stored = {stored_name(name, "gguf"): rows for name, rows in stacked(model, rows_of).items()}
    for name, numbers in {**stored, **(tensors or {})}.items():
        if numbers is not None:
            kind = gguf.GGMLQuantizationType["F32" if numbers.ndim == 1 else storage]
            writer.add_tensor(name, _stored(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return next(iter(sorted(path.parent.glob(f"{path.stem}-00001-of-*.gguf")))) if part_tensors else path


def _stored(numbers: NDArray[np.float32], kind: gguf.GGMLQuantizationType) -> NDArray[np.generic]:
    try:
        stored: NDArray[np.generic] = gguf.quants.quantize(numbers, kind)
    except NotImplementedError:
        return stored_rows(kind.name, *numbers.shape)
    return stored


def write_folder(
    folder: Path,
    model: TinyModel,
    *,
    shards: int = 1,
    dtype: type[np.generic] = np.float32,
    config: Mapping[str, object] | None = None,
    tensors: Mapping[str, NDArray[np.generic] | None] | None = None,
) -> Path:
    """Writes the model as a folder; `config` and `tensors` (by stored name) replace or add, a None takes away."""
    folder.mkdir(parents=True, exist_ok=True)
    rows_of = stacked(model, model.weights())
    weights = {stored_name(name, "safetensors"): rows.astype(dtype) for name, rows in rows_of.items()}
    stored = {name: rows for name, rows in {**weights, **(tensors or {})}.items() if rows is not None}
    _write_shards(folder, stored, shards)
    settings = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": CHAT_TEMPLATE}
    write_json(folder / "config.json", {**model.config(), **(config or {})})
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "generation_config.json", {"eos_token_id": [2]})
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def write_json(path: Path, value: object) -> None:
    """Writes `value` as JSON."""
    path.write_text(json.dumps(value))


def _write_shards(folder: Path, stored: Mapping[str, NDArray[np.generic]], shards: int) -> None:
    if shards == 1:
        save_file(dict(stored), folder / "model.safetensors")
        return
    weight_map = {
        name: f"model-{index % shards + 1:05}-of-{shards:05}.safetensors" for index, name in enumerate(stored)
    }
    for file in set(weight_map.values()):
        save_file({name: stored[name] for name in stored if weight_map[name] == file}, folder / file)
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def stacked(model: TinyModel, weights: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """The tensors as the family stores them."""
    stored = dict(weights)
    for n in range(model.layers):
        for name, parts in TRAITS[model.family].stacks.items():
            rows = [stored.pop(f"layers.{n}.{part}") for part in parts]
            stored[f"layers.{n}.{name}"] = np.concatenate(rows)
    return stored


def _gguf_rows(model: TinyModel, name: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    heads = {"q": model.heads, "k": model.kv_heads}.get(name.rpartition(".")[2])
    return interleave_pairs(rows, heads) if heads and TRAITS[model.family].pairs_in_gguf else rows


def add_metadata(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        assert isinstance(value, list)
        writer.add_array(key, value)
