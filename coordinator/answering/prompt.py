"""From a client's request to what the engine takes: token ids, and how to go on from them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.answering.answer_constraint import constraint_of
from coordinator.scheduling.constraint import Constraint
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.text.answer_forms.form import AnswerForm
from coordinator.text.model_text import ModelText
from coordinator.text.token_text import TokenText
from layerline.checks import require
from layerline.errors import RequestError
from layerline.frames import Sampling
from layerline.requests import GenerateRequest

OWN_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
MAX_VARIABLES_BYTES = 64 << 10
TAIL_TOKENS = 24  # of a prompt, in which a marker is looked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A request as the engine takes it: token ids, the sampling with its seed, and what ends it.

    The answer to a chat has a `form`; `thinks` says that the prompt has opened the model's thoughts.
    """

    request: GenerateRequest
    token_ids: tuple[int, ...]
    sampling: Sampling
    stop_ids: frozenset[int]
    form: AnswerForm | None = None
    thinks: bool = False
    constraint: Constraint | None = None

    def sequence(self, number: int) -> SequenceRequest:
        """The request under the engine's number."""
        return SequenceRequest(
            sequence=number,
            token_ids=self.token_ids,
            max_tokens=self.request.max_tokens,
            sampling=self.sampling,
            stop_ids=self.stop_ids,
            min_tokens=self.request.min_tokens,
            constraint=self.constraint,
        )


async def prompt_ids(request: GenerateRequest, text: ModelText, *, context_tokens: int) -> tuple[int, ...]:
    """The ids of a request's prompt; RequestError for what cannot be rendered or tokenised."""
    if request.messages is not None:
        rules = request.tools
        return await text.chat_ids(
            request.messages,
            context_tokens=context_tokens,
            tools=rules.tools if rules and rules.choice != "none" else (),
            variables=_variables(request.template_variables),
        )
    if request.prompt is not None:
        return await text.prompt_ids(request.prompt, context_tokens=context_tokens)
    assert request.token_ids is not None
    text.check_ids(request.token_ids, context_tokens=context_tokens)
    return request.token_ids


async def read_prompt(
    request: GenerateRequest, text: ModelText, *, context_tokens: int, stop_ids: frozenset[int]
) -> Prompt:
    """The prompt of a request; RequestError for what cannot be rendered, tokenised or drawn with."""
    form = text.answer_form(request.tools) if request.messages is not None else None
    token_ids = await prompt_ids(request, text, context_tokens=context_tokens)
    if strange := [each.token_id for each in request.logit_bias if each.token_id >= len(text.tokens.ends)]:
        raise RequestError(f"logit_bias has token {strange[0]}; the model's are 0 to {len(text.tokens.ends) - 1}.")
    seed = secrets.randbits(63) if request.seed is None else request.seed
    thinks = form is not None and _opens_thoughts(form, text.tokens, token_ids)
    constraint = await constraint_of(request, text, form, thinks=thinks)
    return Prompt(
        request=request,
        token_ids=token_ids,
        sampling=Sampling.of(
            request.sampling,
            seed=seed,
            bias_ids=tuple(each.token_id for each in request.logit_bias),
            biases=tuple(each.bias for each in request.logit_bias),
            log_probabilities=request.log_probabilities,
        ),
        stop_ids=frozenset() if request.ignore_eos else stop_ids,
        form=form,
        thinks=thinks,
        constraint=constraint,
    )


def _opens_thoughts(form: AnswerForm, tokens: TokenText, ids: Sequence[int]) -> bool:
    """Whether the prompt ends with the marker that thoughts begin with."""
    if form.thoughts is None:
        return False
    markers = tokens.markers(form.markers)
    end = b"".join(markers.get(id_) or tokens.of(id_) for id_ in ids[-TAIL_TOKENS:])
    return end.rstrip().endswith(form.thoughts[0].encode())


def _variables(text: str) -> dict[str, Any]:
    """The switches of a template, out of JSON; RequestError for what is no object."""
    if not text:
        return {}
    try:
        require(len(text.encode()) <= MAX_VARIABLES_BYTES, f"they have over {MAX_VARIABLES_BYTES >> 10} KiB")
        found = json.loads(text)
        require(isinstance(found, dict), "they are no JSON object")
        own = sorted(found.keys() & OWN_VARIABLES)
        require(not own, f"{', '.join(own)} is what the coordinator tells the template itself")
    except (ValueError, RecursionError) as error:
        raise RequestError(f"The variables of the chat template cannot be read: {error}.") from None
    return dict(found)
