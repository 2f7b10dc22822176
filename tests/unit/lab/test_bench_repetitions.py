from __future__ import annotations

from functools import partial

import pytest

from tests.bench.repetitions import in_turn, ratio_of


def test_every_other_repetition_goes_backwards() -> None:
    calls: list[tuple[str, int]] = []

    def measure(name: str, repetition: int) -> str:
        calls.append((name, repetition))
        return name

    found = in_turn([partial(measure, "a"), partial(measure, "b")], 3)
    assert calls == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    assert found == [["a"] * 3, ["b"] * 3]


def test_drift_cancels_out_of_a_ratio() -> None:
    assert ratio_of([9.0, 18.0, 27.0], [10.0, 20.0, 30.0]) == pytest.approx(0.9)


def test_one_disturbed_repetition_does_not_decide() -> None:
    assert ratio_of([9.0, 1.0, 9.0], [10.0, 10.0, 10.0]) == pytest.approx(0.9)


def test_unlike_numbers_of_repetitions_are_our_bug() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratio_of([1.0], [1.0, 2.0])
