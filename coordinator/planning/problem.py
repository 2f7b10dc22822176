"""What is to be planned: a model, what the user asks for, and the nodes that there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from coordinator.planning.footprint import PAGE_TOKENS, Footprint, rows_of_a_step
from coordinator.planning.ways import Way, computing_of, has_kernels, multiplies_stored, way_of
from layerline.errors import PlanInvalidError, UsageError
from layerline.facts import DeviceFacts, NodeFacts
from layerline.models.card import ModelCard
from layerline.models.held import is_in_blocks
from layerline.models.kv_sizes import most_sequence_pages
from layerline.models.model_parts import ModelPart
from layerline.models.sizes import ModelSizes
from layerline.models.spec import ModelSpec
from layerline.plan import Computing
from layerline.plan_request import PlanRequest

DEFAULT_CONTEXT_TOKENS = 8192
LEAST_CONTEXT_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Place the model of `card` on `nodes` as `request` asks. Make it with `of`.

    `notes` are sentences that belong into the plan, as on each node that is known but not among `nodes`.
    """

    card: ModelCard
    request: PlanRequest
    asked: PlanRequest  # before all of it was said
    computing: Computing
    nodes: tuple[NodeFacts, ...]
    notes: tuple[str, ...]
    uses_expert_device: bool = False  # experts may lie on a CPU beside the devices of a stage

    @classmethod
    def of(
        cls,
        card: ModelCard,
        request: PlanRequest,
        nodes: Iterable[NodeFacts],
        notes: Iterable[str] = (),
        *,
        computing: Computing | None = None,
    ) -> Problem:
        """The problem with the nodes by name and id, so that equal worlds give equal plans.

        `computing` says who computes; None: every device as it can. Raises PlanInvalidError if what is asked for
        cannot be had in that way.
        """
        ordered = tuple(sorted(nodes, key=lambda node: (node.name, node.node_id)))
        computing = computing or computing_of(ordered)
        return cls(
            card=card,
            request=_resolved(request, ordered, computing),
            asked=request,
            computing=computing,
            nodes=ordered,
            notes=tuple(notes),
        )

    @property
    def spec(self) -> ModelSpec:
        """The model's description."""
        return self.card.spec

    def way_of(self, device: DeviceFacts) -> Way | None:
        """How a device computes; None if it is not to."""
        return way_of(device, self.asked, self.request, self.computing, in_blocks=self._in_blocks)

    def multiplies_fast(self, device: DeviceFacts, way: Way) -> bool:
        """Whether a device that computes in that way need not unpack weights in memory."""
        in_blocks = self._in_blocks or way.weights != "stored"
        return not self.footprint_of(way).sizes.unpacks or multiplies_stored(device, way, in_blocks=in_blocks)

    @cached_property
    def _in_blocks(self) -> bool:
        matrices = {tensor.storage for tensor in self.card.tensors if len(tensor.shape) > 1}
        return all(map(is_in_blocks, matrices))

    @cached_property
    def max_rows(self) -> int:
        """The most rows of a step."""
        return rows_of_a_step(self.spec, self.request.dtype)

    @property
    def layers(self) -> range:
        """All layers of the model."""
        return range(self.spec.layers)

    @cached_property
    def ways(self) -> tuple[Way, ...]:
        """The ways in which devices of ready nodes compute; at least one."""
        devices = (device for node in self.nodes if node.state == "ready" for device in node.devices)
        found = dict.fromkeys(way for device in devices if (way := self.way_of(device)))
        return tuple(found) or (Way(self.request.weights, self.request.precision),)

    @property
    def footprint(self) -> Footprint:
        """The memory of the model's stages where it is least."""
        return min(map(self.footprint_of, self.ways), key=lambda each: each.weights_bytes(self.layers))

    @property
    def largest(self) -> Footprint:
        """The same where it is most."""
        return max(map(self.footprint_of, self.ways), key=lambda each: each.weights_bytes(self.layers))

    @cached_property
    def _footprints(self) -> dict[tuple[Way, ModelPart | None], Footprint]:
        return {}

    def footprint_of(self, way: Way, part: ModelPart | None = None) -> Footprint:
        """The memory of the model's stages, or of the part that a rank has, as they are held in one way."""
        if (way, part) not in self._footprints:
            if part is None:
                sizes = ModelSizes.of(self.card, way.form(self.request.dtype), self.request.kv_dtype)
                self._footprints[way, part] = Footprint(sizes, self.max_rows)
            else:
                self._footprints[way, part] = self.footprint_of(way).of_rank(part)
        return self._footprints[way, part]

    def pages(self, context_tokens: int) -> int:
        """The KV pages of one sequence."""
        return most_sequence_pages(self.spec.reach_tokens, context_tokens, self.max_rows, PAGE_TOKENS)

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


def _resolved(request: PlanRequest, nodes: Sequence[NodeFacts], computing: Computing) -> PlanRequest:
    """What is asked for, with all of it said."""
    try:
        return request.resolved(computing)
    except ValueError as error:
        lacking = [node.name for node in nodes if not all(map(has_kernels, node.devices))]
        words, without = str(error), ", ".join(lacking) or "these nodes"
        message = f"{words[:1].upper()}{words[1:]}, and not every device of {without} has kernels."
        asked = [f"--{name}" for name in ("weights", "precision") if getattr(request, name)]
        raise PlanInvalidError(message, remedy=f"Leave {' and '.join(asked)} out, or those nodes.") from error


def _check_context(asked_tokens: int, most_tokens: int) -> None:
    if asked_tokens < 0:
        raise UsageError(f"A context of {asked_tokens} tokens cannot be.", remedy="Give a positive --context.")
    if asked_tokens > most_tokens:
        raise UsageError(
            f"A context of {asked_tokens} tokens is more than the {most_tokens} the model was trained for.",
            remedy=f"Give a --context of at most {most_tokens}.",
        )
