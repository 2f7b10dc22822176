"""Reading the experts of a GGUF file: what several families have in common.

Whether the weights of the chosen are made 1 in all is the architecture's own in llama.cpp: the family says it.
"""

from __future__ import annotations

from dataclasses import replace

from layerline.models.feed_forward_spec import Activation, ExpertsSpec, FeedForwardSpec, Scoring
from layerline.models.gguf_fields import GgufModel, feed_forward_from_gguf, layer_count_of_gguf

_GROUPS = ("expert_group_count", "expert_group_used_count")


_GATING: dict[Scoring, int] = {"softmax": 1, "sigmoid": 2, "softmax_of_chosen": 3}  # llama.cpp's numbers


def experts_from_gguf(
    gguf: GgufModel,
    *,
    scoring: Scoring = "softmax",
    normalised: bool = False,
    activation: Activation = "silu",
    in_groups: bool = False,
) -> FeedForwardSpec:
    """A feed-forward of experts, in one group unless the family has them `in_groups`, without shared ones."""
    groups, chosen_groups = (max(gguf.integer(key, 1), 1) for key in _GROUPS)
    for key, count in zip(_GROUPS, (groups, chosen_groups), strict=True):
        if count > 1 and not in_groups:
            raise gguf.unsupported(f"groups of experts ({key})")
    said = gguf.integer("expert_gating_func", 0)
    if said not in (0, _GATING[scoring]):
        raise gguf.unsupported(f"experts scored in another way than the family's (expert_gating_func {said})")
    experts = ExpertsSpec(
        count=gguf.integer("expert_count"),
        chosen=gguf.integer("expert_used_count"),
        scoring=scoring,
        normalised=normalised,
        scale=gguf.number("expert_weights_scale", 1.0) if gguf.metadata.raw(gguf.key("expert_weights_scale")) else 1.0,
        router_bias="blk.0.ffn_gate_inp.bias" in gguf.tensors,
        groups=groups,
        chosen_groups=chosen_groups,
    )
    width = "expert_feed_forward_length"
    key = width if gguf.metadata.has(gguf.key(width)) else "feed_forward_length"
    return FeedForwardSpec(
        intermediate=gguf.integer(key),
        activation=activation,
        bias="blk.0.ffn_gate_exps.bias" in gguf.tensors,
        experts=experts,
    )


def with_shared(gguf: GgufModel, sparse: FeedForwardSpec, width: int) -> FeedForwardSpec:
    """The same beside a shared expert of that width, with a gate if the file has one."""
    assert sparse.experts is not None, "it is of experts"
    gate = any(f"blk.{layer}.ffn_gate_inp_shexp.weight" in gguf.tensors for layer in range(layer_count_of_gguf(gguf)))
    return replace(sparse, experts=replace(sparse.experts, shared_intermediate=width, shared_gate=gate))


def sparse_layers_of_gguf(gguf: GgufModel, sparse: FeedForwardSpec) -> list[FeedForwardSpec]:
    """Of each layer that one, or a dense one where the layer has no router."""
    return [
        sparse if f"blk.{layer}.ffn_gate_inp.weight" in gguf.tensors else feed_forward_from_gguf(gguf)
        for layer in range(layer_count_of_gguf(gguf))
    ]
