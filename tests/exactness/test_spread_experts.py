"""Experts that are spread over ranks: wherever they are, however often, and moved in mid-answer, answers are the
same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from layerline.models.expert_placement import ExpertPlacement
from layerline.models.model_parts import first_placement
from node.slices.stage_part import StagePart
from node.stage import Stage
from tests.fakes.family_models import FAMILIES
from tests.fakes.logits import assert_close
from tests.fakes.made_models import write_family
from tests.fakes.ranked_stages import RankedStage, ranked_chain, together
from tests.fakes.tiny_models import BY_KERNELS, Rows, StageChain, StoredModel, logits_of, reference_logits

TOKENS = [int(token) for token in np.random.default_rng(8).integers(3, 260, 20)]
COMPUTED = pytest.mark.parametrize("computed", [{}, BY_KERNELS], ids=["torch", "kernels"])
SPREAD: dict[str, Any] = {"experts": "spread"}
KINDS = [
    "mixtral",  # softmax of the chosen
    "qwen2_moe",  # a shared expert with a gate
    "qwen3_moe with dense layers",
    "gpt_oss",  # biases
    "deepseek_v3",  # a latent, experts in groups, a shared one
    "llama4_text",  # weighed inputs
    "gemma4_text with experts",  # a dense branch beside them
]
ODD_PLACES = [
    ((0, 1, 2, 3, 4, 5, 6, 7), ()),
    ((7, 5, 3, 1), (0, 2, 4, 6)),
    ((0, 1, 2, 3, 4, 5), (3, 4, 5, 6, 7, 0)),
    ((4, 3, 2, 1, 0, 7, 6, 5), (0, 1, 2, 3, 4, 5, 6, 7)),
]


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], StoredModel]:
    @functools.cache
    def model(family: str) -> StoredModel:
        return StoredModel.at(write_family(tmp_path_factory.mktemp("spread") / "model", FAMILIES[family]))

    return model


@functools.cache
def expected(model: StoredModel) -> np.ndarray:
    return reference_logits(model.reference(), TOKENS)


def assert_alike(chain: StageChain, model: StoredModel) -> None:
    """A prompt at once, and its tokens one by one, some of them in steps with other sequences."""
    (drawn,) = chain.step(Rows(token_ids=TOKENS))
    assert_close(logits_of(drawn), expected(model)[-1])
    for start, token in enumerate(TOKENS[:6]):
        (drawn,) = chain.step(Rows(token_ids=[token], start=start))
        assert_close(logits_of(drawn), expected(model)[start])


@COMPUTED
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("family", KINDS)
def test_every_kind_of_experts(
    model_of: Callable[[str], StoredModel], family: str, ranks: int, computed: dict[str, Any]
) -> None:
    model = model_of(family)
    with ranked_chain(model, (ranks,), **computed, **SPREAD) as chain:
        assert_alike(chain, model)


@COMPUTED
@pytest.mark.parametrize(("family", "with_heads"), [("mixtral", 1), ("olmoe", 1), ("minimax_m2", 1), ("qwen3_moe", 2)])
def test_heads_on_fewer_devices_than_experts(
    model_of: Callable[[str], StoredModel], family: str, with_heads: int, computed: dict[str, Any]
) -> None:
    """Some norm the queries of all heads as one, so that no more than one device can have heads."""
    model = model_of(family)
    with ranked_chain(model, (3, 3), **computed, **SPREAD, attention_devices=with_heads) as chain:
        assert_alike(chain, model)


@COMPUTED
def test_more_ranks_than_experts(model_of: Callable[[str], StoredModel], computed: dict[str, Any]) -> None:
    model = model_of("gpt_oss")
    with ranked_chain(model, (7,), **computed, **SPREAD, attention_devices=2) as chain:
        assert_alike(chain, model)


def move(ranks: Sequence[Stage], layer: int, placement: ExpertPlacement) -> None:
    """As the ranks of a stage do it: each loads what it lacks, then all take it between two steps."""
    takes = together([functools.partial(rank.experts.prepared, layer, placement) for rank in ranks])
    for take in takes:
        take()


@COMPUTED
@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "gpt_oss"])
def test_experts_that_are_moved_in_mid_answer(
    model_of: Callable[[str], StoredModel], family: str, computed: dict[str, Any]
) -> None:
    model = model_of(family)
    count = model.card.spec.layer(0).feed_forward.expert_count
    with ranked_chain(model, (2,), **computed, **SPREAD, repeats=8) as chain:
        (stage,) = chain.stages
        assert isinstance(stage, RankedStage)
        for start, token in enumerate(TOKENS):
            if start % 3 == 0:
                placement = ExpertPlacement(
                    tuple(tuple(e for e in own if e < count) for own in ODD_PLACES[start // 3 % len(ODD_PLACES)])
                )
                move(stage.ranks, start % model.card.spec.layers, placement)
            (drawn,) = chain.step(Rows(token_ids=[token], start=start))
            assert_close(logits_of(drawn), expected(model)[start])
        assert_alike(chain, model)


@COMPUTED
@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe"])
def test_a_row_has_the_same_bits_alone_and_among_others(
    model_of: Callable[[str], StoredModel], family: str, computed: dict[str, Any]
) -> None:
    """Which copy of an expert computes a row depends on nothing but the row."""
    if not computed:
        pytest.skip("torch promises no bits")
    with ranked_chain(model_of(family), (3,), **computed, **SPREAD, repeats=8) as chain:
        (stage,) = chain.stages
        assert isinstance(stage, RankedStage)
        count = model_of(family).card.spec.layer(0).feed_forward.expert_count
        everywhere = ExpertPlacement((tuple(range(count)), (1, 3), (0, 1, 2, 3)))
        for layer in range(model_of(family).card.spec.layers):
            move(stage.ranks, layer, everywhere)
        alone = [logits_of(chain.step(Rows(token_ids=[token], start=at))[0]) for at, token in enumerate(TOKENS)]
        for size in (2, 5, 20):
            drawn = chain.step(Rows(token_ids=TOKENS[:size], draws=size))
            for found, wanted in zip(drawn, alone[:size], strict=True):
                assert np.array_equal(logits_of(found), wanted)


@COMPUTED
def test_rows_are_counted(model_of: Callable[[str], StoredModel], computed: dict[str, Any]) -> None:
    """As `transformers` chooses; every rank counts all of them, wherever they are computed."""
    model = model_of("qwen3_moe")
    reference, wanted = model.reference(), dict[int, np.ndarray]()

    def count(layer: int) -> Callable[..., None]:
        def hook(_module: Any, _inputs: Any, made: Any) -> None:
            wanted[layer] = np.bincount(made[2].flatten().numpy(), minlength=8)

        return hook

    for number, layer in enumerate(reference.model.layers):
        layer.mlp.gate.register_forward_hook(count(number))
    reference_logits(reference, TOKENS)
    with ranked_chain(model, (2,), **computed, **SPREAD) as chain:
        (stage,) = chain.stages
        assert isinstance(stage, RankedStage)
        chain.step(Rows(token_ids=TOKENS))
        for rank in stage.ranks:
            assert rank.experts.rows() == {layer: tuple(rows.tolist()) for layer, rows in wanted.items()}


@COMPUTED
def test_what_no_rank_can_place(model_of: Callable[[str], StoredModel], computed: dict[str, Any]) -> None:
    model = model_of("qwen3_moe")
    wrong = {
        "a placement of other experts than 0 to 7": ((0, 1, 2), (3, 4, 5, 6)),
        "a placement on 3 ranks instead of 2": ((0, 1, 2), (3, 4, 5), (6, 7)),
        "room for 4 experts of a layer, not for 5": ((0, 1, 2, 3, 4), (4, 5, 6, 7)),
    }
    with ranked_chain(model, (2,), **computed, **SPREAD) as chain:
        (stage,) = chain.stages
        assert isinstance(stage, RankedStage)
        for words, places in wrong.items():
            with pytest.raises(ValueError, match=words):
                stage.ranks[0].experts.prepared(0, ExpertPlacement(places))
        assert_alike(chain, model)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(
    ("family", "changes"), [("qwen2_moe", {}), ("gpt_oss", {}), ("olmoe", {"attention_devices": 1})]
)
def test_the_plan_counts_what_is_held(
    model_of: Callable[[str], StoredModel], family: str, changes: dict[str, Any], *, kernels: bool
) -> None:
    """Progress ends where the sizes say, on every rank."""
    from node.load_stage import load_stage  # noqa: PLC0415

    model = model_of(family)
    computed = BY_KERNELS if kernels else {}
    for repeats in (0, 2):
        spec = model.spec(**{**computed, **SPREAD, **changes, "repeats": repeats, "devices": ("cpu:0", "cpu:1")})
        for rank in range(2):
            own = StagePart.of(model.card, model.path, spec, rank)
            assert first_placement([part.kinds[0] for part in own.parts]) is not None
            seen: list[tuple[int, int]] = []
            load_stage(model.card, model.path, spec, lambda *done, seen=seen: seen.append(done), FakeGroup(rank, 2))
            if kernels or repeats == 0:
                done_bytes, total_bytes = seen[-1]
                assert total_bytes == own.weights_bytes
                output_bias = 4 * 4 * 64 if family == "gpt_oss" and rank else 0  # which only the first rank has
                assert done_bytes == total_bytes - output_bias


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "gpt_oss", "llama4_text", "gemma4_text with experts"])
def test_experts_that_lie_beside_the_device(model_of: Callable[[str], StoredModel], family: str, ranks: int) -> None:
    """On a CPU, where kernels compute them; they change sides in mid-answer."""
    model = model_of(family)
    layers, count = model.card.spec.layers, model.card.spec.layer(1).feed_forward.expert_count
    beside = {**SPREAD, "expert_device": "cpu:9", "attention_devices": 0}
    for on_device in (0, 1, 2):
        with ranked_chain(model, (ranks,), **beside, device_experts=on_device) as chain:
            (stage,) = chain.stages
            assert isinstance(stage, RankedStage)
            assert_alike(chain, model)
            own = [list(part) for part in np.array_split(np.arange(count), ranks)]
            for layer in range(layers):
                if model.card.spec.layer(layer).feed_forward.experts:
                    move(stage.ranks, layer, ExpertPlacement(tuple(tuple(map(int, each[::-1])) for each in own)))
            assert_alike(chain, model)


class FakeGroup:
    """A rank that does nothing with the others, for loading alone."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count

    def all_reduce_(self, x: Any) -> None:
        raise AssertionError(x)

    def gather(self, x_TI: Any) -> Any:
        raise AssertionError(x_TI)
