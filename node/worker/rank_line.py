"""The line from rank 0 of a stage to another rank: a local socket, over which that one gets each step.

A step is a 4-byte big-endian length and the frame's message, as it is between nodes. A length of 0 says that the
experts of a move are taken, before the next step; the number of the move follows. Knows neither ranks' work nor what
becomes of one that cannot go on.
"""

from __future__ import annotations

import socket

from google.protobuf.message import DecodeError

from layerline.errors import ProtocolError, StageFailedError
from layerline.frames import Frame
from layerline.rpc.channels import MAX_MESSAGE_BYTES
from layerline.rpc.convert_frames import frame_from_message, frame_to_message
from layerline.rpc.v1 import ring_pb2

LENGTH_BYTES = 4
MOVE_BYTES = 8
DEADLINE_S = 10.0


class LineEndedError(Exception):
    """The process at the other end is gone; why, its daemon knows."""


class RankLine:
    """One end of a line; `other` is what to call the rank at the other one."""

    def __init__(self, line: socket.socket, other: str, *, deadline_s: float = DEADLINE_S) -> None:
        self._line = line
        self._other = other
        self._deadline_s = deadline_s

    def send(self, step: bytes) -> None:
        """Sends a packed step. StageFailedError if the other takes none for too long, LineEndedError if it is gone."""
        self._line.settimeout(self._deadline_s)
        try:
            self._line.sendall(step)
        except TimeoutError:
            raise self._silent("took no step") from None
        except OSError:
            raise LineEndedError from None

    def receive(self) -> Frame | int:
        """The next step, or the number of a move that is taken, however long that takes to come.

        Once it has begun it must come within the deadline.

        StageFailedError if it does not, ProtocolError if it is none, LineEndedError if the other is gone.
        """
        self._line.settimeout(None)
        first = self._read(1)
        self._line.settimeout(self._deadline_s)
        length = int.from_bytes(first + self._read(LENGTH_BYTES - 1), "big")
        if not length:
            return int.from_bytes(self._read(MOVE_BYTES), "big")
        if length > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"{self._other} announced a step of {length} bytes.")
        return unpack_step(self._read(length))

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        missing = memoryview(data)
        while missing:
            try:
                count = self._line.recv_into(missing)
            except TimeoutError:
                raise self._silent("stopped in the middle of a step") from None
            except OSError:
                count = 0
            if not count:
                raise LineEndedError
            missing = missing[count:]
        return data

    def _silent(self, what: str) -> StageFailedError:
        message = f"{self._other} of the stage {what} for {self._deadline_s:g} s."
        return StageFailedError(message, remedy="If the machine is overloaded, close other programs; load it again.")


def pack_step(frame: Frame) -> bytes:
    """A frame for a line, its length before it; ProtocolError if it is larger than any that comes between nodes."""
    body = frame_to_message(frame).frame.SerializeToString()
    if len(body) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"Step {frame.step} takes {len(body)} bytes, more than {MAX_MESSAGE_BYTES}.")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def pack_move(move: int) -> bytes:
    """That the experts of a move are taken, for a line."""
    return bytes(LENGTH_BYTES) + move.to_bytes(MOVE_BYTES, "big")


def unpack_step(body: bytes | bytearray) -> Frame:
    """The frame that was packed, without its length; ProtocolError if there is none."""
    try:
        return frame_from_message(ring_pb2.Frame.FromString(bytes(body)))
    except DecodeError as error:
        raise ProtocolError(f"A step from rank 0 is not valid: {error}.") from error
