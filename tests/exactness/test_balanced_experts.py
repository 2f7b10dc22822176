"""A router that sends half of its rows to one expert: ranks become even within 200 steps, without a wrong token."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from coordinator.balancing.ledger import ExpertLedger
from layerline.frames import Frame, PageRun
from layerline.hold import LayerPlacement, LayerRows
from layerline.models.expert_placement import ExpertPlacement
from layerline.plan import StagePlan, StageSpec
from layerline.step_result import StepResult
from tests.fakes.booked_pipeline import HandClock
from tests.fakes.family_models import FAMILIES
from tests.fakes.logits import assert_close
from tests.fakes.made_models import FamilyModel, write_family
from tests.fakes.ranked_stages import ranks_of, together
from tests.fakes.tiny_models import BY_KERNELS, Rows, StoredModel, frame_of, logits_of, reference_logits

RANKS, ROWS, STEPS, TOLD_STEPS, TEXT_TOKENS = 4, 16, 200, 32, 40
SPREAD: dict[str, Any] = {"experts": "spread", "repeats": 1, "max_rows": 16, "pages": 160}


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    """Every row chooses expert 0 and one of the seven others, in each layer."""
    config = {**FAMILIES["glm4_moe in one group"].config, "n_routed_experts": 8, "num_experts_per_tok": 2}
    path = write_family(tmp_path_factory.mktemp("skewed") / "model", FamilyModel(config=config))
    tensors = load_file(path / "model.safetensors")
    for name in tensors:
        if name.endswith("e_score_correction_bias"):
            tensors[name] = np.eye(1, 8, dtype=np.float32)[0] * 100.0
    save_file(tensors, path / "model.safetensors")
    return StoredModel.at(path)


class Served:
    """The stage on its ranks, and the ledger that a coordinator keeps of it."""

    def __init__(self, model: StoredModel, **computed: Any) -> None:
        self.ranks = ranks_of(model, RANKS, 0, model.card.spec.layers - 1, **SPREAD, **computed)
        spec = model.spec(**{**computed, **SPREAD, "devices": tuple(f"cpu:{rank}" for rank in range(RANKS))})
        self.steps, self.clock = 0, HandClock()
        first = ExpertPlacement(((0, 1), (2, 3), (4, 5), (6, 7)))
        placements = [LayerPlacement.of(layer, first) for layer in self.ranks[0].experts.rows()]
        self.ledger = ExpertLedger(0, plan_of(spec), placements, self.clock)

    def step(self, *rows: Rows) -> NDArray[np.float32]:
        self.steps += 1
        frame = frame_of(*rows, step=self.steps)
        works: list[Callable[[], StepResult | Frame | None]] = [functools.partial(self.ranks[0].run, frame)]
        works += [functools.partial(rank.follow, frame) for rank in self.ranks[1:]]
        result = together(works)[0]
        assert isinstance(result, StepResult)
        return np.stack([logits_of(token) for token in result.sampled])

    def balance(self) -> float:
        """All moves that are worth it, one layer after the other; how even the steps before were."""
        self.clock.now_s += 61.0
        counted = self.ranks[0].experts.rows()
        self.ledger.counted(LayerRows(layer=layer, rows=rows) for layer, rows in counted.items())
        stats = self.ledger.stats()
        assert stats is not None
        while (candidate := self.ledger.candidate()) is not None:
            better = candidate.better()
            if better is None:
                self.ledger.refused(candidate.layer)
                continue
            prepared = [functools.partial(rank.experts.prepared, candidate.layer, better) for rank in self.ranks]
            for take in together(prepared):
                take()
            self.ledger.moved(candidate.layer, better)
        return stats.busiest_over_mean


def plan_of(spec: StageSpec) -> StagePlan:
    return StagePlan(
        node_id="a",
        node="a",
        spec=spec,
        weights_bytes=1,
        kv_bytes=1,
        workspace_bytes=1,
        budget_bytes=9,
        has_experts=True,
    )


@pytest.mark.parametrize("computed", [pytest.param({}, marks=pytest.mark.slow), BY_KERNELS], ids=["torch", "kernels"])
def test_a_skewed_router_is_even_within_200_steps(skewed: StoredModel, computed: dict[str, Any]) -> None:
    """Each token of each of the sequences that a step has a row of is that of `transformers`."""
    served = Served(skewed, **computed)
    page_tokens = int(computed.get("page_tokens", 4))
    pages = [(PageRun(first=place * 10, count=-(-TEXT_TOKENS // page_tokens)),) for place in range(ROWS)]
    texts = np.random.default_rng(3).integers(3, 260, (ROWS, TEXT_TOKENS)).tolist()
    wanted = [reference_logits(skewed.reference(), text) for text in texts]
    seen: list[float] = []
    for step in range(STEPS):
        at = step % TEXT_TOKENS
        found = served.step(
            *(
                Rows(token_ids=[texts[place][at]], start=at, sequence=place + 1, pages=pages[place])
                for place in range(ROWS)
            )
        )
        for place in range(ROWS):
            assert_close(found[place], wanted[place][at])
        if step % TOLD_STEPS == TOLD_STEPS - 1:
            seen.append(served.balance())
    assert seen[0] > 1.8
    assert seen[-1] < 1.2
