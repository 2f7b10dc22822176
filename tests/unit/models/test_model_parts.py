"""What each rank has of a model: proportions, groups that do not divide, and what cannot be split."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.errors import PlanInvalidError
from layerline.models.held import WeightForm
from layerline.models.model_parts import ColumnBlocks, ModelPart, model_parts
from layerline.models.sizes import ModelSizes
from layerline.models.spec import ModelSpec
from layerline.models.unevenness import unevenness
from layerline.sharing import Sharing
from tests.fakes.cards import PLAIN, model_card
from tests.fakes.specs import decoder_spec, of_layers


def model(heads: int, kv_heads: int, *, intermediate: int = 1536, vocabulary: int = 49152) -> ModelSpec:
    return decoder_spec(
        hidden=576, intermediate=intermediate, heads=heads, kv_heads=kv_heads, head_dim=64, vocabulary=vocabulary,
        context_tokens=2048, qkv_bias=True,
    )  # fmt: skip


def sizes_of(spec: ModelSpec, kv_dtype: str = "float32") -> ModelSizes:
    return ModelSizes.of(model_card(spec), PLAIN, kv_dtype)


def heads_of(parts: tuple[ModelPart, ...]) -> list[tuple[int, int]]:
    """(query heads, key/value heads) of each rank."""
    return [(len(part.kinds[0].heads), len(part.kinds[0].kv_heads)) for part in parts]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "count", "expected"),
    [
        (9, 3, 1, [(9, 3)]),
        (9, 3, 2, [(6, 2), (3, 1)]),
        (9, 3, 3, [(3, 1)] * 3),
        (14, 2, 2, [(7, 1), (7, 1)]),
        (14, 2, 4, [(4, 1), (3, 1), (4, 1), (3, 1)]),
        (14, 2, 3, [(5, 1), (4, 2), (5, 1)]),  # the middle one has two heads of either group
        (4, 1, 3, [(2, 1), (1, 1), (1, 1)]),
        (32, 8, 4, [(8, 2)] * 4),
        (4, 4, 4, [(1, 1)] * 4),
    ],
)
def test_heads_by_groups_and_repeated_where_there_are_too_few(
    heads: int, kv_heads: int, count: int, expected: list[tuple[int, int]]
) -> None:
    assert heads_of(model_parts(model(heads, kv_heads), count)) == expected


def test_weights_decide_in_proportion() -> None:
    spec = model(32, 8, vocabulary=1000)
    big, small = model_parts(spec, 2, (3, 1))
    assert heads_of((big, small)) == [(24, 6), (8, 2)]
    assert (len(big.kinds[0].intermediate), len(small.kinds[0].intermediate)) == (1152, 384)
    assert (big.vocabulary, small.vocabulary) == (range(750), range(750, 1000))
    assert model_parts(spec, 2, (300, 100)) == (big, small)


def test_a_rank_of_next_to_no_weight_still_has_something() -> None:
    parts = model_parts(model(9, 3), 3, (1_000_000, 1, 1))
    assert heads_of(parts) == [(6, 2), (2, 1), (1, 1)]
    assert [len(part.kinds[0].intermediate) for part in parts] == [1472, 32, 32]


@pytest.mark.parametrize(("intermediate", "columns"), [(128, [64, 64]), (96, [64, 32]), (50, [25, 25]), (32, [16, 16])])
def test_feed_forward_columns_are_multiples_of_32_where_they_can_be(intermediate: int, columns: list[int]) -> None:
    parts = model_parts(model(4, 2, intermediate=intermediate), 2)
    assert [len(part.kinds[0].intermediate) for part in parts] == columns


@given(
    groups=st.integers(1, 8),
    group=st.integers(1, 8),
    intermediate=st.integers(64, 300),
    vocabulary=st.integers(64, 300),
    data=st.data(),
)
def test_every_split_covers_the_model_once_and_its_parts_are_models(
    groups: int, group: int, intermediate: int, vocabulary: int, data: st.DataObject
) -> None:
    spec = model(groups * group, groups, intermediate=intermediate, vocabulary=vocabulary)
    count = data.draw(st.integers(1, min(8, spec.layer(0).attention.heads)))
    weights = data.draw(st.lists(st.integers(1, 50), min_size=count, max_size=count))
    parts = model_parts(spec, count, weights)
    for part in parts:
        own = part.part_of(spec)  # refuses itself unless its heads are a multiple of its key/value heads
        assert all(head // group in part.kinds[0].kv_heads for head in part.kinds[0].heads)
        assert own.hidden == spec.hidden
    covered = [
        [number for each in numbers for number in each]
        for numbers in (
            [part.kinds[0].heads for part in parts],
            [part.kinds[0].intermediate for part in parts],
            [part.vocabulary for part in parts],
        )
    ]
    assert covered == [list(range(length)) for length in (groups * group, intermediate, vocabulary)]


def test_what_is_uneven_is_said_in_a_sentence() -> None:
    spec = model(9, 3)
    assert unevenness(spec, model_parts(spec, 1)) == ""
    assert unevenness(spec, model_parts(spec, 3)) == ""
    assert unevenness(spec, model_parts(spec, 2)) == "The 9 attention heads in 3 groups are split 6 + 3."
    assert unevenness(model(32, 8), model_parts(model(32, 8), 2, (3, 1)), (3, 1)) == ""
    blocks = model_parts(model(4, 4, intermediate=1280), 2, blocks=ColumnBlocks(feed_forward=256))
    uneven = "The 1280 columns of the feed-forward are split 768 + 512."
    assert unevenness(model(4, 4, intermediate=1280), blocks) == uneven
    repeated = unevenness(model(4, 1), model_parts(model(4, 1), 2))
    assert repeated == "The 4 attention heads in 1 group are split 2 + 2, with 1 + 1 key/value heads."


def test_more_ranks_than_heads_are_refused_with_the_numbers() -> None:
    with pytest.raises(PlanInvalidError, match="9 attention heads cannot be split over 10") as raised:
        model_parts(model(9, 3), 10)
    assert "at most 9" in raised.value.remedy


@pytest.mark.parametrize("weights", [(1,), (1, 1, 1), (1, 0)])
def test_weights_are_one_positive_number_a_rank(weights: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"a proportion for each device|proportions must be"):
        model_parts(model(4, 2), 2, weights)


def test_a_group_of_one_takes_what_the_model_takes() -> None:
    spec = model(9, 3)
    (part,) = model_parts(spec, 1)
    assert part.part_of(spec) == spec
    assert sizes_of(spec).of_rank(part) == sizes_of(spec)


def test_the_ranks_together_take_what_the_model_takes_and_what_is_repeated() -> None:
    """Repeated are the norms and, with more ranks than groups, key/value heads."""
    spec = model(14, 2)
    norms = (2 * spec.layers + 1) * spec.hidden * 4
    for kv_dtype in ("float32", "int8"):
        whole, layers = sizes_of(spec, kv_dtype), range(spec.layers)
        parts = [whole.of_rank(part) for part in model_parts(spec, 2)]
        assert sum(part.weights_bytes(layers) for part in parts) == whole.weights_bytes(layers) + norms
        assert sum(part.kv_bytes_per_token(layers) for part in parts) == whole.kv_bytes_per_token(layers)


def test_only_the_rank_of_a_split_vocabulary_has_room_for_the_others_logits() -> None:
    spec = model(4, 2)
    part = sizes_of(spec).of_rank(model_parts(spec, 2)[0])
    own = 64 * 4 * len(model_parts(spec, 2)[0].vocabulary)
    more = part.workspace_bytes(64, has_output=True) - part.workspace_bytes(64, has_output=False)
    assert more > own + 2 * 64 * 4 * spec.vocabulary
    assert more < own + 2 * 65 * 4 * spec.vocabulary


@pytest.mark.parametrize(
    ("block", "count", "heads", "columns"),
    [
        (1, 3, [3, 3, 3], [512, 512, 512]),
        (32, 3, [3, 3, 3], [512, 512, 512]),
        (256, 2, [4, 4], [768, 768]),  # 4 heads of 64 are a block
        (256, 4, [2, 2, 2, 2], [512, 256, 512, 256]),  # there are only two blocks of heads
        (256, 8, [1] * 8, [192] * 8),  # and fewer blocks of columns than ranks
    ],
)
def test_columns_are_cut_between_the_blocks_they_are_held_in(
    block: int, count: int, heads: list[int], columns: list[int]
) -> None:
    spec = model(sum(heads), sum(heads))
    parts = model_parts(spec, count, blocks=ColumnBlocks(attended=block, feed_forward=block))
    assert [len(part.kinds[0].heads) for part in parts] == heads
    assert [len(part.kinds[0].intermediate) for part in parts] == columns


def test_each_kind_of_layer_is_split_on_its_own() -> None:
    spec = model(8, 4)
    narrow = replace(spec.layer(0), mixer=replace(spec.layer(0).attention, heads=4, kv_heads=2))
    mixed = of_layers(spec, [spec.layer(0), narrow, spec.layer(0), narrow])
    parts = [part.part_of(mixed) for part in model_parts(mixed, 2)]
    assert [[part.layer(n).attention.heads for n in range(4)] for part in parts] == [[4, 2, 4, 2]] * 2
    assert [[part.layer(n).attention.kv_heads for n in range(4)] for part in parts] == [[2, 1, 2, 1]] * 2
    sizes = sizes_of(mixed)
    one, other = (sizes.weights_bytes(range(n, n + 1)) for n in (1, 2))
    assert sizes.weights_bytes(range(1, 3)) == one + other > 2 * one


@pytest.mark.parametrize(
    ("storage", "kernels", "columns", "heads"),
    [
        ("Q4_K", True, [512, 512, 512], [4, 4, 4]),
        ("Q4_K", False, [512, 512, 512], [4, 4, 4]),
        ("INT4_96_F16", True, [480, 576, 480], [6, 3, 3]),
        ("BF16", True, [512, 512, 512], [4, 4, 4]),
    ],
)
def test_ranks_divide_no_block_of_what_they_hold(
    storage: str, kernels: bool, columns: list[int], heads: list[int]
) -> None:
    spec = decoder_spec(hidden=768, intermediate=1536, heads=12, kv_heads=12, head_dim=64)
    form = WeightForm(dtype="bfloat16", weights="stored", kernels=kernels)
    sizes = ModelSizes.of(model_card(spec, storage=storage), form, "bfloat16")
    parts = sizes.parts(Sharing(devices=3))
    assert [len(part.kinds[0].intermediate) for part in parts] == columns
    assert [len(part.kinds[0].heads) for part in parts] == heads
    assert all(not sizes.of_rank(part).converted(range(spec.layers)) for part in parts)
