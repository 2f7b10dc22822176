"""A worker that speaks the daemon's pipe and computes nothing: `python tests/fakes/daemon_worker.py [MODE [RANK]]`.

Modes: "good"; "dawdles" (says a little progress, then loads for ever), "repeats" (says it again and again),
"refuses", "dies", "freezes" (at Start), "stops" (says that it lives, then freezes), "sleeps" (the same, but is not
stopped), "mute" (likewise without a word), "computes" (says that it lives, then computes for a second without a
word), "babbles" (says what is no message), "stubborn" (ignores SIGTERM and the end of its input), "dreams" (never
answers Place), "forgets" (does not answer the first Place), "lags" (answers Place with the answer to the last one,
and then with its own), "invents" (answers commands to come). With RANK only that rank is so, the others are good.
SIGUSR1 has any say that it failed.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from layerline.hold import Place
from node import pipe


def main() -> None:
    mode = sys.argv[1] if len(sys.argv) > 1 else "good"
    signal.signal(signal.SIGUSR1, _fail)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    answered = b""
    while (told := _read()) is not None:
        command, message = told
        if isinstance(message, pipe.Start):
            if len(sys.argv) > 2 and message.rank != int(sys.argv[2]):
                mode = "good"
            _start(mode, command, message)
        elif isinstance(message, Place) and mode == "forgets":
            mode = "good"
        elif isinstance(message, Place) and mode != "dreams":
            if mode == "lags":
                os.write(1, answered)
            placed = pipe.Placed(next_address=message.next.address if message.next else "")
            answered = pipe.pack(placed, command + (mode == "invents"))
            os.write(1, answered)
    while mode == "stubborn":
        time.sleep(60)


def _start(mode: str, command: int, start: pipe.Start) -> None:
    total_bytes = 1000
    if mode == "dies":
        print("first words\nout of \x1b[31mluck", file=sys.stderr, flush=True)
        sys.exit(3)
    if mode in ("stops", "sleeps", "computes"):
        _say(pipe.Alive())
    if mode in ("sleeps", "mute"):
        time.sleep(60)
    if mode == "computes":
        end = time.process_time() + 1.0
        while time.process_time() < end:
            pass
    if mode in ("freezes", "stops"):
        os.kill(os.getpid(), signal.SIGSTOP)
    if mode == "babbles":
        os.write(1, b"Hello, I am not a message. " * 10)
        return
    if mode == "refuses":
        _say(pipe.Refused(code="model_corrupt", message="The file is short.", remedy="Copy it anew."), command)
        sys.exit(1)
    _say(pipe.Progress(done_bytes=500, total_bytes=total_bytes), command)
    while mode == "repeats":
        time.sleep(0.01)
        _say(pipe.Progress(done_bytes=500, total_bytes=total_bytes), command)
    if mode != "dawdles":
        _say(pipe.Progress(done_bytes=total_bytes, total_bytes=total_bytes), command)
        port = 0 if start.rank else 4711
        _say(pipe.Started(port=port, weights_bytes=total_bytes, kv_bytes=start.spec.pages), command)


def _fail(_number: int, _frame: object) -> None:
    _say(pipe.Failed(code="stage_failed", message="A step of 3 rows failed (boom).", remedy="Be lucky."))


def _read() -> tuple[int, pipe.ToWorker] | None:
    prefix = sys.stdin.buffer.read(pipe.LENGTH_BYTES)
    if len(prefix) < pipe.LENGTH_BYTES:
        return None
    command, message = pipe.unpack(sys.stdin.buffer.read(pipe.length_of(prefix)))
    assert isinstance(message, pipe.ToWorker)
    return command, message


def _say(message: pipe.FromWorker, command: int = pipe.NO_COMMAND) -> None:
    os.write(1, pipe.pack(message, command))


if __name__ == "__main__":
    main()
