"""The models that are measured."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.lab.machine import REPOSITORY


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchModel:
    """A model by the word that scripts/get-model knows it by; `context_tokens` hold all that a case asks at once.

    `first_layers` are those of the first of two nodes. The last one also has the output matrix, which costs answers as
    much as some layers do, and prompts nothing; a cut between the two evens serves both.
    """

    key: str
    layers: int
    first_layers: int
    context_tokens: int

    def fetch(self) -> Path:
        """Its file, brought into the cache if it is not there."""
        script = REPOSITORY / "scripts" / "get-model"
        done = subprocess.run([script, self.key], stdout=subprocess.PIPE, text=True, check=True)
        return Path(done.stdout.splitlines()[-1])


MODELS = {
    model.key: model
    for model in (
        BenchModel(key="smollm2", layers=30, first_layers=15, context_tokens=8192),
        BenchModel(key="qwen", layers=24, first_layers=14, context_tokens=16384),
    )
}
