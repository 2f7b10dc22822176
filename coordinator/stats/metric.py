"""Writes metrics in the text format of Prometheus, version 0.0.4. Knows no metric in particular.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABELS = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One value. `suffix` stands behind the name of the metric on its line, as for the sum of a summary."""

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """The samples under one name; `help` is a sentence."""

    name: str
    kind: Literal["counter", "gauge", "summary"]
    help: str
    samples: tuple[Sample, ...]

    def lines(self) -> Iterator[str]:
        """The lines of the metric, without line ends."""
        yield f"# HELP {self.name} {self.help.translate(_IN_HELP)}"
        yield f"# TYPE {self.name} {self.kind}"
        for sample in self.samples:
            yield f"{self.name}{sample.suffix}{_labels_text(sample.labels)} {_number_text(sample.value)}"


def metrics_text(metrics: Iterable[Metric]) -> str:
    """The text of all metrics."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _labels_text(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_IN_LABELS)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _number_text(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value)
