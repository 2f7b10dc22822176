"""Keys and values in fewer bits: near the exact answer, and the same answer however a model and its tokens are cut.

The bound is that int8 may be no further from float32 than computing in bfloat16 is, which is what users get by default.
Measured on the models below, with everything else in float32: 0.5 to 1.2 times as far; see docs/performance.md for
real models.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fakes.cases import cases
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import Rows, StageChain, StoredModel, chunks, logits_of, pages_of

TOKENS = [int(token) for token in np.random.default_rng(3).integers(3, 260, 28)]
PROMPT = TOKENS[:11]
MODELS = {
    "llama": TinyModel(layers=4),
    "qwen2 of 9 heads of 3": TinyModel(family="qwen2", layers=4, hidden=72, heads=9, kv_heads=3, head_dim=12),
    "heads of two groups": TinyModel(layers=4, head_dim=64),
}


@pytest.fixture(scope="module", params=cases(MODELS, more=["qwen2 of 9 heads of 3"]))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    return StoredModel.written(tmp_path_factory.mktemp("tiny"), MODELS[request.param])


def logits(chain: StageChain, chunk_tokens: int = 1) -> NDArray[np.float32]:
    """Those after each chunk of TOKENS."""
    drawn = [chain.step(Rows(token_ids=ids, start=start))[0] for start, ids in chunks(TOKENS, chunk_tokens)]
    return np.stack([logits_of(token) for token in drawn])


@pytest.mark.parametrize(("kv_dtype", "share"), [("float32", 0.0), ("float16", 0.1), ("bfloat16", 0.6), ("int8", 1.3)])
def test_keys_and_values_in_fewer_bits_cost_no_more_than_computing_in_bfloat16(
    model: StoredModel, kv_dtype: str, share: float
) -> None:
    exact, coarse = logits(model.chain(1)), logits(model.chain(1, dtype="bfloat16"))
    off = logits(model.chain(1, kv_dtype=kv_dtype)) - exact
    assert np.linalg.norm(off) <= share * np.linalg.norm(coarse - exact)
    assert (np.linalg.norm(off) > 0) == (share > 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cuts_and_repetition_do_not_change_a_bit(model: StoredModel, dtype: str) -> None:
    whole = logits(model.chain(1, dtype=dtype, kv_dtype="int8"), 5)
    for stages in (1, 2, 4):
        np.testing.assert_array_equal(logits(model.chain(stages, dtype=dtype, kv_dtype="int8"), 5), whole)


def test_greedy_answers_do_not_depend_on_stages_chunks_or_company(model: StoredModel) -> None:
    answer = model.chain(1, kv_dtype="int8").greedy(PROMPT, 12)
    for stages in (1, 3):
        chain = model.chain(stages, kv_dtype="int8")
        for size in (1, 3, 11):
            assert greedy_beside_another(chain, size, 12) == answer


def greedy_beside_another(chain: StageChain, chunk_tokens: int, count: int) -> list[int]:
    """The answer to PROMPT on scattered pages, while another sequence goes on in each step."""
    own, others = pages_of([9, 4, 13, 2, 7, 1, 12]), pages_of([30, 20, 40, 21, 22, 41])
    tokens: list[int] = []
    waiting, start, step = list(chunks(PROMPT, chunk_tokens)), 0, 0
    while len(tokens) < count:
        start, ids = waiting.pop(0) if waiting else (len(PROMPT) + len(tokens) - 1, tokens[-1:])
        company = Rows(token_ids=[TOKENS[step]], start=step, pages=others, sequence=2)
        drawn, _ = chain.step(Rows(token_ids=ids, start=start, pages=own), company)
        step += 1
        if not waiting:
            tokens.append(drawn.token_id)
    return tokens
