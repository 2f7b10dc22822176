"""How long an answer may become: no sequence is accepted that could not have all its pages if it were alone."""

from __future__ import annotations

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.sequence import Sequence, SequenceRequest
from layerline.errors import PlanDoesNotFitError, PromptTooLongError, RequestError


def most_tokens(request: SequenceRequest, capacity: Capacity) -> int:
    """The most tokens that the answer may have, at least 1.

    PromptTooLongError if the context leaves no room for one; RequestError if the pages could never hold it.
    """
    prompt_tokens = len(request.token_ids)
    if prompt_tokens == 0:
        raise RequestError("The prompt is empty.", remedy="Give at least one token.")
    if prompt_tokens >= capacity.context_tokens:
        raise PromptTooLongError(
            f"The prompt has {prompt_tokens} tokens; the context holds {capacity.context_tokens}, prompt and answer.",
            remedy="Shorten the prompt, or ask for a longer context (--context), if the model knows one.",
        )
    most = min(request.max_tokens or capacity.context_tokens, capacity.context_tokens - prompt_tokens)
    if capacity.pages >= capacity.sequence_pages:
        return most
    fitting = capacity.tokens - prompt_tokens + 1
    if fitting < (most if request.max_tokens else 1):
        raise _never_fits(request, most if request.max_tokens else 1, capacity)
    return min(most, fitting)


def most_tokens_again(sequence: Sequence, capacity: Capacity) -> int:
    """The most tokens of an answer that was begun in another pipeline, or waited for it.

    It gets here as many as it was to have there, or PlanDoesNotFitError is raised. Only an answer without a limit may
    become shorter, if there is room for a further token.
    """
    request = sequence.request
    needed = sequence.max_tokens if request.max_tokens else sequence.generated + 1
    try:
        most = most_tokens(request, capacity)
    except RequestError:
        most = 0
    if most < needed:
        whole_context = capacity.pages >= capacity.sequence_pages
        held_tokens = capacity.context_tokens if whole_context else capacity.tokens + 1
        raise PlanDoesNotFitError(
            f"The answer was begun in a pipeline that is lost, and needs a context of "
            f"{len(request.token_ids) + needed} tokens; the nodes there are now hold {held_tokens}.",
            remedy="Ask for fewer tokens, shorten the prompt, or give the nodes more memory.",
        )
    return min(most, sequence.max_tokens)


def _never_fits(request: SequenceRequest, most: int, capacity: Capacity) -> RequestError:
    return RequestError(
        f"The request needs memory for {len(request.token_ids)} tokens of prompt and {most} of answer; "
        f"the nodes have memory for {capacity.tokens}.",
        remedy="Ask for fewer tokens, shorten the prompt, or give the nodes more memory.",
    )
