"""Whether the output of a folder's model is really its embedding, where config.json says so.

transformers 5 ties the two only if the files do not hold another output matrix (`PreTrainedModel.tie_weights`). Both
matrices may be large: whether they are equal is told from their hashes, which are made anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from layerline.models.layout import EMBEDDING, OUTPUT, by_canonical_names
from layerline.models.spec import ModelSpec
from layerline.models.tensor_table import StoredTensor, TensorEntry

NOTE = (
    f"Its config.json ties the output to the embedding, but the files hold another {OUTPUT}: that one is used, as "
    "transformers does."
)


def with_stored_output(spec: ModelSpec, stored: Iterable[StoredTensor]) -> ModelSpec:
    """The spec with an output of its own if the files hold one beside the embedding, be it a copy or not."""
    tensors = by_canonical_names(stored)
    return replace(spec, tied_output=False) if EMBEDDING in tensors and OUTPUT in tensors else spec


def without_copied_output(
    spec: ModelSpec, tensors: tuple[TensorEntry, ...]
) -> tuple[ModelSpec, tuple[TensorEntry, ...], tuple[str, ...]]:
    """Spec and hashed tensors of a tied model that stores an output, and what is to be said of that one.

    An output that is a copy of the embedding is left out.
    """
    embedding, output = (_content(tensors, name) for name in ("embedding", "output"))
    if embedding != output:
        return spec, tensors, (NOTE,)
    return replace(spec, tied_output=True), tuple(entry for entry in tensors if entry.name != "output"), ()


def _content(tensors: tuple[TensorEntry, ...], name: str) -> list[tuple[str, tuple[int, ...], str]]:
    (entry,) = (entry for entry in tensors if entry.name == name)
    return [(part.tensor.storage, part.tensor.shape, part.tensor.sha256) for part in entry.ranges]
