"""A step as the scheduler issues it, still without the epoch of a plan."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from layerline.errors import ProtocolError
from layerline.frames import Frame, Span, TensorBytes
from layerline.step_result import RowSum, SampledToken, StepResult, TokenScores


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Rows for one pass through the pipeline: those of `spans` in turn, with their token ids.

    The first `decode_rows` rows continue answers, the others are of prompts.
    """

    number: int
    spans: tuple[Span, ...]
    token_ids: tuple[int, ...]
    decode_rows: int

    @property
    def prompt_rows(self) -> int:
        """The number of rows of prompts, and of logs that are computed again."""
        return len(self.token_ids) - self.decode_rows

    def sampled_positions(self) -> frozenset[tuple[int, int]]:
        """The sequences and positions that a token is to be drawn for."""
        return frozenset((span.sequence, position) for span in self.spans for position in span.sampled_positions)

    def tokens_of(self, result: StepResult) -> dict[tuple[int, int], SampledToken]:
        """The token drawn for each position of sequences that have not failed; ProtocolError if not of this step."""
        if result.step != self.number:
            raise ProtocolError(f"The last stage returned step {result.step}; the step due is {self.number}.")
        sampled = {(token.sequence, token.position): token for token in result.sampled}
        failed = frozenset(result.failed)
        if not failed <= {span.sequence for span in self.spans}:
            raise ProtocolError(f"The last stage says that sequences failed which are not in step {result.step}.")
        wanted = {(sequence, position) for sequence, position in self.sampled_positions() if sequence not in failed}
        if len(sampled) != len(result.sampled) or sampled.keys() != wanted:
            returned = sorted((token.sequence, token.position) for token in result.sampled)
            raise ProtocolError(
                f"The last stage returned tokens of the sequences and positions {returned} in step {result.step}; "
                f"wanted were {sorted(wanted)}."
            )
        return sampled

    def scores_of(self, result: StepResult) -> dict[int, TokenScores]:
        """The scores of each sequence that was to be scored and has not failed; ProtocolError if they are not that."""
        scores = {each.sequence: each for each in result.scores}
        returned = sorted(
            (each.sequence, each.position, len(each.log_probabilities), len(each.likeliest_ids))
            for each in result.scores
        )
        wanted = sorted(
            (span.sequence, span.scored_positions.start, len(span.next_ids), len(span.next_ids) * span.likeliest)
            for span in self.spans
            if span.next_ids and span.sequence not in result.failed
        )
        if returned != wanted:
            raise ProtocolError(
                f"The last stage returned scores of the sequences, positions and numbers {returned} in step "
                f"{result.step}; wanted were {wanted}."
            )
        return scores

    def sums_of(self, result: StepResult) -> dict[int, RowSum]:
        """The sum of each sequence of which rows were summed and that has not failed; ProtocolError if not of these."""
        returned = sorted((each.sequence, each.end, each.rows) for each in result.sums)
        wanted = sorted(
            (span.sequence, span.end, span.summed)
            for span in self.spans
            if span.summed and span.sequence not in result.failed
        )
        if returned != wanted:
            raise ProtocolError(
                f"The last stage returned sums of the sequences, ends and rows {returned} in step {result.step}; "
                f"wanted were {wanted}."
            )
        return {each.sequence: each for each in result.sums}

    def frame(self, epoch: int) -> Frame:
        """The frame that carries this step into stage 0: int32 token ids [rows]."""
        rows = len(self.token_ids)
        data = struct.pack(f"<{rows}i", *self.token_ids)
        tensor = TensorBytes(dtype="int32", shape=(rows,), data=data)
        return Frame(epoch=epoch, step=self.number, spans=self.spans, tensor=tensor)
