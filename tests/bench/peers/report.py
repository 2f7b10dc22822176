"""The results as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.bench.figures import Figures
from tests.bench.report import ratios_of


def write_json(found: Sequence[Figures], processor: str, path: Path) -> None:
    """Writes the processor, the ratios and, by case and model, the figures that they are made of."""
    figures = {f"{row.case}.{row.model}": row.figures for one in found for row in one.rows}
    written = {"processor": processor, "ratios": ratios_of(found), "figures": figures}
    path.write_text(json.dumps(written, indent=1) + "\n")
