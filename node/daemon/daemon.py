"""The composition root of the node daemon: puts its parts together, runs them until a signal, and ends them.

A node that is told to end tells its coordinator, stops its worker and leaves the network within seconds.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc.aio

from layerline.endings import NOT_FAILURES
from layerline.errors import LayerlineError, PortInUseError, UsageError
from layerline.hosting.adverts import advertise, look_interval, sockets_for
from layerline.hosting.child import python_module
from layerline.hosting.descriptors import raise_descriptor_limit
from layerline.hosting.end_signals import LastResort, told_by_signals
from layerline.hosting.ports import ANY_IPV4, Bind, Listening, listen
from layerline.rpc.channels import make_server
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import node_pb2_grpc
from node.daemon.description import Description
from node.daemon.devices.readings import check_memory, chosen_devices
from node.daemon.devices.system import system_devices
from node.daemon.devices.watch import DeviceWatch, check_kernels
from node.daemon.hold.admission import HoldAdmission
from node.daemon.identity import Identity, held_identity
from node.daemon.notices import greet, log_to_standard_error, tell_measured
from node.daemon.registration import Registration
from node.daemon.service import NodeService
from node.daemon.settings import DEFAULT_PORT, NodeSettings
from node.daemon.stages.keeper import KeeperSettings, StageKeeper
from node.daemon.stages.kept import OnLost, Worker
from node.daemon.stages.model_library import ModelLibrary
from node.daemon.workers.group import WorkerGroup

DRAIN_DEADLINE_S = 2.0  # for the coordinator to let the step that runs end, and to leave
CALLS_DEADLINE_S = 0.2  # for other calls
END_DEADLINE_S = 4.5
PORTS_TRIED = 64
WORKER_COMMAND = python_module("node.worker")

log = logging.getLogger(__name__)


def run_node(settings: NodeSettings, worker_command: tuple[str, ...] = WORKER_COMMAND) -> int:
    """Runs a node until SIGTERM or SIGINT; returns the exit code. A second signal ends it at once.

    Raises LayerlineError if the node cannot start or must not go on.
    """
    log_to_standard_error()
    raise_descriptor_limit()
    last_resort = LastResort(END_DEADLINE_S)
    asyncio.run(_run(settings, worker_command, last_resort))
    last_resort.call_off()
    return 0


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """What a daemon is made of."""

    library: ModelLibrary
    keeper: StageKeeper
    admission: HoldAdmission
    description: Description


async def _run(settings: NodeSettings, worker_command: tuple[str, ...], last_resort: LastResort) -> None:
    with ExitStack() as held:
        told = held.enter_context(told_by_signals())
        system = held.enter_context(system_devices(os.environ))
        devices = chosen_devices(settings.devices, system.present())
        check_kernels()
        watch = DeviceWatch(
            system, settings.threads_of(devices), memory_bytes=settings.memory_bytes, state=settings.state
        )
        check_memory(settings.memory_bytes, watch.readings())
        server = make_server()
        listening = _listen(functools.partial(Transport().listen, server), settings)
        identity = held.enter_context(held_identity(settings.state, settings.name, listening.told_address))
        cards = held.enter_context(_empty_folder(identity.folder / "cards"))
        parts = _assemble(settings, worker_command, watch, identity, listening, cards)
        async with _serving(server, parts):
            greet(await parts.description.facts(), mdns=settings.mdns)
            background = [_measure(watch, parts.keeper)]
            if settings.mdns:
                background.append(_advertise(parts, listening))
            await _until_told(told, parts.admission, background, last_resort)


def _assemble(
    settings: NodeSettings,
    worker_command: tuple[str, ...],
    watch: DeviceWatch,
    identity: Identity,
    listening: Listening,
    cards: Path,
) -> _Parts:
    async def spawn_workers(devices: Sequence[str], on_lost: OnLost) -> Worker:
        threads = {device: watch.threads[device] for device in devices}
        return await WorkerGroup.spawn(worker_command, os.environ, threads, node=settings.name, on_lost=on_lost)

    library = ModelLibrary(settings.models, node=settings.name, cache=settings.cache / "cards", work=cards)
    keeper = StageKeeper(
        KeeperSettings(
            node=settings.name,
            host=listening.host_text,
            keep_alive_s=settings.keep_alive_s,
        ),
        models=library,
        epochs=identity,
        devices=watch.facts,
        spawn_worker=spawn_workers,
        call_later=asyncio.get_running_loop().call_later,
    )
    admission = HoldAdmission(keeper, node=settings.name, node_id=identity.node_id)
    description = Description(identity, listening, watch, library, keeper, admission)
    return _Parts(library=library, keeper=keeper, admission=admission, description=description)


def _listen(bind: Bind, settings: NodeSettings) -> Listening:
    try:
        return listen(bind, settings.host, _ports(settings))
    except PortInUseError:
        # If the very same node has the port, that is the better explanation.
        wanted = Listening(host=settings.host or ANY_IPV4, port=settings.port or DEFAULT_PORT)
        with held_identity(settings.state, settings.name, wanted.told_address):
            raise


def _ports(settings: NodeSettings) -> Sequence[int]:
    """The port that was asked for, else the usual one or those after it."""
    return range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED) if settings.port is None else (settings.port,)


@contextmanager
def _empty_folder(path: Path) -> Iterator[Path]:
    """A folder for the time of the block; what a killed daemon has left there is removed."""
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.mkdir()
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}.", remedy="Check the disk.") from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def _serving(server: grpc.aio.Server, parts: _Parts) -> AsyncIterator[None]:
    service = NodeService(parts.description.facts, parts.library, parts.admission)
    # The generated class knows only handlers that yield, gRPC also those that write to their context.
    node_pb2_grpc.add_NodeServicer_to_server(cast("node_pb2_grpc.NodeServicer", service), server)
    try:
        await server.start()
        yield
    finally:
        await server.stop(CALLS_DEADLINE_S)
        await parts.keeper.close()


async def _until_told(
    told: asyncio.Event, admission: HoldAdmission, background: list[Coroutine[Any, Any, None]], last_resort: LastResort
) -> None:
    """Runs the background until told, then ends it while the coordinator leaves; raises what must end the node."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_guarded(part)) for part in background]
            await told.wait()
            last_resort.begin()
            for task in tasks:
                task.cancel()
            await admission.drain(DRAIN_DEADLINE_S)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _guarded(part: Coroutine[Any, Any, None]) -> None:
    try:
        await part
    except (LayerlineError, *NOT_FAILURES):
        raise
    except BaseException:  # the top of a daemon task: one part less is better than no node
        log.exception("A part of the daemon failed; the node goes on without it.")


async def _measure(watch: DeviceWatch, keeper: StageKeeper) -> None:
    def tell() -> None:
        tell_measured(watch.speeds, watch.all_reduce_us)

    await watch.measure()
    tell()
    await watch.measure_until_quiet(lambda: not keeper.loaded, tell)


async def _advertise(parts: _Parts, listening: Listening) -> None:
    address = next(iter(listening.addresses()), "HOST:PORT")
    await advertise(
        lambda: parts.description.advert(listening.addresses()),
        Registration().register,
        instead=f"Give coordinators --node {address}.",
        open_sockets=sockets_for(listening.host),
        next_look=look_interval,
    )
