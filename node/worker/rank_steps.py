"""Steps on rank 0 of a stage with several: each is handed on to the others, then computed with them.

A frame is checked before it is handed on, so that one which is refused leaves the ranks in step. After that whatever
fails ends the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from layerline.errors import LayerlineError
from layerline.frames import Frame
from layerline.step_result import StepResult
from node.worker.expert_moves import ExpertMoves
from node.worker.rank_end import RankEnd, computed_or_ended
from node.worker.rank_line import LineEndedError, RankLine, pack_move, pack_step
from node.worker.stage_compute import RankCompute


class RankSteps:
    """The `RankCompute` of rank 0. `stage` is its own part; `check` raises ProtocolError for a frame not for it."""

    def __init__(
        self, stage: RankCompute, check: Callable[[Frame], None], lines: Sequence[RankLine], end: RankEnd
    ) -> None:
        self._stage = stage
        self._check = check
        self._lines = lines
        self._end = end

    def run(self, frame: Frame) -> Frame | StepResult:
        """Computes one step with the other ranks; ProtocolError for a frame that is not for this stage."""
        self._check(frame)
        self._hand_on(pack_step(frame))
        return computed_or_ended(self._stage.run, frame, self._end)

    def take_experts(self, move: int, moves: ExpertMoves) -> None:
        """Has all ranks take what they have prepared for a move, before the next step."""
        self._hand_on(pack_move(move))
        moves.take(move)

    def _hand_on(self, step: bytes) -> None:
        try:
            for line in self._lines:
                line.send(step)
        except LayerlineError as error:
            self._end.failed(error)
        except LineEndedError:
            self._end.others_gone()
