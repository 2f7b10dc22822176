"""The models that are measured."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.lab.machine import REPOSITORY


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchModel:
    """A model by the word that scripts/get-model knows it by; `context_tokens` hold all that a case asks at once.

    The last of two nodes also has the output matrix, which costs answers as much as some layers do, and prompts
    nothing. With `even_for_answers` layers on the first node both take as long for an answer's token, with
    `even_for_prompts` for a prompt; `first_layers` are between the two and serve both.
    """

    key: str
    layers: int
    first_layers: int
    even_for_answers: int
    even_for_prompts: int
    context_tokens: int

    def fetch(self) -> Path:
        """Its file, brought into the cache if it is not there."""
        script = REPOSITORY / "scripts" / "get-model"
        done = subprocess.run([script, self.key], stdout=subprocess.PIPE, text=True, check=True)
        return Path(done.stdout.splitlines()[-1])


MODELS = {
    model.key: model
    for model in (
        BenchModel(
            key="smollm2", layers=30, first_layers=15, even_for_answers=18, even_for_prompts=15, context_tokens=8192
        ),
        BenchModel(
            key="qwen", layers=24, first_layers=14, even_for_answers=19, even_for_prompts=12, context_tokens=16384
        ),
    )
}
