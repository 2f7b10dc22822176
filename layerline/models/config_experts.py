"""Reading the experts of a config.json: what several families have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from layerline.models.config_fields import ConfigFields, layer_count
from layerline.models.feed_forward_spec import ExpertsSpec, FeedForwardSpec, Scoring

_COUNTS = ("num_experts", "num_local_experts")  # transformers writes either


def expert_count(config: ConfigFields, default: int) -> int:
    """How many experts a layer has that has any."""
    return config.integer(next((key for key in _COUNTS if config.raw(key) is not None), _COUNTS[0]), default)


def experts_from_config(
    config: ConfigFields, *, count: int, chosen: int, scoring: Scoring = "softmax", normalised: bool = False
) -> ExpertsSpec:
    """Experts in one group, without shared ones; `count` and `chosen` are what a config has that does not say."""
    return ExpertsSpec(
        count=expert_count(config, count),
        chosen=config.integer("num_experts_per_tok", chosen),
        scoring=scoring,
        normalised=normalised,
    )


def sparse_layers(config: ConfigFields, dense: FeedForwardSpec, sparse: FeedForwardSpec) -> list[FeedForwardSpec]:
    """Of each layer the dense or the sparse one: as Qwen says it, every so many, but for those that it names."""
    step = config.integer("decoder_sparse_step", 1)
    if step <= 0:
        raise config.wrong("decoder_sparse_step", "1 or more")
    dense_ones = frozenset(config.list_of(int, "mlp_only_layers", ()) if "mlp_only_layers" in config else ())
    return [
        sparse if layer not in dense_ones and (layer + 1) % step == 0 else dense for layer in range(layer_count(config))
    ]


def grouped_experts_from_config(
    config: ConfigFields,
    dense: FeedForwardSpec,
    *,
    count: int,
    chosen: int | None,
    width: int,
    scale: float,
    shared: int = 1,
    scoring: Scoring = "sigmoid",
    groups: tuple[int, int] | None = (1, 1),
) -> FeedForwardSpec:
    """Experts beside shared ones, as DeepSeek names them; what is said here is that of a config which does not say it.

    `groups` are (how many, how many are chosen); None: all are in one. By sigmoid a bias chooses too, and the weights
    of the chosen are normalised.
    """
    own, by_sigmoid = config.integer("moe_intermediate_size", width), scoring == "sigmoid"
    experts = ExpertsSpec(
        count=config.integer("n_routed_experts", count),
        chosen=config.integer("num_experts_per_tok", chosen),
        scoring=scoring,
        normalised=by_sigmoid and config.flag("norm_topk_prob", True),
        scale=config.positive("routed_scaling_factor", scale),
        choice_bias=by_sigmoid,
        groups=1 if groups is None else config.integer("n_group", groups[0]),
        chosen_groups=1 if groups is None else config.integer("topk_group", groups[1]),
        shared_intermediate=own * config.integer("n_shared_experts", shared),
    )
    return replace(dense, intermediate=own, experts=experts)


def dense_first(
    config: ConfigFields, dense: FeedForwardSpec, sparse: Callable[[], FeedForwardSpec], missing: int
) -> list[FeedForwardSpec]:
    """Of each layer: the first few are dense, `missing` of them if the config does not say, the others are `sparse`."""
    layers, first = layer_count(config), config.integer("first_k_dense_replace", missing)
    others = sparse() if first < layers else dense  # a model without any may say nothing of experts
    return [dense if layer < first else others for layer in range(layers)]
