"""Frames and results to messages and back, written out because they pass for every token.

The same contract as `layerline.rpc.convert`: a message that a noun refuses is a ProtocolError.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from layerline.errors import ProtocolError
from layerline.frames import Frame, Hello, PageRun, Sampling, Span, StageTiming, StateRun, TensorBytes
from layerline.option import options_of
from layerline.rpc.v1 import common_pb2, ring_pb2
from layerline.sampling import SamplingOptions
from layerline.step_result import RowSum, SampledToken, StepResult, TokenScores
from layerline.token_mask import TokenMask

MAX_KEPT = 1024  # ways to draw
_OPTIONS = tuple(options_of(SamplingOptions))


def hello_to_message(hello: Hello) -> ring_pb2.Hello:
    """A hello for the wire."""
    return ring_pb2.Hello(
        wire_version=hello.wire_version,
        epoch=hello.epoch,
        plan_key=hello.plan_key,
        model_digest=hello.model_digest,
        stage_index=hello.stage_index,
        sender=hello.sender,
    )


def hello_from_message(message: ring_pb2.Hello) -> Hello:
    """The hello in a message."""
    try:
        return Hello(
            wire_version=message.wire_version,
            epoch=message.epoch,
            plan_key=message.plan_key,
            model_digest=message.model_digest,
            stage_index=message.stage_index,
            sender=message.sender,
        )
    except ValueError as error:
        raise ProtocolError(f"A hello is not valid: {error}.") from error


def frame_to_message(frame: Frame) -> ring_pb2.ForwardMessage:
    """A frame for the wire."""
    return ring_pb2.ForwardMessage(
        frame=ring_pb2.Frame(
            epoch=frame.epoch,
            step=frame.step,
            spans=[_span_to_message(span) for span in frame.spans],
            tensor=_tensor_to_message(frame.tensor),
            timings=_timings_to_messages(frame.timings),
            ids=_tensor_to_message(frame.ids) if frame.ids else None,
        )
    )


def frame_from_message(message: ring_pb2.Frame) -> Frame:
    """The frame in a message."""
    try:
        return Frame(
            epoch=message.epoch,
            step=message.step,
            spans=tuple(_span_from_message(span) for span in message.spans),
            tensor=_tensor_from_message(message.tensor),
            timings=_timings_from_messages(message.timings),
            ids=_tensor_from_message(message.ids) if message.HasField("ids") else None,
        )
    except ValueError as error:
        raise ProtocolError(f"A frame is not valid: {error}.") from error


def result_to_message(result: StepResult) -> ring_pb2.StepResult:
    """A step's result for the wire."""
    return ring_pb2.StepResult(
        epoch=result.epoch,
        step=result.step,
        sampled=[
            ring_pb2.SampledToken(
                sequence=token.sequence,
                position=token.position,
                token_id=token.token_id,
                logits=_tensor_to_message(token.logits) if token.logits else None,
                log_probabilities=token.log_probabilities,
                likeliest_ids=token.likeliest_ids,
            )
            for token in result.sampled
        ],
        timings=_timings_to_messages(result.timings),
        failed=result.failed,
        scores=[
            ring_pb2.TokenScores(
                sequence=scores.sequence,
                position=scores.position,
                log_probabilities=scores.log_probabilities,
                likeliest_ids=scores.likeliest_ids,
                likeliest_log_probabilities=scores.likeliest_log_probabilities,
            )
            for scores in result.scores
        ],
        sums=[
            ring_pb2.RowSum(sequence=each.sequence, end=each.end, rows=each.rows, total=_tensor_to_message(each.total))
            for each in result.sums
        ],
    )


def result_from_message(message: ring_pb2.StepResult) -> StepResult:
    """The result in a message."""
    try:
        return StepResult(
            epoch=message.epoch,
            step=message.step,
            sampled=tuple(
                SampledToken(
                    sequence=token.sequence,
                    position=token.position,
                    token_id=token.token_id,
                    logits=_tensor_from_message(token.logits) if token.HasField("logits") else None,
                    log_probabilities=tuple(token.log_probabilities),
                    likeliest_ids=tuple(token.likeliest_ids),
                )
                for token in message.sampled
            ),
            timings=_timings_from_messages(message.timings),
            failed=tuple(message.failed),
            scores=tuple(
                TokenScores(
                    sequence=scores.sequence,
                    position=scores.position,
                    log_probabilities=tuple(scores.log_probabilities),
                    likeliest_ids=tuple(scores.likeliest_ids),
                    likeliest_log_probabilities=tuple(scores.likeliest_log_probabilities),
                )
                for scores in message.scores
            ),
            sums=tuple(
                RowSum(sequence=each.sequence, end=each.end, rows=each.rows, total=_tensor_from_message(each.total))
                for each in message.sums
            ),
        )
    except ValueError as error:
        raise ProtocolError(f"A step result is not valid: {error}.") from error


def _span_to_message(span: Span) -> ring_pb2.Span:
    return ring_pb2.Span(
        sequence=span.sequence,
        start=span.start,
        count=span.count,
        pages=[ring_pb2.PageRun(first=run.first, count=run.count) for run in span.pages],
        skipped_pages=span.skipped_pages,
        draws=span.draws,
        sampling=_sampling_to_message(span.sampling) if span.sampling else None,
        next_ids=span.next_ids,
        likeliest=span.likeliest,
        summed=span.summed,
        states=[ring_pb2.StateRun(count=run.count, source=run.source, target=run.target) for run in span.states],
    )


def _span_from_message(message: ring_pb2.Span) -> Span:
    return Span(
        sequence=message.sequence,
        start=message.start,
        count=message.count,
        pages=tuple(PageRun(first=run.first, count=run.count) for run in message.pages),
        skipped_pages=message.skipped_pages,
        draws=message.draws,
        sampling=_sampling_from_message(message.sampling) if message.HasField("sampling") else None,
        next_ids=tuple(message.next_ids),
        likeliest=message.likeliest,
        summed=message.summed,
        states=tuple(_state_run_from_message(run) for run in message.states),
    )


def _state_run_from_message(message: ring_pb2.StateRun) -> StateRun:
    source = message.source if message.HasField("source") else None
    return StateRun(count=message.count, source=source, target=message.target)


def _sampling_to_message(sampling: Sampling) -> ring_pb2.Sampling:
    return _long_sampling(sampling) if sampling.is_long else _short_sampling(sampling)


def _long_sampling(sampling: Sampling) -> ring_pb2.Sampling:
    options = common_pb2.SamplingOptions(**{name: getattr(sampling, name) for name in _OPTIONS})
    return ring_pb2.Sampling(
        options=options,
        seed=sampling.seed,
        prompt_ids=sampling.prompt_ids,
        answer_ids=sampling.answer_ids,
        answer_counts=sampling.answer_counts,
        return_logits=sampling.return_logits,
        mask=ring_pb2.TokenMask(**{sampling.mask.form: sampling.mask.data}) if sampling.mask else None,
        bias_ids=sampling.bias_ids,
        biases=sampling.biases,
        log_probabilities=sampling.log_probabilities,
    )


# The same for every token of an answer without penalties and masks, so it is kept.
_short_sampling = functools.lru_cache(MAX_KEPT)(_long_sampling)


def _sampling_from_message(message: ring_pb2.Sampling) -> Sampling:
    if message.prompt_ids or message.answer_ids or message.bias_ids or message.HasField("mask"):
        return _read_sampling(message)
    return _short_sampling_of(message.SerializeToString())


@functools.lru_cache(MAX_KEPT)
def _short_sampling_of(message: bytes) -> Sampling:
    return _read_sampling(ring_pb2.Sampling.FromString(message))


def _read_sampling(message: ring_pb2.Sampling) -> Sampling:
    options = message.options
    return Sampling(
        **{name: getattr(options, name) for name in _OPTIONS},
        seed=message.seed,
        prompt_ids=tuple(message.prompt_ids),
        answer_ids=tuple(message.answer_ids),
        answer_counts=tuple(message.answer_counts),
        return_logits=message.return_logits,
        mask=_mask_from_message(message.mask) if message.HasField("mask") else None,
        bias_ids=tuple(message.bias_ids),
        biases=tuple(message.biases),
        log_probabilities=message.log_probabilities if message.HasField("log_probabilities") else None,
    )


def _mask_from_message(message: ring_pb2.TokenMask) -> TokenMask:
    form = message.WhichOneof("form") or ""
    return TokenMask(form=form, data=getattr(message, form, b""))


def _tensor_to_message(tensor: TensorBytes) -> common_pb2.Tensor:
    return common_pb2.Tensor(dtype=tensor.dtype, shape=tensor.shape, data=tensor.data)


def _tensor_from_message(message: common_pb2.Tensor) -> TensorBytes:
    return TensorBytes(dtype=message.dtype, shape=tuple(message.shape), data=message.data)


def _timings_to_messages(timings: tuple[StageTiming, ...]) -> list[ring_pb2.StageTiming]:
    return [
        ring_pb2.StageTiming(
            stage_index=timing.stage_index,
            compute_us=timing.compute_us,
            waited_us=timing.waited_us,
            sending_us=timing.sending_us,
        )
        for timing in timings
    ]


def _timings_from_messages(messages: Iterable[ring_pb2.StageTiming]) -> tuple[StageTiming, ...]:
    return tuple(
        StageTiming(
            stage_index=message.stage_index,
            compute_us=message.compute_us,
            waited_us=message.waited_us,
            sending_us=message.sending_us,
        )
        for message in messages
    )
