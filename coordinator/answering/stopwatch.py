"""When a request came and when its tokens did."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from layerline.answer import Timings, Usage


@dataclass(kw_only=True, slots=True)
class Stopwatch:
    """When a request came and when its tokens did, in seconds of a monotonic clock."""

    began_s: float = field(default_factory=time.monotonic)
    first_token_s: float = 0.0
    last_token_s: float = 0.0

    def tick(self) -> None:
        """A token came."""
        self.last_token_s = time.monotonic()
        self.first_token_s = self.first_token_s or self.last_token_s

    def timings(self, usage: Usage) -> Timings:
        """The rates; the first token belongs to the prompt, the others to the answer."""
        decode_s = self.last_token_s - self.first_token_s
        ttft_s = max(0.0, self.first_token_s - self.began_s)
        return Timings(
            ttft_s=ttft_s,
            prefill_tokens_per_s=usage.prompt_tokens / ttft_s if ttft_s else 0.0,
            decode_tokens_per_s=(usage.completion_tokens - 1) / decode_s if decode_s else 0.0,
        )
