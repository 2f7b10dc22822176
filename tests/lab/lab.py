"""A small network of machines on this one: `with Lab("a", "b") as lab: lab["a"].run([...])`.

Machines are network namespaces on a bridge, which pass multicast like a plain switch. Everything goes when the
block ends, however it ends; what a killed run has left is swept by the next.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tests.lab import network
from tests.lab.machine import Machine


class Lab:
    """Machines by name. `rate_mbit` limits every cable, in both directions.

    With `link_local` they have only the IPv6 addresses that every interface gives itself.
    """

    def __init__(
        self,
        *names: str,
        ipv4: bool = True,
        ipv6: bool = True,
        link_local: bool = False,
        rate_mbit: int | None = None,
    ) -> None:
        self._names = names
        self._ipv4 = ipv4 and not link_local
        self._ipv6 = ipv6 and not link_local
        self._link_local = link_local
        self._rate_mbit = rate_mbit
        self._key = f"{network.PREFIX}-{os.getpid()}-{secrets.token_hex(2)}"
        self._folder = Path(tempfile.gettempdir()) / self._key
        self._machines: dict[str, Machine] = {}

    def __enter__(self) -> Lab:
        _sweep_dead_runs()
        try:
            network.add_switch(self._key)
            for number, name in enumerate(self._names, start=1):
                self._add(number, name)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def __getitem__(self, name: str) -> Machine:
        return self._machines[name]

    def __iter__(self) -> Iterator[Machine]:
        return iter(self._machines.values())

    def _add(self, number: int, name: str) -> None:
        network.add_machine(
            self._key,
            name,
            number,
            ipv4=self._ipv4,
            ipv6=self._ipv6,
            link_local=self._link_local,
            rate_mbit=self._rate_mbit,
        )
        folder = self._folder / name
        machine = Machine(self._key, name, number, folder=folder, ipv4=self._ipv4, ipv6=self._ipv6)
        machine.make_folders()
        self._machines[name] = machine

    def _remove(self) -> None:
        try:
            for machine in self:
                machine.kill_everything()
        finally:
            network.remove_all(self._key)
            shutil.rmtree(self._folder, ignore_errors=True)


def _sweep_dead_runs() -> None:
    network.sweep_dead_runs()
    for folder in Path(tempfile.gettempdir()).glob(f"{network.PREFIX}-*"):
        if network.is_of_dead_run(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
