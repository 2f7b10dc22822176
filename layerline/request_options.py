"""Nouns out of what a script gives: messages as dicts, options as keywords.

Everything is checked before it travels, and a mistake is a UsageError that names it and the nearest right name.
Knows nothing of messages on the wire.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from layerline.chat import Message, ToolRules
from layerline.checks import shown
from layerline.embedding import EmbedInput, EmbedOptions, EmbedRequest
from layerline.errors import UsageError
from layerline.option import Listed, Text, WholeNumber, options_of
from layerline.plan_request import PlanOptions, PlanRequest
from layerline.requests import MAX_TOKEN_ID, GenerateOptions, GenerateRequest, Structure, TokenBias
from layerline.sampling import SamplingOptions
from layerline.scoring import ScoreOptions, ScoreRequest
from layerline.tool_options import as_json, tool_call, tool_rules

GivenMessage = Message | Mapping[str, Any]
GivenText = str | Sequence[int]
MESSAGE_KEYS = ("role", "content", "thinking", "reasoning_content", "tool_calls", "tool_call_id", "name")


def chat_request(messages: Iterable[GivenMessage], options: GenerateOptions) -> GenerateRequest:
    """The request for the next turn of a chat."""
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes | Mapping | Message):
        raise UsageError(
            f"messages must be a list of messages, not {shown(messages)}.",
            remedy='Like [{"role": "user", "content": "Hi"}].',
        )
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
    return _request(options, token_ids=token_ids)


def score_request(text: str | None, token_ids: Iterable[int] | None, options: ScoreOptions) -> ScoreRequest:
    """The request that has a text, or token ids, scored."""
    if (text is None) == (token_ids is None):
        raise UsageError("score takes exactly one of text and token_ids.")
    _require_known(options, ScoreOptions)
    given = {"token_ids": token_ids} if text is None else {"text": _text(text, "text")}
    with _in_words("scored"):
        return ScoreRequest(**cast("Any", options), **cast("Any", given))


def embed_request(texts: object, options: EmbedOptions) -> EmbedRequest:
    """The request for the vectors of a text or of several, each of which may be given as token ids."""
    _require_known(options, EmbedOptions)
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping):
        raise UsageError(f"embed takes a text or a list of texts, not {shown(texts)}.")
    given = [texts] if isinstance(texts, str) else texts
    with _in_words("embedded"):
        inputs = tuple(_embed_input(index, each) for index, each in enumerate(given))
        return EmbedRequest(inputs=inputs, **cast("Any", options))


def _embed_input(index: int, given: object) -> EmbedInput:
    if isinstance(given, str):
        return EmbedInput(text=_text(given, f"texts[{index}]"))
    ids = Listed(WholeNumber(0, MAX_TOKEN_ID), "token ids").read(given)
    return EmbedInput(token_ids=cast("tuple[int, ...]", ids))


def plan_request(model: str, options: PlanOptions) -> PlanRequest:
    """What is asked of the planner."""
    _require_known(options, PlanOptions)
    with _in_words("planned"):
        return PlanRequest(model=_text(model, "model"), **cast("Any", options))


def plan_options(request: PlanRequest) -> PlanOptions:
    """The options of `request` as keywords."""
    return cast("PlanOptions", {name: getattr(request, name) for name in options_of(PlanRequest)})


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UsageError:
    """The error for a name that is none of `known`, with the nearest of them."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    remedy = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
    return UsageError(f"There is no {kind} {name!r}.", remedy=remedy)


def _message(index: int, given: GivenMessage) -> Message:
    if isinstance(given, Message):
        for key in ("role", "content", "thinking", "tool_call_id", "name"):
            _text(getattr(given, key), f"messages[{index}][{key!r}]")
        return given
    if not isinstance(given, Mapping):
        raise UsageError(f"messages[{index}] is {type(given).__name__}, not a dict with role and content.")
    for key in given:
        if key not in MESSAGE_KEYS:
            raise unknown_name(f"key in messages[{index}]", key, MESSAGE_KEYS)
    for key in ("role", "content"):
        if key not in given and not (key == "content" and given.get("tool_calls")):
            raise UsageError(f"messages[{index}] has no {key!r}.")
    texts = {
        key: _text(value, f"messages[{index}][{key!r}]")
        for key, value in given.items()
        if key != "tool_calls" and not (key == "content" and value is None and given.get("tool_calls"))
    }
    if "reasoning_content" in texts:
        texts.setdefault("thinking", texts.pop("reasoning_content"))
    calls = given.get("tool_calls") or ()
    try:
        return Message(**texts, tool_calls=tuple(tool_call(f"messages[{index}].tool_calls", call) for call in calls))
    except ValueError as error:
        raise UsageError(f"messages[{index}]: {error}.") from error


def _request(options: GenerateOptions, **given: object) -> GenerateRequest:
    _require_known(options, GenerateOptions)
    of_sampling = options_of(SamplingOptions)
    others = {name: value for name, value in options.items() if name not in of_sampling}
    choice, parallel = others.pop("tool_choice", "auto"), others.pop("parallel_tool_calls", True)
    if not isinstance(others.get("tools"), ToolRules):
        others["tools"] = tool_rules(others.get("tools") or (), choice, parallel)
    elif choice != "auto" or parallel is not True:
        raise UsageError("ToolRules say themselves how tools are called; leave tool_choice and the like out.")
    structure = others.get("structure")
    if isinstance(structure, Mapping):
        others["structure"] = Structure(kind="json_schema", text=as_json("structure", structure))
    elif structure is not None and not isinstance(structure, Structure):
        raise UsageError(f"structure must be a Structure or a JSON schema, not {shown(structure)}.")
    if isinstance(variables := others.get("template_variables"), Mapping):
        others["template_variables"] = as_json("template_variables", variables)
    if isinstance(others.get("logit_bias"), Mapping):
        others["logit_bias"] = _biases(cast("Mapping[object, object]", others["logit_bias"]))
    with _in_words("asked"):
        drawn = {name: value for name, value in options.items() if name in of_sampling}
        return GenerateRequest(sampling=SamplingOptions(**cast("Any", drawn)), **cast("Any", others | given))


def _biases(given: Mapping[object, object]) -> tuple[TokenBias, ...]:
    for token_id, bias in given.items():
        if not isinstance(token_id, int) or not isinstance(bias, int | float) or isinstance(bias, bool):
            raise UsageError(f"logit_bias must be numbers by token ids, not {shown(bias)} by {shown(token_id)}.")
    with _in_words("asked"):
        return tuple(TokenBias(token_id=cast("int", id_), bias=float(cast("float", b))) for id_, b in given.items())


def _require_known(options: Mapping[str, object], keywords: type) -> None:
    known = keywords.__annotations__
    for name in options:
        if name not in known:
            raise unknown_name("option", name, known)


@contextmanager
def _in_words(done: str) -> Iterator[None]:
    """What a noun refuses is a mistake of whoever gave it."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"This cannot be {done}: {error}.") from error


def _text(value: object, what: str) -> str:
    try:
        return Text().read(value)
    except ValueError as error:
        raise UsageError(f"{what} {error}.") from None
