"""Split stages as they serve: crowds, windows, int8, the memory that each rank takes, and what cannot be split."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from layerline.errors import PlanInvalidError
from layerline.frames import Sampling
from node.ranks.rank_mapping import SLOT_BYTES
from tests.fakes.crowd import Crowd
from tests.fakes.logits import assert_close
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.ranked_stages import ranked_chain, ranks_of
from tests.fakes.tiny_models import (
    Rows,
    StageChain,
    StoredModel,
    chunks,
    logits_of,
    pages_of,
    reference_greedy,
    reference_logits,
)

SLOW = pytest.mark.slow

CONTEXT_TOKENS = 40
STEM = [3 + (11 * place) % 250 for place in range(24)]
PROMPTS = [STEM[: n + 1] + [5 + (7 * own + 13 * n) % 250 for own in range(n % 5)] for n in range(0, 24, 3)]
NINE = TinyModel(layers=4, hidden=72, heads=9, kv_heads=3, head_dim=12)
WINDOW = 7
GROUP_BYTES = 2 * 2 * SLOT_BYTES


@pytest.fixture(scope="module")
def nine(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    return StoredModel.written(tmp_path_factory.mktemp("nine"), NINE)


@pytest.mark.more
@pytest.mark.parametrize("degrees", [(2,), pytest.param((3, 2), marks=SLOW), pytest.param((1, 2), marks=SLOW)], ids=str)
def test_a_crowd_gets_what_each_gets_alone(nine: StoredModel, degrees: tuple[int, ...]) -> None:
    """Batches, chunks, shared prefixes and preemption, whatever chance says; one sequence takes up to 10 pages."""
    reference = nine.reference()
    answers = [reference_greedy(reference, prompt, CONTEXT_TOKENS - len(prompt)) for prompt in PROMPTS]
    luck = random.Random(len(degrees))
    with ranked_chain(nine, degrees, pages=12) as chain:
        crowd = Crowd(chain, luck, pages=12, context_tokens=CONTEXT_TOKENS)
        asked: list[int] = []
        while len(asked) < 7 or not crowd.scheduler.idle:
            if len(asked) < 7 and luck.random() < 0.3:
                asked.append(luck.randrange(len(PROMPTS)))
                crowd.ask(len(asked) - 1, PROMPTS[asked[-1]], 0)
            crowd.move()
    assert crowd.answers == {number: answers[prompt] for number, prompt in enumerate(asked)}
    figures = crowd.scheduler.figures()
    assert figures.hit_tokens > 0
    assert figures.preemptions > 0


def answers_of(chain: StageChain) -> NDArray[np.float32]:
    return np.stack([logits_of(chain.step(Rows(token_ids=ids, start=start))[0]) for start, ids in chunks(STEM, 5)])


def test_windows(tmp_path: Path) -> None:
    tiny = TinyModel(family="qwen2", layers=4)
    config = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2}
    model = StoredModel.written(tmp_path, tiny, config)
    expected = reference_logits(model.reference(), STEM)
    with ranked_chain(model, [2, 4]) as chain:
        for size in (1, 5, 24):
            for start, ids in chunks(STEM, size):
                (drawn,) = chain.step(Rows(token_ids=ids, start=start))
                assert_close(logits_of(drawn), expected[start + len(ids) - 1])


def test_int8_keys_and_values_are_as_near_as_those_of_the_unsplit_stage(nine: StoredModel) -> None:
    """A number that lies between two steps may be rounded either way, so that the answers are only near."""
    exact, coarse = answers_of(nine.chain(1)), answers_of(nine.chain(1, kv_dtype="int8"))
    for degrees in ([2], [3, 2]):
        with ranked_chain(nine, degrees, kv_dtype="int8") as chain:
            off = np.linalg.norm(answers_of(chain) - exact)
        assert 0 < off < 1.3 * np.linalg.norm(coarse - exact)


def tensors_bytes() -> int:
    """Of the memory of all tensors that there are."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if type(thing) is torch.Tensor]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


@pytest.mark.parametrize("proportions", [(), (3, 1)], ids=str)
def test_a_rank_takes_the_memory_of_its_share(tmp_path: Path, proportions: tuple[int, ...]) -> None:
    """In float32, since the size of a packed matrix cannot be asked for. The memory of the group is not the rank's."""
    model = StoredModel.written(tmp_path, TinyModel(layers=2, hidden=256, intermediate=768, heads=8, kv_heads=4))
    parts = []
    for rank in range(2):
        before_bytes = tensors_bytes()
        stage = ranks_of(model, 2, 0, 1, proportions)[rank]
        taken_bytes = tensors_bytes() - before_bytes - GROUP_BYTES
        parts.append(stage.weights_bytes + stage.kv_bytes)
        assert taken_bytes == pytest.approx(parts[-1], rel=0.1)
        del stage
    whole = model.stage()
    assert sum(parts) == pytest.approx(whole.weights_bytes + whole.kv_bytes, rel=0.03)
    due = proportions[0] / sum(proportions) if proportions else 0.5
    assert parts[0] == pytest.approx(due * sum(parts), rel=0.1)


def test_a_gguf_whose_rows_are_in_another_order_is_split_the_same_way(nine: StoredModel, tmp_path: Path) -> None:
    gguf = StoredModel.at(write_gguf(tmp_path / "nine.gguf", NINE))
    with ranked_chain(gguf, [3]) as chain, ranked_chain(nine, [3]) as expected:
        np.testing.assert_array_equal(answers_of(chain), answers_of(expected))


def test_more_ranks_than_heads_are_no_stage(nine: StoredModel) -> None:
    with pytest.raises(PlanInvalidError, match="9 attention heads cannot be split over 10 devices"):
        ranks_of(nine, 10, 0, 3)


class Poisoned(TinyModel):
    """A model that has no answer."""

    def weights(self) -> dict[str, NDArray[np.float32]]:
        weights = super().weights()
        weights["final_norm"][0] = np.nan
        return weights


def test_logits_that_are_no_numbers_fail_each_sequence_and_leave_the_ranks_in_step(tmp_path: Path) -> None:
    """There are more rows than one block: rank 1 would wait for ever if rank 0 gave up at the first."""
    model = StoredModel.written(tmp_path, Poisoned(layers=2))
    rows = [
        Rows(token_ids=[3 + page], pages=pages_of([page]), sequence=page, sampling=Sampling(return_logits=page == 1))
        for page in range(70)
    ]
    with ranked_chain(model, [2], max_rows=96, pages=96) as chain:
        for _ in range(2):
            assert chain.result(*rows).failed == tuple(range(70))
