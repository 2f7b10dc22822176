"""Whatever a script gives a client by mistake is a UsageError that names it, before anything is sent or dialled."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest

from layerline import AsyncClient, Client, ManualStage, Message, UsageError

HI = [{"role": "user", "content": "Hi"}]
NOBODY = "127.0.0.1:1"  # a mistake that is not noticed would be a NoCoordinatorError

NO_NUMBERS: list[Any] = ["1", None, True, [], {}, b"1", 1j, object(), math.nan, math.inf]
NO_WHOLE_NUMBERS: list[Any] = [*NO_NUMBERS, 0.5, -1, 2**64, 10**5000]
NO_TEXTS: list[Any] = [5, 0.5, None, True, b"text", ["a"], {}, object(), "a\ud83d"]
NO_LISTS: list[Any] = [5, 0.5, True, "text", b"text", {"a": 1}, object()]
NO_SWITCHES: list[Any] = [None, 5, "yes", []]

WRONG: dict[str, list[Any]] = {
    "temperature": [*NO_NUMBERS, -0.1, 100.1, 10**19, -(10**5000)],
    "top_p": [*NO_NUMBERS, 0, -1, 1.01, 10**19],
    "min_p": [*NO_NUMBERS, -0.1, 1.01, 10**19],
    "repetition_penalty": [*NO_NUMBERS, 0, 0.009, 101, 10**19],
    "presence_penalty": [*NO_NUMBERS, -2.01, 2.01, 10**19],
    "frequency_penalty": [*NO_NUMBERS, -2.01, 2.01, 10**19],
    "top_k": [*NO_WHOLE_NUMBERS, 1 << 21],
    "max_tokens": [*NO_WHOLE_NUMBERS, 1 << 25],
    "n": [*NO_WHOLE_NUMBERS, 0, 17],
    "seed": [value for value in NO_WHOLE_NUMBERS if value is not None],
    "model": NO_TEXTS,
    "stop": [5, None, True, b"text", {"a": 1}, object(), "", [""], [5], [None], ["a"] * 17, "a\ud83d", ["\ud83d"]],
}
WRONG_OF_PLANS: dict[str, list[Any]] = {
    "dtype": [*NO_TEXTS, "int4", "BFLOAT16"],
    "weights": [*NO_TEXTS, "q4_k", "STORED"],
    "precision": [*NO_TEXTS, "exact", 2],
    "kv_dtype": [*NO_TEXTS, "int4"],
    "context_tokens": [*NO_WHOLE_NUMBERS, 1 << 25],
    "tensor_parallel": [*NO_WHOLE_NUMBERS, 65],
    "layers": [
        *NO_LISTS,
        None,
        [("a", 0, 2)],
        ["a=0-2"],
        [None],
        *([ManualStage(node="a", first_layer=layer, last_layer=layer)] for layer in [*NO_WHOLE_NUMBERS, 1024, 2**40]),
        [ManualStage(node="a", first_layer=2, last_layer=1)],
        *([ManualStage(node=node, first_layer=0, last_layer=1)] for node in [5, None, b"a", ""]),  # type: ignore[arg-type]
    ],
}
WRONG_MESSAGES: list[Any] = [*NO_LISTS, None, [], [5], ["Hi"], [{}], [{"role": "user"}], [{"role": 5, "content": "x"}]]
WRONG_MESSAGES += [[{"role": "user", "content": value}] for value in NO_TEXTS] + [[{**HI[0], "colour": "x"}]]
WRONG_MESSAGES += [[Message(role="user", content=5)]]  # type: ignore[arg-type]
WRONG_IDS: list[Any] = [*NO_LISTS, [], [-1], [0.5], [True], ["1"], [None], [2**32], [10**5000], [[1]]]

Ask = Callable[[Any], Any]
Case = tuple[str, Ask]
CASES: list[Case] = [
    *(
        (name, lambda client, name=name, value=value, ask=ask: ask(client, {name: value}))
        for name, values in WRONG.items()
        for value in values
        for ask in (
            lambda client, options: client.generate("x", **options),
            lambda client, options: client.chat(HI, stream=True, **options),
        )
    ),
    *(
        (name, lambda client, name=name, value=value, method=method: getattr(client, method)("m", **{name: value}))
        for name, values in WRONG_OF_PLANS.items()
        for value in values
        for method in ("plan", "prepare")
    ),
    *(
        ("model", lambda client, value=value, method=method: getattr(client, method)(value))
        for value in [*NO_TEXTS, ""]
        for method in ("plan", "prepare")
    ),
    *(("messages", lambda client, value=value: client.chat(value)) for value in WRONG_MESSAGES),
    *(("prompt", lambda client, value=value: client.generate(value)) for value in NO_TEXTS),
    *(("token_ids", lambda client, value=value: client.generate(token_ids=value)) for value in [*WRONG_IDS, None]),
    *(("text", lambda client, value=value: client.score(value)) for value in [*NO_TEXTS, "a" * (4 << 20) + "é"]),
    *(("token_ids", lambda client, value=value: client.score(token_ids=value)) for value in [*WRONG_IDS, None]),
    *(
        ("window_tokens", lambda client, value=value: client.score("x", window_tokens=value))
        for value in [*NO_WHOLE_NUMBERS, 0, 1, 1 << 25]
    ),
    *(("model", lambda client, value=value: client.score("x", model=value)) for value in NO_TEXTS),
    ("window_token", lambda client: client.score("x", window_token=5)),
    ("text", lambda client: client.score("x", token_ids=[1])),
    *(("stream", lambda client, value=value: client.generate("x", stream=value)) for value in NO_SWITCHES),
    *(("stream", lambda client, value=value: client.chat(HI, stream=value)) for value in NO_SWITCHES),
    ("temprature", lambda client: client.chat(HI, temprature=1)),
    ("tensor_paralel", lambda client: client.plan("m", tensor_paralel=1)),
]


async def _asked(ask: Ask) -> None:
    made = ask(AsyncClient(NOBODY))
    if inspect.isawaitable(made):
        await made


@pytest.mark.parametrize("ask_of", [lambda ask: ask(Client(NOBODY)), lambda ask: asyncio.run(_asked(ask))])
def test_a_wrong_value_of_any_method_is_named(ask_of: Callable[[Ask], Any]) -> None:
    for name, ask in CASES:
        with pytest.raises(UsageError) as caught:
            ask_of(ask)
        assert name in str(caught.value), (name, str(caught.value))
        assert len(str(caught.value)) < 400
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_wrong_address_is_named(make: Callable[[Any], Any]) -> None:
    for address in [
        5,
        True,
        b"h:1",
        {},
        object(),
        "",
        "h",
        "h:0",
        "h:99999",
        "unix:",
        ["h:1", 5],
        [None],
        "h:1\n",
        10**5000,
    ]:
        with pytest.raises(UsageError, match="address"):
            make(address)


def test_numbers_of_other_libraries_are_numbers() -> None:
    import numpy as np  # noqa: PLC0415 - the SDK does not need it

    from layerline.request_options import generate_request  # noqa: PLC0415

    request = generate_request(None, np.array([1, 2]), {"temperature": np.float32(0.5), "top_k": np.int64(3)})  # type: ignore[typeddict-item]
    assert (request.token_ids, request.sampling.temperature, request.sampling.top_k) == ((1, 2), 0.5, 3)
    assert [type(value) for value in (*(request.token_ids or ()), request.sampling.top_k)] == [int, int, int]
