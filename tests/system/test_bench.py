"""scripts/bench, as briefly as it can be run: that it measures all it says and says it as agreed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.lab.machine import REPOSITORY

DEADLINE_S = 1800.0  # without bfloat16 instructions it takes many minutes
FIGURES = {
    "load": "load_s",
    "memory": "a_mib",
    "idle": "workers_percent",
    "decode": "tokens_per_s",
    "prefill": "tokens_per_s",
}
RATIOS = {
    "decode_2n_over_1n.qwen",
    "http_over_grpc16.qwen",
    "http_ttft_added_ms.qwen",
    "masked16_over_free16.qwen",
    "prefill512_2n_over_1n.qwen",
    "decode32_2n_over_decode16_1n.qwen",
    "step16_over_step8.qwen",
    "decode16_2n_over_1n.qwen",
    "decode16_2n_over_best.qwen",
    "prefill2048_2n_over_1n.qwen",
    "prefill2048_2n_over_best.qwen",
    "planned_decode16_2n_over_1n.qwen",
    "planned_prefill2048_2n_over_1n.qwen",
    "gap_p99_under_prefill.qwen",
    "prefix_ttft.qwen",
    "decode_4096_over_128.qwen",
    "sim_prefill_3n_over_1n",
    "sim_decode24_3n_over_1n",
    "sim_bubble_over_formula",
    "moe_decode_over_dense",
    "ep2_over_1",
    "split2_over_1",
}


@pytest.mark.slow
def test_bench_writes_ratios_cases_and_machine(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    script = str(REPOSITORY / "scripts" / "bench")
    words = [script, "--models", "qwen", "--quick", "--repeats", "1", "--json", str(out)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0
    assert "tokens/s" in done.stdout
    written = json.loads(out.read_text())
    assert set(written["ratios"]) == RATIOS
    assert {"cpu", "cores", "memory_bytes", "torch", "grpcio"} <= set(written["machine"])
    for nodes in (1, 2):
        cases = {case["case"]: case for case in written["cases"] if case["nodes"] == nodes}
        assert all(cases[name][figure] >= 0 for name, figure in FIGURES.items())
    crowds = {"1 rank", "2 ranks, spread", "2 ranks, split"}
    models = {case["model"] for case in written["cases"]}
    assert models == {"qwen", "sleeping", "tiny", "experts", "dense", *crowds}
