"""Random models of Qwen3's shape in GGUF: one of experts, and a dense one that reads as many bytes for a token."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from layerline.models.storage import stored_bytes
from tests.fakes.model_files import add_metadata
from tests.fakes.tiny_tokenizer import tokenizer_metadata, tokens

STORAGE = "Q4_0"
SCALE = 0.004  # of blocks
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 8, 1024, 8, 2, 128
EXPERTS, CHOSEN, WIDTH = 64, 8, 768
CONTEXT_TOKENS = 256
Shapes = dict[str, tuple[int, ...]]


def _shapes(kind: str) -> Shapes:
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    layer: Shapes = {
        "attn_norm": (HIDDEN,),
        "attn_q": (queries, HIDDEN),
        "attn_k": (keys, HIDDEN),
        "attn_v": (keys, HIDDEN),
        "attn_q_norm": (HEAD_DIM,),
        "attn_k_norm": (HEAD_DIM,),
        "attn_output": (HIDDEN, queries),
        "ffn_norm": (HIDDEN,),
    }
    width = CHOSEN * WIDTH
    of_kinds: dict[str, Shapes] = {
        "experts": {
            "ffn_gate_inp": (EXPERTS, HIDDEN),
            "ffn_gate_exps": (EXPERTS, WIDTH, HIDDEN),
            "ffn_up_exps": (EXPERTS, WIDTH, HIDDEN),
            "ffn_down_exps": (EXPERTS, HIDDEN, WIDTH),
        },
        "dense": {"ffn_gate": (width, HIDDEN), "ffn_up": (width, HIDDEN), "ffn_down": (HIDDEN, width)},
    }
    layer |= of_kinds[kind]
    shapes = {f"blk.{n}.{name}.weight": shape for n in range(LAYERS) for name, shape in layer.items()}
    return {**shapes, "token_embd.weight": (len(tokens()), HIDDEN), "output_norm.weight": (HIDDEN,)}


def _metadata(kind: str) -> Mapping[str, object]:
    architecture = {"experts": "qwen3moe", "dense": "qwen3"}[kind]
    keys: dict[str, object] = {
        "block_count": LAYERS,
        "context_length": CONTEXT_TOKENS,
        "embedding_length": HIDDEN,
        "feed_forward_length": CHOSEN * WIDTH,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    if kind == "experts":
        keys |= {"expert_count": EXPERTS, "expert_used_count": CHOSEN, "expert_feed_forward_length": WIDTH}
    return {f"{architecture}.{key}": value for key, value in keys.items()}


def write_model(path: Path, kind: str) -> Path:
    """Norms of ones, a random router, and matrices of random blocks whose scales are small."""
    random, metadata = np.random.default_rng(3), _metadata(kind)
    writer = gguf.GGUFWriter(path, next(iter(metadata)).partition(".")[0])
    for key, value in {**metadata, **tokenizer_metadata()}.items():
        if value is not None:
            add_metadata(writer, key, value)
    for name, shape in _shapes(kind).items():
        if len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, np.float32))
        elif "gate_inp" in name:
            writer.add_tensor(name, random.standard_normal(shape, np.float32))
        else:
            nbytes = stored_bytes(STORAGE, shape)
            blocks = np.frombuffer(random.bytes(nbytes), np.uint8).reshape(-1, 18).copy()
            for unit in (0x01, 0x10):  # -7 to 7, so that their mean is 0 and rows remain unlike
                blocks[blocks // unit % 16 == 0] += 8 * unit
            blocks[:, :2] = np.frombuffer(np.float16(SCALE).tobytes(), np.uint8)
            rows = blocks.reshape(*shape[:-1], -1)
            writer.add_tensor(name, rows, raw_dtype=gguf.GGMLQuantizationType[STORAGE])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
