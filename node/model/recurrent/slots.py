"""The slots of a stage's recurrent layers, and the runs of rows of a step that use them.

Shapes: B runs, T rows of each, M numbers of a row as a layer makes them, O as it hands them on, N numbers of a state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.frames import Span, StateRun
from layerline.models.recurrent import RecurrentSpec
from layerline.models.slot_sizes import slot_bytes
from layerline.models.workspace import STATES_BYTES
from node.model.recurrent.recurrence import Recurrence


@dataclass(frozen=True, kw_only=True, slots=True)
class _Runs:
    """Runs of as many rows, none of which goes on from another; `begins_B` tells which of them have no state yet."""

    rows_BT: Tensor
    sources_B: Tensor
    begins_B: Tensor
    targets_B: Tensor

    def parts(self, most: int) -> Iterator[_Runs]:
        """The same, at most so many at a time."""
        whole = (self.rows_BT, self.sources_B, self.begins_B, self.targets_B)
        for rows_BT, sources_B, begins_B, targets_B in zip(*(torch.split(each, most) for each in whole), strict=True):
            yield _Runs(rows_BT=rows_BT, sources_B=sources_B, begins_B=begins_B, targets_B=targets_B)


class Slots:
    """The states of the layers of a stage, by layer; None of one with attention."""

    def __init__(self, layers: Sequence[RecurrentSpec | None], slots: int, device: torch.device) -> None:
        self._states = [
            None if spec is None else torch.zeros((slots, spec.state_numbers), device=device) for spec in layers
        ]
        self._device = device

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return sum(states_SN.nbytes for states_SN in self._states if states_SN is not None)

    def plan(self, spans: Sequence[Span]) -> StepSlots:
        """The step of these spans, whose slots have been checked."""
        if all(states_SN is None for states_SN in self._states):
            return StepSlots(self._states, ())
        by_shape: dict[tuple[int, int], list[tuple[int, StateRun]]] = {}  # by place in its span, and rows
        row = 0
        for span in spans:
            for place, run in enumerate(span.states):
                by_shape.setdefault((place, run.count), []).append((row, run))
                row += run.count
        shapes = sorted(by_shape)  # a run comes after the one that it goes on from
        return StepSlots(self._states, [self._runs(count, by_shape[place, count]) for place, count in shapes])

    def _runs(self, count: int, runs: Sequence[tuple[int, StateRun]]) -> _Runs:
        firsts_B, targets_B = ([first for first, _ in runs], [run.target for _, run in runs])
        sources_B = [run.target if run.source is None else run.source for _, run in runs]
        return _Runs(
            rows_BT=torch.tensor(firsts_B)[:, None].add(torch.arange(count)).to(self._device),
            sources_B=torch.tensor(sources_B, device=self._device),
            begins_B=torch.tensor([run.source is None for _, run in runs], device=self._device),
            targets_B=torch.tensor(targets_B, device=self._device),
        )


class StepSlots:
    """The runs of one step."""

    def __init__(self, states: Sequence[Tensor | None], runs: Sequence[_Runs]) -> None:
        self._states = states
        self._runs = runs

    def mixed(self, layer: int, recurrence: Recurrence, made_RM: Tensor) -> Tensor:
        """What `recurrence` makes of all rows [R, O], as layer number `layer` of the stage; it leaves their states."""
        states_SN = self._states[layer]
        assert states_SN is not None, "the layer is not recurrent"
        mixed_RO = made_RM.new_empty(len(made_RM), recurrence.spec.output_numbers)
        at_once = max(1, STATES_BYTES // slot_bytes(recurrence.spec))
        for runs in (part for each in self._runs for part in each.parts(at_once)):
            state_BN = states_SN[runs.sources_B].masked_fill_(runs.begins_B[:, None], 0.0)
            mixed_RO[runs.rows_BT] = recurrence(made_RM[runs.rows_BT], state_BN)
            states_SN[runs.targets_B] = state_BN
        return mixed_RO
