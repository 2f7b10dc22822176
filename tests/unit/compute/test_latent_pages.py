"""Attention over pages that hold a latent: what is read is the last numbers of keys, in every form they are held in."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from layerline.frames import PageRun, Span
from layerline.models.latent import LatentSpec
from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import AttentionSpec
from node.model.attention.backend import LayerAttention
from node.model.attention.passes import KeysPass, attention_pass
from node.model.attention.run_attention import RunAttention

CPU = torch.device("cpu")
ROWS, PAGE_TOKENS, TURNED, RANK = 45, 4, 16, 32
LATENT = AttentionSpec(
    heads=6,
    kv_heads=1,
    head_dim=TURNED + RANK,
    value_dim=RANK,
    rope=RopeSpec(theta=10000.0, rotated=TURNED),
    scale=0.2,
    latent=LatentSpec(query_rank=0, plain_dim=16, value_dim=16, norm_epsilon=1e-6),
)
WITHIN = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-2, "int8": 3e-2}
SCATTERED = tuple(PageRun(first=page, count=1) for page in (9, 3, 6, 0, 1, 11, 10, 2, 4, 5, 7, 8))


def test_the_cpu_has_a_fast_pass_for_it() -> None:
    assert isinstance(attention_pass(LATENT, CPU), KeysPass)


@pytest.mark.parametrize("soft_cap", [0.0, 2.0])
@pytest.mark.parametrize("kv_dtype", WITHIN)
@pytest.mark.parametrize("chunk", [45, 7, 1])
def test_rows_read_latents(kv_dtype: str, chunk: int, soft_cap: float) -> None:
    spec = replace(LATENT, soft_cap=soft_cap)
    generator = torch.Generator().manual_seed(1)
    q_TKGD = torch.randn(ROWS, 1, 6, TURNED + RANK, generator=generator)
    k_TKD = torch.randn(ROWS, 1, TURNED + RANK, generator=generator)
    attention = RunAttention.allocate(
        [LayerAttention(spec=spec)],
        pages=12,
        page_tokens=PAGE_TOKENS,
        kv_dtype=kv_dtype,
        dtype=torch.float32,
        device=CPU,
    )
    parts = []
    for start in range(0, ROWS, chunk):
        count = min(chunk, ROWS - start)
        step = attention.plan([Span(sequence=1, start=start, count=count, pages=SCATTERED)])
        own = slice(start, start + count)
        parts.append(step.attend(0, q_TKGD[own], (k_TKD[own], k_TKD[own, :, TURNED:])))
    scores_GTS = torch.einsum("tgd,sd->gts", q_TKGD[:, 0].double(), k_TKD[:, 0].double()) * 0.2
    if soft_cap:
        scores_GTS = soft_cap * torch.tanh(scores_GTS / soft_cap)
    scores_GTS.masked_fill_(torch.ones(ROWS, ROWS).triu(1).bool(), -torch.inf)
    expected_TGE = torch.einsum("gts,se->tge", scores_GTS.softmax(-1), k_TKD[:, 0, TURNED:].double())
    off = torch.cat(parts)[:, 0].double() - expected_TGE
    assert off.norm() / expected_TGE.norm() < WITHIN[kv_dtype]
