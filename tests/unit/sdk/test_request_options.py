"""What scripts give becomes nouns, and what they get wrong is named with the nearest right name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from layerline.errors import UsageError
from layerline.request_options import GivenMessage, chat_request, generate_request, plan_request
from layerline.requests import Message

HI = [{"role": "user", "content": "Hi"}]


def test_options_reach_the_request() -> None:
    request = generate_request(None, [1, 2], {"max_tokens": 3, "top_p": 1, "stop": ["a", "b"], "seed": None, "n": 16})
    assert (request.token_ids, request.max_tokens, request.top_p) == ((1, 2), 3, 1.0)
    assert (request.stop, request.seed, request.n) == (("a", "b"), None, 16)
    assert isinstance(request.top_p, float)


def test_messages_may_be_dicts_nouns_and_any_iterable() -> None:
    given: list[GivenMessage] = [*HI, Message(role="assistant", content="")]
    turns = chat_request(iter(given), {}).messages
    assert turns == (Message(role="user", content="Hi"), Message(role="assistant", content=""))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"temprature": 1}, "no option 'temprature'.*mean 'temperature'"),
        ({"qqq": 1}, "no option 'qqq'.*There are model, max_tokens"),
        ({"temperature": "hot"}, "temperature must be a number, not 'hot'"),
        ({"temperature": -1}, "temperature must be from 0"),
        ({"temperature": math.nan}, "temperature must be from 0"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"max_tokens": True}, "max_tokens must be a whole number"),
        ({"max_tokens": -1}, "max_tokens must be a whole number"),
        ({"seed": 1 << 64}, "seed"),
        ({"stop": [""]}, "stop string must not be empty"),
        ({"stop": ["a"] * 17}, "at most 16"),
        ({"stop": 5}, "stop must be a string or several"),
        ({"stop": [5]}, "element of stop"),
        ({"n": 0}, "n must be from 1 to 16"),
        ({"n": 17}, "n must be from 1 to 16"),
        ({"n": 2.0}, "n must be a whole number"),
        ({"model": None}, "model must be a string"),
    ],
)
def test_a_wrong_option_is_named(options: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        generate_request("x", None, options)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "empty"),
        ("Hi", "list of messages"),
        (HI[0], "list of messages"),
        (["Hi"], r"messages\[0\] is str"),
        ([*HI, {"role": "user"}], r"messages\[1\] has no 'content'"),
        ([{"role": "user", "content": "Hi", "contnt": ""}], "no key in .* 'contnt'.*mean 'content'"),
        ([{"role": "king", "content": "Hi"}], "role is 'king'"),
        ([{"role": "user", "content": [{"type": "text"}]}], "must be a string"),
        ([{"role": "user", "content": "a\ud83d"}], "half of a character at 1"),
        ([Message(role="user", content="\ud83d")], "half of a character at 0"),
    ],
)
def test_a_wrong_message_is_named(messages: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        chat_request(messages, {})


@pytest.mark.parametrize(
    ("prompt", "token_ids", "reason"),
    [
        (None, None, "exactly one"),
        ("x", [1], "exactly one"),
        (5, None, "prompt must be a string"),
        (None, [1, -2], "element of token_ids"),
        (None, ["1"], "element of token_ids"),
    ],
)
def test_a_wrong_input_is_named(prompt: Any, token_ids: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        generate_request(prompt, token_ids, {})


def test_a_plan_of_an_unknown_dtype_or_no_model_is_refused() -> None:
    with pytest.raises(UsageError, match="dtype is 'int4'"):
        plan_request("tiny", "int4", "", 0, (), 0)
    with pytest.raises(UsageError, match="kv_dtype is 'int4'"):
        plan_request("tiny", "bfloat16", "int4", 0, (), 0)
    with pytest.raises(UsageError, match="model name"):
        plan_request("", "bfloat16", "", 0, (), 0)
    with pytest.raises(UsageError, match="tensor_parallel must be 0 to 64"):
        plan_request("tiny", "bfloat16", "", 0, (), 65)
    with pytest.raises(UsageError, match="tensor_parallel"):
        plan_request("tiny", "bfloat16", "", 0, (), True)
