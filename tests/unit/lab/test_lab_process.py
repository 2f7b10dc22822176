from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.lab.process import LateError, Process, wait_until

ENDLESS = "import time\nprint('up', flush=True)\nwhile True: time.sleep(1)"


def start(code: str) -> Process:
    return Process.start("code", [sys.executable, "-c", code], environment={"LANG": "C.UTF-8"}, folder=Path.cwd())


def test_output_and_exit_code_are_told_apart() -> None:
    finished = start("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)").wait(deadline_s=10)
    assert (finished.exit_code, finished.stdout, finished.stderr) == (7, "out\n", "err\n")


def test_waiting_for_words_returns_their_match() -> None:
    process = start("print('listening on port 7355'); print('more')")
    assert process.wait_for(r"port (\d+)", deadline_s=10)[1] == "7355"
    process.wait(deadline_s=10)


def test_waiting_for_words_ends_with_the_process() -> None:
    process = start("print('something else')")
    with pytest.raises(LateError, match="something else"):
        process.wait_for("never said", deadline_s=60)
    process.wait(deadline_s=10)


def test_a_process_that_goes_on_is_late() -> None:
    process = start(ENDLESS)
    process.wait_for("up", deadline_s=10)
    with pytest.raises(LateError, match="still ran"):
        process.wait(deadline_s=0.05)
    process.kill()
    assert process.wait(deadline_s=10).exit_code == -signal.SIGKILL


def test_ctrl_c_reaches_the_children_too() -> None:
    child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {ENDLESS!r}])"
    process = start(child)
    process.wait_for("up", deadline_s=10)
    (grandchild,) = process.children()
    process.interrupt()
    process.wait(deadline_s=10)
    wait_until(lambda: not grandchild.is_running(), "end of the grandchild", deadline_s=10)


def test_a_frozen_process_says_nothing_until_it_thaws() -> None:
    process = start("import sys\nprint('up', flush=True)\nprint(len(sys.stdin.read()) , flush=True)")
    process.wait_for("up", deadline_s=10)
    process.freeze()
    process.thaw()
    assert process.wait(deadline_s=10).exit_code == 0


def test_what_never_happens_is_named() -> None:
    with pytest.raises(LateError, match="the moon"):
        wait_until(lambda: False, "the moon", deadline_s=0.05)
