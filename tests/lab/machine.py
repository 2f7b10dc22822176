"""One machine of the lab: a network namespace with folders of its own, and the programs on it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from tests.lab import network
from tests.lab.process import Finished, Process, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
RUN_DEADLINE_S = 60.0
REAP_DEADLINE_S = 5.0


class Machine:
    """What a test does to one machine. `ipv4` and `ipv6` are its addresses, empty if it has none of the kind."""

    def __init__(self, lab: str, name: str, number: int, *, folder: Path, ipv4: bool, ipv6: bool) -> None:
        self.name = name
        self.folder = folder
        self.ipv4 = network.IPV4.format(number) if ipv4 else ""
        self.ipv6 = network.IPV6.format(number) if ipv6 else ""
        self._lab = lab
        self._number = number
        self._started: list[Process] = []

    @property
    def namespace(self) -> str:
        """The name of its network namespace."""
        return f"{self._lab}-{self.name}"

    @property
    def models(self) -> Path:
        """Its models folder."""
        return self.folder / "cache" / "models"

    @property
    def environment(self) -> dict[str, str]:
        """What its programs see: the project's commands, and nothing of the user who runs the tests."""
        programs = os.pathsep.join([str(Path(sys.executable).parent), "/usr/sbin", "/usr/bin", "/sbin", "/bin"])
        return {
            "PATH": programs,
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.folder / "tmp"),
            "LAYERLINE_STATE": str(self.folder / "state"),
            "LAYERLINE_CACHE": str(self.folder / "cache"),
        }

    def make_folders(self) -> None:
        """Makes its folders, empty."""
        for folder in (self.models, self.folder / "state", self.folder / "tmp"):
            folder.mkdir(parents=True)

    def give_model(self, path: Path, name: str = "") -> Path:
        """Puts a link to the model at `path` into the models folder, under `name` or its own."""
        link = self.models / (name or path.name)
        link.symlink_to(path)
        return link

    def start(self, words: Sequence[str], *, cpu: int | None = None, **environment: str) -> Process:
        """Starts a program, on core `cpu` alone if given; what is left of it ends with the lab."""
        pinned = [] if cpu is None else ["taskset", "-c", str(cpu)]
        process = Process.start(
            f"{' '.join(words[:3])} on {self.name}",
            ["ip", "netns", "exec", self.namespace, *pinned, *words],
            environment={**self.environment, **environment},
            folder=REPOSITORY,
        )
        self._started.append(process)
        return process

    def run(self, words: Sequence[str], *, deadline_s: float = RUN_DEADLINE_S, cpu: int | None = None) -> Finished:
        """Runs a program to its end; LateError after `deadline_s`."""
        return self.start(words, cpu=cpu).wait(deadline_s=deadline_s)

    def add_bridge(self, name: str, address: str) -> None:
        """Gives it a bridge that only itself is on."""
        network.add_bridge(self.namespace, name, address)

    def unplug(self) -> None:
        """Pulls its cable."""
        network.set_cable(self._lab, self._number, plugged=False)

    def plug(self) -> None:
        """Puts its cable back."""
        network.set_cable(self._lab, self._number, plugged=True)

    def pids(self) -> list[int]:
        """The ids of all processes on it."""
        return network.processes_in(self.namespace)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Nothing on it runs for the time of the block, yet its network goes on accepting packets."""
        pids = self.pids()
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: all(map(_is_stopped, pids)), f"freezing of {self.name}", deadline_s=REAP_DEADLINE_S)
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def kill_everything(self) -> None:
        """Ends all that runs on it, as a power cut does."""
        network.kill_processes(self.namespace)
        for process in self._started:
            process.wait(deadline_s=REAP_DEADLINE_S)
        self._started.clear()


def _is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
