"""What is to be planned: a model, what the user asks for, and the nodes that there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from coordinator.planning.footprint import PAGE_TOKENS, Footprint, rows_of_a_step
from layerline.errors import PlanInvalidError, UsageError
from layerline.facts import NodeFacts
from layerline.models.card import ModelCard
from layerline.models.held import WeightForm
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
        cls,
        card: ModelCard,
        request: PlanRequest,
        nodes: Iterable[NodeFacts],
        notes: Iterable[str] = (),
        *,
        kernels: bool | None = None,
    ) -> Problem:
        """The problem with the nodes by name and id, so that equal worlds give equal plans.

        `kernels` says whether they are to compute or torch is; None: they are if all of these nodes have them. Raises
        PlanInvalidError if what is asked for cannot be had in that way.
        """
        ordered = tuple(sorted(nodes, key=lambda node: (node.name, node.node_id)))
        if kernels is None:
            kernels = bool(ordered) and all(map(has_kernels, ordered))
        return cls(card=card, request=_resolved(request, ordered, kernels=kernels), nodes=ordered, notes=tuple(notes))

    @property
    def spec(self) -> ModelSpec:
        """The model's description."""
        return self.card.spec

    @cached_property
    def footprint(self) -> Footprint:
        """The memory of the model's stages as they are to be held."""
        request = self.request
        form = WeightForm(dtype=request.dtype, weights=request.weights, kernels=bool(request.precision))
        sizes = ModelSizes.of(self.card, form, request.kv_dtype)
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


def has_kernels(node: NodeFacts) -> bool:
    """Whether every device of a node multiplies weights as they are stored."""
    return all(device.kernels for device in node.devices)


def _resolved(request: PlanRequest, nodes: Sequence[NodeFacts], *, kernels: bool) -> PlanRequest:
    """What is asked for, with all of it said."""
    try:
        return request.resolved(kernels=kernels)
    except ValueError as error:
        without = ", ".join(node.name for node in nodes if not has_kernels(node)) or "these nodes"
        words = str(error)
        message = f"{words[:1].upper()}{words[1:]}, and not every device of {without} has kernels."
        raise PlanInvalidError(message, remedy="Leave --weights and --precision out, or those nodes.") from error


def _check_context(asked_tokens: int, most_tokens: int) -> None:
    if asked_tokens < 0:
        raise UsageError(f"A context of {asked_tokens} tokens cannot be.", remedy="Give a positive --context.")
    if asked_tokens > most_tokens:
        raise UsageError(
            f"A context of {asked_tokens} tokens is more than the {most_tokens} the model was trained for.",
            remedy=f"Give a --context of at most {most_tokens}.",
        )
