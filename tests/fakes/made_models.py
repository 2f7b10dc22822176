"""Tiny random models that `transformers` makes of a config: as a folder and, if `gguf` can write it, as a file.

What distinguishes a model is in its config; names in GGUF come from the `gguf` library.
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
WINDOWED = ["sliding_attention", "full_attention"] * (LAYERS // 2)
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


def pairs_interleaved(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it where it calls the rotation that of Llama."""
    for side, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
        if f".{side}." in name:
            return {name: interleave_pairs(rows, heads)}
    return {name: rows}


def conv_squeezed(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: the taps of a channel are a row."""
    return {name: rows[:, 0] if name.endswith("conv.weight") else rows}


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
    """How llama.cpp's converter writes a family: further keys and tensors, and what it makes of one of the folder."""

    architecture: str
    keys: Mapping[str, object] = field(default_factory=dict)
    converted: Callable[[str, Rows], Mapping[str, Rows]] = as_it_is
    tensors: Mapping[str, Rows] = field(default_factory=dict)


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
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))
        if name.endswith("layer_scalar"):
            buffer.copy_(1.0 + 0.2 * torch.randn(buffer.shape, generator=generator))
    made.tie_weights()
    made.to(getattr(torch, dtype)).save_pretrained(folder)
    settings = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": CHAT_TEMPLATE}
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "generation_config.json", {"eos_token_id": [2]})
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def write_family_gguf(
    path: Path,
    folder: Path,
    model: FamilyModel,
    *,
    storage_of: Callable[[str], str] = lambda name: "",
    in_one: bool = False,
) -> Path:
    """The folder's weights as a GGUF file: in float32, or in what `storage_of` says of a name.

    With `in_one` queries, keys and values are stacked, and the gates and ups of experts.
    """
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
    stored: dict[str, Rows] = {}
    for own_name, own_rows in experts_stacked(load_file(folder / "model.safetensors")).items():
        for name, rows in model.gguf.converted(own_name, own_rows).items():
            known = name.replace("e_score_correction_bias", "e_score_correction.bias")  # as the converter does
            stored_name = names.get_name(known, try_suffixes=(".weight", ".bias", ".scale"))
            assert stored_name is not None, name
            stored[stored_name] = rows
    for name, rows in (_in_one(stored) if in_one else stored).items():
        kind = gguf.GGMLQuantizationType[storage_of(name) or "F32"]
        writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(rows), kind), raw_dtype=kind)
    for name, rows in model.gguf.tensors.items():
        writer.add_tensor(name, rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _in_one(stored: Mapping[str, Rows]) -> dict[str, Rows]:
    left = dict(stored)
    for name in stored:
        for first, others, stack in (("attn_q.", ("attn_k.", "attn_v."), "attn_qkv."), _GATES_AND_UPS):
            if first in name:
                parts = [left.pop(name.replace(first, other)) for other in (first, *others)]
                left[name.replace(first, stack)] = np.concatenate(parts, axis=-2 if parts[0].ndim > 1 else 0)
    return left


_GATES_AND_UPS = ("ffn_gate_exps.", ("ffn_up_exps.",), "ffn_gate_up_exps.")


def copied(folder: Path, target: Path, config: Mapping[str, Any]) -> Path:
    """The folder with another config."""
    shutil.copytree(folder, target)
    write_json(target / "config.json", config)
    return target
