"""A request survives the wire, whichever input it has; a message without one is refused."""

from __future__ import annotations

import pytest

from layerline.errors import RequestError
from layerline.requests import GenerateRequest, Message
from layerline.rpc.convert_requests import generate_from_message, generate_to_message
from layerline.rpc.v1 import coordinator_pb2

REQUESTS = [
    GenerateRequest(messages=(Message(role="user", content="Hé"), Message(role="assistant", content=""))),
    GenerateRequest(messages=()),
    GenerateRequest(prompt=""),
    GenerateRequest(token_ids=()),
    GenerateRequest(token_ids=(0, 1, 2**32 - 1), seed=0, stop=("a", "b"), max_tokens=5, n=16),
    GenerateRequest(prompt="x", model="m", temperature=0.5, top_p=0.25, top_k=9, min_p=0.5, seed=2**64 - 1),
]


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_survives_the_wire(request_: GenerateRequest) -> None:
    wire = generate_to_message(request_).SerializeToString()
    assert generate_from_message(coordinator_pb2.GenerateRequest.FromString(wire)) == request_


def test_no_seed_is_told_from_seed_zero() -> None:
    assert generate_from_message(generate_to_message(GenerateRequest(prompt="x"))).seed is None


def test_a_message_that_says_no_number_of_answers_wants_one() -> None:
    message = coordinator_pb2.GenerateRequest(prompt="x", top_p=1.0, repetition_penalty=1.0)
    assert generate_from_message(message) == GenerateRequest(prompt="x")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (coordinator_pb2.GenerateRequest(), "exactly one"),
        (coordinator_pb2.GenerateRequest(prompt="x", stop=[""]), "stop string"),
        (coordinator_pb2.GenerateRequest(prompt="x", n=17), "n must be from 1 to 16"),
        (
            coordinator_pb2.GenerateRequest(
                chat=coordinator_pb2.Chat(messages=[coordinator_pb2.ChatMessage(role="king", content="x")])
            ),
            "role",
        ),
    ],
)
def test_a_message_that_cannot_be_is_refused(message: coordinator_pb2.GenerateRequest, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        generate_from_message(message)


@pytest.mark.parametrize(
    "request_",
    [
        GenerateRequest(prompt="a" * 10_000_000),
        GenerateRequest(messages=(Message(role="user", content="a" * 10_000_000),)),
        GenerateRequest(token_ids=(2**32 - 1,) * 2_000_000),
    ],
    ids=["prompt", "messages", "token ids"],
)
def test_what_no_message_can_hold_is_refused_in_the_prompts_words(request_: GenerateRequest) -> None:
    with pytest.raises(RequestError, match=r"The prompt is too long to be sent: .* MiB.*Shorten the prompt"):
        generate_to_message(request_)
