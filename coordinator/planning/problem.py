"""What is to be planned: a model, what the user asks for, and the nodes that there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from coordinator.planning.footprint import PAGE_TOKENS, Footprint, rows_of_a_step
from layerline.errors import UsageError
from layerline.facts import NodeFacts
from layerline.models.card import ModelCard
from layerline.models.model_parts import ModelPart
from layerline.models.sizes import ModelSizes, most_sequence_pages
from layerline.models.spec import ModelSpec
from layerline.plan import PlanRequest

DEFAULT_CONTEXT_TOKENS = 8192
LEAST_CONTEXT_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Place the model of `card` on `nodes` as `request` asks. Make it with `of`.

    `notes` are sentences that belong into the plan, as on each node that is known but not among `nodes`.
    """

    card: ModelCard
    request: PlanRequest
    nodes: tuple[NodeFacts, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, card: ModelCard, request: PlanRequest, nodes: Iterable[NodeFacts], notes: Iterable[str] = ()
    ) -> Problem:
        """The problem with the nodes by name and id, so that equal worlds give equal plans."""
        ordered = tuple(sorted(nodes, key=lambda node: (node.name, node.node_id)))
        return cls(card=card, request=request.resolved(), nodes=ordered, notes=tuple(notes))

    @property
    def spec(self) -> ModelSpec:
        """The model's description."""
        return self.card.spec

    @cached_property
    def footprint(self) -> Footprint:
        """The memory of the model's stages as they are to be held."""
        sizes = ModelSizes.of(self.card, dtype=self.request.dtype, kv_dtype=self.request.kv_dtype)
        return Footprint(sizes, rows_of_a_step(self.spec, self.request.dtype))

    @cached_property
    def _footprints(self) -> dict[ModelPart, Footprint]:
        return {}

    def rank_footprint(self, part: ModelPart) -> Footprint:
        """The same of the part that a rank has."""
        if part not in self._footprints:
            self._footprints[part] = self.footprint.of_rank(part)
        return self._footprints[part]

    def pages(self, context_tokens: int) -> int:
        """The KV pages of one sequence."""
        return most_sequence_pages(self.spec.reach_tokens, context_tokens, self.footprint.max_rows, PAGE_TOKENS)

    @cached_property
    def contexts(self) -> tuple[int, ...]:
        """The contexts to try, best first: only the one asked for, or ever half as much while memory is short.

        Raises UsageError if the one asked for cannot be.
        """
        asked, most = self.request.context_tokens, self.spec.context_tokens
        if asked:
            _check_context(asked, most)
            return (asked,)
        choices = [min(most, DEFAULT_CONTEXT_TOKENS)]
        while choices[-1] // 2 >= LEAST_CONTEXT_TOKENS:
            choices.append(choices[-1] // 2)
        return tuple(choices)


def _check_context(asked_tokens: int, most_tokens: int) -> None:
    if asked_tokens < 0:
        raise UsageError(f"A context of {asked_tokens} tokens cannot be.", remedy="Give a positive --context.")
    if asked_tokens > most_tokens:
        raise UsageError(
            f"A context of {asked_tokens} tokens is more than the {most_tokens} the model was trained for.",
            remedy=f"Give a --context of at most {most_tokens}.",
        )
