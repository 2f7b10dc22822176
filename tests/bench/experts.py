"""Case experts: how fast one stream decodes with a model of experts, beside a dense one that reads as many bytes.

Both are random models of Qwen3's shape, one stage computed by the kernels in this process. A token of the one reads 8
of 64 experts in each layer, and hardly ever those of the token before; that of the other reads one feed-forward as
large as 8 experts. Needs no lab and no model from outside.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median

import gguf
import numpy as np

from layerline.frames import Frame, PageRun, Sampling, Span, TensorBytes
from layerline.models.index import index_model
from layerline.models.storage import stored_bytes
from layerline.plan import StageSpec
from node.load_stage import load_stage
from node.stage import Stage
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.repetitions import in_turn, ratio_of
from tests.fakes.model_files import add_metadata
from tests.fakes.tiny_tokenizer import tokenizer_metadata, tokens

STORAGE = "Q4_0"
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 8, 1024, 8, 2, 128
EXPERTS, CHOSEN, WIDTH = 64, 8, 768
CONTEXT_TOKENS = 256
WARM_TOKENS = 8
Shapes = dict[str, tuple[int, ...]]


def measure(effort: Effort) -> Figures:
    """The speed of one stream with each."""
    with tempfile.TemporaryDirectory() as folder:
        stages = {kind: _stage(Path(folder), kind) for kind in ("experts", "dense")}
        measures = [partial(_tokens_per_s, stage, effort.answer_tokens) for stage in stages.values()]
        found = dict(zip(stages, in_turn(measures, effort.repeats), strict=True))
    rows = [
        Row(case="experts", model=kind, nodes=1, streams=1, figures={"tokens_per_s": median(speeds)})
        for kind, speeds in found.items()
    ]
    ratios = {"moe_decode_over_dense": ratio_of(found["experts"], found["dense"])}
    return Figures(rows=tuple(rows), ratios=ratios)


def _tokens_per_s(stage: Stage, count: int, repetition: int) -> float:
    """Of random tokens, one after the other, each after those before."""
    ids = np.random.default_rng(repetition).integers(3, len(tokens()), WARM_TOKENS + count).astype(np.int32)
    pages = (PageRun(first=0, count=CONTEXT_TOKENS // 16),)
    started_s = 0.0
    for place, token_id in enumerate(ids):
        if place == WARM_TOKENS:
            started_s = time.perf_counter()
        span = Span(sequence=1, start=place, count=1, pages=pages, draws=1, sampling=Sampling())
        tensor = TensorBytes(dtype="int32", shape=(1,), data=token_id.tobytes())
        stage.run(Frame(epoch=1, step=place + 1, spans=(span,), tensor=tensor))
    return count / (time.perf_counter() - started_s)


def _stage(folder: Path, kind: str) -> Stage:
    path = _written(folder / f"{kind}.gguf", kind)
    card = index_model(path, kind, lambda done_bytes, total_bytes: None)
    spec = StageSpec(
        model=kind,
        digest=card.digest,
        first_layer=0,
        last_layer=LAYERS - 1,
        dtype="float32",
        devices=("cpu",),
        pages=CONTEXT_TOKENS // 16,
        page_tokens=16,
        max_rows=16,
        precision="standard",
        weights="stored",
        kv_dtype="float16",
    )
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    stage = load_stage(card, path, spec, lambda done_bytes, total_bytes: None, threads=threads)
    path.unlink()
    return stage


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


def _written(path: Path, kind: str) -> Path:
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
            blocks[:, :2] = np.frombuffer(np.float16(0.004).tobytes(), np.uint8)
            rows = blocks.reshape(*shape[:-1], -1)
            writer.add_tensor(name, rows, raw_dtype=gguf.GGMLQuantizationType[STORAGE])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
