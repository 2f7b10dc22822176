"""How long a sequence may be: what was asked for, or as much as there is memory for."""

from __future__ import annotations

from layerline.errors import UsageError
from layerline.models.spec import ModelSpec

DEFAULT_CONTEXT_TOKENS = 8192
LEAST_CONTEXT_TOKENS = 512


def context_choices(spec: ModelSpec, asked_tokens: int) -> tuple[int, ...]:
    """The contexts to try, best first: only the one asked for, or ever half as much while memory is short."""
    if asked_tokens:
        return (_checked(spec, asked_tokens),)
    choices = [min(spec.context_tokens, DEFAULT_CONTEXT_TOKENS)]
    while choices[-1] // 2 >= LEAST_CONTEXT_TOKENS:
        choices.append(choices[-1] // 2)
    return tuple(choices)


def _checked(spec: ModelSpec, asked_tokens: int) -> int:
    if asked_tokens < 0:
        raise UsageError(f"A context of {asked_tokens} tokens cannot be.", remedy="Give a positive --context.")
    if asked_tokens > spec.context_tokens:
        raise UsageError(
            f"A context of {asked_tokens} tokens is more than the {spec.context_tokens} the model was trained for.",
            remedy=f"Give a --context of at most {spec.context_tokens}.",
        )
    return asked_tokens
