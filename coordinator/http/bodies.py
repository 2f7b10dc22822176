"""Bodies of requests: JSON into a pydantic model that is strict and knows all its fields.

What an API defines and a local model cannot mean is on a list of ignored fields, one for each API; anything else that
is unknown is refused by name, so that no option is ignored without a word.
"""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pydantic_core
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect, Request

from coordinator.http.failures import HttpError
from layerline.embedding import EmbedRequest
from layerline.plan_request import PlanRequest
from layerline.printable import printable
from layerline.requests import GenerateRequest
from layerline.sampling import SamplingOptions

MAX_BODY_BYTES = 16 << 20
BODY_DEADLINE_S = 60.0
MAX_DEPTH = 64  # of lists and objects in each other
MAX_SHOWN = 300
NO_NAMES: Mapping[str, str] = {}

FIELDS = frozenset(
    field.name
    for noun in (GenerateRequest, SamplingOptions, EmbedRequest, PlanRequest)
    for field in dataclasses.fields(noun)
)
"""Those of the nouns that bodies become, which APIs call alike if nothing else is said."""

Fields = TypeVar("Fields", bound="Body")


class Body(BaseModel):
    """Takes nothing but its fields, each of its own kind: true is no number, and "1" is none either."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


async def read_body(request: Request, kind: type[Fields], ignored: Collection[str] = ()) -> Fields:
    """The body of `request`, without the `ignored` fields; HttpError for what cannot be."""
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            data = await request.body()
    except TimeoutError:
        raise HttpError(408, f"The body did not come within {BODY_DEADLINE_S:.0f} s.") from None
    except ClientDisconnect:
        raise HttpError(400, "The body ended early.") from None
    return body_of(data, kind, ignored)


def body_of(data: bytes, kind: type[Fields], ignored: Collection[str] = ()) -> Fields:
    """The model in `data`."""
    try:
        value = pydantic_core.from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise HttpError(400, f"The body is not JSON: {_shown(str(error))}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise HttpError(400, "The body is not a JSON object.", code="invalid_json")
    if _is_deeper(value, MAX_DEPTH):
        raise HttpError(400, f"The body has lists and objects nested over {MAX_DEPTH} deep.", code="invalid_json")
    try:
        return kind.model_validate({name: each for name, each in value.items() if name not in ignored})
    except ValidationError as error:
        raise _failure(error, kind) from None


@contextmanager
def refused_by_nouns(names: Mapping[str, str] = NO_NAMES) -> Iterator[None]:
    """What a noun says against its fields, as in "top_p must be …", names the field.

    `names` are those of fields that an API calls otherwise than the noun does.
    """
    try:
        yield
    except ValueError as error:
        text = str(error)
        field, _, rest = text.partition(" ")
        param = names.get(field, field if field in FIELDS else "")
        if not param:
            raise HttpError(400, f"{text[:1].upper()}{text[1:]}.") from None
        raise HttpError(400, f"{param} {rest}.", param=param) from None


def refusal(param: str, message: str) -> HttpError:
    """The failure for a field that asks for what layerline cannot do."""
    return HttpError(400, message, param=param, code="unsupported_value")


def _failure(error: ValidationError, kind: type[BaseModel]) -> HttpError:
    """Of all that is wrong the first; of several forms of a field the one that fits furthest was meant."""
    details = error.errors(include_url=False, include_input=False)
    first = details[0]["loc"][:1]
    detail = max((each for each in details if each["loc"][:1] == first), key=lambda each: len(each["loc"]))
    param = _path(detail["loc"])
    if detail["type"] == "extra_forbidden":
        name = str(detail["loc"][-1])
        near = difflib.get_close_matches(name, kind.model_fields, n=1) if len(detail["loc"]) == 1 else []
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return HttpError(400, f"Unknown field {_shown(param)!r}.{hint}", param=_shown(param), code="unknown_field")
    if detail["type"] == "missing":
        return HttpError(400, f"{param} is missing.", param=param, code="missing_field")
    return HttpError(400, _shown(f"{param}: {detail['msg']}."), param=_shown(param), code="invalid_value")


def _path(places: tuple[int | str, ...]) -> str:
    """As in messages[2].content; names that pydantic gives to the forms of a field are left out."""
    path = ""
    for place in places:
        if isinstance(place, int):
            path += f"[{place}]"
        elif (
            place.isidentifier()
            and (place == place.lower() or not path)
            and place not in ("str", "int", "float", "bool")
        ):
            path += f".{place}" if path else place
        elif not path:
            path = place
    return path


def _is_deeper(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not layer:
            return False
    return True


def _shown(text: str) -> str:
    return printable(text[:MAX_SHOWN])
