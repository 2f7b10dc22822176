"""Which slices the matrices and vectors of a feed-forward consist of: of a dense one, of an expert, of the router."""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.feed_forward_spec import FeedForwardSpec
from node.slices.sides import Side, Sides
from node.slices.tensor_source import TensorSlice

Slices = tuple[TensorSlice, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedForwardSlices:
    """Those of one that is dense, or of an expert; gate and up are one matrix.

    What every rank adds to a sum is not a bias of the sum: only the first rank has that of `down`.
    """

    gate_up: Slices
    gate_up_bias: Slices
    down: Slices
    down_bias: Slices

    @classmethod
    def of(cls, prefix: str, width: Side, hidden: Side, *, bias: bool, is_first: bool) -> FeedForwardSlices:
        """Of tensors called `prefix` and then gate, up and down, of that width."""
        return cls(
            gate_up=tuple(TensorSlice(name=prefix + name, rows=width, columns=hidden) for name in ("gate", "up")),
            gate_up_bias=tuple(
                TensorSlice(name=prefix + name, rows=width) for name in ("gate_bias", "up_bias") if bias
            ),
            down=(TensorSlice(name=f"{prefix}down", rows=hidden, columns=width),),
            down_bias=(TensorSlice(name=f"{prefix}down_bias", rows=hidden),) if bias and is_first else (),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BranchNormSlices:
    """Those of the norms of experts that are apart; the shared one reads through the layer's norm."""

    router: Slices
    before: Slices
    after: Slices
    shared_after: Slices


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertsSlices:
    """Those of all experts and of the shared one; the last row of the router is for the gate of that, if it has any."""

    router: Slices
    router_bias: Slices
    choice_bias: Slices
    expert_scales: Slices
    experts: tuple[FeedForwardSlices, ...]
    shared: FeedForwardSlices | None
    norms: BranchNormSlices | None  # None: they are not apart


def feed_forward_slices(
    spec: FeedForwardSpec,
    sides: Sides,
    prefix: str,
    *,
    is_first: bool,
    has_whole_experts: bool = False,
    deals_shared: bool = False,
) -> FeedForwardSlices | ExpertsSlices:
    """Those of a layer whose tensors are called `prefix` and so on."""
    experts, hidden, bias = spec.experts, sides.hidden, spec.bias
    if experts is None:
        return FeedForwardSlices.of(prefix, sides.feed_forward, hidden, bias=bias, is_first=is_first)

    def vector(name: str, rows: Side = sides.experts, *, wanted: bool = True) -> Slices:
        return (TensorSlice(name=prefix + name, rows=rows),) if wanted else ()

    has_bias = is_first or has_whole_experts
    chosen = tuple(
        FeedForwardSlices.of(f"{prefix}experts.{expert}.", sides.feed_forward, hidden, bias=bias, is_first=has_bias)
        for expert in range(experts.count)
    )
    shared = None
    if experts.shared_intermediate:
        has_bias = is_first or deals_shared  # as whoever computes a row alone
        shared = FeedForwardSlices.of(f"{prefix}shared.", sides.shared, hidden, bias=bias, is_first=has_bias)
    logits = [("router", sides.experts), ("shared_logit", sides.one)][: 1 + experts.shared_gate]
    return ExpertsSlices(
        router=tuple(TensorSlice(name=prefix + name, rows=rows, columns=hidden) for name, rows in logits),
        router_bias=vector("router_bias", wanted=experts.router_bias),
        choice_bias=vector("choice_bias", wanted=experts.choice_bias),
        expert_scales=vector("expert_scales", wanted=experts.expert_scales),
        experts=chosen,
        shared=shared,
        norms=BranchNormSlices(
            router=vector("router_norm", hidden),
            before=vector("experts_norm", hidden),
            after=vector("experts_after_norm", hidden),
            shared_after=vector("shared_after_norm", hidden),
        )
        if experts.apart
        else None,
    )
