"""Case planned: answers and prompts on two nodes where the planner cuts the model, because neither can hold it."""

from __future__ import annotations

from functools import partial
from statistics import median

from tests.bench import batch, prefill
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair
from tests.bench.repetitions import in_turn, ratio_of


def measure(pair: Pair, effort: Effort) -> Figures:
    """16 streams, and a prompt of many chunks, on one node and on two, whose first has so many layers."""
    key, tokens = pair.model.key, effort.long_prompt_tokens
    answers = [partial(batch.tokens_per_s, cluster, batch.STREAMS, effort) for cluster in pair.clusters]
    prompts = [partial(prefill.tokens_per_s, cluster, tokens) for cluster in pair.clusters]
    one_answers, two_answers, one_prompts, two_prompts = in_turn([*answers, *prompts], effort.long_repeats)
    first = pair.two.stats()["total"]["stages"][0]
    figures = {
        "first_node_layers": first["last_layer"] + 1,
        "answers_tokens_per_s": median(two_answers),
        "prompt_tokens_per_s": median(two_prompts),
    }
    ratios = {
        f"planned_decode16_2n_over_1n.{key}": ratio_of(two_answers, one_answers),
        f"planned_prefill2048_2n_over_1n.{key}": ratio_of(two_prompts, one_prompts),
    }
    return Figures(rows=(Row(case="planned", model=key, nodes=2, figures=figures),), ratios=ratios)
