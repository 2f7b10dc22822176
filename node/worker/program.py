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
from node.worker.daemon_pipe import DaemonPipe
from node.worker.follower import follow
from node.worker.loaded_rank import LoadedRank, LoadPart, loaded_rank
from node.worker.rank_end import ProcessEnd
from node.worker.rank_steps import RankSteps
from node.worker.ring_service import RingService
from node.worker.stage_compute import awaited
from node.worker.threads import check_threads

MAX_QUEUED_COMMANDS = 64
NO_PORT = 0

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
        part = _with_the_others(rank, start, ProcessEnd(channel)) if rank.lines else rank.part
        compute = held.enter_context(awaited(part, start.spec.devices[0]))
        check_threads(start.node)  # again, now that the weights have their memory
        transport = Transport()
        service = RingService(compute, transport, node=start.node, model_digest=start.spec.digest)
        server = make_server()
        # The generated class knows only handlers that yield, gRPC also those that write to their context.
        ring_pb2_grpc.add_RingServicer_to_server(cast("ring_pb2_grpc.RingServicer", service), server)
        port = transport.listen(server, f"{start.host}:0")
        await server.start()
        answer(rank.started(port))
        while True:
            number, command = await commands.get()
            await _obey(functools.partial(channel.write, command=number), service, command)


def _with_the_others(rank: LoadedRank, start: pipe.Start, end: ProcessEnd) -> RankSteps:
    check = functools.partial(check_frame, stage=start.spec, model=rank.card.spec)
    return RankSteps(rank.part, check, rank.lines, end)


def _follow(channel: DaemonPipe, answer: Tell, start: pipe.Start, load: LoadPart, deadline_s: float) -> NoReturn:
    channel.feed(_refuse)
    with loaded_rank(start, load, answer, deadline_s) as rank:
        answer(rank.started(NO_PORT))
        (line,) = rank.lines
        follow(line, rank.part, ProcessEnd(channel))


def _refuse(_number: int, command: pipe.ToWorker) -> None:
    raise ValueError(f"{type(command).__name__} came to a rank that follows")


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
