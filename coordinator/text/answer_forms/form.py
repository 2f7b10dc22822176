"""Which form a model's answers have, told by its chat template."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.text.answer_forms import harmony
from coordinator.text.answer_forms.formats import FORMATS, ToolFormat
from layerline.chat import ToolRules
from layerline.errors import RequestError

THOUGHTS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
)
"""Markers round thoughts."""

NAMES = tuple(sorted([*(each.name for each in FORMATS), harmony.NAME]))


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerForm:
    """`thoughts` are the markers round what is thought before an answer, `tools` how calls are written.

    In a `harmony` answer both are on channels. Without `tools` nothing is read as a call.
    """

    thoughts: tuple[str, str] | None = None
    tools: ToolFormat | None = None
    harmony: bool = False

    @classmethod
    def of(cls, template: str, rules: ToolRules | None) -> AnswerForm:
        """The form of answers to chats by `template`; RequestError for tools that it does not teach."""
        thoughts = next((pair for pair in THOUGHTS if pair[0] in template), None)
        if thoughts is None and "</think>" in template:
            thoughts = THOUGHTS[0]
        is_harmony = all(sign in template for sign in harmony.SIGNS)
        if rules is None or rules.choice == "none":
            return cls(thoughts=thoughts, harmony=is_harmony)
        if rules.format:
            is_harmony = rules.format == harmony.NAME
            return cls(thoughts=thoughts, tools=_named(rules.format), harmony=is_harmony)
        if is_harmony:
            return cls(harmony=True)
        if "tools" not in template:
            raise RequestError(
                "The chat template of this model knows no tools.",
                remedy="Leave tools out, or give the coordinator another template: --chat-template FILE.",
            )
        found = next((each for each in FORMATS if any(all(s in template for s in signs) for signs in each.signs)), None)
        if found is None:
            raise RequestError(
                "How this model writes calls to tools is not known of its chat template.",
                remedy=f"Name the format: {', '.join(NAMES)} (tool_format).",
            )
        return cls(thoughts=thoughts, tools=found)

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of control tokens that must be seen, though an answer does not show them."""
        if self.harmony:
            return harmony.MARKERS
        told = _MARKERS[self.tools.name] if self.tools else ()
        return (*(self.thoughts or ()), *told)


_MARKERS: dict[str, tuple[str, ...]] = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "qwen3_coder": ("<tool_call>", "</tool_call>"),
    "glm": ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    "deepseek": (
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
        "<｜tool▁sep｜>",
    ),
    "kimi": (
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
        *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    "lfm2": ("<|tool_call_start|>", "<|tool_call_end|>"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    "llama3_json": ("<|python_tag|>",),
    "pythonic": (),
}


def _named(name: str) -> ToolFormat | None:
    if name not in NAMES:
        raise RequestError(f"There is no format of calls {name[:40]!r}.", remedy=f"There are {', '.join(NAMES)}.")
    return next((each for each in FORMATS if each.name == name), None)
