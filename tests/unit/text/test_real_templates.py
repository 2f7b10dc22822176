"""The templates of some seventy real models, rendered as `transformers` renders them; needs the cache."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.text.template import render_answer
from tests.fakes.vocabularies import vocabularies
from tests.unit.text.real_templates import REAL_TEMPLATES

pytestmark = pytest.mark.more

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "A city"}},
    "required": ["city"],
}
FUNCTION = {"name": "get_weather", "description": "Weather <now> & “then”.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALL = {"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln"}}}
USER = {"role": "user", "content": "How warm is it?"}
ANSWER = {"role": "assistant", "content": "3 degrees"}
CALLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": '{"temp": 3}'}
REASONED = {"role": "assistant", "content": "4", "reasoning_content": "2 and 2"}
CHATS: dict[str, dict[str, Any]] = {
    "plain": {"messages": [USER]},
    "turns": {"messages": [USER, ANSWER, USER]},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, USER]},
    "tools": {"messages": [USER], "tools": TOOLS},
    "results": {"messages": [USER, CALLS, RESULT], "tools": TOOLS},
    "reasoning": {"messages": [USER, REASONED, USER]},
    "prefix": {"messages": [USER, ANSWER], "add_generation_prompt": False},
}
SWITCHES: dict[str, tuple[object, object]] = {
    "enable_thinking": (True, False),
    "thinking": (True, False),
    "reasoning_effort": ("low", "high"),
}


def rendered(template: str, chat: dict[str, Any], **variables: object) -> str | None:
    """The text, or None where the template refuses the chat or fails on it."""
    request = {"tools": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", **chat}
    answer = render_answer({"template": template, "variables": variables, **request})
    assert answer.get("error") in (None, "refused", "failed", "unsafe")
    return answer.get("text")


def by_transformers(template: str, chat: dict[str, Any], **variables: object) -> str | None:
    from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415

    options = {name: value for name, value in chat.items() if name != "messages"}
    try:
        made = render_jinja_template(
            [chat["messages"]],
            chat_template=template,
            bos_token="<s>",
            eos_token="</s>",
            **{"add_generation_prompt": True, **options, **variables},
        )
    except Exception:  # noqa: BLE001  # a template can raise whatever Python can
        return None
    return str(made[0][0])


def test_every_template_is_in_the_list() -> None:
    found = {path.stem for path in (vocabularies() / "templates").glob("*.jinja")}
    assert found == set(REAL_TEMPLATES)
    assert len(found) == 68


@pytest.mark.parametrize("name", REAL_TEMPLATES)
def test_a_real_template_accepts_what_it_is_known_to_and_renders_as_transformers_does(name: str) -> None:
    template = (vocabularies() / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    switches, refused = REAL_TEMPLATES[name]
    texts = {kind: rendered(template, chat) for kind, chat in CHATS.items()}
    assert texts == {kind: by_transformers(template, chat) for kind, chat in CHATS.items()}
    assert [kind for kind, text in texts.items() if text is None] == refused.split()
    changing = []
    for switch, values in SWITCHES.items():
        switched = [rendered(template, CHATS["plain"], **{switch: value}) for value in values]
        assert switched == [by_transformers(template, CHATS["plain"], **{switch: value}) for value in values]
        changing += [switch] * (switched[0] != switched[1])
    assert changing == switches.split()
