"""A rank other than 0: computes each step that rank 0 hands on, and says nothing of it.

It waits for rank 0 as long as that takes, blocked on the line, and opens no port.
"""

from __future__ import annotations

from typing import NoReturn, Protocol

from layerline.errors import LayerlineError
from layerline.frames import Frame
from node.worker.expert_moves import ExpertMoves
from node.worker.rank_end import RankEnd, computed_or_ended
from node.worker.rank_line import LineEndedError, RankLine


class Follows(Protocol):
    """What computes a rank's part of the layers: `node.stage.Stage`, or a fake in tests."""

    def follow(self, frame: Frame) -> None:
        """Does this rank's part of a step; ProtocolError for a frame that is not for these layers."""


def follow(line: RankLine, part: Follows, moves: ExpertMoves, end: RankEnd) -> NoReturn:
    """Computes what comes over `line`, and takes experts as it says, until the stage ends."""
    while True:
        received = _received(line, end)
        if isinstance(received, Frame):
            computed_or_ended(part.follow, received, end)
        else:
            _take(moves, received, end)


def _take(moves: ExpertMoves, move: int, end: RankEnd) -> None:
    try:
        moves.take(move)
    except LayerlineError as error:
        end.failed(error)


def _received(line: RankLine, end: RankEnd) -> Frame | int:
    try:
        return line.receive()
    except LayerlineError as error:
        end.failed(error)
    except LineEndedError:
        end.others_gone()
