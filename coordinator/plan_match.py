"""Whether a plan in effect is what somebody asks for. Knows names, not weights: those were compared as it was made."""

from __future__ import annotations

from collections.abc import Sequence

from layerline.errors import RequestError
from layerline.models.names import same_name
from layerline.plan import Plan, StagePlan, form_in_words
from layerline.plan_request import ManualStage, PlanRequest


def does_for(plan: Plan, request: PlanRequest) -> bool:
    """Whether `plan` is what `request` asks for."""
    return (
        same_name(plan.model, request.model)
        and request.dtype in ("", plan.dtype)
        and request.weights in ("", plan.weights)
        and request.asked_precision
        in ("", plan.precision, "full" if plan.dtype == "float32" and not plan.precision else "")
        and request.kv_dtype in ("", plan.kv_dtype)
        and request.context_tokens <= plan.context_tokens
        and request.takes([len(stage.spec.devices) for stage in plan.stages])
        and request.shares([stage.spec.sharing for stage in plan.stages])
        and (not request.layers or _has_layers(plan, request.layers))
    )


def other_model(plan: Plan) -> RequestError:
    """The refusal of whoever asks for something else."""
    stages = ", ".join(map(_stage_text, plan.stages))
    return RequestError(
        f"This coordinator serves {plan.model} in {plan.dtype}, weights {form_in_words(plan.weights)}"
        f"{_precision(plan)}, keys and values in {plan.kv_dtype}, with a context of {plan.context_tokens} ({stages}).",
        remedy="Ask for that, or start another coordinator on other nodes.",
    )


def _precision(plan: Plan) -> str:
    return f" ({plan.precision} precision)" if plan.precision else ""


def _stage_text(stage: StagePlan) -> str:
    layers = f"{stage.node}={stage.spec.first_layer}-{stage.spec.last_layer}"
    degree = len(stage.spec.devices)
    return layers if degree == 1 else f"{layers} over {degree} devices"


def _has_layers(plan: Plan, layers: Sequence[ManualStage]) -> bool:
    """Whether the plan's stages are these; nodes may be named or given by their ids."""
    return len(layers) == len(plan.stages) and all(
        wanted.node in (stage.node, stage.node_id)
        and (wanted.first_layer, wanted.last_layer) == (stage.spec.first_layer, stage.spec.last_layer)
        for wanted, stage in zip(layers, plan.stages, strict=True)
    )
