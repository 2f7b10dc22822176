"""The results as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.figures import Figures, Row

UNITS = (
    ("tokens_per_s", "tokens/s"),
    ("us_per_hop", "µs per hop"),
    ("prompt_tokens", "prompt tokens"),
    ("percent", "%"),
    ("mib", "MiB"),
    ("mb_per_s", "MB/s"),
    ("mb", "MB"),
    ("cores_busy", "cores busy"),
    ("chunks", "chunks"),
    ("layers", "layers"),
    ("ranks", "ranks"),
    ("us", "µs"),
    ("ms", "ms"),
    ("s", "s"),
)
TARGETS = {
    "decode_2n_over_1n.smollm2": "≥ 0.93",
    "decode_2n_over_1n.qwen": "≥ 0.93",
    "decode32_2n_over_decode16_1n.qwen": "≥ 1.8",
    "decode16_2n_over_best.qwen": "≥ 0.9",
    "prefill2048_2n_over_best.qwen": "≥ 0.9",
    "gap_p99_under_prefill.qwen": "≤ 2",
    "prefix_ttft.qwen": "≤ 0.1",
    "decode_4096_over_128.qwen": "≥ 0.85",
    "sim_prefill_3n_over_1n": "≥ 2.7",
    "moe_decode_over_dense": "≥ 0.8",
    "ep2_over_1": "≥ 1.6",
    "sim_decode24_3n_over_1n": "≥ 2.7",
    "sim_bubble_over_formula": "0.9 to 1.15",
    "allreduce_us": "≤ 60",
    "tp2_over_threads2.smollm2": "≥ 0.8",
    "http_over_grpc16.smollm2": "≥ 0.97",
    "http_over_grpc16.qwen": "≥ 0.97",
    "http_ttft_added_ms.smollm2": "≤ 3",
    "http_ttft_added_ms.qwen": "≤ 3",
    "masked16_over_free16.smollm2": "≥ 0.95",
    "masked16_over_free16.qwen": "≥ 0.95",
}


def print_report(found: Sequence[Figures], console: Console) -> None:
    """Prints every row and every ratio, with what it should be where that is agreed."""
    rows = [row for figures in found for row in figures.rows]
    table = Table("case", "model", "nodes", "streams", "figure", title="layerline bench", title_justify="left")
    for row in rows:
        table.add_row(row.case, row.model, str(row.nodes), str(row.streams or ""), _in_words(row))
    console.print(table)
    ratios = Table("ratio", "value", "to reach")
    for name, ratio in ratios_of(found).items():
        ratios.add_row(name, f"{ratio:.3f}", TARGETS.get(name, ""))
    console.print(ratios)


def write_json(found: Sequence[Figures], machine: dict[str, object], path: Path) -> None:
    """Writes ratios, cases and machine as one object."""
    cases = [_case(row) for figures in found for row in figures.rows]
    path.write_text(json.dumps({"ratios": ratios_of(found), "cases": cases, "machine": machine}, indent=1) + "\n")


def ratios_of(found: Sequence[Figures]) -> dict[str, float]:
    """All ratios by name."""
    return {name: ratio for figures in found for name, ratio in figures.ratios.items()}


def _case(row: Row) -> dict[str, object]:
    fields = asdict(row)
    figures = fields.pop("figures")
    return {**fields, **figures}


def _in_words(row: Row) -> str:
    return ", ".join(_figure_in_words(name, value) for name, value in row.figures.items())


def _figure_in_words(name: str, value: float) -> str:
    """The value with its unit, which its name ends in, and what it is of, which its name begins with."""
    ending, unit = next(((ending, unit) for ending, unit in UNITS if name.endswith(ending)), ("", ""))
    of = name.removesuffix(ending).replace("_", " ").strip()
    return " ".join(part for part in (of, f"{value:,.0f}" if value >= 1000 else f"{value:.3g}", unit) if part)
