"""A frozen worker is known within five seconds, and nothing else is taken for one."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from node.daemon.workers.process_state import look_at
from node.daemon.workers.silence import BUSY_SILENCE_S, LOOK_INTERVAL_S, ProcessLook, Silence

BOUND_S = 5.0
ASLEEP_DEADLINE_S = 10.0
BUSY = [sys.executable, "-c", "while True: pass"]
STOPPED = ProcessLook(stopped=True, active=False, cpu_s=1.0)
ASLEEP = ProcessLook(stopped=False, active=False, cpu_s=1.0)
ACTIVE = ProcessLook(stopped=False, active=True, cpu_s=1.0)


def seconds_until_frozen(silence: Silence, look: ProcessLook, passed_s: float = LOOK_INTERVAL_S) -> float:
    """How much time passes until such looks mean that the worker is frozen."""
    for count in itertools.count(1):
        if silence.looked(look, passed_s):
            return count * passed_s
    raise AssertionError


def spoken() -> Silence:
    """One whose processor time is known and that has spoken just now."""
    silence = Silence()
    silence.looked(ASLEEP, LOOK_INTERVAL_S)
    silence.heard()
    return silence


@pytest.mark.parametrize("make", [Silence, spoken], ids=["before it has spoken", "afterwards"])
@pytest.mark.parametrize("passed_s", [LOOK_INTERVAL_S, 1.7 * LOOK_INTERVAL_S], ids=["punctual", "late looks"])
def test_a_stopped_worker_is_known_within_the_bound(make: Callable[[], Silence], passed_s: float) -> None:
    assert 4.0 <= seconds_until_frozen(make(), STOPPED, passed_s) < BOUND_S


def test_a_worker_that_does_nothing_is_known_within_the_bound() -> None:
    silence = spoken()
    assert 4.0 <= seconds_until_frozen(silence, ASLEEP) < BOUND_S
    assert "did nothing and gave no sign of life for 4 s" in silence.looked(ASLEEP, LOOK_INTERVAL_S)


def test_a_worker_that_has_not_spoken_yet_may_wait_for_its_disk() -> None:
    silence = Silence()
    assert not any(silence.looked(ASLEEP, LOOK_INTERVAL_S) for _ in range(1000))


def test_a_sign_of_life_begins_anew() -> None:
    silence = spoken()
    for _ in range(100):
        assert not any(silence.looked(ASLEEP, LOOK_INTERVAL_S) for _ in range(12))
        silence.heard()


def test_a_pause_shorter_than_the_bound_is_waited_for() -> None:
    silence = spoken()
    for _ in range(100):
        assert not any(silence.looked(STOPPED, LOOK_INTERVAL_S) for _ in range(15))
        assert not silence.looked(ASLEEP, LOOK_INTERVAL_S)  # it has been resumed, and not yet spoken
        silence.heard()


def test_a_silent_worker_whose_threads_wait_for_a_core_is_not_frozen() -> None:
    assert seconds_until_frozen(spoken(), ACTIVE) >= BUSY_SILENCE_S


def test_a_silent_worker_whose_processor_time_grows_is_not_frozen() -> None:
    silence = spoken()
    looks = [ProcessLook(stopped=False, active=False, cpu_s=1.0 + count / 100) for count in range(1, 101)]
    assert not any(silence.looked(look, LOOK_INTERVAL_S) for look in looks)


def test_time_in_which_the_daemon_itself_did_not_run_is_hardly_counted() -> None:
    silence = spoken()
    assert not any(silence.looked(ASLEEP, 30.0) for _ in range(7))


def test_threads_are_looked_at_only_while_a_sign_of_life_is_overdue() -> None:
    silence = spoken()
    strange = []
    for _ in range(6):
        strange.append(silence.strange)
        silence.looked(ACTIVE, LOOK_INTERVAL_S)
    strange.append(silence.strange)
    silence.heard()
    strange.append(silence.strange)
    assert strange == [False] * 6 + [True, False]


def look_once_asleep(pid: int) -> ProcessLook | None:
    """The look at a process that is about to sleep, which it may do late; the last look if it does not at all."""
    deadline_s = time.monotonic() + ASLEEP_DEADLINE_S
    while (look := look_at(pid)) and look.active and time.monotonic() < deadline_s:
        os.sched_yield()
    return look


def test_a_stopped_process_is_told_from_a_sleeping_and_a_busy_one() -> None:
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    with subprocess.Popen(sleep, stdout=subprocess.PIPE) as sleeping, subprocess.Popen(BUSY) as busy:
        try:
            assert sleeping.stdout is not None
            sleeping.stdout.readline()
            asleep, active = look_once_asleep(sleeping.pid), look_at(busy.pid)
            busy.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, busy.pid, os.WSTOPPED | os.WNOWAIT)
            stopped, without_proc = look_at(busy.pid), look_at(busy.pid, Path("/nowhere"))
            in_passing = look_at(busy.pid, closely=False)
        finally:
            sleeping.kill()
            busy.kill()
    assert asleep is not None
    assert (asleep.stopped, asleep.active) == (False, False)
    assert active is not None
    assert (active.stopped, active.active) == (False, True)
    assert stopped is not None
    assert stopped.stopped
    assert without_proc == in_passing == stopped
    assert look_at(busy.pid) is None
