"""Reading the experts of a config.json: what several families have in common."""

from __future__ import annotations

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
