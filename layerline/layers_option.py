"""The text of `--layers`: a=0-14,b=15-29 gives each node, by name or id, its layers, first and last included."""

from __future__ import annotations

import re
from collections.abc import Sequence

from layerline.errors import UsageError
from layerline.plan import MAX_LAYERS
from layerline.plan_request import ManualStage

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_REMEDY = "Write it as in --layers a=0-14,b=15-29."


def parse_layers(text: str) -> tuple[ManualStage, ...]:
    """The stages that `text` asks for, in its order; UsageError says which part is wrong."""
    return tuple(_stage(part.strip()) for part in text.split(","))


def format_layers(stages: Sequence[ManualStage]) -> str:
    """The text that asks for `stages`."""
    return ",".join(f"{stage.node}={stage.first_layer}-{stage.last_layer}" for stage in stages)


def _stage(part: str) -> ManualStage:
    node, equals, layers = part.rpartition("=")
    match = _RANGE.fullmatch(layers)
    if not equals or not node or match is None:
        raise UsageError(f"{part!r} in --layers is not of the form NODE=FIRST-LAST.", remedy=_REMEDY)
    first_layer, last_layer = int(match[1]), int(match[2] or match[1])
    if first_layer > last_layer:
        raise UsageError(f"{part!r} in --layers ends before it begins.", remedy=_REMEDY)
    if last_layer >= MAX_LAYERS:
        raise UsageError(f"{part!r} in --layers goes beyond any model's layers.", remedy=_REMEDY)
    return ManualStage(node=node, first_layer=first_layer, last_layer=last_layer)
