"""The worker program: load the part of a stage that the daemon names, then serve as its rank has to.

Rank 0 listens and takes places in plans as told. A CPU computes on its event loop: a worker does nothing else, and
gRPC's own threads answer pings meanwhile. Any other rank follows rank 0, and needs no event loop.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import NoReturn, cast

from layerline.errors import LayerlineError, ProtocolError
from layerline.hold import Place
from layerline.printable import log_to_standard_error
from layerline.rpc.channels import make_server
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import ring_pb2_grpc
from node import pipe
from node.load_stage import load_stage
from node.ranks.group import DEADLINE_S
from node.step.admission import check_frame
from node.worker.chosen_experts import ToldExperts
from node.worker.daemon_pipe import DaemonPipe
from node.worker.expert_moves import ExpertMoves
from node.worker.follower import follow
from node.worker.loaded_rank import LoadedRank, LoadPart, loaded_rank
from node.worker.rank_end import ProcessEnd
from node.worker.rank_steps import RankSteps
from node.worker.ring_service import RingService
from node.worker.stage_compute import awaited
from node.worker.threads import check_threads

MAX_QUEUED_COMMANDS = 64
NO_PORT = 0

log = logging.getLogger(__name__)

Tell = Callable[[pipe.FromWorker], None]  # says it to the daemon as the answer to one command


def main(load: LoadPart = load_stage, deadline_s: float = DEADLINE_S) -> None:
    """Runs until the daemon ends the pipe or the process.

    `load` loads a rank's part of a stage; `deadline_s` is how long ranks wait for each other in a step.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches the daemon, which ends us in order
    log_to_standard_error(logging.INFO, "%(levelname)s %(name)s: %(message)s")
    channel = DaemonPipe.over_standard_streams()
    number, start = _first_command(channel)
    answer = functools.partial(channel.write, command=number)
    channel.tell_alive()
    try:
        check_threads(start.node)
        if start.rank == 0:
            asyncio.run(_lead(channel, answer, start, load, deadline_s))
        else:
            _follow(channel, answer, start, load, deadline_s)
    except LayerlineError as error:
        answer(pipe.Refused.of(error))
        raise SystemExit(1) from None


def _first_command(channel: DaemonPipe) -> tuple[int, pipe.Start]:
    try:
        number, start = channel.read()
    except EOFError:
        raise SystemExit(0) from None
    except ValueError as error:
        raise SystemExit(f"layerline worker: {error}") from None
    if not isinstance(start, pipe.Start):
        raise SystemExit(f"layerline worker: {type(start).__name__} came before Start")
    return number, start


async def _lead(channel: DaemonPipe, answer: Tell, start: pipe.Start, load: LoadPart, deadline_s: float) -> NoReturn:
    commands: asyncio.Queue[tuple[int, pipe.ToWorker]] = asyncio.Queue(maxsize=MAX_QUEUED_COMMANDS)
    loop = asyncio.get_running_loop()
    channel.feed(lambda *command: loop.call_soon_threadsafe(commands.put_nowait, command))
    with ExitStack() as held:
        rank = held.enter_context(loaded_rank(start, load, answer, deadline_s))
        others = _with_the_others(rank, start, ProcessEnd(channel)) if rank.lines else None
        compute = ToldExperts(
            held.enter_context(awaited(others or rank.part, start.spec.devices[0])), rank.part.experts, channel.write
        )
        moves = ExpertMoves(rank.part.experts, start.node)
        check_threads(start.node)  # again, now that the weights have their memory
        transport = Transport()
        service = RingService(compute, transport, node=start.node, model_digest=start.spec.digest)
        server = make_server()
        # The generated class knows only handlers that yield, gRPC also those that write to their context.
        ring_pb2_grpc.add_RingServicer_to_server(cast("ring_pb2_grpc.RingServicer", service), server)
        port = transport.listen(server, f"{start.host}:0")
        await server.start()
        answer(rank.started(port))
        telling = asyncio.create_task(compute.keep_telling())
        telling.add_done_callback(_top_of_a_task)
        while True:
            number, command = await commands.get()
            reply = functools.partial(channel.write, command=number)
            if isinstance(command, pipe.TakeExperts):
                take = functools.partial(others.take_experts, moves=moves) if others else moves.take
                await compute.between(functools.partial(take, command.move))
            if not _is_of_a_move(moves, command, reply):
                await _obey(reply, service, command)


def _with_the_others(rank: LoadedRank, start: pipe.Start, end: ProcessEnd) -> RankSteps:
    check = functools.partial(check_frame, stage=start.spec, model=rank.card.spec)
    return RankSteps(rank.part, check, rank.lines, end)


def _follow(channel: DaemonPipe, answer: Tell, start: pipe.Start, load: LoadPart, deadline_s: float) -> NoReturn:
    commands = _FollowersCommands(channel)
    channel.feed(commands.take)
    with loaded_rank(start, load, answer, deadline_s) as rank:
        moves = commands.moves = ExpertMoves(rank.part.experts, start.node)
        answer(rank.started(NO_PORT))
        (line,) = rank.lines
        follow(line, rank.part, moves, ProcessEnd(channel))


class _FollowersCommands:
    """What the daemon tells a rank that follows, once it has loaded: its part in moves of experts."""

    def __init__(self, channel: DaemonPipe) -> None:
        self.moves: ExpertMoves | None = None
        self._channel = channel

    def take(self, number: int, command: pipe.ToWorker) -> None:
        """Obeys; ValueError for what such a rank is not told."""
        answer = functools.partial(self._channel.write, command=number)
        if self.moves is None or not _is_of_a_move(self.moves, command, answer):
            raise ValueError(f"{type(command).__name__} came to a rank that follows")


def _is_of_a_move(moves: ExpertMoves, command: pipe.ToWorker, answer: Tell) -> bool:
    """Whether a command is about a move of experts, of which the rank does its part then."""
    match command:
        case pipe.PrepareExperts():
            moves.begin(command, answer)
        case pipe.ForgetExperts():
            moves.forget(command.move)
        case pipe.TakeExperts():
            moves.tell_taken(command.move, answer)
        case _:
            return False
    return True


def _top_of_a_task(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (failure := task.exception()):
        log.error("Telling which experts are chosen failed.", exc_info=failure)


async def _obey(answer: Tell, service: RingService, command: pipe.ToWorker) -> None:
    try:
        if isinstance(command, Place):
            answer(pipe.Placed(next_address=await service.take_place(command)))
        elif isinstance(command, pipe.Vacate):
            await service.vacate()
        else:
            raise ProtocolError("A worker is started once.")
    except LayerlineError as error:
        answer(pipe.Refused.of(error))
