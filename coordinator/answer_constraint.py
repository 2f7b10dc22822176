"""What a request's answer is held to: its structure, or calls to tools as they must be."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.scheduling.constraint import Constraint
from coordinator.text.answer_forms.form import AnswerForm
from coordinator.text.model_text import ModelText
from coordinator.text.structure.after_thoughts import AfterThoughts, Thoughts
from coordinator.text.structure.at_trigger import AtTrigger, Trigger
from coordinator.text.structure.tool_grammars import ToolGrammars
from layerline.errors import RequestError
from layerline.requests import GenerateRequest, Structure


async def constraint_of(
    request: GenerateRequest, text: ModelText, form: AnswerForm | None, *, thinks: bool
) -> Constraint | None:
    """The constraint for a request; None for a free answer. RequestError for what cannot be held to.

    `thinks` says that the prompt has opened the model's thoughts, which are free.
    """
    structure, rules = request.structure, request.tools
    calls = form is not None and rules is not None and rules.choice != "none"
    if structure and calls and rules and rules.choice == "required":
        raise RequestError("An answer cannot have a structure and be a call to a tool that is required.")
    markers = text.tokens.markers(form.markers) if form else {}

    def text_of(token_id: int) -> bytes:
        return markers.get(token_id) or text.tokens.of(token_id)

    if structure is None and calls and form and rules:
        names = {name.decode(): id_ for id_, name in markers.items()}
        grammars = ToolGrammars(form, rules, names.get)
        if rules.choice == "required":
            structure = Structure(kind="grammar", text=grammars.required())
        elif any(tool.strict for tool in rules.tools) and grammars.trigger:
            inner = await text.grammars.constraint(Structure(kind="grammar", text=grammars.behind_trigger()))
            return AtTrigger(inner, Trigger(text=grammars.trigger.encode(), text_of=text_of))
    if structure is None:
        return None
    if request.min_tokens or request.ignore_eos:
        raise RequestError("min_tokens and ignore_eos do not go with a structure, which says where answers end.")
    constraint = await text.grammars.constraint(structure)
    if form is None or form.thoughts is None:
        return constraint
    return AfterThoughts(constraint, _thoughts(form.thoughts, text, text_of, has_begun=thinks))


def _thoughts(
    markers: tuple[str, str], text: ModelText, text_of: Callable[[int], bytes], *, has_begun: bool
) -> Thoughts:
    begin, end = markers
    return Thoughts(
        begin_id=text.tokens.id_of(begin.encode(), text.tokens.markers(markers)),
        end=end.encode(),
        text_of=text_of,
        has_begun=has_begun,
        vocabulary=len(text.tokens.ends),
    )
