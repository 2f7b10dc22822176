"""Whether a worker is frozen, judged by its signs of life and by what the system says of its process.

A worker says that it lives from a thread of its own. On a machine at its limit that thread may be late, so silence
alone proves nothing. A process is frozen if it is stopped (SIGSTOP, a debugger), or if it is silent and does nothing
meanwhile: none of its threads runs, waits for a core or for a disk, and its processor time does not grow. One that is
silent and busy gets far longer.

Time counts only as far as the daemon itself was there to listen: one look after a pause of the whole machine adds no
more than usual. Pure: looks and passed seconds are given to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from node.pipe import ALIVE_INTERVAL_S

USUAL_S = 1.25 * ALIVE_INTERVAL_S
FROZEN_S = 4.0  # with one look more and the telling, a frozen worker is known within 5 s
BUSY_SILENCE_S = 60.0
LOOK_INTERVAL_S = 0.25
MOST_COUNTED_S = 2 * LOOK_INTERVAL_S  # between two looks, however late the second one is


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessLook:
    """What a process is doing: whether it is stopped, whether any thread could do something, its processor time."""

    stopped: bool
    active: bool
    cpu_s: float


class Silence:
    """The silence of one worker, from its start."""

    def __init__(self, *, frozen_s: float = FROZEN_S, busy_silence_s: float = BUSY_SILENCE_S) -> None:
        self._frozen_s = frozen_s
        self._busy_silence_s = busy_silence_s
        self._has_spoken = False
        self._silent_s = 0.0
        self._stopped_s = 0.0
        self._idle_s = 0.0
        self._cpu_s = 0.0

    @property
    def strange(self) -> bool:
        """Whether it has lasted longer than between two signs of life, so that each thread has to be looked at."""
        return self._silent_s > USUAL_S

    def heard(self) -> None:
        """The worker has said that it lives."""
        self._has_spoken = True
        self._silent_s = self._idle_s = 0.0

    def looked(self, look: ProcessLook, passed_s: float) -> str:
        """Why the worker must be taken for frozen, in the words of an error; empty if it need not.

        `passed_s` is the time since the last look.
        """
        passed_s = min(passed_s, MOST_COUNTED_S)
        idle = not look.stopped and not look.active and look.cpu_s <= self._cpu_s
        self._cpu_s = look.cpu_s
        self._stopped_s = self._stopped_s + passed_s if look.stopped else 0.0
        self._silent_s += passed_s
        self._idle_s = self._idle_s + passed_s if idle else 0.0
        if self._stopped_s >= self._frozen_s:
            return f"was frozen: its process was stopped for {self._frozen_s:g} s"
        if self._has_spoken and self._idle_s >= self._frozen_s:
            return f"was frozen: it did nothing and gave no sign of life for {self._frozen_s:g} s"
        if self._has_spoken and self._silent_s >= self._busy_silence_s:
            return f"gave no sign of life for {self._busy_silence_s:g} s"
        return ""
