"""How the process of one of several ranks ends when its stage cannot go on: told to the daemon, or silently.

A rank that fails says why, once. One that only finds another gone says nothing, since the daemon knows of that from
the other itself, and ends what is left of the stage.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import NoReturn, Protocol, TypeVar

from layerline.endings import NOT_FAILURES
from layerline.errors import LayerlineError, StageFailedError
from layerline.frames import Frame
from node import pipe
from node.worker.daemon_pipe import DaemonPipe

GONE_DEADLINE_S = 10.0  # for the daemon to end this process after another rank's

log = logging.getLogger(__name__)
Product = TypeVar("Product")


class RankEnd(Protocol):
    """What a rank does when it cannot go on: `ProcessEnd`, or a fake."""

    def failed(self, error: LayerlineError) -> NoReturn:
        """Ends because of `error`."""

    def others_gone(self) -> NoReturn:
        """Ends because another rank has."""


class ProcessEnd:
    """Ends this process, whatever it is doing."""

    def __init__(self, channel: DaemonPipe) -> None:
        self._channel = channel

    def failed(self, error: LayerlineError) -> NoReturn:
        """Tells the daemon of `error` and ends."""
        self._channel.write(pipe.Failed.of(error))
        os._exit(1)

    def others_gone(self) -> NoReturn:
        """Waits to be ended by the daemon."""
        time.sleep(GONE_DEADLINE_S)
        os._exit(1)


def computed_or_ended(compute: Callable[[Frame], Product], frame: Frame, end: RankEnd) -> Product:
    """What `compute` makes of a step that all ranks do; if it fails on this one, the stage cannot go on."""
    try:
        return compute(frame)
    except LayerlineError as error:
        end.failed(error)
    except NOT_FAILURES:
        raise
    except BaseException as failure:  # the boundary to the computing library, of which a panic is no Exception
        log.exception("Step %d failed.", frame.step)
        message = f"A step of {frame.rows} rows failed ({failure})."
        remedy = "If memory ran out, give the node a smaller --memory or ask for a smaller --context."
        end.failed(StageFailedError(message, remedy=remedy))
