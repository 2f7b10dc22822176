"""Where the experts of a layer are: which rows a rank computes, and what is no placement."""

from __future__ import annotations

import pytest

from layerline.models.expert_placement import NOT_HERE, ExpertPlacement
from layerline.models.model_parts import expert_ranges
from layerline.sharing import Sharing

COPIED = ExpertPlacement(((0, 1, 2), (2, 3), (2, 1)))


def test_each_row_of_an_expert_is_computed_by_one_rank() -> None:
    assert COPIED.copies(4) == [1, 2, 3, 1]
    turns = [COPIED.turns(rank, 4) for rank in range(3)]
    assert turns == [[0, 0, 0, NOT_HERE], [NOT_HERE, NOT_HERE, 1, 0], [NOT_HERE, 1, 2, NOT_HERE]]
    for expert, copies in enumerate(COPIED.copies(4)):
        for position in range(12):
            assert sum(own[expert] == position % copies for own in turns) == 1


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        (((0, 1), (2,)), "other experts than 0 to 3"),
        (((0, 1), (2, 3, 4)), "other experts than 0 to 3"),
        (((0, 1, 2, 3),), "on 1 ranks instead of 2"),
    ],
)
def test_what_is_no_placement(placement: tuple[tuple[int, ...], ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ExpertPlacement(placement).check(4, 2)


@pytest.mark.parametrize("ranks", [(), ((0, 0),), ((-1,),), ((5000,),)])
def test_what_can_be_none(ranks: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match="expert"):
        ExpertPlacement(ranks)


def test_few_experts_come_at_once() -> None:
    before = ExpertPlacement(((0, 1, 2, 3), (4, 5, 6, 7)))
    ExpertPlacement(((0, 1, 4, 5), (2, 3, 6, 7))).check_coming(before)
    with pytest.raises(ValueError, match="3 experts come to a rank at once, of at most 2"):
        ExpertPlacement(((0, 1, 2, 3), (4, 5, 6, 7, 0, 1, 2))).check_coming(before)
    alone = ExpertPlacement(((0, 1, 2, 3, 4, 5),))
    ExpertPlacement(((0, 4, 5, 3, 1, 2),)).check_coming(alone, 3)
    with pytest.raises(ValueError, match="3 experts come"):
        ExpertPlacement(((3, 4, 5, 0, 1, 2),)).check_coming(alone, 3)


@pytest.mark.parametrize(
    ("count", "proportions", "sizes"), [(8, (), [4, 4]), (8, (3, 1), [6, 2]), (1, (), [1, 0]), (7, (), [4, 3])]
)
def test_experts_are_dealt_out_in_proportion(count: int, proportions: tuple[int, ...], sizes: list[int]) -> None:
    ranges = expert_ranges(count, Sharing(devices=2, proportions=proportions, experts="spread"))
    assert list(map(len, ranges)) == sizes
    assert [expert for own in ranges for expert in own] == list(range(count))


@pytest.mark.parametrize(
    "wrong",
    [
        {"devices": 0},
        {"experts": "shared"},
        {"devices": 2, "repeats": 1},
        {"devices": 2, "attention_devices": 1},
        {"devices": 2, "experts": "spread", "attention_devices": 3},
        {"devices": 2, "experts": "spread", "repeats": 257},
        {"beside": True},
        {"experts": "spread", "device_experts": 3},
        {"experts": "spread", "beside": True, "repeats": 1},
    ],
)
def test_devices_cannot_share_so(wrong: dict[str, int | str | bool]) -> None:
    with pytest.raises(ValueError, match=r"devices|experts|repeats"):
        Sharing(**wrong)  # type: ignore[arg-type]
