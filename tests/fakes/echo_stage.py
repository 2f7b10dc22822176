"""A stage that computes nothing: it hands rows on, and the last one draws the last token of each span plus one.

The score of a known token says what it and the one before it are; of two numbers of a sum the first is that of the
tokens, the second how many they are.
"""

from __future__ import annotations

import struct

from layerline.frames import Frame, TensorBytes
from layerline.step_result import RowSum, SampledToken, StepResult, TokenScores

LIKELIEST = 70  # in every place


class EchoStage:
    """`run` as `node.stage.Stage` has it.

    `fails_at` is a step at which it breaks like a computing library does, `bad_token` one whose rows are not numbers.
    """

    def __init__(self, *, last: bool, fails_at: int | None = None, bad_token: int | None = None) -> None:
        self._last = last
        self._fails_at = fails_at
        self._bad_token = bad_token
        self.steps: list[int] = []

    def run(self, frame: Frame) -> Frame | StepResult:
        """Passes token ids on as int32."""
        self.steps.append(frame.step)
        if frame.step == self._fails_at:
            raise RuntimeError("out of memory, says the library")
        if not self._last:
            return Frame(epoch=frame.epoch, step=frame.step, spans=frame.spans, tensor=frame.tensor)
        tokens, sampled, failed, scores, sums, row = _tokens(frame.tensor), [], [], [], [], 0
        for span in frame.spans:
            own, row = tokens[row : row + span.count], row + span.count
            if self._bad_token in own:
                failed.append(span.sequence)
                continue
            sampled += [
                SampledToken(sequence=span.sequence, position=position, token_id=own[position - 1 - span.start] + 1)
                for position in span.sampled_positions
            ]
            if span.next_ids:
                known = zip(own[-len(span.next_ids) :], span.next_ids, strict=True)
                told = tuple(echo_score(before, id_) for before, id_ in known)
                places = len(span.next_ids) * span.likeliest
                scores.append(
                    TokenScores(
                        sequence=span.sequence,
                        position=span.scored_positions.start,
                        log_probabilities=told,
                        likeliest_ids=(LIKELIEST,) * places,
                        likeliest_log_probabilities=(-0.5,) * places,
                    )
                )
            if span.summed:
                total = struct.pack("<2f", sum(own[-span.summed :]), span.summed)
                row_sum = TensorBytes(dtype="float32", shape=(2,), data=total)
                sums.append(RowSum(sequence=span.sequence, end=span.end, rows=span.summed, total=row_sum))
        return StepResult(
            epoch=frame.epoch,
            step=frame.step,
            sampled=tuple(sampled),
            failed=tuple(failed),
            scores=tuple(scores),
            sums=tuple(sums),
        )


def echo_score(before: int, token_id: int) -> float:
    """The log-probability of `token_id` after another; a number that float32 has exactly."""
    return -token_id - before / 1024


def _tokens(tensor: TensorBytes) -> tuple[int, ...]:
    return struct.unpack(f"<{tensor.shape[0]}i", tensor.data)
