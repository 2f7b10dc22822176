"""The digest that names a model's weights and all else that decides what it answers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable

from layerline.models.card import TokenizerCard
from layerline.models.spec import ModelSpec
from layerline.models.tensor_table import TensorEntry


def model_digest(spec: ModelSpec, tensors: Iterable[TensorEntry], tokenizer: TokenizerCard) -> str:
    """SHA-256 in hex over all that decides what the model answers, and nothing about where it lies."""
    weights = [
        [
            entry.name,
            entry.shape,
            entry.rope_pairs,
            entry.added,
            entry.minus_exponential,
            [
                [part.tensor.storage, part.tensor.sha256, part.first_row, part.rows, part.group, part.step]
                for part in entry.ranges
            ],
        ]
        for entry in sorted(tensors, key=lambda entry: entry.name)
    ]
    content = [dataclasses.asdict(spec), weights, dataclasses.asdict(tokenizer)]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
