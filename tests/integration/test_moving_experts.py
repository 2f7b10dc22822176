"""Experts that move between real ranks: answers go on, and whatever fails, they are where they were or the stage is
lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerline.errors import LayerlineError, ProtocolError, StageFailedError
from layerline.models.card import ModelCard
from layerline.models.expert_placement import ExpertPlacement
from layerline.models.index import index_model
from node.daemon.stages.kept import KeptStage
from node.daemon.workers.patience import Patience
from tests.fakes.family_models import FAMILIES
from tests.fakes.made_models import write_family, write_family_gguf
from tests.fakes.rank_node import RankNode

pytestmark = pytest.mark.system

DEADLINE_S = 90.0
BRIEF = Patience(frozen_s=1.0, prepare_s=20.0)
PROMPT = (5, 6, 7, 8)
COUNT = 12
BY_KERNELS: dict[str, Any] = {"precision": "full", "weights": "stored", "kv_dtype": "float32", "page_tokens": 16}
EITHER_RANK = pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
COMPUTED = pytest.mark.parametrize("computed", [{}, BY_KERNELS], ids=["torch", "kernels"])
FIRST = ExpertPlacement(((0, 1, 2, 3), (4, 5, 6, 7)))
APART = ExpertPlacement(((0, 2, 4, 6, 1), (1, 3, 5, 7)))
TURNED = ExpertPlacement(((4, 5, 6, 7), (0, 1, 2, 3)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelCard]:
    family, folder = FAMILIES["qwen3_moe"], tmp_path_factory.mktemp("model")
    path = write_family_gguf(folder / "tiny.gguf", write_family(folder / "folder", family), family)
    card = index_model(path, "tiny.gguf", lambda _done, _total: None)
    path.with_suffix(".card").write_bytes(card.to_bytes())
    return path, card


@pytest.fixture
async def node(model: tuple[Path, ModelCard]) -> AsyncIterator[RankNode]:
    async with asyncio.timeout(DEADLINE_S):
        node = RankNode(*model)
        node.patience = BRIEF
        yield node
        await node.keeper.close()


async def load(node: RankNode, **computed: Any) -> KeptStage:
    return await node.load(2, experts="spread", repeats=2, **computed)


@COMPUTED
async def test_experts_move_while_an_answer_goes_on(node: RankNode, computed: dict[str, Any]) -> None:
    stage, alone = await load(node, **computed), node.drawn_alone(*PROMPT, count=COUNT)
    assert set(stage.placements.values()) == {FIRST}
    moves = [(layer, placement) for placement in (APART, TURNED) for layer in range(4)]
    async with node.ring(stage) as ring:
        answering = asyncio.create_task(ring.greedy(*PROMPT, count=COUNT))
        for layer, placement in moves:
            await node.keeper.move_experts(stage, layer, placement)
            assert stage.placements[layer] == placement
        assert await answering == alone
        assert await ring.greedy(*PROMPT, count=COUNT) == alone


async def test_the_rows_of_experts_are_told(node: RankNode) -> None:
    """Each of 3 experts a row, in every layer; what is told last is all there was."""
    stage = await load(node)
    async with node.ring(stage) as ring:
        await ring.greedy(*PROMPT, count=COUNT)
        rows = len(PROMPT) + COUNT - 1
        chosen = await node.chosen(3 * rows)
    assert chosen.layers == (0, 1, 2, 3)
    assert np.array(chosen.rows).shape == (4, 8)
    assert np.array(chosen.rows).sum(1).tolist() == [3 * rows] * 4


@EITHER_RANK
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("kill", "Rank {rank} (cpu:{rank}) of node kitchen was killed (SIGKILL)"),
        ("freeze", "Rank {rank} (cpu:{rank}) of node kitchen was frozen"),
    ],
)
async def test_a_rank_is_lost_while_experts_move(node: RankNode, rank: int, fault: str, told: str) -> None:
    node.has_fault(rank, "move", fault)
    stage = await load(node)
    async with node.ring(stage) as ring:
        await ring.greedy(*PROMPT)
        with pytest.raises(StageFailedError, match="Rank"):
            await node.keeper.move_experts(stage, 1, APART)
        assert told.format(rank=rank) in str(await node.lost)
    assert node.keeper.loaded == ()
    node.has_fault(-1, "move", "kill")
    assert await node.greedy(await load(node), *PROMPT) == node.drawn_alone(*PROMPT)


@EITHER_RANK
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("memory", "cannot load the experts that were to come (MemoryError)"),
        pytest.param("raise", "(out of luck)", marks=pytest.mark.slow),
    ],
)
async def test_a_move_that_fails_on_a_rank_leaves_all_as_it_was(
    node: RankNode, rank: int, fault: str, told: str
) -> None:
    node.has_fault(rank, "move", fault)
    stage, alone = await load(node), node.drawn_alone(*PROMPT)
    async with node.ring(stage) as ring:
        with pytest.raises(StageFailedError) as raised:
            await node.keeper.move_experts(stage, 1, APART)
        assert told in str(raised.value)
        assert f"Rank {rank}" in str(raised.value)
        assert "stay where they are" in raised.value.remedy
        assert stage.placements[1] == FIRST
        assert await ring.greedy(*PROMPT) == alone
        await node.keeper.move_experts(stage, 1, APART)  # the next one works
        assert stage.placements[1] == APART
        assert await ring.greedy(*PROMPT) == alone


async def test_two_moves_at_once_are_made_one_after_the_other(node: RankNode) -> None:
    node.has_fault(1, "move", "slow")
    stage, alone = await load(node), node.drawn_alone(*PROMPT)
    async with node.ring(stage) as ring:
        moves = [node.keeper.move_experts(stage, 1, placement) for placement in (APART, TURNED)]
        await asyncio.gather(*moves, ring.greedy(*PROMPT))
        assert stage.placements[1] == TURNED
        assert await ring.greedy(*PROMPT) == alone


async def test_a_move_that_is_given_up_leaves_all_as_it_was(node: RankNode) -> None:
    node.has_fault(0, "move", "slow")
    stage, alone = await load(node), node.drawn_alone(*PROMPT)
    async with node.ring(stage) as ring:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(node.keeper.move_experts(stage, 1, APART), 0.3)
        assert stage.placements[1] == FIRST
        assert await ring.greedy(*PROMPT) == alone
        await node.keeper.move_experts(stage, 1, APART)
        assert await ring.greedy(*PROMPT) == alone


async def test_a_rank_that_takes_too_long_is_told_and_not_ended(node: RankNode) -> None:
    node.has_fault(1, "move", "slow")
    node.patience = Patience(prepare_s=0.3)
    stage, alone = await load(node), node.drawn_alone(*PROMPT)
    async with node.ring(stage) as ring:
        with pytest.raises(LayerlineError, match="did not load the experts that were to come within"):
            await node.keeper.move_experts(stage, 1, APART)
        assert await ring.greedy(*PROMPT) == alone


async def test_what_cannot_be_moved_is_refused_by_name(node: RankNode) -> None:
    stage, full = await load(node), ExpertPlacement((tuple(range(6)), (4, 5, 6, 7)))
    await node.keeper.move_experts(stage, 1, full)
    wrong = {
        "layer 4": (4, APART),
        "3 ranks instead of 2": (0, ExpertPlacement(((0, 1, 2), (3, 4, 5), (6, 7)))),
        "other experts than 0 to 7": (0, ExpertPlacement(((0, 1, 2, 3), (4, 5, 6)))),
        "room for 6 experts of a layer, not for 8": (1, ExpertPlacement((tuple(range(8)), (4, 5, 6, 7)))),
        "4 experts come to a rank at once, of at most 2": (0, TURNED),
    }
    for words, (layer, placement) in wrong.items():
        with pytest.raises(ProtocolError, match=words):
            await node.keeper.move_experts(stage, layer, placement)
    assert stage.placements == {0: FIRST, 1: full, 2: FIRST, 3: FIRST}
    split = await node.load(2)
    with pytest.raises(ProtocolError, match="no experts of layer 0 that could be moved"):
        await node.keeper.move_experts(split, 0, APART)


async def test_experts_change_sides_where_some_lie_beside_the_only_device(node: RankNode) -> None:
    beside: dict[str, Any] = {"experts": "spread", "expert_device": "cpu:1", "device_experts": 3}
    stage, alone = await node.load(1, **beside), node.drawn_alone(*PROMPT, count=COUNT)
    async with node.ring(stage) as ring:
        answering = asyncio.create_task(ring.greedy(*PROMPT, count=COUNT))
        for layer in range(4):
            await node.keeper.move_experts(stage, layer, ExpertPlacement(((7, 6, 2, 3, 4, 5, 1, 0),)))
        assert await answering == alone
        assert await ring.greedy(*PROMPT, count=COUNT) == alone
        with pytest.raises(ProtocolError, match="3 experts come to a rank at once"):
            await node.keeper.move_experts(stage, 0, ExpertPlacement(((3, 4, 5, 0, 1, 2, 6, 7),)))
    assert set(stage.own_bytes) == {"cpu", "cpu:1"}
