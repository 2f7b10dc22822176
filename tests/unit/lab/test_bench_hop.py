"""The time of a hop is what is left of a step once the computing is taken out."""

from __future__ import annotations

import pytest

from tests.bench.decode import hop_us


@pytest.mark.parametrize("stages", [1, 2])
def test_what_nobody_computed_is_shared_out_over_the_hops(stages: int) -> None:
    steps, computing_s, hop_s = 100, 0.02, 0.0005
    hops = stages + 1
    period = {
        "steps": steps,
        "step_time": {"total_s": steps * (stages * computing_s + hops * hop_s)},
        "stages": [{"busy_s": steps * computing_s}] * stages,
        "links": [{}] * hops,
    }
    assert hop_us(period) == pytest.approx(500)
