"""Nouns out of what a script gives: messages as dicts, options as keywords.

Everything is checked before it travels, and a mistake is a UsageError that names it and the nearest right name.
Knows nothing of messages on the wire.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict, cast

from layerline.errors import UsageError
from layerline.frames import Sampling
from layerline.plan import ManualStage, PlanRequest
from layerline.requests import GenerateRequest, Message

MAX_UINT32 = (1 << 32) - 1

GivenMessage = Message | Mapping[str, str]


class GenerateOptions(TypedDict, total=False):
    """Options of `chat` and `generate`; what is left out is off, and temperature 0 is greedy.

    `model` is the one that must be loaded (default: whatever is); `max_tokens` 0 means as many as fit;
    `seed` None lets the coordinator choose one, which the answer tells; `stop` is one string or several;
    `n` is how many answers are wanted (1 to 16), of which answer i draws with seed + i.
    """

    model: str
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    seed: int | None
    stop: str | Sequence[str]
    n: int


_WHOLE = ("max_tokens", "top_k", "n")
_REAL = ("temperature", "top_p", "min_p", "repetition_penalty")


def chat_request(messages: Iterable[GivenMessage], options: GenerateOptions) -> GenerateRequest:
    """The request for the next turn of a chat."""
    if isinstance(messages, str | bytes | Mapping | Message):
        raise UsageError("messages must be a list of messages.", remedy='Like [{"role": "user", "content": "Hi"}].')
    turns = tuple(_message(index, given) for index, given in enumerate(messages))
    if not turns:
        raise UsageError("messages is empty.", remedy="Give at least one message.")
    return _request(options, messages=turns)


def generate_request(prompt: str | None, token_ids: Iterable[int] | None, options: GenerateOptions) -> GenerateRequest:
    """The request that continues raw text or token ids."""
    if (prompt is None) == (token_ids is None):
        raise UsageError("generate takes exactly one of prompt and token_ids.")
    if prompt is not None:
        return _request(options, prompt=_text(prompt, "prompt"))
    ids = tuple(cast("Iterable[int]", token_ids))
    for token_id in ids:
        _whole_number(token_id, "an element of token_ids")
    return _request(options, token_ids=ids)


def plan_request(
    model: str, dtype: str, kv_dtype: str, context_tokens: int, layers: Sequence[ManualStage], tensor_parallel: int
) -> PlanRequest:
    """What is asked of the planner."""
    _text(model, "model")
    _whole_number(context_tokens, "context_tokens")
    _whole_number(tensor_parallel, "tensor_parallel")
    try:
        return PlanRequest(
            model=model,
            dtype=dtype,
            kv_dtype=kv_dtype,
            context_tokens=context_tokens,
            layers=tuple(layers),
            tensor_parallel=tensor_parallel,
        )
    except ValueError as error:
        raise UsageError(f"This cannot be planned: {error}.") from error


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UsageError:
    """The error for a name that is none of `known`, with the nearest of them."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    remedy = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
    return UsageError(f"There is no {kind} {name!r}.", remedy=remedy)


def _message(index: int, given: GivenMessage) -> Message:
    if isinstance(given, Message):
        given = {"role": given.role, "content": given.content}
    if not isinstance(given, Mapping):
        raise UsageError(f"messages[{index}] is {type(given).__name__}, not a dict with role and content.")
    for key in given:
        if key not in ("role", "content"):
            raise unknown_name(f"key in messages[{index}]", key, ("role", "content"))
    for key in ("role", "content"):
        if key not in given:
            raise UsageError(f"messages[{index}] has no {key!r}.")
        _text(given[key], f"messages[{index}][{key!r}]")
    try:
        return Message(role=given["role"], content=given["content"])
    except ValueError as error:
        raise UsageError(f"messages[{index}]: {error}.") from error


def _request(
    options: GenerateOptions,
    *,
    messages: tuple[Message, ...] | None = None,
    prompt: str | None = None,
    token_ids: tuple[int, ...] | None = None,
) -> GenerateRequest:
    checked = _checked_options(options)
    try:
        request = GenerateRequest(messages=messages, prompt=prompt, token_ids=token_ids, **checked)
        _require_possible_sampling(request)
    except ValueError as error:
        raise UsageError(f"This cannot be asked: {error}.") from error
    return request


def _require_possible_sampling(request: GenerateRequest) -> None:
    """Lets the noun of the ring refuse now what it would refuse later."""
    Sampling(
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        min_p=request.min_p,
        repetition_penalty=request.repetition_penalty,
        seed=request.seed or 0,
    )


class _CheckedOptions(TypedDict, total=False):
    model: str
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    seed: int | None
    stop: tuple[str, ...]
    n: int


def _checked_options(options: GenerateOptions) -> _CheckedOptions:
    checked: dict[str, object] = {}
    for name, value in options.items():
        if name not in GenerateOptions.__annotations__:
            raise unknown_name("option", name, GenerateOptions.__annotations__)
        checked[name] = _checked_option(name, value)
    return cast("_CheckedOptions", checked)


def _checked_option(name: str, value: object) -> object:
    if name in _WHOLE:
        return _whole_number(value, name)
    if name in _REAL:
        return _real_number(value, name)
    if name == "model":
        return _text(value, name)
    if name == "seed":
        return None if value is None else _whole_number(value, name, most=(1 << 64) - 1)
    return _stop_strings(value)


def _stop_strings(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Iterable):
        raise _wrong("stop", "a string or several", value)
    return tuple(_text(part, "an element of stop") for part in value)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise _wrong(what, "a string", value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        message = f"{what} has a half of a character at {error.start}, which is no text."
        raise UsageError(message, remedy="Give it in UTF-8.") from error
    return value


def _whole_number(value: object, what: str, most: int = MAX_UINT32) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _wrong(what, f"a whole number from 0 to {most}", value)
    return value


def _real_number(value: object, what: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(what, "a number", value)
    return float(value)


def _wrong(what: str, wanted: str, value: object) -> UsageError:
    return UsageError(f"{what} must be {wanted}, not {value!r:.80}.")
