"""What --json prints: objects of plain types, whose keys are relied on by other people's scripts. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from layerline.answer import Alternative, Completion, TokenLikelihood
from layerline.facts import NodeFacts
from layerline.perplexity import Perplexity
from layerline.reports import NodeReport, NodesReport, PlanReport
from layerline.scoring import ScoringFinished
from layerline.stats_report import StatsReport


def completion_object(completion: Completion) -> dict[str, Any]:
    """The object of `layerline prompt --json`."""
    finished = completion.finished
    return {
        "text": completion.text,
        "thinking": completion.thinking,
        "token_ids": list(completion.token_ids),
        "finish_reason": finished.finish_reason,
        "usage": asdict(finished.usage),
        "timings": asdict(finished.timings),
        "plan": [asdict(stage) for stage in finished.plan],
        "seed": finished.seed,
        **({"log_probabilities": list(map(_likelihood_object, likely))} if (likely := completion.likelihoods) else {}),
    }


def _likelihood_object(likelihood: TokenLikelihood) -> dict[str, Any]:
    return {**_alternative_object(likelihood.token), "likeliest": list(map(_alternative_object, likelihood.likeliest))}


def _alternative_object(alternative: Alternative) -> dict[str, Any]:
    return {
        "token_id": alternative.token_id,
        "text": alternative.text.decode(errors="replace"),
        "log_probability": alternative.log_probability,
    }


def perplexity_object(perplexity: Perplexity, finished: ScoringFinished, window_tokens: int) -> dict[str, Any]:
    """The object of `layerline perplexity --json`."""
    return {
        "perplexity": perplexity.value,
        "standard_error": perplexity.standard_error,
        "tokens": perplexity.tokens,
        "text_tokens": finished.text_tokens,
        "window_tokens": window_tokens,
        "seconds": finished.took_s,
        "plan": [asdict(stage) for stage in finished.plan],
    }


def nodes_object(report: NodesReport) -> dict[str, Any]:
    """The object of `layerline nodes --json`."""
    return {"nodes": [_node_object(node) for node in report.nodes], "searched": list(report.searched)}


def plan_object(plan: PlanReport) -> dict[str, Any]:
    """The object of `layerline plan --json`."""
    return asdict(plan)


def stats_object(report: StatsReport) -> dict[str, Any]:
    """The object of `layerline stats --json`."""
    return asdict(report)


def _node_object(node: NodeReport) -> dict[str, Any]:
    known = {"name": node.name, "address": node.address, "unusable": node.unusable}
    return known | (_facts_object(node.facts) if node.facts else {"id": "", "addresses": [], "devices": []})


def _facts_object(facts: NodeFacts) -> dict[str, Any]:
    return {
        "id": facts.node_id,
        "addresses": list(facts.addresses),
        "devices": [asdict(device) for device in facts.devices],
        "all_reduce_us": facts.all_reduce_us,
        "version": facts.version,
        "wire_version": facts.wire_version,
        "state": facts.state,
        "models": [asdict(model) for model in facts.models],
        "models_folder": facts.models_folder,
        "loaded": [asdict(stage) for stage in facts.loaded],
        "held_by": asdict(facts.held_by) if facts.held_by else None,
    }
