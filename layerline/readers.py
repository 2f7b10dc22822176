"""Readers of the streams that a coordinator answers with: what each message holds, and how the stream ended.

Knows the messages, and nothing of calls.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from google.protobuf.message import Message as WireMessage

from layerline.answer import AnswerItem, Finished, Piece, PromptLikelihoods
from layerline.errors import ProtocolError
from layerline.reports import PrepareEvent, Ready
from layerline.rpc.convert import from_union

Item_co = TypeVar("Item_co", covariant=True)
End_co = TypeVar("End_co", covariant=True)
Part = TypeVar("Part")
End = TypeVar("End")


class Reader(Protocol[Item_co, End_co]):
    """Makes items of a stream's messages. `all_finished` is what it ends with, one for each answer, () before that."""

    @property
    def all_finished(self) -> tuple[End_co, ...]: ...

    def read(self, message: WireMessage) -> Item_co | None:
        """The item in `message`, None if it only ends the stream."""


class AnswerReader:
    """Pieces of `answers` answers, and how each finished; they are numbered from 0."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._finished: dict[int, Finished] = {}
        self.of_prompt: tuple[PromptLikelihoods, ...] = ()

    @property
    def all_finished(self) -> tuple[Finished, ...]:
        """How the answers finished, by number; empty until all have."""
        if len(self._finished) < self._answers:
            return ()
        return tuple(self._finished[index] for index in range(self._answers))

    def read(self, message: WireMessage) -> Piece | None:
        """The piece in `message`, None if it is none; ProtocolError for one of an answer not asked for."""
        event: AnswerItem = from_union(AnswerItem, message)
        if isinstance(event, PromptLikelihoods):
            self.of_prompt += (event,)
            return None
        if event.index >= self._answers:
            raise ProtocolError(f"The coordinator sent answer {event.index} of {self._answers}, numbered from 0.")
        if isinstance(event, Piece):
            return event
        self._finished[event.index] = event
        return None


class PrepareReader:
    """What happens while a model is made ready; the last event is also what the stream finishes with."""

    def __init__(self) -> None:
        self.all_finished: tuple[Ready, ...] = ()

    def read(self, message: WireMessage) -> PrepareEvent:
        """The event in `message`."""
        event: PrepareEvent = from_union(PrepareEvent, message)
        if isinstance(event, Ready):
            self.all_finished = (event,)
        return event


class PartsReader(Generic[Part, End]):
    """Parts of the kind `part`, and what they end with, of the kind `end`."""

    def __init__(self, part: type[Part], end: type[End]) -> None:
        self.all_finished: tuple[End, ...] = ()
        self._part = part
        self._end = end

    def read(self, message: WireMessage) -> Part | None:
        """The part in `message`, None if it says how all ended."""
        event = from_union(self._part | self._end, message)
        if isinstance(event, self._end):
            self.all_finished = (event,)
            return None
        part: Part = event
        return part
