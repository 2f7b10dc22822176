"""A rank's part in a move of experts: what is prepared beside the steps, and taken between two of them.

One move at a time is prepared. Loading goes on in a thread of its own; that the computation does not change meanwhile
is its business (`node.step.computation.StageExperts`).
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from layerline.errors import LayerlineError, ModelCorruptError, ProtocolError, StageFailedError
from layerline.models.expert_placement import ExpertPlacement
from node import pipe
from node.step.computation import StageExperts

STAY = "The experts stay where they are. If memory ran out, give the node a smaller --memory."

log = logging.getLogger(__name__)
Answer = Callable[[pipe.FromWorker], None]


class ExpertMoves:
    """The moves of the experts of this rank, which are `experts`; `node` is for messages."""

    def __init__(self, experts: StageExperts, node: str) -> None:
        self._experts = experts
        self._node = node
        self._changing = threading.Lock()
        self._move = 0
        self._take: Callable[[], None] | None = None
        self._taken = 0  # the last move that was
        self._tell_taken: Callable[[], None] | None = None
        self._threads = ThreadPoolExecutor(1, "experts")

    def begin(self, wanted: pipe.PrepareExperts, answer: Answer) -> None:
        """Prepares a move in another thread, which gives `answer` what came of it; a move before it is forgotten."""
        with self._changing:
            self._move, self._take = wanted.move, None
        self._threads.submit(self._answered, wanted, answer)

    def forget(self, move: int) -> None:
        """What was prepared for that move, or is being, is dropped."""
        with self._changing:
            if self._move == move:
                self._move, self._take = 0, None

    def take(self, move: int) -> None:
        """Puts a prepared move into effect, between two steps; StageFailedError if it is not prepared."""
        with self._changing:
            take = self._take if self._move == move else None
            if take is not None:
                self._move, self._take = 0, None
        if take is None:
            message = f"Experts were to move (move {move}), which this rank has not prepared."
            raise StageFailedError(message, node=self._node, remedy="Load the stage anew.")
        take()
        with self._changing:
            self._taken = move
            tell, self._tell_taken = self._tell_taken, None
        if tell:
            tell()

    def tell_taken(self, move: int, answer: Answer) -> None:
        """Gives `answer` that a move is taken, as soon as it is."""
        with self._changing:
            if self._taken != move:
                self._tell_taken = functools.partial(answer, pipe.Taken(move=move))
                return
        answer(pipe.Taken(move=move))

    def _answered(self, wanted: pipe.PrepareExperts, answer: Answer) -> None:
        with self._changing:
            if self._move != wanted.move:
                return  # it is forgotten already, so that nothing need be loaded
        try:
            take = self._prepared(wanted)
        except LayerlineError as error:
            self.forget(wanted.move)
            answer(pipe.Refused.of(error))
            return
        with self._changing:
            if self._move == wanted.move:
                self._take = take
        answer(pipe.Prepared(move=wanted.move))

    def _prepared(self, wanted: pipe.PrepareExperts) -> Callable[[], None]:
        try:
            return self._experts.prepared(wanted.layer, ExpertPlacement(wanted.ranks))
        except LayerlineError:
            raise
        except ValueError as error:
            raise ProtocolError(
                f"Experts cannot be placed so on node {self._node}: {error}.", node=self._node
            ) from error
        except OSError as error:
            message = f"Node {self._node} cannot read the experts that were to come ({error})."
            raise ModelCorruptError(message, node=self._node, remedy="Check the file and the disk.") from error
        except Exception as error:  # whoever wants the move is to hear of it, whatever it was
            log.exception("Experts could not be loaded.")
            message = (
                f"Node {self._node} cannot load the experts that were to come ({str(error) or type(error).__name__})."
            )
            raise StageFailedError(message, node=self._node, remedy=STAY) from error
