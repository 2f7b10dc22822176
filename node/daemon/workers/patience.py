"""How long the daemon waits for a worker."""

from __future__ import annotations

from dataclasses import dataclass

from node.daemon.workers.silence import BUSY_SILENCE_S, FROZEN_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long a worker is waited for, in seconds."""

    start_s: float = 110.0  # until it speaks: a cold start of torch on a busy machine; the coordinator waits 120 s
    progress_s: float = 60.0  # a load may take long, but not without any progress
    place_s: float = 25.0  # the worker tries the next stage's addresses for 4 s each
    prepare_s: float = 60.0  # of experts that move: a few matrices are read
    take_s: float = 25.0  # until a step is over
    write_s: float = 5.0
    end_s: float = 1.0  # from the end of its input
    terminate_s: float = 0.5
    frozen_s: float = FROZEN_S
    busy_silence_s: float = BUSY_SILENCE_S


PATIENCE = Patience()
