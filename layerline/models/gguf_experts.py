"""Reading the experts of a GGUF file: what several families have in common.

Whether the weights of the chosen are made 1 in all is the architecture's own in llama.cpp: the family says it.
"""

from __future__ import annotations

from dataclasses import replace

from layerline.models.feed_forward_spec import Activation, ExpertsSpec, FeedForwardSpec, Scoring
from layerline.models.gguf_fields import GgufModel, feed_forward_from_gguf, layer_count_of_gguf
from layerline.models.spec import LayerSpec

_GROUPS = ("expert_group_count", "expert_group_used_count")


_GATING: dict[Scoring, int] = {
    "softmax": 1,
    "sigmoid": 2,
    "sigmoid_of_chosen": 2,
    "softmax_of_chosen": 3,
}  # llama.cpp's numbers


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
    experts = ExpertsSpec(
        count=gguf.integer("expert_count"),
        chosen=gguf.integer("expert_used_count"),
        scoring=scoring_from_gguf(gguf, scoring),
        normalised=normalised,
        scale=gguf.number("expert_weights_scale", 1.0) if gguf.metadata.raw(gguf.key("expert_weights_scale")) else 1.0,
        router_bias="blk.0.ffn_gate_inp.bias" in gguf.tensors,
        choice_bias=any(f"blk.{layer}.exp_probs_b.bias" in gguf.tensors for layer in range(layer_count_of_gguf(gguf))),
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


def scoring_from_gguf(gguf: GgufModel, *known: Scoring) -> Scoring:
    """How a file has its experts scored: one of those that the family has, the first if it does not say."""
    said = gguf.integer("expert_gating_func", 0)
    scoring = next((each for each in known if _GATING[each] == said), None) if said else known[0]
    if scoring is None:
        raise gguf.unsupported(f"experts scored by a function of number {said} (expert_gating_func)")
    return scoring


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


def without_further(gguf: GgufModel, layers: list[LayerSpec]) -> list[LayerSpec]:
    """The layers but for those that guess further tokens, which a file counts with the others and has behind them."""
    further = gguf.integer("nextn_predict_layers", 0)
    if not 0 <= further < len(layers):
        raise gguf.metadata.wrong(gguf.key("nextn_predict_layers"), "fewer than the layers")
    return layers[: len(layers) - further]
