"""The numbers of the commands to one worker, and the answers to those that are waited for.

An answer that comes when nobody waits for it any more is never taken for that of a later command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from layerline.errors import LayerlineError
from node.pipe import FromWorker, ToWorker


class Commands:
    """Commands are numbered from 1 on."""

    def __init__(self) -> None:
        self._given = 0  # how many, and so the number of the last one
        self._answers: dict[int, asyncio.Future[FromWorker | ToWorker]] = {}

    def next_number(self) -> int:
        """The number of a further command."""
        self._given += 1
        return self._given

    @contextmanager
    def awaited(self) -> Iterator[tuple[int, asyncio.Future[FromWorker | ToWorker]]]:
        """The number of a further command, and its answer, which is waited for in the block."""
        number = self.next_number()
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            yield number, answer
        finally:
            del self._answers[number]

    def is_awaited(self, command: int) -> bool:
        """Whether what is said to this command is waited for; ValueError if it was never given."""
        if not 0 < command <= self._given:
            raise ValueError(f"an answer to command {command}, of {self._given}")
        return command in self._answers

    def answer(self, command: int, message: FromWorker | ToWorker) -> None:
        """The answer to a command that is waited for has come."""
        if not self._answers[command].done():
            self._answers[command].set_result(message)

    def fail(self, error: LayerlineError) -> None:
        """No answer will come to any command, because of `error`."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
