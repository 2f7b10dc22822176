"""Chooses the next step, and applies its result to the sequences.

Owns every sequence from `add` to `Ended`, the steps in flight and, through `KvPages`, the pages. Knows no text, no
connection and no node, and no time but what results report. The package's docstring tells the life of a sequence.
This module is long because it is the one owner of all that a step's result changes.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import replace

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Ended, EndReason, Event, Failed, Scored, Summed, Token
from coordinator.scheduling.figures import SchedulerFigures, SlotFigures
from coordinator.scheduling.kv_pages import KvPages
from coordinator.scheduling.limits import most_tokens, most_tokens_again
from coordinator.scheduling.pages import PagePool
from coordinator.scheduling.retry_estimate import RetryEstimate
from coordinator.scheduling.row_budget import RowBudget
from coordinator.scheduling.row_shares import share_rows
from coordinator.scheduling.sequence import Sequence, SequenceRequest, State
from coordinator.scheduling.slots import SlotPool
from coordinator.scheduling.step import Step
from coordinator.scheduling.steps_in_flight import StepsInFlight
from layerline.errors import LayerlineError, OverloadedError, ProtocolError, RequestError, StageFailedError
from layerline.frames import Span
from layerline.step_result import RowSum, SampledToken, StepResult, TokenScores


class Scheduler:
    """Takes sequences and results, gives steps and events. Not safe for threads: one owner calls it."""

    def __init__(self, capacity: Capacity) -> None:
        self.pool = PagePool(capacity.pages, capacity.page_tokens)
        self._capacity = capacity
        self._kv_pages = KvPages(self.pool, capacity)
        self._row_budget = RowBudget(capacity)
        self._steps_wanted = StepsInFlight(capacity.max_in_flight)
        self._retry_estimate = RetryEstimate()
        self._sequences: dict[int, Sequence] = {}
        self._waiting: list[Sequence] = []  # by arrival
        self._prefilling: dict[int, Sequence] = {}  # those with rows to send
        self._ready: dict[int, Sequence] = {}  # decoding, with a row to send, by when it came back
        self._in_flight: deque[Step] = deque()
        self._arrivals = 0
        self._steps = 0
        self._decode_rows = 0
        self._prompt_rows = 0
        self._preemptions = 0

    @property
    def steps_in_flight(self) -> int:
        """Steps issued whose result has not come back."""
        return len(self._in_flight)

    @property
    def idle(self) -> bool:
        """Whether there is no sequence at all."""
        return not self._sequences

    def figures(self) -> SchedulerFigures:
        """The figures at this moment."""
        slots = self.slots
        waiting, prefilling, decoding = len(self._waiting), self._count("prefilling"), self._count("decoding")
        return SchedulerFigures(
            sequences_waiting=waiting,
            sequences_prefilling=prefilling,
            sequences_decoding=decoding,
            sequences_leaving=len(self._sequences) - waiting - prefilling - decoding,
            pages_used=self.pool.used_pages,
            pages_cached=self.pool.cached_pages,
            pages_free=self.pool.free_pages,
            slots=SlotFigures(used=slots.used, cached=slots.cached, free=slots.free) if slots else None,
            lookup_tokens=self._kv_pages.lookup_tokens,
            hit_tokens=self._kv_pages.hit_tokens,
            preemptions=self._preemptions,
            steps=self._steps,
            steps_in_flight=len(self._in_flight),
            decode_rows=self._decode_rows,
            prompt_rows=self._prompt_rows,
        )

    @property
    def slots(self) -> SlotPool | None:
        """The slots of recurrent state; None if the model has none."""
        return self._kv_pages.slots.pool if self._kv_pages.slots else None

    def add(self, request: SequenceRequest) -> None:
        """Queues a sequence.

        PromptTooLongError or RequestError if it can never be answered, OverloadedError if the queue is full.
        """
        assert request.sequence not in self._sequences, f"sequence {request.sequence} is known already"
        max_tokens = most_tokens(request, self._capacity)
        if len(self._waiting) >= self._capacity.max_waiting:
            retry_after_s = self._retry_estimate.retry_after_s
            raise OverloadedError(
                f"{len(self._waiting)} requests are waiting already, as many as may.",
                remedy=f"Try again in about {retry_after_s} s.",
                retry_after_s=retry_after_s,
            )
        sequence = Sequence(request, arrival=self._arrivals, max_tokens=max_tokens)
        self._arrivals += 1
        self._sequences[sequence.id] = sequence
        self._waiting.append(sequence)

    def next_step(self) -> Step | None:
        """Issues the next step; None if there is none until a result or a request comes in."""
        decoding = self._count("decoding")
        if len(self._in_flight) >= (self._steps_wanted.decoding if decoding else self._steps_wanted.prefilling):
            return None
        decodes = self._take_decode_rows(decoding)
        self._admit()
        decode_rows = sum(span.count for span, _ in decodes)
        rows = decodes + self._take_prompt_chunks(decoding, decode_rows)
        self._kv_pages.end_step()
        if not rows:
            return None
        self._steps += 1
        step = Step(
            number=self._steps,
            spans=tuple(span for span, _ in rows),
            token_ids=tuple(token for _, ids in rows for token in ids),
            decode_rows=decode_rows,
        )
        self._decode_rows += step.decode_rows
        self._prompt_rows += step.prompt_rows
        self._in_flight.append(step)
        return step

    def complete(self, result: StepResult, *, took_us: float = 0.0) -> tuple[Event, ...]:
        """Takes the result of the oldest step in flight; ProtocolError, and no change, if it is not that.

        `took_us` is the time from when the step was sent, 0 if the caller does not measure it.
        """
        if not self._in_flight:
            raise ProtocolError(f"The last stage returned step {result.step}; the step due is none.")
        step = self._in_flight[0]
        sampled, scores, sums = step.tokens_of(result), step.scores_of(result), step.sums_of(result)
        self._in_flight.popleft()
        self._learn(step, result, took_us)
        events: list[Event] = []
        for span in step.spans:
            sequence = self._sequences[span.sequence]
            sequence.take_back(span, failed=sequence.id in result.failed)
            self._kv_pages.offer(sequence)
            if sequence.state == "ended":
                pass
            elif sequence.failed:
                events.append(self._fail(sequence))
            elif span.sampling is not None:
                events += self._accept(sequence, sampled[sequence.id, span.end])
            elif span.next_ids:
                events += self._take_scores(sequence, scores[sequence.id])
            elif span.summed:
                events += self._take_sum(sequence, sums[sequence.id])
            self._settle(sequence)
        return tuple(events)

    def cancel(self, sequence: int) -> tuple[Event, ...]:
        """Ends a sequence that nobody waits for any more; nothing happens if it has ended already."""
        return self._end_from_outside(sequence, "cancelled")

    def finish(self, sequence: int) -> tuple[Event, ...]:
        """Ends a sequence whose text is complete (a stop string); nothing happens if it has ended already."""
        return self._end_from_outside(sequence, "stop")

    def lose(self) -> tuple[int, ...]:
        """Takes in that the pipeline is lost, with every step in flight and what the pages of all sequences held.

        The sequences are prefilled again from their logs, once there is another pipeline (see `renew`). Returns
        those that had been begun.
        """
        self._in_flight.clear()
        self._kv_pages.void()
        begun = []
        for sequence in tuple(self._sequences.values()):
            sequence.steps_in_flight = 0
            if sequence.state == "ended":
                self._settle(sequence)
            elif sequence.state != "waiting":
                begun.append(sequence.id)
                self._send_back(sequence, "the pipeline was lost")
        return tuple(begun)

    def renew(self, capacity: Capacity) -> tuple[Event, ...]:
        """Goes on in another pipeline after `lose`; a sequence that its `capacity` cannot hold has failed."""
        assert len(self._waiting) == len(self._sequences), "the pipeline before was not lost"
        self.pool = PagePool(capacity.pages, capacity.page_tokens)
        self._capacity = capacity
        self._kv_pages = self._kv_pages.succeeded_by(self.pool, capacity)
        self._row_budget = RowBudget(capacity)
        self._steps_wanted = StepsInFlight(capacity.max_in_flight)
        self._retry_estimate = RetryEstimate()
        events: list[Event] = []
        for sequence in tuple(self._waiting):
            try:
                sequence.max_tokens = most_tokens_again(sequence, self._capacity)
            except LayerlineError as error:
                self._leave(sequence, "it does not fit any more")
                self._settle(sequence)
                events.append(Failed(sequence=sequence.id, error=error))
        return tuple(events)

    def check(self) -> None:
        """Raises AssertionError unless owned, cached and free pages add up; for tests."""
        self._kv_pages.check(self._sequences.values())

    # --- choosing rows

    def _take_decode_rows(self, decoding: int) -> list[tuple[Span, list[int]]]:
        """Issues rows of this step's share of the decoding sequences, those that have waited longest: one of each.

        Only where an answer left no choice there are more. Each step that is to be in flight has an equal share: were
        all in one step, the other stages would have nothing to do while one computes it.
        """
        issued: list[tuple[Span, list[int]]] = []
        share = -(-decoding // self._steps_wanted.decoding)
        left = self._row_budget.decode_rows(prefilling=bool(self._prefilling))
        for sequence in tuple(self._ready.values()):
            if left == 0 or len(issued) == share:
                break
            if sequence.id in self._ready and self._has_page(sequence):
                rows = min(sequence.rows_to_issue, self._kv_pages.covered_rows(sequence), left)
                left -= rows
                issued.append(self._issue(sequence, rows))
                if not sequence.rows_to_issue:
                    del self._ready[sequence.id]
        return issued

    def _take_prompt_chunks(self, decoding: int, decode_rows: int) -> list[tuple[Span, list[int]]]:
        """Issues the chunks of prompts that go into this step."""
        chunks = []
        prompt_tokens = sum(sequence.rows_since_admission for sequence in self._prefilling.values())
        steps = self._steps_wanted.decoding
        rows = self._row_budget.prompt_rows(decoding, steps, prompt_tokens=prompt_tokens, decode_rows=decode_rows)
        for sequence, share in share_rows(self._prefilling.values(), rows):
            if sequence.id not in self._prefilling or not self._has_page(sequence):
                continue
            chunks.append(self._issue(sequence, min(share, self._kv_pages.covered_rows(sequence))))
            if not sequence.rows_to_issue:
                del self._prefilling[sequence.id]
        return chunks

    def _issue(self, sequence: Sequence, rows: int) -> tuple[Span, list[int]]:
        return sequence.issue(rows, self.pool.page_tokens, self._kv_pages.issue(sequence, rows))

    def _count(self, state: State) -> int:
        return sum(sequence.state == state for sequence in self._sequences.values())

    # --- pages

    def _admit(self) -> None:
        """Starts waiting sequences, oldest first, as long as there are pages.

        None overtakes another, except those that wait for a prefix which another one is computing.
        """
        for sequence in tuple(self._waiting):
            admission = self._kv_pages.admit(sequence)
            if admission == "no room":
                break
            if admission == "admitted":
                self._waiting.remove(sequence)
                sequence.become("prefilling", "its pages were free")
                self._prefilling[sequence.id] = sequence

    def _has_page(self, sequence: Sequence) -> bool:
        """Gives the next row a page, for which it may preempt the youngest; False if the row must wait for one."""
        self._kv_pages.slide(sequence)
        if self._kv_pages.covered_rows(sequence) > 0:
            return True
        while not self._kv_pages.grow(sequence):
            if self._pages_are_coming():
                return False
            youngest = self._youngest_with_pages()
            self._preempt(youngest)
            if youngest is sequence:
                return False
        return True

    def _pages_are_coming(self) -> bool:
        """Whether sequences that leave will give pages back, once their steps in flight are back."""
        return any(sequence.state in ("ended", "preempted") for sequence in self._sequences.values())

    def _youngest_with_pages(self) -> Sequence:
        running = (s for s in self._sequences.values() if s.state in ("prefilling", "decoding"))
        return max(running, key=lambda sequence: sequence.arrival)

    def _preempt(self, sequence: Sequence) -> None:
        sequence.become("preempted", "an older sequence needs its pages")
        self._preemptions += 1
        self._prefilling.pop(sequence.id, None)
        self._ready.pop(sequence.id, None)
        self._settle(sequence)

    # --- taking results

    def _learn(self, step: Step, result: StepResult, took_us: float) -> None:
        self._row_budget.learn(result.timings, decode_rows=step.decode_rows, prompt_rows=step.prompt_rows)
        self._retry_estimate.learn(result.timings)
        if took_us and step.prompt_rows == 0:
            self._steps_wanted.learn(result.timings, took_us)

    def _accept(self, sequence: Sequence, token: SampledToken) -> list[Event]:
        events = self._append(sequence, token.token_id, token)
        constraint = sequence.request.constraint
        if constraint and not sequence.has_ended:
            for forced in constraint.take(token.token_id):
                if not sequence.has_ended:
                    events += self._append(sequence, forced)
            if constraint.failure:
                return [*events, self._stray(sequence, constraint.failure)]
            if constraint.is_over and not sequence.has_ended:
                events += self._end(sequence, "stop")
        if sequence.state == "decoding":
            self._ready[sequence.id] = sequence
        return events

    def _append(self, sequence: Sequence, token_id: int, drawn: SampledToken | None = None) -> list[Event]:
        """Writes a further token to a sequence's log, which may end it; `drawn` has what is told of it."""
        first = sequence.generated == 0
        token = Token(
            sequence=sequence.id,
            token_id=token_id,
            position=len(sequence.tokens),
            first=first,
            cached_tokens=sequence.cached if first else 0,
        )
        sequence.append(token_id)
        if sequence.request.sampling.log_probabilities is not None:
            # What had to come had no other in its place.
            told, ids = (drawn.log_probabilities, drawn.likeliest_ids) if drawn else ((0.0,), ())
            token = replace(token, log_probabilities=told, likeliest_ids=ids)
        events: list[Event] = [token]
        if token_id in sequence.request.stop_ids:
            events += self._end(sequence, "stop")
        elif sequence.generated == sequence.max_tokens:
            events += self._end(sequence, "length")
        return events

    def _stray(self, sequence: Sequence, why: str) -> Failed:
        """Ends a sequence whose structure cannot be followed any further."""
        if not sequence.has_ended:
            self._leave(sequence, "its structure cannot be followed")
        return Failed(sequence=sequence.id, error=RequestError(f"The structure cannot be followed: {why.rstrip('.')}."))

    def _take_scores(self, sequence: Sequence, scores: TokenScores) -> list[Event]:
        assert scores.position == sequence.told + 1, "steps come back in order"
        event = Scored(
            sequence=sequence.id,
            position=scores.position,
            log_probabilities=scores.log_probabilities,
            likeliest_ids=scores.likeliest_ids,
            likeliest_log_probabilities=scores.likeliest_log_probabilities,
        )
        return self._told(sequence, event, sequence.told + len(scores.log_probabilities))

    def _take_sum(self, sequence: Sequence, row_sum: RowSum) -> list[Event]:
        event = Summed(sequence=sequence.id, rows=row_sum.rows, total=row_sum.total)
        return self._told(sequence, event, row_sum.end)

    def _told(self, sequence: Sequence, event: Event, end: int) -> list[Event]:
        """The event that tells of the tokens before place `end` of a text, which may be all of them."""
        sequence.told = end
        return [event, *(self._end(sequence, "length") if end == len(sequence.tokens) else ())]

    def _end_from_outside(self, sequence_id: int, reason: EndReason) -> tuple[Event, ...]:
        sequence = self._sequences.get(sequence_id)
        if sequence is None or sequence.state == "ended":
            return ()
        events = self._end(sequence, reason)
        self._settle(sequence)
        return tuple(events)

    def _fail(self, sequence: Sequence) -> Failed:
        self._leave(sequence, "what was computed is not numbers")
        error = StageFailedError(
            "What the model computes for this request is not numbers.",
            remedy="Try --dtype float32, or fetch the model anew.",
        )
        return Failed(sequence=sequence.id, error=error)

    def _end(self, sequence: Sequence, reason: EndReason) -> list[Event]:
        self._leave(sequence, reason)
        self._retry_estimate.end_request()
        return [Ended(sequence=sequence.id, reason=reason)]

    def _leave(self, sequence: Sequence, why: str) -> None:
        if sequence.state == "waiting":
            self._waiting.remove(sequence)
        self._prefilling.pop(sequence.id, None)
        self._ready.pop(sequence.id, None)
        sequence.become("ended", why)

    def _settle(self, sequence: Sequence) -> None:
        """Gives back the pages of a sequence that leaves, once no step in flight touches them."""
        if sequence.steps_in_flight > 0:
            return
        if sequence.state == "ended":
            self._kv_pages.release(sequence)
            del self._sequences[sequence.id]
        elif sequence.state == "preempted":
            self._send_back(sequence, "its steps are back")

    def _send_back(self, sequence: Sequence, why: str) -> None:
        """Puts a sequence without steps in flight back into the queue, at the place of its age."""
        self._prefilling.pop(sequence.id, None)
        self._ready.pop(sequence.id, None)
        self._kv_pages.release(sequence)
        sequence.restart(why)
        insort(self._waiting, sequence, key=lambda waiting: waiting.arrival)
