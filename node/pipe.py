"""What the daemon and a worker say to each other, over the worker's standard input and output.

Each message is a 4-byte big-endian length and a msgpack triple of command number, kind and fields. The daemon numbers
its commands from 1 on. What the worker says to a command repeats its number; what it says by itself has NO_COMMAND.
The daemon's `Start` comes first and once; a worker whose input ends has lost its daemon and ends itself.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any, Self

import msgpack

from layerline.errors import LayerlineError, error_from_code
from layerline.hold import Place
from layerline.peer import Peer
from layerline.plan import StageSpec

LENGTH_BYTES = 4
MAX_MESSAGE_BYTES = 1 << 20
ALIVE_INTERVAL_S = 1.0
NO_COMMAND = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Load this rank's part of a stage; rank 0 also listens on `host`, any port.

    The card lies in a file, since it may be large. The last four fields are each rank's own, those before them the
    same for all. Descriptors are numbers that the worker was started with.
    """

    spec: StageSpec
    card_path: str
    model_path: str
    host: str
    node: str  # the node's name, for errors
    rank: int = 0
    threads: int = 1
    shared: int | None = None  # descriptor of what the ranks have in common; None for one alone
    lines: tuple[int, ...] = ()  # descriptors of sockets: of rank 0 to each other in turn, of another to rank 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Vacate:
    """Give the place up: end every stream and forget the plan; the weights stay."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareExperts:
    """Load what this rank lacks for a placement of a layer's experts, while steps go on; answered by `Prepared`.

    `move` is the number of the move, the same for all ranks; `ranks` are the experts of each.
    """

    move: int
    layer: int
    ranks: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TakeExperts:
    """Have the experts placed as prepared, between two steps; answered by `Taken`. Rank 0 tells the others when."""

    move: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgetExperts:
    """What was prepared for a move is not wanted: the experts stay where they are."""

    move: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Bytes of weights in place so far."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Alive:
    """The process runs; said every ALIVE_INTERVAL_S, whatever it is doing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """The stage is loaded and its data port listens."""

    port: int
    weights_bytes: int
    kv_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """The place is taken and the next stage answers at `next_address` (empty for the last stage)."""

    next_address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """All is there for the move."""

    move: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """The experts are where they were to be, from the next step on."""

    move: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenExperts:
    """For layers of these numbers how many rows have chosen each expert so far; rank 0 says it while it computes."""

    layers: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Told:
    """An error in the words of the worker that met it."""

    code: str
    message: str
    remedy: str

    @classmethod
    def of(cls, error: LayerlineError) -> Self:
        """What there is to tell of `error`."""
        return cls(code=error.code, message=error.message, remedy=error.remedy)

    def error(self, node: str, speaker: str = "") -> LayerlineError:
        """The error that this tells of; a `speaker` is named before what it said."""
        message = f"{speaker}: {self.message}" if speaker else self.message
        return error_from_code(self.code, message, node=node, remedy=self.remedy)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused(_Told):
    """The command failed; the worker goes on, unless it was `Start`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed(_Told):
    """The stage cannot go on, because of this rank or as far as it can see; it ends now."""


# A `Place` is to be taken, and the next stage dialled.
ToWorker = Start | Place | Vacate | PrepareExperts | TakeExperts | ForgetExperts
FromWorker = Alive | Progress | Started | Placed | Prepared | Taken | ChosenExperts | Refused | Failed
_KINDS: dict[str, type] = {noun.__name__: noun for union in (ToWorker, FromWorker) for noun in typing.get_args(union)}


def pack(message: ToWorker | FromWorker, command: int = NO_COMMAND) -> bytes:
    """The message with its length before it; `command` is its number, or that of what it answers."""
    body: bytes = msgpack.packb((command, type(message).__name__, dataclasses.asdict(message)))
    assert len(body) <= MAX_MESSAGE_BYTES
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def length_of(prefix: bytes) -> int:
    """The length that a message's first bytes announce; ValueError if it is out of bounds."""
    length = int.from_bytes(prefix, "big")
    if not 0 < length <= MAX_MESSAGE_BYTES:
        raise ValueError(f"a pipe message of {length} bytes")
    return length


def unpack(body: bytes) -> tuple[int, ToWorker | FromWorker]:
    """The number of a command, and the message in `body`; ValueError if it is none."""
    try:
        command, kind, fields = msgpack.unpackb(body)
        if not isinstance(command, int) or command < NO_COMMAND:
            raise ValueError(f"{command!r} is not the number of a command")
        return command, typing.cast("ToWorker | FromWorker", _KINDS[kind](**_nested(fields)))
    except (KeyError, TypeError, ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"not a pipe message: {error}") from error


def _nested(fields: dict[str, Any]) -> dict[str, Any]:
    if "spec" in fields:
        spec = fields["spec"]
        fields["spec"] = StageSpec(
            **{**spec, "devices": tuple(spec["devices"]), "proportions": tuple(spec["proportions"])}
        )
    for name in fields.keys() & {"lines", "layers"}:
        fields[name] = tuple(fields[name])
    for name in fields.keys() & {"ranks", "rows"}:
        fields[name] = tuple(map(tuple, fields[name]))
    if fields.get("next") is not None:
        fields["next"] = Peer(**{**fields["next"], "addresses": tuple(fields["next"]["addresses"])})
    return fields
