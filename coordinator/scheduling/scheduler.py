"""The scheduler: what the next step is, and what its result means for the sequences.

It owns every sequence from `add` to `Ended`, the steps in flight and, through `Memory`, the pages. It does not
know text, connections, nodes or time. The package's docstring tells the life of a sequence.
"""

from __future__ import annotations

from bisect import insort
from collections import deque

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Ended, EndReason, Event, Token
from coordinator.scheduling.memory import Memory
from coordinator.scheduling.pages import PagePool
from coordinator.scheduling.sequence import Sequence, SequenceRequest
from coordinator.scheduling.step import Step
from layerline.errors import OverloadedError, ProtocolError
from layerline.frames import Span, StepResult


class Scheduler:
    """Sequences in, steps out, results in, events out. Not safe for threads: one owner calls it."""

    def __init__(self, capacity: Capacity) -> None:
        self.pool = PagePool(capacity.pages, capacity.page_tokens)
        self._capacity = capacity
        self._memory = Memory(
            self.pool,
            context_tokens=capacity.context_tokens,
            open_ended_tokens=capacity.open_ended_tokens,
        )
        self._sequences: dict[int, Sequence] = {}
        self._waiting: list[Sequence] = []  # by arrival
        self._prefilling: dict[int, Sequence] = {}  # by admission
        self._ready: dict[int, Sequence] = {}  # decoding, with a row to send, by when it came back
        self._in_flight: deque[Step] = deque()
        self._arrivals = 0
        self._steps = 0

    @property
    def steps_in_flight(self) -> int:
        """Steps issued whose result has not come back."""
        return len(self._in_flight)

    @property
    def idle(self) -> bool:
        """Whether there is no sequence at all."""
        return not self._sequences

    def add(self, request: SequenceRequest) -> None:
        """Queues a sequence.

        PromptTooLongError or RequestError if it can never be answered, OverloadedError if the queue is full.
        """
        assert request.sequence not in self._sequences, f"sequence {request.sequence} is known already"
        max_tokens = self._memory.most_tokens(request)
        if len(self._waiting) >= self._capacity.max_waiting:
            raise OverloadedError(
                f"{len(self._waiting)} requests are waiting already, as many as may.",
                remedy="Try again in a few seconds.",
            )
        sequence = Sequence(request, arrival=self._arrivals, max_tokens=max_tokens)
        self._arrivals += 1
        self._sequences[sequence.id] = sequence
        self._waiting.append(sequence)

    def next_step(self) -> Step | None:
        """The next step to send, None if there is none until a result or a request comes in."""
        if len(self._in_flight) >= self._capacity.max_in_flight:
            return None
        rows = self._decode_rows()
        self._admit()
        rows += self._prompt_chunks(self._capacity.max_rows - len(rows))
        if not rows:
            return None
        self._steps += 1
        spans = tuple(span for span, _ in rows)
        step = Step(number=self._steps, spans=spans, token_ids=tuple(token for _, ids in rows for token in ids))
        self._in_flight.append(step)
        return step

    def complete(self, result: StepResult) -> tuple[Event, ...]:
        """Takes the result of the oldest step in flight; ProtocolError, and no change, if it is not that."""
        sampled = self._checked_tokens(result)
        events: list[Event] = []
        for span in self._in_flight.popleft().spans:
            sequence = self._sequences[span.sequence]
            sequence.steps_in_flight -= 1
            if span.sampling is not None and sequence.state != "ended":
                events += self._accept(sequence, sampled[sequence.id])
            self._settle(sequence)
        return tuple(events)

    def cancel(self, sequence: int) -> tuple[Event, ...]:
        """Ends a sequence that nobody waits for any more; nothing happens if it has ended already."""
        return self._end_from_outside(sequence, "cancelled")

    def finish(self, sequence: int) -> tuple[Event, ...]:
        """Ends a sequence whose text is complete (a stop string); nothing happens if it has ended already."""
        return self._end_from_outside(sequence, "stop")

    def lose(self) -> None:
        """The pipeline is gone with its pages and all steps in flight; every sequence is prefilled again."""
        self._in_flight.clear()
        for sequence in tuple(self._sequences.values()):
            sequence.steps_in_flight = 0
            if sequence.state == "ended":
                self._settle(sequence)
            elif sequence.state != "waiting":
                self._send_back(sequence, "the pipeline was lost")

    # --- choosing rows

    def _decode_rows(self) -> list[tuple[Span, list[int]]]:
        """One row each of the sequences that have waited longest, this step's share of all that decode."""
        rows: list[tuple[Span, list[int]]] = []
        share = self._decode_share()
        for sequence in tuple(self._ready.values()):
            if len(rows) == share:
                break
            if sequence.id in self._ready and self._has_page(sequence):
                del self._ready[sequence.id]
                rows.append(sequence.issue(1, self.pool.page_tokens))
        return rows

    def _decode_share(self) -> int:
        """Decode rows of a step: an equal part of the decoding sequences for each step that may be in flight.

        Were they all in one step, the other stages would have nothing to do while one computes it. A quarter of
        the rows is kept for prompts while there are any, so that these go on under any number of decodes.
        """
        decoding = sum(sequence.state == "decoding" for sequence in self._sequences.values())
        share = -(-decoding // self._capacity.max_in_flight)
        kept = min(self._capacity.chunk_tokens, self._capacity.max_rows // 4) if self._prefilling else 0
        return min(share, self._capacity.max_rows - kept)

    def _prompt_chunks(self, rows_left: int) -> list[tuple[Span, list[int]]]:
        """Chunks of the prompts admitted first."""
        chunks = []
        rows_left = min(rows_left, self._capacity.chunk_tokens)
        for sequence in tuple(self._prefilling.values()):
            if rows_left == 0:
                break
            rows = min(rows_left, sequence.rows_to_issue)
            chunks.append(sequence.issue(rows, self.pool.page_tokens))
            rows_left -= rows
            if sequence.state == "decoding":
                del self._prefilling[sequence.id]
        return chunks

    # --- memory

    def _admit(self) -> None:
        """Starts waiting sequences, oldest first, as long as there are pages; none overtakes another."""
        while self._waiting and self._memory.admit(self._waiting[0]):
            sequence = self._waiting.pop(0)
            sequence.become("prefilling", "its pages were free")
            self._prefilling[sequence.id] = sequence

    def _has_page(self, sequence: Sequence) -> bool:
        """Whether the next row has a page, after growing or preempting for one; False if it must wait for it."""
        if self._memory.covers_next_row(sequence):
            return True
        while not self._memory.grow(sequence):
            if self._pages_are_coming():
                return False
            youngest = self._youngest_with_pages()
            self._preempt(youngest)
            if youngest is sequence:
                return False
        return True

    def _pages_are_coming(self) -> bool:
        """Whether steps in flight keep pages from being free that are to be given back."""
        return any(sequence.state in ("ended", "preempted") for sequence in self._sequences.values())

    def _youngest_with_pages(self) -> Sequence:
        running = (s for s in self._sequences.values() if s.state in ("prefilling", "decoding"))
        return max(running, key=lambda sequence: sequence.arrival)

    def _preempt(self, sequence: Sequence) -> None:
        sequence.become("preempted", "an older sequence needs its pages")
        self._prefilling.pop(sequence.id, None)
        self._ready.pop(sequence.id, None)
        self._settle(sequence)

    # --- taking results

    def _checked_tokens(self, result: StepResult) -> dict[int, int]:
        if not self._in_flight or result.step != self._in_flight[0].number:
            due = self._in_flight[0].number if self._in_flight else "none"
            raise ProtocolError(f"The last stage returned step {result.step}; the step due is {due}.")
        sampled = {token.sequence: token.token_id for token in result.sampled}
        wanted = self._in_flight[0].sampled_sequences()
        if len(sampled) != len(result.sampled) or sampled.keys() != wanted:
            returned = sorted(token.sequence for token in result.sampled)
            raise ProtocolError(
                f"The last stage returned tokens of the sequences {returned} in step {result.step}; "
                f"wanted were {sorted(wanted)}."
            )
        return sampled

    def _accept(self, sequence: Sequence, token_id: int) -> list[Event]:
        first = sequence.generated == 0
        position = len(sequence.tokens)
        sequence.append(token_id)
        events: list[Event] = [Token(sequence=sequence.id, token_id=token_id, position=position, first=first)]
        if token_id in sequence.request.stop_ids:
            events += self._end(sequence, "stop")
        elif sequence.generated == sequence.max_tokens:
            events += self._end(sequence, "length")
        elif sequence.state == "decoding":
            self._ready[sequence.id] = sequence
        return events

    def _end_from_outside(self, sequence_id: int, reason: EndReason) -> tuple[Event, ...]:
        sequence = self._sequences.get(sequence_id)
        if sequence is None or sequence.state == "ended":
            return ()
        events = self._end(sequence, reason)
        self._settle(sequence)
        return tuple(events)

    def _end(self, sequence: Sequence, reason: EndReason) -> list[Event]:
        if sequence.state == "waiting":
            self._waiting.remove(sequence)
        self._prefilling.pop(sequence.id, None)
        self._ready.pop(sequence.id, None)
        sequence.become("ended", reason)
        return [Ended(sequence=sequence.id, reason=reason)]

    def _settle(self, sequence: Sequence) -> None:
        """Gives back the pages of a sequence that leaves, once no step in flight touches them."""
        if sequence.steps_in_flight > 0:
            return
        if sequence.state == "ended":
            self._memory.release(sequence)
            del self._sequences[sequence.id]
        elif sequence.state == "preempted":
            self._send_back(sequence, "its steps are back")

    def _send_back(self, sequence: Sequence, why: str) -> None:
        """Puts a sequence without steps in flight back into the queue, at the place of its age."""
        self._prefilling.pop(sequence.id, None)
        self._ready.pop(sequence.id, None)
        self._memory.release(sequence)
        sequence.restart(why)
        insort(self._waiting, sequence, key=lambda waiting: waiting.arrival)
