"""A request survives the wire, whichever input it has; a message without one is refused."""

from __future__ import annotations

from typing import Any

import pytest

from layerline import calls
from layerline.chat import Message
from layerline.errors import ProtocolError, RequestError
from layerline.requests import GenerateRequest
from layerline.rpc.convert import from_message, to_message
from layerline.rpc.v1 import common_pb2, coordinator_pb2
from layerline.sampling import SamplingOptions
from layerline.scoring import ScoreRequest

REQUESTS = [
    GenerateRequest(messages=(Message(role="user", content="Hé"), Message(role="assistant", content=""))),
    GenerateRequest(prompt=""),
    GenerateRequest(token_ids=(0, 1, 2**32 - 1), seed=0, stop=("a", "b"), max_tokens=5, n=16),
    GenerateRequest(prompt="x", model="m", seed=2**64 - 1),
    GenerateRequest(
        prompt="x",
        sampling=SamplingOptions(
            temperature=0.7,
            top_p=0.3,
            top_k=9,
            min_p=0.1,
            repetition_penalty=0.01,
            presence_penalty=-2,
            frequency_penalty=0.1,
        ),
    ),
]


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_survives_the_wire(request_: GenerateRequest) -> None:
    wire = to_message(request_, coordinator_pb2.GenerateRequest).SerializeToString()
    assert from_message(GenerateRequest, coordinator_pb2.GenerateRequest.FromString(wire)) == request_


@pytest.mark.parametrize(
    "request_",
    [
        ScoreRequest(text=""),
        ScoreRequest(text="é" * 1000, model="m", window_tokens=2),
        ScoreRequest(token_ids=(0, 2**32 - 1), window_tokens=1 << 24),
    ],
)
def test_a_text_to_be_scored_survives_the_wire(request_: ScoreRequest) -> None:
    wire = to_message(request_, coordinator_pb2.ScoreRequest).SerializeToString()
    assert from_message(ScoreRequest, coordinator_pb2.ScoreRequest.FromString(wire)) == request_
    assert from_message(ScoreRequest, coordinator_pb2.ScoreRequest(text="x")).window_tokens == 512


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (coordinator_pb2.ScoreRequest(), "exactly one"),
        (coordinator_pb2.ScoreRequest(text="x", token_ids=[1]), "exactly one"),
        (coordinator_pb2.ScoreRequest(text="x", window_tokens=1), "window_tokens must be a whole number from 2"),
        (coordinator_pb2.ScoreRequest(text="x" * ((4 << 20) + 1)), "the text has 4.0 MiB, and may have 4.0 MiB"),
    ],
)
def test_a_text_that_cannot_be_scored_is_refused(message: coordinator_pb2.ScoreRequest, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        from_message(ScoreRequest, message)


def test_ids_that_no_message_can_hold_are_refused_in_the_texts_words() -> None:
    with pytest.raises(RequestError, match=r"The text is too long to be sent: .* MiB.*in parts"):
        calls.score(ScoreRequest(token_ids=(2**32 - 1,) * 2_000_000))


def test_no_seed_is_told_from_seed_zero() -> None:
    assert (
        from_message(GenerateRequest, to_message(GenerateRequest(prompt="x"), coordinator_pb2.GenerateRequest)).seed
        is None
    )


def test_what_a_message_leaves_out_is_as_the_noun_has_it() -> None:
    message = coordinator_pb2.GenerateRequest(prompt="x")
    assert from_message(GenerateRequest, message) == GenerateRequest(prompt="x")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (coordinator_pb2.GenerateRequest(), "exactly one"),
        (coordinator_pb2.GenerateRequest(prompt="x", token_ids=[1]), "exactly one"),
        (coordinator_pb2.GenerateRequest(prompt="x", stop=[""]), "stop must be"),
        (coordinator_pb2.GenerateRequest(prompt="x", n=17), "n must be a whole number from 1 to 16"),
        (coordinator_pb2.GenerateRequest(prompt="x", n=0), "n must be a whole number from 1 to 16"),
        (
            coordinator_pb2.GenerateRequest(prompt="x", sampling=common_pb2.SamplingOptions(top_p=0)),
            "top_p must be a number over 0",
        ),
        (
            coordinator_pb2.GenerateRequest(messages=[coordinator_pb2.ChatMessage(role="king", content="x")]),
            "role",
        ),
    ],
)
def test_a_message_that_cannot_be_is_refused(message: coordinator_pb2.GenerateRequest, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        from_message(GenerateRequest, message)


@pytest.mark.parametrize(
    "prompt",
    [
        {"prompt": "a" * 10_000_000},
        {"messages": (Message(role="user", content="a" * 10_000_000),)},
        {"token_ids": (2**32 - 1,) * 2_000_000},
    ],
    ids=["prompt", "messages", "token ids"],
)
def test_what_no_message_can_hold_is_refused_in_the_prompts_words(prompt: dict[str, Any]) -> None:
    request = GenerateRequest(**prompt)
    with pytest.raises(RequestError, match=r"The prompt is too long to be sent: .* MiB.*Shorten the prompt"):
        calls.generate(request)
