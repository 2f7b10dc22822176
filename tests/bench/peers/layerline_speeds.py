"""The speeds of layerline, asked of its coordinator as a user would."""

from __future__ import annotations

from tests.bench import batch, decode, prefill
from tests.bench.cluster import Cluster
from tests.bench.effort import Effort


class LayerlineSpeeds:
    """Those of a cluster that is loaded and warm."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def decode(self, effort: Effort, repetition: int) -> float:
        """One stream."""
        return decode.decoded(self._cluster, effort, repetition).tokens_per_s

    def prompt(self, prompt_tokens: int, repetition: int) -> float:
        """One prompt, until its first token is there."""
        return prefill.tokens_per_s(self._cluster, prompt_tokens, repetition)

    def crowd(self, streams: int, effort: Effort, repetition: int) -> float:
        """As many streams, from when each has begun."""
        return batch.tokens_per_s(self._cluster, streams, effort, repetition)
