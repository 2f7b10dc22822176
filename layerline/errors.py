"""Every failure a user can meet, as one tree. Each names what happened, where, and what to do.

LayerlineError
├── UsageError                 an option or argument that cannot be (exit 2)
├── NoNodesError               nobody answered the search (exit 3)
├── NoCoordinatorError         the coordinator asked for cannot be reached (exit 3)
├── ModelError (exit 4)
│   ├── ModelNotFoundError     no such model where we looked
│   ├── ModelUnreadableError   the system does not let a file or folder be read
│   ├── ModelCorruptError      truncated, malformed or changed file
│   ├── ModelMismatchError     two machines hold different files under one name
│   └── ModelUnsupportedError  a family, type or feature that layerline does not know
├── PlanError (exit 5)
│   ├── PlanDoesNotFitError    memory needed and available, per node
│   └── PlanInvalidError       a hand-made plan with gaps, overlaps or unknown nodes
├── NodeError (exit 6)
│   ├── NodeUnreachableError   never answered
│   ├── NodeLostError          answered before and does not any more
│   ├── NodeHeldError          obeys another coordinator
│   ├── NodeDrainingError      is shutting down
│   ├── NodeDuplicateError     two daemons with one id
│   ├── StageFailedError       the worker of a stage failed or died
│   └── PortInUseError         a daemon cannot listen where it was told to
├── RequestError (exit 7)
│   └── PromptTooLongError     more tokens than the context has
├── OverloadedError            a bounded queue is full; retry after a while (exit 8)
├── WireError (exit 9)
│   ├── WireVersionError       peers of unlike wire versions
│   └── ProtocolError          a message that the protocol does not allow
├── DeadlineError              something took longer than its deadline (exit 10)
└── InternalError              a bug of layerline (exit 1)

`code` is the name on the wire (`node_lost` for NodeLostError); `exit_code` is what the command ends with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from layerline.printable import printable


class LayerlineError(Exception):
    """A failure with the node it happened on and what to do about it.

    `message` and `remedy` are whole sentences; `str()` joins them. They are printable, whatever they quote.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, node: str = "", remedy: str = "") -> None:
        self.message = printable(message)
        self.node = printable(node)
        self.remedy = printable(remedy)
        super().__init__(self.message)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        words = cls.__name__.removesuffix("Error")
        cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", words).lower()
        ERRORS[cls.code] = cls

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


ERRORS: dict[str, type[LayerlineError]] = {}


class InternalError(LayerlineError):
    """A bug of layerline."""


class UsageError(LayerlineError):
    """An option or argument that cannot be."""

    exit_code = 2


class NoNodesError(LayerlineError):
    """Nobody answered the search."""

    exit_code = 3


class NoCoordinatorError(LayerlineError):
    """The coordinator asked for cannot be reached."""

    exit_code = 3


class ModelError(LayerlineError):
    """Something about a model's files."""

    exit_code = 4


class ModelNotFoundError(ModelError):
    """No such model where we looked."""


class ModelUnreadableError(ModelError):
    """A file or folder that the system does not let be read."""


class ModelCorruptError(ModelError):
    """A truncated, malformed or changed file."""


class ModelMismatchError(ModelError):
    """Two machines hold different files under one name."""


class ModelUnsupportedError(ModelError):
    """A family, tensor type or feature that layerline does not know."""


class PlanError(LayerlineError):
    """No plan can be made or put into effect."""

    exit_code = 5


class PlanDoesNotFitError(PlanError):
    """The model needs more memory than the nodes have."""


class PlanInvalidError(PlanError):
    """A hand-made plan with gaps, overlaps, wrong order or unknown nodes."""


class NodeError(LayerlineError):
    """Something about one node."""

    exit_code = 6


class NodeUnreachableError(NodeError):
    """The node never answered."""


class NodeLostError(NodeError):
    """The node answered before and does not any more."""


class NodeHeldError(NodeError):
    """The node obeys another coordinator."""


class NodeDrainingError(NodeError):
    """The node is shutting down."""


class NodeDuplicateError(NodeError):
    """Two daemons have the same node id."""


class StageFailedError(NodeError):
    """The worker of a stage failed or died."""


class PortInUseError(NodeError):
    """A daemon cannot listen where it was told to."""


class RequestError(LayerlineError):
    """A request that cannot be answered as it is."""

    exit_code = 7


class PromptTooLongError(RequestError):
    """The prompt has more tokens than the context."""


class OtherModelError(RequestError):
    """A request for a model that is not the one in service."""


class OverloadedError(LayerlineError):
    """A bounded queue is full; the same request may be taken after about `retry_after_s` seconds (0: not known)."""

    exit_code = 8

    def __init__(self, message: str, *, node: str = "", remedy: str = "", retry_after_s: int = 0) -> None:
        super().__init__(message, node=node, remedy=remedy)
        self.retry_after_s = retry_after_s


class WireError(LayerlineError):
    """A peer that cannot be talked with."""

    exit_code = 9


class WireVersionError(WireError):
    """Peers of unlike wire versions."""


class ProtocolError(WireError):
    """A message that the protocol does not allow."""


class DeadlineError(LayerlineError):
    """Something took longer than its deadline."""

    exit_code = 10


@contextmanager
def blamed_on(node: str) -> Iterator[None]:
    """What is raised in the block and names no node is that node's."""
    try:
        yield
    except LayerlineError as error:
        error.node = error.node or node
        raise


def typed(failure: BaseException) -> LayerlineError:
    """`failure` as an error of this tree; one that is none, be it an Exception or not, is a bug."""
    if isinstance(failure, LayerlineError):
        return failure
    return InternalError(f"Internal error: {failure!r}.", remedy="This is a bug; please report it with the log.")


def without_trace(error: LayerlineError) -> LayerlineError:
    """`error`, to be kept for a while: with its words, but not with where it was raised.

    A traceback keeps all that its frames had, connections too, and an error that one of these has keeps them for ever.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


def first_of(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first failure of a task group.

    The frame of the task group keeps itself and all that failed, so these let go of where they were raised.
    """
    failures.__traceback__ = None
    for failure in failures.exceptions:
        if isinstance(failure, LayerlineError):  # of anything else, which is a bug, it must be told
            without_trace(failure)
    return failures.exceptions[0]


def error_from_code(
    code: str, message: str, *, node: str = "", remedy: str = "", retry_after_s: int = 0
) -> LayerlineError:
    """The error that a peer described; an unknown code (a newer peer's) becomes the root class.

    Only an OverloadedError has `retry_after_s`.
    """
    if code == OverloadedError.code:
        return OverloadedError(message, node=node, remedy=remedy, retry_after_s=retry_after_s)
    return ERRORS.get(code, LayerlineError)(message, node=node, remedy=remedy)
