"""layerline runs one large language model on the machines of a LAN. This is the face that scripts use.

    from layerline import Client

    with Client() as client:
        for piece in client.chat([{"role": "user", "content": "Hello"}], stream=True):
            print(piece.text, end="")

Names are loaded when they are first used: the daemons and the command import modules below this package and
must not pay for the clients, and nobody pays for torch or numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from layerline.version import __version__

if TYPE_CHECKING:
    from layerline.answer import (
        Alternative,
        Completion,
        Finished,
        Piece,
        PromptLikelihoods,
        StageSummary,
        Timings,
        TokenLikelihood,
        ToolCallPiece,
        Usage,
    )
    from layerline.async_client import AsyncClient, AsyncStream
    from layerline.chat import Message, Tool, ToolCall, ToolRules
    from layerline.client import Client, Stream
    from layerline.embedding import Embedding, EmbeddingFinished, EmbedOptions
    from layerline.errors import (
        DeadlineError,
        InternalError,
        LayerlineError,
        ModelCorruptError,
        ModelError,
        ModelMismatchError,
        ModelNotFoundError,
        ModelUnreadableError,
        ModelUnsupportedError,
        NoCoordinatorError,
        NodeDrainingError,
        NodeDuplicateError,
        NodeError,
        NodeHeldError,
        NodeLostError,
        NodeUnreachableError,
        NoNodesError,
        OtherModelError,
        OverloadedError,
        PlanDoesNotFitError,
        PlanError,
        PlanInvalidError,
        PortInUseError,
        PromptTooLongError,
        ProtocolError,
        RequestError,
        StageFailedError,
        UsageError,
        WireError,
        WireVersionError,
    )
    from layerline.perplexity import Perplexity
    from layerline.plan_request import ManualStage, PlanOptions
    from layerline.reports import (
        Announcement,
        CoordinatorFacts,
        ModelReport,
        ModelsReport,
        NodeProgress,
        NodeReport,
        NodesReport,
        PipelineReport,
        Planned,
        PlanReport,
        PrepareEvent,
        Ready,
        StageReport,
    )
    from layerline.requests import GenerateOptions, Structure, TokenBias
    from layerline.scoring import ScoreOptions, ScoringFinished, WindowScores
    from layerline.stats_report import (
        DurationStats,
        ExpertStats,
        LayerExpertStats,
        LinkStats,
        PageStats,
        PeriodStats,
        RequestCounts,
        RequestStats,
        SequenceStats,
        SlotStats,
        StageStats,
        StatsReport,
    )

# Light ones first: `import layerline` must not pay for gRPC, and `layerline.UsageError` neither.
_HOMES = (
    "errors",
    "chat",
    "requests",
    "answer",
    "plan_request",
    "reports",
    "stats_report",
    "scoring",
    "embedding",
    "perplexity",
    "client",
    "async_client",
)

__all__ = [
    "Alternative",
    "Announcement",
    "AsyncClient",
    "AsyncStream",
    "Client",
    "Completion",
    "CoordinatorFacts",
    "DeadlineError",
    "DurationStats",
    "EmbedOptions",
    "Embedding",
    "EmbeddingFinished",
    "ExpertStats",
    "Finished",
    "GenerateOptions",
    "InternalError",
    "LayerExpertStats",
    "LayerlineError",
    "LinkStats",
    "ManualStage",
    "Message",
    "ModelCorruptError",
    "ModelError",
    "ModelMismatchError",
    "ModelNotFoundError",
    "ModelReport",
    "ModelUnreadableError",
    "ModelUnsupportedError",
    "ModelsReport",
    "NoCoordinatorError",
    "NoNodesError",
    "NodeDrainingError",
    "NodeDuplicateError",
    "NodeError",
    "NodeHeldError",
    "NodeLostError",
    "NodeProgress",
    "NodeReport",
    "NodeUnreachableError",
    "NodesReport",
    "OtherModelError",
    "OverloadedError",
    "PageStats",
    "PeriodStats",
    "Perplexity",
    "Piece",
    "PipelineReport",
    "PlanDoesNotFitError",
    "PlanError",
    "PlanInvalidError",
    "PlanOptions",
    "PlanReport",
    "Planned",
    "PortInUseError",
    "PrepareEvent",
    "PromptLikelihoods",
    "PromptTooLongError",
    "ProtocolError",
    "Ready",
    "RequestCounts",
    "RequestError",
    "RequestStats",
    "ScoreOptions",
    "ScoringFinished",
    "SequenceStats",
    "SlotStats",
    "StageFailedError",
    "StageReport",
    "StageStats",
    "StageSummary",
    "StatsReport",
    "Stream",
    "Structure",
    "Timings",
    "TokenBias",
    "TokenLikelihood",
    "Tool",
    "ToolCall",
    "ToolCallPiece",
    "ToolRules",
    "Usage",
    "UsageError",
    "WindowScores",
    "WireError",
    "WireVersionError",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        for home in _HOMES:
            names = vars(importlib.import_module(f"{__name__}.{home}"))
            if name in names:
                return names[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
