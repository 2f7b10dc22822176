"""The formats of calls by name: what begins calls, how they are read, and what a template that teaches one has.

Sources: the chat templates of the models themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.text.answer_forms import json_calls, python_calls, tagged_calls
from coordinator.text.answer_forms.calls import Calls
from coordinator.text.answer_forms.feed import Feed, MalformedError, Waiting


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFormat:
    """Calls come after one of the texts `begins`, or, where it is `whole`, are the answer if it begins with one.

    `read` reads them from behind that text, which it is given; `signs` are texts that a template which teaches it has,
    all of them. `begins` is read again by `read` where it is `whole`.
    """

    name: str
    begins: tuple[str, ...]
    read: Callable[[Feed, Calls], Waiting[None]]
    signs: tuple[tuple[str, ...], ...]
    whole: bool = False


def _tool_call_json(feed: Feed, calls: Calls) -> Waiting[None]:
    yield from feed.skip_space()
    yield from json_calls.call_object(feed, calls)
    yield from _ended(feed, "</tool_call>")


def _tool_call_function(feed: Feed, calls: Calls) -> Waiting[None]:
    yield from tagged_calls.function_call(feed, calls)
    yield from _ended(feed, "</tool_call>")


def _tool_call_keys(feed: Feed, calls: Calls) -> Waiting[None]:
    yield from feed.skip_space()
    yield from tagged_calls.keyed_call(feed, calls)
    yield from _ended(feed, "</tool_call>")


def _llama(feed: Feed, calls: Calls) -> Waiting[None]:
    if (yield from feed.begins_with("<|python_tag|>")):
        feed.take(len("<|python_tag|>"))
    while True:
        yield from feed.skip_space()
        yield from json_calls.call_object(feed, calls)
        yield from feed.skip_space()
        mark = yield from feed.begins_with(";", "{")
        if not mark:
            return
        feed.take(1 if mark == ";" else 0)


def _mistral(feed: Feed, calls: Calls) -> Waiting[None]:
    yield from feed.skip_space()
    if (yield from feed.peek()) == "[":
        yield from json_calls.call_list(feed, calls)
        return
    name, mark = yield from feed.until("[CALL_ID]", "[ARGS]", "{")
    id_ = ""
    if mark == "[CALL_ID]":
        id_, mark = yield from feed.until("[ARGS]")
    if mark == "{":
        raise MalformedError("a call without [ARGS]")
    yield from json_calls.named_arguments(feed, calls, name, id_)


def _deepseek(feed: Feed, calls: Calls) -> Waiting[None]:
    while True:
        yield from feed.skip_space()
        if not (yield from feed.begins_with("<｜tool▁call▁begin｜>")):
            break
        feed.take(len("<｜tool▁call▁begin｜>"))
        name, _ = yield from feed.until("<｜tool▁sep｜>")
        yield from feed.skip_space()
        if name.strip() == "function":  # V3: the kind, then name and a block of code
            name, _ = yield from feed.until("\n")
            yield from feed.skip_space()
            if (yield from feed.begins_with("```json")):
                feed.take(len("```json"))
        yield from json_calls.named_arguments(feed, calls, name)
        yield from feed.until("<｜tool▁call▁end｜>")
    yield from _ended(feed, "<｜tool▁calls▁end｜>")


def _kimi(feed: Feed, calls: Calls) -> Waiting[None]:
    while True:
        yield from feed.skip_space()
        if not (yield from feed.begins_with("<|tool_call_begin|>")):
            break
        feed.take(len("<|tool_call_begin|>"))
        id_, _ = yield from feed.until("<|tool_call_argument_begin|>")
        name = id_.strip().removeprefix("functions.").rpartition(":")[0] or id_
        yield from json_calls.named_arguments(feed, calls, name, id_.strip())
        yield from feed.until("<|tool_call_end|>")
    yield from _ended(feed, "<|tool_calls_section_end|>")


def _lfm2(feed: Feed, calls: Calls) -> Waiting[None]:
    yield from feed.skip_space()
    yield from python_calls.call_list(feed, calls)
    yield from _ended(feed, "<|tool_call_end|>")


def _ended(feed: Feed, marker: str) -> Waiting[None]:
    """Reads the marker behind a call; a model may leave it out."""
    yield from feed.skip_space()
    if (yield from feed.begins_with(marker)):
        feed.take(len(marker))


CODER = ToolFormat(
    name="qwen3_coder", begins=("<tool_call>",), read=_tool_call_function, signs=(("<function=", "<parameter="),)
)
GLM = ToolFormat(name="glm", begins=("<tool_call>",), read=_tool_call_keys, signs=(("<arg_key>",),))
DEEPSEEK = ToolFormat(
    name="deepseek", begins=("<｜tool▁calls▁begin｜>",), read=_deepseek, signs=(("<｜tool▁calls▁begin｜>",),)
)
KIMI = ToolFormat(
    name="kimi", begins=("<|tool_calls_section_begin|>",), read=_kimi, signs=(("<|tool_calls_section_begin|>",),)
)
LFM2 = ToolFormat(name="lfm2", begins=("<|tool_call_start|>",), read=_lfm2, signs=(("<|tool_call_start|>",),))
MISTRAL = ToolFormat(name="mistral", begins=("[TOOL_CALLS]",), read=_mistral, signs=(("[TOOL_CALLS]",),))
HERMES = ToolFormat(name="hermes", begins=("<tool_call>",), read=_tool_call_json, signs=(("<tool_call>",),))
LLAMA = ToolFormat(
    name="llama3_json",
    begins=("<|python_tag|>", "{"),
    read=_llama,
    signs=(("<|python_tag|>",), ('"parameters": dictionary of argument name',)),
    whole=True,
)
PYTHONIC = ToolFormat(
    name="pythonic", begins=("[",), read=python_calls.call_list, signs=(("func_name1(params_name1",),), whole=True
)
FORMATS = (CODER, GLM, DEEPSEEK, KIMI, LFM2, MISTRAL, HERMES, PYTHONIC, LLAMA)
"""In the order in which a template is asked for them; what is named `gpt_oss` is read by `harmony.py`."""
