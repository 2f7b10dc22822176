"""Case depth: one stream's tokens per second after a short prompt and after a long one, on one node."""

from __future__ import annotations

from functools import partial
from statistics import median

from tests.bench.cluster import Cluster
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair
from tests.bench.prompts import refrain_ids
from tests.bench.repetitions import in_turn, ratio_of
from tests.lab.commands import LabError

SHORT_PROMPT_TOKENS = 128


def measure(pair: Pair, effort: Effort) -> Figures:
    """The speed of decoding at both depths. A prompt is prefilled once: its later repetitions find it cached."""
    depths = (SHORT_PROMPT_TOKENS, effort.longest_prompt_tokens)
    prompts = [refrain_ids(f"depth {tokens}", tokens) for tokens in depths]
    found = in_turn([partial(_tokens_per_s, pair.one, prompt, effort) for prompt in prompts], effort.repeats)
    rows = [
        Row(
            case="depth",
            model=pair.model.key,
            nodes=1,
            streams=1,
            figures={"prompt_tokens": tokens, "tokens_per_s": median(speeds)},
        )
        for tokens, speeds in zip(depths, found, strict=True)
    ]
    short, long = found
    return Figures(rows=tuple(rows), ratios={f"decode_4096_over_128.{pair.model.key}": ratio_of(long, short)})


def _tokens_per_s(cluster: Cluster, prompt: list[int], effort: Effort, repetition: int) -> float:
    (stream,) = cluster.ask([{"token_ids": prompt, "max_tokens": effort.answer_tokens}])
    if len(stream.token_ids) < effort.answer_tokens / 2:
        raise LabError(f"the model stopped after {len(stream.token_ids)} tokens; its speed would be another's")
    return stream.decode_tokens_per_s
