"""The blocking client against a coordinator on loopback."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from layerline import (
    Client,
    Message,
    ModelNotFoundError,
    NoCoordinatorError,
    NodeLostError,
    Piece,
    PlanDoesNotFitError,
    ProtocolError,
    Ready,
    RequestError,
    UsageError,
    WireVersionError,
)
from layerline.plan_request import ManualStage
from layerline.rpc import channels
from tests.fakes.coordinator_service import (
    ANSWER,
    FINISHED,
    MODELS,
    NODES,
    PLAN,
    PREPARING,
    TWO_ANSWERS,
    FakeCoordinator,
    Hang,
)
from tests.fakes.hurried_transport import hurried_client

HI = [{"role": "user", "content": "Hi"}]
WAIT_S = 20


def test_a_chat_gives_the_whole_answer(client: Client, fake: FakeCoordinator) -> None:
    completion = client.chat([*HI, Message(role="assistant", content="Hello")], temperature=0.5, seed=3, stop="x")
    assert (completion.text, completion.token_ids, completion.finished) == ("Paris.", (1, 2, 3), FINISHED)
    (asked,) = fake.asked
    assert asked.messages == (Message(role="user", content="Hi"), Message(role="assistant", content="Hello"))
    assert (asked.sampling.temperature, asked.seed, asked.stop) == (0.5, 3, ("x",))


def test_a_stream_gives_pieces_and_then_how_it_finished(client: Client) -> None:
    stream = client.chat(HI, stream=True)
    assert [stream.finished] == [None]
    assert list(stream) == list(ANSWER[:2])
    assert stream.finished == FINISHED
    assert list(stream) == []


def test_several_answers_come_with_the_first(client: Client, fake: FakeCoordinator) -> None:
    fake.answers = [TWO_ANSWERS]
    first = client.generate("Once", n=2)
    (second,) = first.others
    assert (first.text, first.token_ids, first.finished) == ("Paris.", (1, 2, 3), FINISHED)
    assert (second.text, second.token_ids, second.finished.seed, second.others) == ("Lyon", (4,), 43, ())
    assert fake.asked[0].n == 2


def test_a_stream_of_several_answers_says_whose_a_piece_is(client: Client, fake: FakeCoordinator) -> None:
    fake.answers = [TWO_ANSWERS]
    stream = client.chat(HI, stream=True, n=2)
    indices = []
    for piece in stream:
        indices.append(piece.index)
        assert (stream.finished, stream.all_finished) == (None, ())
    assert indices == [0, 1, 0]
    assert stream.finished == FINISHED
    assert [finished.seed for finished in stream.all_finished] == [42, 43]


@pytest.mark.parametrize(
    ("script", "wanted", "words"),
    [
        (TWO_ANSWERS[:3], 2, "without finishing"),
        (ANSWER, 2, "without finishing"),
        (TWO_ANSWERS, 1, "answer 1 of 1"),
    ],
)
def test_too_few_or_too_many_answers_are_refused(
    client: Client, fake: FakeCoordinator, script: Sequence[object], wanted: int, words: str
) -> None:
    fake.answers = [script]
    with pytest.raises(ProtocolError, match=words):
        client.chat(HI, n=wanted)


def test_generate_takes_text_or_token_ids(client: Client, fake: FakeCoordinator) -> None:
    client.generate("Once")
    client.generate(prompt="upon", max_tokens=4)
    client.generate(token_ids=[5, 6])
    assert [(asked.prompt, asked.token_ids) for asked in fake.asked] == [
        ("Once", None),
        ("upon", None),
        (None, (5, 6)),
    ]


def test_reports_come_as_nouns(client: Client, fake: FakeCoordinator) -> None:
    assert client.nodes() == NODES
    assert client.models() == MODELS
    layers = [ManualStage(node="attic", first_layer=0, last_layer=29)]
    assert client.plan("tiny", layers=layers, tensor_parallel=2) == PLAN
    assert client.describe() == client.connect() == fake.facts
    assert (fake.planned[0].layers[0].node, fake.planned[0].tensor_parallel) == ("attic", 2)


def test_preparing_tells_how_far_it_is(client: Client) -> None:
    with client.prepare("tiny", dtype="float32", kv_dtype="int8") as events:
        assert tuple(events) == PREPARING
        assert events.finished == Ready(plan=PLAN)


def test_the_coordinators_errors_arrive_whole(client: Client, fake: FakeCoordinator) -> None:
    fake.plan = PlanDoesNotFitError("It needs 9 GiB.", node="attic", remedy="Add a node.")
    with pytest.raises(PlanDoesNotFitError) as caught:
        client.plan("tiny")
    assert (caught.value.message, caught.value.node, caught.value.remedy) == ("It needs 9 GiB.", "attic", "Add a node.")


def test_an_error_in_the_middle_of_a_stream_comes_after_its_pieces(client: Client, fake: FakeCoordinator) -> None:
    fake.answers = [(ANSWER[0], NodeLostError("Node cellar is gone.", node="cellar"))]
    stream = client.chat(HI, stream=True)
    assert next(stream) == ANSWER[0]
    with pytest.raises(NodeLostError, match="cellar is gone"):
        next(stream)


def test_a_stream_that_does_not_say_how_it_finished_is_refused(client: Client, fake: FakeCoordinator) -> None:
    fake.answers = [ANSWER[:2]]
    with pytest.raises(ProtocolError, match="without finishing"):
        client.chat(HI)


def test_breaking_out_of_the_loop_cancels_the_request(client: Client, fake: FakeCoordinator) -> None:
    fake.answers = [(*ANSWER[:1], Hang())]
    gc.disable()
    try:
        for piece in client.chat(HI, stream=True):
            assert piece == ANSWER[0]
            break
        assert fake.cancelled.get(timeout=WAIT_S) == "cancelled"
    finally:
        gc.enable()


def test_closing_a_generator_that_streams_cancels_the_request(client: Client, fake: FakeCoordinator) -> None:
    def texts() -> Generator[str, None, None]:
        for piece in client.chat(HI, stream=True):
            yield piece.text

    fake.answers = [(*ANSWER[:1], Hang())]
    reading = texts()
    assert next(reading) == "Par"
    reading.close()
    assert fake.cancelled.get(timeout=WAIT_S) == "cancelled"


def test_a_stream_closed_by_another_thread_ends(client: Client, fake: FakeCoordinator) -> None:
    fake.answers = [(Hang(),)]
    with ThreadPoolExecutor(1) as threads, client.chat(HI, stream=True) as stream:
        reading = threads.submit(list, stream)
        fake.hung.get(timeout=WAIT_S)
        stream.close()
        assert reading.result(WAIT_S) == []


def test_closing_the_client_ends_its_streams(address: str, fake: FakeCoordinator) -> None:
    fake.answers = [(ANSWER[0], Hang())]
    client = Client(address)
    stream = client.chat(HI, stream=True)
    assert next(stream) == ANSWER[0]
    client.close()
    with pytest.raises(RequestError, match="cancelled"):
        next(stream)
    with pytest.raises(UsageError, match="closed"):
        client.nodes()
    client.close()


def test_many_threads_share_one_client(address: str, fake: FakeCoordinator) -> None:
    with Client(address) as client, ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda _: client.chat(HI).text, range(24)))
    assert answers == ["Paris."] * 24
    assert len(fake.asked) == 24


def test_nobody_at_the_address_says_how_to_start_a_coordinator() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
        with pytest.raises(NoCoordinatorError, match=rf"{address}.*layerline coordinator --model"):
            Client(address).nodes()


def test_another_wire_version_is_refused_with_both_named(address: str, fake: FakeCoordinator) -> None:
    fake.facts = replace(fake.facts, wire_version=77)
    with pytest.raises(WireVersionError, match=r"version 77 .* speaks 1"):
        Client(address).connect()


@pytest.mark.parametrize("address", ["nonsense", "host:", "host:99999", "::1:5", "", "unix:", 7355])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(UsageError, match="address"):
        Client(address)


def test_a_killed_coordinator_is_an_error_at_once() -> None:
    with _coordinator_process() as (process, address), Client(address) as client:
        stream = client.chat(HI, stream=True)
        assert [next(stream), next(stream)] == list(ANSWER[:2])
        process.kill()
        with pytest.raises(NoCoordinatorError, match="is gone"):
            next(stream)


def test_a_frozen_coordinator_is_an_error_and_not_a_hang() -> None:
    sooner = {"grpc.keepalive_time_ms": 1_000, "grpc.keepalive_timeout_ms": 1_000, "grpc.http2.ping_timeout_ms": 1_000}
    with _coordinator_process() as (process, address), hurried_client(address, sooner) as client:
        stream = client.chat(HI, stream=True)
        assert isinstance(next(stream), Piece)
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(NoCoordinatorError, match="is gone"):
            list(stream)


def test_a_pause_of_ten_seconds_of_either_side_is_no_loss() -> None:
    for options in (channels.CLIENT_OPTIONS, channels.COORDINATOR_OPTIONS):
        assert dict(options)["grpc.keepalive_timeout_ms"] > 10_000
        assert dict(options)["grpc.http2.ping_timeout_ms"] > 10_000


@contextmanager
def _coordinator_process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A fake coordinator in a process of its own, which a test may kill or freeze."""
    command = [sys.executable, "-m", "tests.fakes.coordinator_service"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def test_a_model_that_is_not_there_is_told_while_preparing(client: Client, fake: FakeCoordinator) -> None:
    fake.preparing = (PREPARING[0], ModelNotFoundError("No node has 'tiny'.", remedy="Copy it."))
    with pytest.raises(ModelNotFoundError, match="Copy it"):
        list(client.prepare("tiny"))
