"""The numbers of the commands to one worker, and the answer to the one that is waited for.

An answer that comes when nobody waits for it any more is never taken for that of a later command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from layerline.errors import LayerlineError
from node.pipe import NO_COMMAND, FromWorker, ToWorker


class Commands:
    """Commands are numbered from 1 on; one at a time is waited for."""

    def __init__(self) -> None:
        self._given = 0  # how many, and so the number of the last one
        self._awaited = NO_COMMAND
        self._answer: asyncio.Future[FromWorker | ToWorker] | None = None

    def next_number(self) -> int:
        """The number of a further command."""
        self._given += 1
        return self._given

    @contextmanager
    def awaited(self) -> Iterator[tuple[int, asyncio.Future[FromWorker | ToWorker]]]:
        """The number of a further command, and its answer, which is waited for in the block."""
        assert self._answer is None, "one command at a time"
        self._awaited = self.next_number()
        self._answer = asyncio.get_running_loop().create_future()
        try:
            yield self._awaited, self._answer
        finally:
            self._awaited, self._answer = NO_COMMAND, None

    def is_awaited(self, command: int) -> bool:
        """Whether what is said to this command is waited for; ValueError if it was never given."""
        if not 0 < command <= self._given:
            raise ValueError(f"an answer to command {command}, of {self._given}")
        return command == self._awaited

    def answer(self, message: FromWorker | ToWorker) -> None:
        """The answer to the command that is waited for has come."""
        if self._answer and not self._answer.done():
            self._answer.set_result(message)

    def fail(self, error: LayerlineError) -> None:
        """No answer will come, because of `error`."""
        if self._answer and not self._answer.done():
            self._answer.set_exception(error)
