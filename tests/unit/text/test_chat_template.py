from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from coordinator.text.chat_template import RENDER_DEADLINE_S, ChatTemplate
from coordinator.text.process import RETRY_AFTER_S, TextProcess
from layerline.chat import Message, Tool, ToolCall
from layerline.errors import LayerlineError, ModelError, ModelUnsupportedError, OverloadedError, RequestError
from tests.unit.text.chat_templates import CHATML, LLAMA2, SMOLLM2, TEMPLATES
from tests.unit.text.tokenizer_cards import BOS, END, card

pytestmark = pytest.mark.system

USER = Message(role="user", content="What is <1> & “2”?\n")
CHATS = {
    "user": (USER,),
    "system": (Message(role="system", content="Be brief."), USER),
    "turns": (USER, Message(role="assistant", content=" Three. "), Message(role="user", content="日本 😀")),
    "long": (Message(role="system", content="x" * 200_000), USER),
}
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@asynccontextmanager
async def chat_of(template: str | None, deadline_s: float = RENDER_DEADLINE_S) -> AsyncIterator[ChatTemplate]:
    async with TextProcess(lambda: {"json": "", "vocabulary": 0}) as process:
        yield ChatTemplate(card("", chat_template=template), process, deadline_s=deadline_s)


async def rendered(template: str | None, *messages: Message) -> str:
    async with chat_of(template) as chat:
        return await chat.render(messages or (USER,))


@pytest.fixture
async def chat() -> AsyncIterator[ChatTemplate]:
    async with chat_of(CHATML) as chat:
        yield chat


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


async def test_nothing_of_the_child_is_left_to_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def watched(*words: str, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*words, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    for _ in range(5):
        await rendered(CHATML)
        assert getattr(started[-1], "_transport").is_closing()  # noqa: B009  # private, and all there is to see
    assert len(started) == 5


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("name", TEMPLATES)
async def test_renders_as_transformers_does(name: str, add_generation_prompt: bool) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415

    async with chat_of(TEMPLATES[name]) as chat:
        for messages in CHATS.values():
            plain = [{"role": message.role, "content": message.content} for message in messages]
            expected = render_jinja_template(
                [plain],
                chat_template=TEMPLATES[name],
                add_generation_prompt=add_generation_prompt,
                bos_token=BOS,
                eos_token=END,
            )
            assert await chat.render(messages, add_generation_prompt=add_generation_prompt) == expected[0][0]


async def test_tools_and_switches_are_the_templates() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415

    template = "{{ tools | tojson }}{% if not enable_thinking %} /no_think{% endif %}{{ messages[0].content }}"
    tool = Tool(name="now", description="The time.", parameters='{"type": "object", "properties": {}}')
    function = {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}
    tools: list[Any] = [{"type": "function", "function": function}]
    plain = [{"role": USER.role, "content": USER.content}]
    async with chat_of(template) as chat:
        for thinks in (True, False):
            text = await chat.render([USER], tools=[tool], variables={"enable_thinking": thinks})
            made = render_jinja_template([plain], tools=tools, chat_template=template, enable_thinking=thinks)
            assert text == made[0][0]
            assert ("/no_think" in text) is not thinks


async def test_switches_do_not_replace_the_chat(chat: ChatTemplate) -> None:
    assert "“2”" in await chat.render([USER], variables={"messages": [], "tools": 1})


async def test_the_templates_own_system_prompt_is_kept() -> None:
    text = await rendered(SMOLLM2)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")


async def test_one_child_renders_many_chats_and_ends_with_the_context() -> None:
    before = children()
    async with chat_of(CHATML) as chat:
        texts = await asyncio.gather(*(chat.render([Message(role="user", content=str(n))]) for n in range(20)))
        assert len(children() - before) == 1
    assert children() == before
    assert texts == [f"<|im_start|>user\n{n}<|im_end|>\n<|im_start|>assistant\n" for n in range(20)]


@pytest.mark.parametrize(
    ("template", "error", "says"),
    [
        (None, ModelUnsupportedError, "no chat template. Send plain text instead: --raw"),
        ("{% for %}", ModelError, r"template is broken: .*\(line 1\)"),
        ("a\n{{ 'open }}", ModelError, r"template is broken: .*\(line 2\)"),
        ("{{ raise_exception('Only one user.') }}", RequestError, "refuses these messages: Only one user."),
        ("{{ messages[7].content.strip() }}", RequestError, "failed on these messages .UndefinedError"),
        ("{{ 1 / 0 }}", RequestError, "failed on these messages .ZeroDivisionError"),
        ("{{ ''.__class__.__mro__ }}", ModelError, "broken"),
        ("{{ raise_exception.__globals__['sys'] }}", ModelError, "broken"),
        ("{% set n = namespace() %}{% set n.__class__ = 1 %}", ModelError, "broken"),
        ("{% set n = namespace(__init__=1) %}", ModelError, "broken"),
        ("{{ dict.mro() }}", RequestError, "failed on these messages"),
        ("{{ messages.append(1) }}", ModelError, "broken"),
        ("{% include 'x' %}", RequestError, "failed on these messages"),
        ("{{ 'a' * 50_000_000 }}", RequestError, "too long a prompt: more than 4 MiB"),
        ("{% for a in range(99999) %}{{ 'a' * 100 }}{% endfor %}", RequestError, "more than 4 MiB"),
        ("{{ 'a' * 99_000_000_000 }}", ModelError, "exceeds its limits: memory"),
        ("{{ '\\ud800' }}", ModelError, "broken: it makes half a character"),
        ("{{ raise_exception('\\ud800 \\x1b[2J') }}", RequestError, r"refuses these messages: \\ud800 \\x1b\[2J"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ModelError, "exceeds its limits: nesting"),
    ],
)
async def test_templates_that_fail(template: str | None, error: type[LayerlineError], says: str) -> None:
    with pytest.raises(error, match=says):
        await rendered(template)


async def test_roles_that_a_template_refuses() -> None:
    with pytest.raises(RequestError, match="roles must alternate"):
        await rendered(LLAMA2, USER, USER)


async def test_a_failed_render_does_not_disturb_the_next() -> None:
    template = "{% if messages[0].content == 'bad' %}{{ 1 / 0 }}{% endif %}fine"
    async with chat_of(template) as chat:
        with pytest.raises(RequestError):
            await chat.render([Message(role="user", content="bad")])
        assert await chat.render([USER]) == "fine"


async def test_an_endless_template_is_ended_at_the_deadline_and_the_next_render_has_a_fresh_child() -> None:
    before = children()
    template = "{% if messages[0].content == 'bad' %}" + ENDLESS + "{% endif %}fine"
    async with chat_of(template, deadline_s=2.0) as chat:
        assert await chat.render([USER]) == "fine"
        first = children() - before
        with pytest.raises(ModelError, match="exceeds its limits: it took over 2 s"):
            await chat.render([Message(role="user", content="bad")])
        assert children() == before
        assert await chat.render([USER]) == "fine"
        assert children() - before != first


async def test_a_child_that_dies_is_an_error_and_is_replaced(chat: ChatTemplate) -> None:
    before = children()
    await chat.render([USER])
    (pid,) = children() - before
    psutil.Process(pid).kill()
    with pytest.raises(ModelError, match="its process ended"):
        await chat.render([USER])
    assert await chat.render([USER])


async def test_a_cancelled_render_leaves_no_stale_answer_and_nobody_waits_for_another_child(chat: ChatTemplate) -> None:
    await chat.render([USER])
    before = children()
    task = asyncio.create_task(chat.render([Message(role="user", content="late" * 10_000)]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "soon" in await chat.render([Message(role="user", content="soon")])
    assert children() == before


async def test_more_renders_than_may_wait_are_refused(chat: ChatTemplate) -> None:
    answers = await asyncio.gather(*(chat.render([USER]) for _ in range(70)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, OverloadedError)]
    assert len(refused) == 6
    assert {error.retry_after_s for error in refused} == {RETRY_AFTER_S}
    assert sum(isinstance(answer, str) for answer in answers) == 64


async def test_lone_surrogates_in_messages_are_replaced(chat: ChatTemplate) -> None:
    assert "a?b" in await chat.render([Message(role="user", content="a\ud800b")])


async def test_calls_and_their_answers_are_the_templates() -> None:
    call = ToolCall(id="c1", name="now", arguments='{"zone": "CET"}')
    turns = [
        Message(role="developer", content="Be brief."),
        Message(role="assistant", thinking="Hm.", tool_calls=(call,)),
        Message(role="tool", content="Noon.", tool_call_id="c1", name="now"),
    ]
    told = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}"
    async with chat_of(told) as chat:
        system, called, answered = map(json.loads, (await chat.render(turns)).splitlines())
    assert system == {"role": "system", "content": "Be brief."}
    function = {"name": "now", "arguments": {"zone": "CET"}}
    calls = [{"id": "c1", "type": "function", "function": function}]
    assert called == {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": calls}
    assert answered == {"role": "tool", "content": "Noon.", "tool_call_id": "c1", "name": "now"}
    joins = "{% for m in messages if m.tool_calls %}{{ '>' + m.tool_calls[0].function.arguments }}{% endfor %}"
    async with chat_of(joins) as chat:
        assert await chat.render(turns) == '>{"zone": "CET"}'
