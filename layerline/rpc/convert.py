"""Nouns to messages and back, by their field names.

A noun and its message have the same fields, so one walk over the dataclass serves them all: `to_message` and
`from_message`. The nouns check themselves as they are made; what they refuse becomes a ProtocolError.
A field that a message leaves out where it could say so (`optional`) is None, or the noun's default. The frames of the
ring, which pass for every token, are written out in `layerline.rpc.convert_frames`.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from typing import Any, TypeVar

from google.protobuf.message import Message

from layerline import (
    answer,
    chat,
    embedding,
    facts,
    hold,
    plan,
    plan_request,
    reports,
    requests,
    sampling,
    scoring,
    stats_report,
)
from layerline.errors import LayerlineError, ProtocolError
from layerline.rpc.status import detail_from_error, error_from_detail
from layerline.rpc.v1 import common_pb2, coordinator_pb2, node_pb2

Noun = TypeVar("Noun")
WireMessage = TypeVar("WireMessage", bound=Message)

# Nouns that are named like their messages, and the two that are not.
_MESSAGE_OF: dict[type, type[Message]] = {
    LayerlineError: common_pb2.ErrorDetail,
    chat.Message: coordinator_pb2.ChatMessage,
    answer.StageSummary: common_pb2.StageSummary,
}
for _module, _messages in (
    (answer, coordinator_pb2),
    (chat, coordinator_pb2),
    (embedding, coordinator_pb2),
    (facts, node_pb2),
    (hold, node_pb2),
    (plan, node_pb2),
    (plan_request, coordinator_pb2),
    (reports, coordinator_pb2),
    (requests, coordinator_pb2),
    (sampling, common_pb2),
    (scoring, coordinator_pb2),
    (stats_report, coordinator_pb2),
):
    for _name, _noun in vars(_module).items():
        if dataclasses.is_dataclass(_noun) and isinstance(_noun, type) and hasattr(_messages, _name):
            _MESSAGE_OF.setdefault(_noun, getattr(_messages, _name))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Field:
    name: str
    inner: type | None  # the noun inside, for a nested one
    repeated: bool
    optional: bool  # None where it is absent, or empty for a repeated one
    has_default: bool  # of the noun, where it is absent


def _fields_of(noun: type) -> tuple[_Field, ...]:
    hints, said = typing.get_type_hints(noun), _MESSAGE_OF[noun].DESCRIPTOR.fields_by_name
    return tuple(
        _field(field.name, hints[field.name], has_default=_has_default(field) and said[field.name].has_presence)
        for field in dataclasses.fields(noun)
    )


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return not (field.default is field.default_factory is dataclasses.MISSING)


def _field(name: str, hint: Any, *, has_default: bool) -> _Field:
    arguments = typing.get_args(hint)
    optional = isinstance(hint, types.UnionType) and type(None) in arguments
    inner = arguments[0] if optional else hint
    repeated = typing.get_origin(inner) is tuple
    inner = typing.get_args(inner)[0] if repeated else inner
    known = inner if inner in _MESSAGE_OF else None
    return _Field(name=name, inner=known, repeated=repeated, optional=optional, has_default=has_default)


_FIELDS: dict[type, tuple[_Field, ...]] = {
    noun: _fields_of(noun) for noun in _MESSAGE_OF if dataclasses.is_dataclass(noun)
}


def to_message(noun: Any, message_class: type[WireMessage]) -> WireMessage:
    """The message form of `noun`."""
    message = message_class()
    _fill(noun, message)
    return message


def _fill(noun: Any, message: Message) -> None:
    if isinstance(noun, LayerlineError):
        message.CopyFrom(detail_from_error(noun))
        return
    message.SetInParent()
    for field in _FIELDS[type(noun)]:
        value = getattr(noun, field.name)
        if value is None:
            continue
        if field.repeated and field.inner:
            for item in value:
                _fill(item, getattr(message, field.name).add())
        elif field.repeated:
            getattr(message, field.name).extend(value)
        elif field.inner:
            _fill(value, getattr(message, field.name))
        else:
            setattr(message, field.name, value)


def from_message(noun: type[Noun], message: Message) -> Noun:
    """The noun in `message`; ProtocolError if it refuses what it is given."""
    try:
        return typing.cast("Noun", _read(noun, message))
    except ValueError as error:
        raise ProtocolError(f"A {noun.__name__} message is not valid: {error}.") from error


def _read(noun: type, message: Message) -> Any:
    if noun is LayerlineError:
        assert isinstance(message, common_pb2.ErrorDetail)
        return error_from_detail(message)
    return noun(
        **{
            field.name: _read_field(field, message)
            for field in _FIELDS[noun]
            if not field.has_default or message.HasField(field.name)
        }
    )


def _read_field(field: _Field, message: Message) -> Any:
    value = getattr(message, field.name)
    if field.repeated:
        items = tuple(_read(field.inner, item) if field.inner else item for item in value)
        return None if field.optional and not items else items
    if field.optional and not message.HasField(field.name):
        return None
    return _read(field.inner, value) if field.inner else value


def _snake_case(noun: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", noun.__name__).lower()


# A union of nouns travels as a message with one `oneof`, whose field is the noun's name in snake case.


def to_union(noun: Any, message_class: type[WireMessage]) -> WireMessage:
    """`noun` inside the oneof of `message_class`."""
    message = message_class()
    _fill(noun, getattr(message, _snake_case(type(noun))))
    return message


def from_union(nouns: Any, message: Message) -> Any:
    """The noun inside the oneof of `message`, one of the union `nouns`; ProtocolError if it holds none."""
    (oneof,) = message.DESCRIPTOR.oneofs
    chosen = message.WhichOneof(oneof.name)
    for noun in typing.get_args(nouns):
        if chosen == _snake_case(noun):
            return from_message(noun, getattr(message, chosen))
    raise ProtocolError(f"A {message.DESCRIPTOR.name} message holds nothing that this version knows.")
