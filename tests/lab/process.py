"""One program on a machine of the lab: started, watched, signalled, and waited for with deadlines."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.lab.transcript import Transcript

SHOWN_CHARACTERS = 4_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """How a program ended: `exit_code` is negative for a signal, as in subprocess."""

    exit_code: int
    stdout: str
    stderr: str


class LateError(AssertionError):
    """Something did not happen before its deadline; the message has what the process said."""


class Process:
    """A started program in a session of its own, so that a signal to its group is what a terminal would send."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], changed: threading.Condition) -> None:
        self.name = name
        self.stdout = Transcript(changed)
        self.stderr = Transcript(changed)
        self._popen = popen
        self._changed = changed

    @classmethod
    def start(cls, name: str, words: Sequence[str], *, environment: Mapping[str, str], folder: Path) -> Process:
        """Starts `words` in `folder`; `name` is for messages."""
        popen = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
        process = cls(name, popen, threading.Condition())
        assert popen.stdout
        assert popen.stderr
        process.stdout.follow(os.dup(popen.stdout.fileno()))
        process.stderr.follow(os.dup(popen.stderr.fileno()))
        popen.stdout.close()
        popen.stderr.close()
        return process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def wait_for(self, pattern: str, *, deadline_s: float) -> re.Match[str]:
        """The first match of `pattern` in what it says; LateError after `deadline_s` or if it ends without."""
        return self._wait_for((self.stdout, self.stderr), pattern, deadline_s)

    def wait_for_output(self, pattern: str, *, deadline_s: float) -> re.Match[str]:
        """The same, on its standard output alone."""
        return self._wait_for((self.stdout,), pattern, deadline_s)

    def _wait_for(self, streams: Sequence[Transcript], pattern: str, deadline_s: float) -> re.Match[str]:
        deadline = time.monotonic() + deadline_s
        with self._changed:
            while True:
                for stream in streams:
                    if found := stream.search(pattern):
                        return found
                left_s = deadline - time.monotonic()
                if left_s <= 0 or all(stream.ended for stream in streams):
                    raise self._late(f"did not say {pattern!r} within {deadline_s:.0f} s or before its end")
                self._changed.wait(left_s)

    def wait(self, *, deadline_s: float) -> Finished:
        """How it ended and all it said; LateError if it still runs, or its streams are open, after `deadline_s`."""
        deadline = time.monotonic() + deadline_s
        try:
            exit_code = self._popen.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise self._late(f"still ran after {deadline_s:.0f} s") from None
        with self._changed:
            while not (self.stdout.ended and self.stderr.ended):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise self._late("ended, but a child of it kept its output open")
                self._changed.wait(left_s)
        return Finished(exit_code=exit_code, stdout=self.stdout.text, stderr=self.stderr.text)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to this one process."""
        self._popen.send_signal(number)

    def interrupt(self) -> None:
        """Ctrl-C: what a terminal sends to the process and all it has started in its group."""
        os.killpg(self.pid, signal.SIGINT)

    def terminate(self) -> None:
        """Asks it to end."""
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it without its having a say; its children go on."""
        self.signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Stops it from running until `thaw`."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it run on."""
        self.signal(signal.SIGCONT)

    def children(self, marker: str = "") -> list[psutil.Process]:
        """The living processes it has started, directly or not, whose command line has `marker`."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if child.status() != psutil.STATUS_ZOMBIE and marker in " ".join(child.cmdline()):
                        found.append(child)
        return found

    def _late(self, what: str) -> LateError:
        said = f"{self.stdout.text}\n{self.stderr.text}".strip()[-SHOWN_CHARACTERS:]
        return LateError(f"{self.name} {what}. It said:\n{said}")


def wait_until(condition: Callable[[], bool], what: str, *, deadline_s: float) -> None:
    """Returns once `condition` holds; LateError naming `what` if it does not within `deadline_s`.

    Only for what nothing tells of, such as the end of somebody else's child.
    """
    deadline = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > deadline:
            raise LateError(f"{what}: not within {deadline_s:.0f} s")
        time.sleep(0.02)
