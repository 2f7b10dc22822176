"""What a plan can be made of: the nodes and their device groups, for one problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from coordinator.planning.device_group import DeviceGroup
from coordinator.planning.device_groups import groups_of, most_like_devices, weight_times
from coordinator.planning.problem import Problem
from coordinator.planning.room import Priced, preferred, useful_pages
from layerline.errors import PlanInvalidError
from layerline.facts import NodeFacts
from layerline.models.model_parts import model_parts


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """The nodes of the problem in order, and the groups of each, fastest first; nodes that are not ready have none."""

    problem: Problem
    groups: tuple[tuple[DeviceGroup, ...], ...]

    @classmethod
    def of(cls, problem: Problem) -> Candidates:
        """Those of all nodes of `problem`."""
        times = weight_times(problem)
        return cls(problem=problem, groups=tuple(groups_of(problem, node, times) for node in problem.nodes))

    @property
    def all_groups(self) -> Iterator[DeviceGroup]:
        """Every group of every node."""
        return (group for own in self.groups for group in own)

    def as_asked(self) -> Candidates:
        """The same without groups of fewer devices than stages are to span, or that have experts in another way."""
        request = self.problem.request

        def does(group: DeviceGroup) -> bool:
            return (
                (not request.tensor_parallel or len(group.ranks) == request.tensor_parallel)
                and (request.experts != "spread" or group.sharing.spreads)
                and (request.expert_device != "cpu" or group.beside is not None)
            )

        return replace(self, groups=tuple(tuple(group for group in own if does(group)) for own in self.groups))

    @property
    def tried(self) -> tuple[Candidates, ...]:
        """Those that do what is asked for, and then all, since not every stage need do it."""
        asked = self.as_asked()
        return (self,) if asked.groups == self.groups else (asked, self)

    def groups_of(self, node: NodeFacts) -> tuple[DeviceGroup, ...]:
        """The groups of one of the nodes."""
        return self.groups[self.problem.nodes.index(node)]

    def offered_bytes(self, node: NodeFacts) -> int:
        """The most that `node` offers to one stage."""
        return max((group.budget_bytes for group in self.groups_of(node)), default=0)

    def helps(self, node: NodeFacts, pages: int) -> bool:
        """Whether `node` can hold a layer between two others."""
        return any(group.helps(pages) for group in self.groups_of(node))

    def least_bytes(self, node: NodeFacts, pages: int) -> int:
        """What `node` must offer to hold the smallest layer."""
        ways = {group.way for group in self.groups_of(node)}
        return min(self.problem.footprint_of(way).least_bytes(pages) for way in ways)

    def group_for(self, node: NodeFacts, layers: range, pages: int) -> DeviceGroup | None:
        """The fastest group of `node` that holds the stage."""
        fitting = [group for group in self.groups_of(node) if group.holds(layers, pages)]
        return min(fitting, key=lambda group: group.mean_layer_s, default=None)

    def group_for_all(self, pages: int) -> DeviceGroup | None:
        """The group of any node that holds the whole model: the fastest, or one with much more room for KV pages."""
        layers, useful = self.problem.layers, useful_pages(pages)
        found = preferred(
            Priced(choice=group, cost=group.time_s(layers), pages=min(useful, group.most_pages(layers)))
            for group in self.all_groups
            if group.holds(layers, pages)
        )
        return found.choice if found else None


def check_experts(candidates: Candidates) -> None:
    """PlanInvalidError if what is asked of experts cannot be done on any node."""
    request = candidates.problem.request
    if request.experts == "spread" and not any(group.sharing.spreads for group in candidates.all_groups):
        raise PlanInvalidError(
            "--experts spread needs a node with several devices of one kind, and there is none.",
            remedy="Leave it out, or start a node with more, as in --device cpu:1,cpu:1.",
        )
    if request.expert_device == "cpu" and not any(group.beside for group in candidates.all_groups):
        raise PlanInvalidError(
            "--expert-device cpu needs a node that offers a GPU and a CPU with kernels, and there is none.",
            remedy="Leave it out, or give the node both, as in --device cuda:0,cpu.",
        )


def check_degree(problem: Problem, nodes: Sequence[NodeFacts]) -> None:
    """PlanInvalidError if no stage of the model on `nodes` can span as many devices as are asked for."""
    asked = problem.request.tensor_parallel
    if asked < 2:
        return
    model_parts(problem.spec, asked)
    ready = [node for node in nodes if node.state == "ready"]
    most = max(map(most_like_devices, ready), default=0)
    if most < asked:
        counts = ", ".join(f"{node.name} {most_like_devices(node)}" for node in ready) or "none is ready"
        raise PlanInvalidError(
            f"--tensor-parallel {asked} needs a node with {asked} devices of one kind, and there are fewer: {counts}.",
            remedy=f"Ask for at most {max(1, most)}, or start a node with more, as in --device cpu:1,cpu:1.",
        )
