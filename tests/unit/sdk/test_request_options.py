"""What scripts give becomes nouns, and what they get wrong is named with the nearest right name."""

from __future__ import annotations

import json
import math
from typing import Any, cast

import pytest

from layerline.chat import Message, Tool, ToolRules
from layerline.errors import UsageError
from layerline.option import options_of
from layerline.plan_request import ManualStage, PlanOptions, PlanRequest
from layerline.request_options import GivenMessage, chat_request, generate_request, plan_options, plan_request
from layerline.requests import GenerateOptions, GenerateRequest, Structure
from layerline.sampling import SamplingOptions
from layerline.scoring import ScoreOptions, ScoreRequest

HI = [{"role": "user", "content": "Hi"}]


def test_options_reach_the_request() -> None:
    request = generate_request(None, [1, 2], {"max_tokens": 3, "top_p": 1, "stop": ["a", "b"], "seed": None, "n": 16})
    assert (request.token_ids, request.max_tokens, request.sampling.top_p) == ((1, 2), 3, 1.0)
    assert (request.stop, request.seed, request.n) == (("a", "b"), None, 16)
    assert isinstance(request.sampling.top_p, float)


def test_messages_may_be_dicts_nouns_and_any_iterable() -> None:
    given: list[GivenMessage] = [*HI, Message(role="assistant", content="")]
    turns = chat_request(iter(given), {}).messages
    assert turns == (Message(role="user", content="Hi"), Message(role="assistant", content=""))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"temprature": 1}, "no option 'temprature'.*mean 'temperature'"),
        ({"qqq": 1}, "no option 'qqq'.*There are temperature, top_p"),
        ({"temperature": "hot"}, "temperature must be a number from 0 to 100, not 'hot'"),
        ({"temperature": -1}, "temperature must be a number from 0 to 100, not -1"),
        ({"temperature": math.nan}, "temperature must be .*, not nan"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"max_tokens": True}, "max_tokens must be a whole number"),
        ({"max_tokens": -1}, "max_tokens must be a whole number"),
        ({"seed": 1 << 64}, "seed"),
        ({"stop": [""]}, "stop must be .* none empty"),
        ({"stop": ["a"] * 17}, "stop must be a string or up to 16 of them"),
        ({"stop": 5}, "stop must be a string or up to 16"),
        ({"stop": [5]}, "stop must be"),
        ({"n": 0}, "n must be a whole number from 1 to 16"),
        ({"n": 17}, "n must be a whole number from 1 to 16"),
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
        (None, [1, -2], "token_ids must be a list of token ids, and the one at 1 must be .*, not -2"),
        (None, ["1"], "token_ids must be a list of token ids, and the one at 0"),
    ],
)
def test_a_wrong_input_is_named(prompt: Any, token_ids: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        generate_request(prompt, token_ids, {})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": "int4"}, "dtype must be one of bfloat16, float32, or empty, not 'int4'"),
        ({"weights": "q4_k"}, "weights must be one of"),
        ({"precision": "exact"}, "precision must be one of fast, standard, full, or empty, not 'exact'"),
        ({"kv_dtype": "int4"}, "kv_dtype must be one of float16, bfloat16, float32, int8"),
        ({"tensor_parallel": 65}, "tensor_parallel must be a whole number from 0 to 64"),
        ({"tensor_parallel": True}, "tensor_parallel must be .*, not True"),
        ({"tensor_paralel": 2}, "no option 'tensor_paralel'.*mean 'tensor_parallel'"),
        (
            {"layers": [("a", 0, 2)]},
            r"layers must be a list of ManualStages, and the one at 0 must be a ManualStage, not \(",
        ),
        ({"layers": "a=0-2"}, "layers must be a list of ManualStages, not 'a=0-2'"),
    ],
)
def test_a_wrong_option_of_a_plan_is_named(options: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        plan_request("tiny", options)


@pytest.mark.parametrize("layer", [-1, 0.5, 2**40, 1024, None, "0", True])
def test_a_layer_that_cannot_be_is_refused(layer: Any) -> None:
    for stage in (
        ManualStage(node="a", first_layer=layer, last_layer=2000),
        ManualStage(node="a", first_layer=0, last_layer=layer),
    ):
        with pytest.raises(UsageError, match="layers must be a list of ManualStages, and the one at 0 must be a whole"):
            plan_request("tiny", {"layers": [stage]})


def test_a_plan_of_no_model_is_refused() -> None:
    with pytest.raises(UsageError, match="model name"):
        plan_request("", {})


def test_keywords_are_the_options_of_the_nouns() -> None:
    of_request = {*options_of(SamplingOptions), *options_of(GenerateRequest)} - {"token_ids"}
    assert set(GenerateOptions.__annotations__) == of_request | {
        "structure",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "template_variables",
        "logit_bias",
    }
    assert set(PlanOptions.__annotations__) == set(options_of(PlanRequest))
    assert set(ScoreOptions.__annotations__) == set(options_of(ScoreRequest)) - {"token_ids"}
    assert plan_request("tiny", plan_options(PlanRequest(model="m", dtype="float32"))).dtype == "float32"


TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("options", "choice", "only", "parallel"),
    [
        ({}, "auto", "", True),
        ({"tool_choice": "none"}, "none", "", True),
        ({"tool_choice": "required", "parallel_tool_calls": False}, "required", "", False),
        ({"tool_choice": "now"}, "required", "now", True),
    ],
)
def test_how_tools_are_called_is_said_in_words(options: Any, choice: str, only: str, parallel: bool) -> None:
    rules = chat_request(HI, cast("GenerateOptions", {"tools": [TOOL], **options})).tools
    assert rules is not None
    assert (rules.choice, rules.only, rules.parallel) == (choice, only, parallel)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tool_choice": "required"}, "needs tools"),
        ({"tools": [TOOL], "tool_choice": "then"}, "or the name of a tool"),
        ({"tools": [TOOL], "tool_choice": 1}, "must be text"),
        ({"tools": [TOOL], "parallel_tool_calls": 1}, "True or False"),
        ({"tools": ToolRules(tools=(Tool(name="now"),)), "tool_choice": "none"}, "say themselves"),
        ({"structure": {"a": {1}}}, "cannot be written as JSON"),
        ({"structure": "json"}, "structure"),
    ],
)
def test_tools_and_structures_that_cannot_be_are_refused(options: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        chat_request(HI, options)


def test_a_schema_and_the_switches_of_a_template_may_be_dicts() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    request = chat_request(HI, {"structure": schema, "template_variables": {"enable_thinking": False}})
    assert request.structure == Structure(kind="json_schema", text=json.dumps(schema))
    assert request.template_variables == '{"enable_thinking": false}'
