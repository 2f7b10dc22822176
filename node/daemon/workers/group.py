"""The workers of one stage as one: a process for each rank, started, watched and ended together.

When a rank is lost the others are ended at once, and what is told is why that one was lost. A stage on one device is
a group of one. Knows nothing of models or holds.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence

from layerline.errors import LayerlineError, StageFailedError, first_of
from layerline.hold import Place
from layerline.hosting.child import compute_environment
from layerline.models.expert_placement import ExpertPlacement
from node.daemon.workers.patience import PATIENCE, Patience
from node.daemon.workers.process import OnChosenExperts, OnLost, OnProgress, WorkerProcess
from node.daemon.workers.seats import RankSeat, rank_seats
from node.pipe import Placed, PrepareExperts, Start, Started, TakeExperts


class WorkerGroup:
    """The ranks of a stage. Made by `spawn`; whoever has it must `stop` it. `lost` says why it has ended by itself."""

    def __init__(self, on_lost: OnLost) -> None:
        self.lost: LayerlineError | None = None
        self._on_lost = on_lost
        self._ranks: list[tuple[RankSeat, WorkerProcess]] = []
        self._moves = 0  # of experts, so far
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        threads: Mapping[str, int],
        *,
        node: str,
        on_lost: OnLost,
        patience: Patience = PATIENCE,
    ) -> WorkerGroup:
        """Starts a worker by `command` for each device in `threads`, with as many threads, the first as rank 0.

        `on_lost` is called once if any of them ends other than by `stop`, after all have.
        """
        group = cls(on_lost)
        try:
            with rank_seats(threads) as seats:
                for seat in seats:
                    worker = await WorkerProcess.spawn(
                        command,
                        compute_environment(environment, seat.threads),
                        node=node,
                        on_lost=group._rank_lost,
                        rank=f"Rank {seat.rank} ({seat.device})" if len(seats) > 1 else "",
                        descriptors=seat.descriptors,
                        patience=patience,
                    )
                    group._ranks.append((seat, worker))
        except OSError as error:
            await group.stop()
            message = f"Node {node} cannot connect the ranks of a stage: {error}."
            raise StageFailedError(message, node=node, remedy="Check the limits of this user.") from error
        except BaseException:
            await group.stop()
            raise
        return group

    @property
    def resident_bytes(self) -> Sequence[int]:
        """What each rank has in the machine's memory at this moment."""
        return [worker.resident_bytes for _, worker in self._ranks]

    async def start(self, start: Start, on_progress: OnProgress) -> Started:
        """Has every rank load its part; raises the first refusal or failure of one.

        Progress is the sum of all, told once each has told its own.
        """
        done: dict[int, tuple[int, int]] = {}

        def progressed(rank: int, done_bytes: int, total_bytes: int) -> None:
            done[rank] = (done_bytes, total_bytes)
            if len(done) == len(self._ranks):
                on_progress(sum(part for part, _ in done.values()), sum(whole for _, whole in done.values()))

        try:
            async with asyncio.TaskGroup() as starting:
                started = [
                    starting.create_task(worker.start(seat.start_of(start), functools.partial(progressed, seat.rank)))
                    for seat, worker in self._ranks
                ]
        except BaseExceptionGroup as failures:
            raise first_of(failures) from None
        parts = [task.result() for task in started]
        return Started(
            port=parts[0].port,
            weights_bytes=sum(part.weights_bytes for part in parts),
            kv_bytes=sum(part.kv_bytes for part in parts),
        )

    async def place(self, place: Place) -> Placed:
        """Gives the stage a place in a plan; raises its refusal, or why a rank was lost."""
        return await self._ranks[0][1].place(place)

    async def vacate(self) -> None:
        """Takes the stage's place away."""
        await self._ranks[0][1].vacate()

    def watch_experts(self, tell: OnChosenExperts) -> None:
        """`tell` hears from now on which experts rows choose."""
        self._ranks[0][1].on_chosen_experts = tell

    async def move_experts(self, layer: int, placement: ExpertPlacement, on_taken: Callable[[], None]) -> None:
        """Has every rank load what it lacks of a placement, then all of them take it between the same two steps.

        Raises the first refusal or failure of a rank: the experts are where they were then, unless the stage is lost.
        `on_taken` is called as soon as nothing but a loss can keep them from being taken.
        """
        self._moves += 1
        prepare = PrepareExperts(move=self._moves, layer=layer, ranks=placement.ranks)
        try:
            async with asyncio.TaskGroup() as preparing:
                for _, worker in self._ranks:
                    preparing.create_task(worker.prepare_experts(prepare))
        except BaseException as failures:
            await asyncio.gather(*(worker.forget_experts(prepare.move) for _, worker in self._ranks))
            if isinstance(failures, BaseExceptionGroup):
                raise first_of(failures) from None
            raise
        on_taken()
        take = TakeExperts(move=prepare.move)
        await asyncio.shield(asyncio.gather(*(worker.take_experts(take) for _, worker in self._ranks)))

    async def stop(self) -> None:
        """Ends every rank; their memory is free then."""
        if self._ending:
            self._ending.cancel()
        await asyncio.gather(*(worker.stop() for _, worker in self._ranks))

    def _rank_lost(self, error: LayerlineError) -> None:
        if self.lost is None:
            self.lost = error
            for _, worker in self._ranks:
                worker.kill(error)
            self._ending = asyncio.create_task(self._tell(error))

    async def _tell(self, error: LayerlineError) -> None:
        await asyncio.gather(*(worker.stop() for _, worker in self._ranks))
        self._on_lost(error)
