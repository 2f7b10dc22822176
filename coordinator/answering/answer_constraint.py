"""What a request's answer is held to: its structure, or calls to tools as they must be."""

from __future__ import annotations

import re
from collections.abc import Callable

from coordinator.scheduling.constraint import Constraint
from coordinator.text.answer_forms import harmony
from coordinator.text.answer_forms.form import AnswerForm
from coordinator.text.model_text import ModelText
from coordinator.text.structure.after_thoughts import AfterThoughts, Thoughts
from coordinator.text.structure.at_trigger import AtTrigger, Trigger
from coordinator.text.structure.grammars import schema_text
from coordinator.text.structure.tool_grammars import ToolGrammars
from layerline.chat import ToolRules
from layerline.errors import RequestError
from layerline.requests import GenerateRequest, Structure


async def constraint_of(
    request: GenerateRequest, text: ModelText, form: AnswerForm | None, *, thinks: bool
) -> Constraint | None:
    """The constraint for a request; None for a free answer. RequestError for what cannot be held to.

    `thinks` says that the prompt has opened the model's thoughts, which are free.
    """
    structure, rules = request.structure, request.tools
    markers = text.tokens.markers(form.markers) if form else {}

    def text_of(token_id: int) -> bytes:
        return markers.get(token_id) or text.tokens.of(token_id)

    alone = rules is None or rules.choice == "none"
    if form and rules and not alone:
        names = {name.decode(): id_ for id_, name in markers.items()}
        grammars = ToolGrammars(form, rules, names.get)
        if grammars.trigger and structure is None and rules.choice == "auto":
            return await _at_trigger(rules, grammars, text, text_of)
        structure = _with_calls(structure, rules, grammars)
    if structure is None:
        return None
    if request.min_tokens or request.ignore_eos:
        raise RequestError("min_tokens and ignore_eos do not go with a structure, which says where answers end.")
    constraint = await text.grammars.constraint(structure)
    # A grammar of calls has channels in itself.
    thoughts = _thoughts(form, text, text_of, has_begun=thinks) if form and (not form.harmony or alone) else None
    return AfterThoughts(constraint, thoughts) if thoughts else constraint


def _with_calls(structure: Structure | None, rules: ToolRules, grammars: ToolGrammars) -> Structure | None:
    """The structure of an answer that may, or must, call tools."""
    if rules.choice == "required":
        if structure:
            raise RequestError("An answer cannot have a structure and be a call to a tool that is required.")
        return Structure(kind="grammar", text=grammars.required())
    if structure is None:
        strict = any(tool.strict for tool in rules.tools)
        return Structure(kind="grammar", text=grammars.not_required()) if strict else None
    if structure.kind not in ("json_object", "json_schema"):
        raise RequestError("Beside tools the structure of an answer is JSON; leave the tools out, or set choice none.")
    return Structure(kind="grammar", text=grammars.or_json(schema_text(structure)))


async def _at_trigger(
    rules: ToolRules, grammars: ToolGrammars, text: ModelText, text_of: Callable[[int], bytes]
) -> Constraint | None:
    """The constraint for calls wherever they begin; None unless a tool is strict."""
    if not any(tool.strict for tool in rules.tools):
        return None
    inner = await text.grammars.constraint(Structure(kind="grammar", text=grammars.behind_trigger()))
    trigger = Trigger(text=grammars.trigger.encode(), text_of=text_of, overrunning=text.tokens.overrunning)
    return AtTrigger(inner, trigger)


def _thoughts(
    form: AnswerForm, text: ModelText, text_of: Callable[[int], bytes], *, has_begun: bool
) -> Thoughts | None:
    """What comes before the answer's text; None if nothing may."""
    if form.harmony:  # channels that may be thoughts, and then the one of the answer
        begin_id, end, has_begun = None, harmony.FINAL, True
    elif form.thoughts:
        begin, closing = form.thoughts
        begin_id = text.tokens.id_of(begin.encode(), text.tokens.markers(form.thoughts))
        end = re.compile(re.escape(closing.encode()))
    else:
        return None
    return Thoughts(
        begin_id=begin_id,
        end=end,
        stop_ids=text.eos_ids,
        text_of=text_of,
        has_begun=has_begun,
        vocabulary=len(text.tokens.ends),
    )
