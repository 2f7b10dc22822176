"""One worker process as the daemon sees it: told what to do over its pipe, watched, and ended.

Its death is noticed at once and put into words, whatever the reason. Knows nothing of models or holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import psutil

from layerline.endings import NOT_FAILURES
from layerline.errors import LayerlineError, StageFailedError
from layerline.growth import GrowthDeadline
from layerline.hold import Place
from layerline.hosting.child import LastWords, kill, reaped, spawn
from node import pipe
from node.daemon.workers.commands import Commands
from node.daemon.workers.ending_words import ending, remedy
from node.daemon.workers.patience import PATIENCE, Patience
from node.daemon.workers.process_state import look_at
from node.daemon.workers.silence import LOOK_INTERVAL_S, Silence
from node.pipe import (
    Alive,
    ChosenExperts,
    Failed,
    ForgetExperts,
    Placed,
    Prepared,
    PrepareExperts,
    Progress,
    Refused,
    Start,
    Started,
    TakeExperts,
    Taken,
    Vacate,
)

KILL_DEADLINE_S = 2.0
LAST_MESSAGES_DEADLINE_S = 1.0

log = logging.getLogger(__name__)
OnLost = Callable[[LayerlineError], None]
OnProgress = Callable[[int, int], None]
OnChosenExperts = Callable[[ChosenExperts], None]
Answer = TypeVar("Answer", Started, Placed, Prepared, Taken)
Command = Start | Place | PrepareExperts | TakeExperts


class WorkerProcess:
    """A worker. Made by `spawn`; whoever has it must `stop` it. `lost` says why it has ended or is about to.

    `rank` is what to call it in errors if it is one of several.
    """

    def __init__(self, process: Process, *, node: str, rank: str, on_lost: OnLost, patience: Patience) -> None:
        self.lost: LayerlineError | None = None
        self.on_chosen_experts: OnChosenExperts | None = None
        self._process = process
        self._node = node
        self._rank = rank
        self._on_lost = on_lost
        self._words = LastWords(prefix=f"worker {process.pid}")
        self._stopping = False
        self._commands = Commands()
        self._on_progress: OnProgress | None = None
        self._on_first_word: Callable[[], None] | None = None
        self._patience = patience
        self._silence = Silence(frozen_s=patience.frozen_s, busy_silence_s=patience.busy_silence_s)
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        node: str,
        on_lost: OnLost,
        rank: str = "",
        descriptors: Sequence[int] = (),
        patience: Patience = PATIENCE,
    ) -> WorkerProcess:
        """Starts a worker by `command`, which gets `descriptors`.

        `on_lost` is called once if it ends other than by `stop` or `kill`.
        """
        try:
            process = await spawn(command, environment, descriptors)
        except OSError as error:
            message = f"Node {node} cannot start a worker: {error}."
            raise StageFailedError(message, node=node, remedy="Check the limits of this user.") from error
        worker = cls(process, node=node, rank=rank, on_lost=on_lost, patience=patience)
        worker._attend()
        return worker

    @property
    def resident_bytes(self) -> int:
        """What it has in the machine's memory at this moment; nothing once it has ended."""
        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def _attend(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        reading = asyncio.create_task(self._read(self._process.stdout))
        listening = asyncio.create_task(self._words.listen(self._process.stderr))
        watching = asyncio.create_task(self._watch((reading, listening)))
        self._tasks = [reading, listening, watching, asyncio.create_task(self._await_freezing())]

    async def start(self, start: Start, on_progress: OnProgress) -> Started:
        """Has the worker load its stage; raises its refusal, or StageFailedError if it dies or stands still."""
        deadline = asyncio.timeout(self._patience.start_s)

        growth = GrowthDeadline(deadline, self._patience.progress_s)

        def progressed(done_bytes: int, total_bytes: int) -> None:
            self._on_first_word = None
            growth.reached(done_bytes)
            on_progress(done_bytes, total_bytes)

        self._on_progress, self._on_first_word = progressed, growth.move_on
        try:
            return await self._ask(start, Started, deadline)
        finally:
            self._on_progress = self._on_first_word = None

    async def place(self, place: Place) -> Placed:
        """Gives the worker a place in a plan; raises its refusal, or StageFailedError if it dies or hangs."""
        return await self._ask(place, Placed, asyncio.timeout(self._patience.place_s))

    async def prepare_experts(self, prepare: PrepareExperts) -> None:
        """Has the rank load what it lacks for a move.

        Raises its refusal, StageFailedError if it takes too long, which ends nothing, or why it died.
        """
        await self._ask(prepare, Prepared, asyncio.timeout(self._patience.prepare_s))

    async def take_experts(self, take: TakeExperts) -> None:
        """Has the rank take what is prepared, when rank 0 says so; StageFailedError if it dies or hangs."""
        await self._ask(take, Taken, asyncio.timeout(self._patience.take_s))

    async def forget_experts(self, move: int) -> None:
        """What was prepared for a move is not wanted."""
        await self._tell(ForgetExperts(move=move))

    async def vacate(self) -> None:
        """Takes the worker's place away."""
        await self._tell(Vacate())

    async def _tell(self, message: Vacate | ForgetExperts) -> None:
        """Says what is not answered; a worker that does not listen is ended."""
        try:
            async with asyncio.timeout(self._patience.write_s):
                await self._write(message, self._commands.next_number())
        except TimeoutError:
            kill(self._process)

    async def stop(self) -> None:
        """Ends the worker: by the end of its input, else by SIGTERM, else by SIGKILL; its memory is free then."""
        self._stopping = True
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
            if not await reaped(self._process, self._patience.end_s):
                with contextlib.suppress(ProcessLookupError):
                    self._process.terminate()
                await reaped(self._process, self._patience.terminate_s)
        finally:
            kill(self._process)
        if not await reaped(self._process, KILL_DEADLINE_S):
            log.error("Worker %d does not end, not even by SIGKILL.", self._process.pid)
        for task in self._tasks:
            task.cancel()

    def kill(self, because: LayerlineError) -> None:
        """Ends the worker at once; whoever waits for an answer of it is told `because`."""
        self._stopping = True
        self.lost = self.lost or because
        self._commands.fail(self.lost)
        kill(self._process)

    async def _ask(self, message: Command, expected: type[Answer], deadline: asyncio.Timeout) -> Answer:
        if self.lost:
            raise self.lost
        try:
            with self._commands.awaited() as (number, answer):
                async with deadline:
                    await self._write(message, number)
                    reply = await answer
        except TimeoutError:
            if isinstance(message, PrepareExperts):
                slow = f"did not load the experts that were to come within {self._patience.prepare_s:.0f} s"
                raise self._failed(slow, remedy="The experts stay where they are.") from None
            raise self._stuck(message) from None
        if isinstance(reply, Refused):
            raise reply.error(self._node, self._speaker())
        if not isinstance(reply, expected):
            kill(self._process)
            raise self._failed(f"answered {type(message).__name__} with {type(reply).__name__}")
        return reply

    async def _write(self, message: pipe.ToWorker, number: int) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # its death tells more, and follows
            self._process.stdin.write(pipe.pack(message, number))
            await self._process.stdin.drain()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """Takes messages until the pipe ends; a worker that says anything else is ended."""
        try:
            while True:
                length = pipe.length_of(await stream.readexactly(pipe.LENGTH_BYTES))
                self._take(*pipe.unpack(await stream.readexactly(length)))
        except asyncio.IncompleteReadError:
            if not await reaped(self._process, self._patience.end_s):
                kill(self._process)
        except NOT_FAILURES:
            raise
        except BaseException:  # the top of a task: a worker that is not heard any more is as good as dead
            log.exception("Worker %d is ended because of what it says.", self._process.pid)
            kill(self._process)

    def _take(self, command: int, message: pipe.ToWorker | pipe.FromWorker) -> None:
        if isinstance(message, Alive):
            self._silence.heard()
            on_first_word, self._on_first_word = self._on_first_word, None
            if on_first_word:
                on_first_word()
        elif isinstance(message, Failed):
            self.lost = self.lost or message.error(self._node, self._speaker())
            kill(self._process)
        elif isinstance(message, ChosenExperts):
            if self.on_chosen_experts:
                self.on_chosen_experts(message)
        elif not self._commands.is_awaited(command):  # whoever asked has stopped waiting
            log.info("Worker %d said %s too late.", self._process.pid, type(message).__name__)
        elif not isinstance(message, Progress):
            self._commands.answer(command, message)
        elif self._on_progress:
            self._on_progress(message.done_bytes, message.total_bytes)

    async def _await_freezing(self) -> None:
        """Ends a worker that is frozen. Nothing is known of it once it has ended."""
        clock = asyncio.get_running_loop().time
        looked_at = clock()
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            now, look = clock(), look_at(self._process.pid, closely=self._silence.strange)
            if look is None:
                return
            if frozen := self._silence.looked(look, now - looked_at):
                break
            looked_at = now
        self.lost = self.lost or self._failed(frozen)
        kill(self._process)

    async def _watch(self, streams: Sequence[asyncio.Task[None]]) -> None:
        code = await self._process.wait()
        await asyncio.wait(streams, timeout=LAST_MESSAGES_DEADLINE_S)
        self.lost = self.lost or self._failed(ending(code), self._words.last, remedy(code, self._words.last))
        self._commands.fail(self.lost)
        if not self._stopping:
            log.error("%s", self.lost)
            self._on_lost(self.lost)

    def _stuck(self, message: Command) -> LayerlineError:
        if isinstance(message, Place):
            doing, deadline_s = "did not take its place in the plan", self._patience.place_s
        elif isinstance(message, TakeExperts):
            doing, deadline_s = "did not place the experts that it had prepared", self._patience.take_s
        elif self._on_first_word:
            doing, deadline_s = "did not start", self._patience.start_s
        else:
            doing, deadline_s = "did not get on with loading", self._patience.progress_s
        self.lost = self.lost or self._failed(f"{doing} for {deadline_s:.0f} s and was ended")
        log.error("%s", self.lost)
        kill(self._process)
        return self.lost

    def _speaker(self) -> str:
        """Whom to name before what the worker says, if there are several."""
        return f"{self._rank} of node {self._node}" if self._rank else ""

    def _failed(self, what: str, last_word: str = "", remedy: str = "") -> StageFailedError:
        said = f'; its last word was "{last_word}"' if last_word else ""
        remedy = remedy or "The node is ready to load again; its log says more."
        who = self._rank or "The worker"
        return StageFailedError(f"{who} of node {self._node} {what}{said}.", node=self._node, remedy=remedy)
