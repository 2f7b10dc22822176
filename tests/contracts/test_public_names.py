"""The names that scripts import from `layerline`. Taking one away, or renaming it, breaks them."""

from __future__ import annotations

import inspect
import typing

import pytest

import layerline
from layerline import AsyncClient, Client
from layerline.errors import ERRORS

PUBLIC = """
AsyncClient AsyncStream Client Stream GenerateOptions PlanOptions
Message Piece Completion Finished Usage Timings StageSummary Alternative TokenLikelihood
Tool ToolCall ToolCallPiece ToolRules Structure TokenBias PromptLikelihoods
CoordinatorFacts NodesReport NodeReport ModelsReport ModelReport PlanReport PipelineReport StageReport ManualStage
PrepareEvent Announcement Planned NodeProgress Ready
ScoreOptions WindowScores ScoringFinished Perplexity EmbedOptions Embedding EmbeddingFinished
StatsReport PeriodStats StageStats LinkStats DurationStats SequenceStats PageStats SlotStats RequestStats RequestCounts
ExpertStats LayerExpertStats
LayerlineError InternalError UsageError NoNodesError NoCoordinatorError DeadlineError OverloadedError
ModelError ModelNotFoundError ModelUnreadableError ModelCorruptError ModelMismatchError ModelUnsupportedError
PlanError PlanDoesNotFitError PlanInvalidError
NodeError NodeUnreachableError NodeLostError NodeHeldError NodeDrainingError NodeDuplicateError StageFailedError
PortInUseError RequestError PromptTooLongError OtherModelError WireError WireVersionError ProtocolError
__version__
"""
NAMES = PUBLIC.split()

METHODS = [
    "chat",
    "close",
    "connect",
    "describe",
    "embed",
    "generate",
    "models",
    "nodes",
    "plan",
    "prepare",
    "score",
    "stats",
]


def test_the_public_names_are_these() -> None:
    assert sorted(layerline.__all__) == sorted(NAMES)
    assert set(NAMES) <= set(dir(layerline))


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(layerline, name) is not None


def test_every_error_is_public() -> None:
    assert {error.__name__ for error in ERRORS.values()} <= set(NAMES)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        layerline.Cleint  # noqa: B018


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_both_clients_have_the_same_methods(client: type) -> None:
    assert sorted(name for name in vars(client) if not name.startswith("_")) == METHODS


@pytest.mark.parametrize("method", METHODS)
def test_both_clients_take_the_same_arguments(method: str) -> None:
    blocking, asynchronous = (inspect.signature(getattr(client, method)) for client in (Client, AsyncClient))
    assert blocking.parameters == asynchronous.parameters


def test_the_options_of_a_request_are_these() -> None:
    options = "temperature top_p top_k min_p repetition_penalty presence_penalty frequency_penalty"
    options += " model max_tokens seed stop n min_tokens ignore_eos log_probabilities prompt_log_probabilities"
    options += " structure tools tool_choice parallel_tool_calls template_variables logit_bias"
    assert list(typing.get_type_hints(layerline.GenerateOptions)) == options.split()
    assert list(typing.get_type_hints(layerline.ScoreOptions)) == ["model", "window_tokens"]
    pooling = ["model", "pooling", "normalised", "dimensions"]
    assert list(typing.get_type_hints(layerline.EmbedOptions)) == pooling
    placing = "layers tensor_parallel experts expert_device dtype weights precision kv_dtype context_tokens"
    assert list(typing.get_type_hints(layerline.PlanOptions)) == placing.split()
