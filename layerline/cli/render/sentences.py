"""Plans, speeds and their like as lines of plain text. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from layerline.answer import Alternative, Finished, TokenLikelihood
from layerline.perplexity import Perplexity
from layerline.plan import form_in_words
from layerline.reports import NodesReport, PlanReport, StageReport
from layerline.scoring import ScoringFinished
from layerline.units import format_bytes, format_seconds


def plan_lines(plan: PlanReport) -> list[str]:
    """Which node holds which layers, one line a stage below one on the model."""
    widest = max((len(stage.node) for stage in plan.stages), default=0)
    nodes = "1 node" if len(plan.stages) == 1 else f"{len(plan.stages)} nodes"
    held = form_in_words(plan.weights) + ("" if plan.kv_dtype == plan.weights else f", KV in {plan.kv_dtype}")
    head = f"{plan.model}: {plan.layers} layers {held}, context {plan.context_tokens} tokens, on {nodes}"
    return [head, *(f"  {stage.node:<{widest}}  {_stage_text(stage)}" for stage in plan.stages)]


def layers_text(first_layer: int, last_layer: int) -> str:
    """The layers of a stage, as in 0-14 or 7."""
    return f"{first_layer}-{last_layer}" if first_layer != last_layer else f"{first_layer}"


def needed_bytes(stage: StageReport) -> int:
    """What a stage takes in all."""
    return stage.weights_bytes + stage.kv_bytes + stage.workspace_bytes


def devices_text(stage: StageReport) -> str:
    """The devices of a stage, with what they take of each layer if that is not the same."""
    shares = [f" {share / sum(stage.proportions):.0%}" for share in stage.proportions] or [""] * len(stage.devices)
    return ", ".join(f"{device}{share}" for device, share in zip(stage.devices, shares, strict=False))


def _stage_text(stage: StageReport) -> str:
    layers = layers_text(stage.first_layer, stage.last_layer)
    memory = f"{format_bytes(needed_bytes(stage))} of {format_bytes(stage.budget_bytes)}"
    noun = "layer" if stage.first_layer == stage.last_layer else "layers"
    return f"{noun} {layers} on {devices_text(stage)}, {memory}"


def speed_line(finished: Finished) -> str:
    """How fast the prompt was read and the answer made, and the seed that makes it again."""
    usage, timings = finished.usage, finished.timings
    parts = [
        f"prompt {usage.prompt_tokens} tokens at {timings.prefill_tokens_per_s:.1f} tokens/s",
        f"answer {usage.completion_tokens} tokens at {timings.decode_tokens_per_s:.1f} tokens/s",
        f"first token after {timings.ttft_s:.2f} s",
        f"seed {finished.seed}",
    ]
    if finished.finish_reason == "length":
        parts.append("cut at the longest that was allowed")
    return ", ".join(parts)


def likelihood_lines(likelihoods: Sequence[TokenLikelihood]) -> list[str]:
    """Each token with its probability, and the likeliest in its place with theirs; nothing where nothing was asked."""
    lines = []
    for each in likelihoods:
        others = ", ".join(map(_alternative_text, each.likeliest))
        lines.append(f"{_alternative_text(each.token)}" + (f"  of {others}" if others else ""))
    return lines


def _alternative_text(alternative: Alternative) -> str:
    text = json.dumps(alternative.text.decode(errors="replace"), ensure_ascii=False)
    return f"{text} {math.exp(alternative.log_probability):.1%} ({alternative.log_probability:.3f})"


def perplexity_line(perplexity: Perplexity, finished: ScoringFinished, window_tokens: int) -> str:
    """The perplexity with its standard error, the tokens it is of, and how long they took."""
    error = perplexity.standard_error
    value = f"perplexity {perplexity.value:.4f}" + (f" ± {error:.4f}" if error is not None else "")
    tokens = f"{perplexity.tokens} tokens" if perplexity.tokens != 1 else "1 token"
    return f"{value}, {tokens} in windows of {window_tokens}, {format_seconds(finished.took_s)}"


def no_nodes_sentence(report: NodesReport) -> str:
    """What was looked for, and where, when there is no node."""
    where = ", ".join(report.searched) or "no interface, as none is up"
    return f"No node was found. Nodes were looked for by mDNS (_layerline._tcp.local.) on {where}."
