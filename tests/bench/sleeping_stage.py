"""A stage that sleeps in place of computing, served as a worker serves its own: `python -m tests.bench.sleeping_stage`.

Its argument is the JSON of a `SleepingPlace`. It prints its address once it has its place, and ends with its standard
input. It sleeps in `run`, which blocks its event loop as computing does; so each such stage is a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass

from layerline.frames import Frame
from layerline.step_result import SampledToken, StepResult
from tests.fakes.grpc_ring import place, served

TOKEN = 1  # what is drawn, always


@dataclass(frozen=True, kw_only=True, slots=True)
class SleepingPlace:
    """Stage `index` of `count`, which sleeps so long for each row; `next_address` is empty for the last one."""

    index: int
    count: int
    next_address: str
    prompt_row_s: float
    decode_row_s: float

    def to_json(self) -> str:
        """It as an argument."""
        return json.dumps(asdict(self))


class SleepingStage:
    """`run` as `node.stage.Stage` has it."""

    def __init__(self, place: SleepingPlace) -> None:
        self._place = place
        self._is_last = place.index == place.count - 1

    def run(self, frame: Frame) -> Frame | StepResult:
        """Sleeps as long as the rows would take; a row by itself is taken for one that continues an answer."""
        decode_rows = sum(span.count == 1 for span in frame.spans)
        prompt_rows = frame.rows - decode_rows
        time.sleep(prompt_rows * self._place.prompt_row_s + decode_rows * self._place.decode_row_s)
        if not self._is_last:
            return frame
        sampled = tuple(
            SampledToken(sequence=span.sequence, position=position, token_id=TOKEN)
            for span in frame.spans
            for position in span.sampled_positions
        )
        return StepResult(epoch=frame.epoch, step=frame.step, sampled=sampled)


async def serve(asked: SleepingPlace) -> None:
    """Obeys until standard input ends."""
    async with served(SleepingStage(asked), f"n{asked.index}") as (service, address):
        await service.take_place(place(asked.index, asked.count, asked.next_address or None))
        print(address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(SleepingPlace(**json.loads(sys.argv[1]))))
