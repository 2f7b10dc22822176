"""Cards of models that have no files: the tensor table that a description asks for."""

from __future__ import annotations

import functools

from layerline.models.card import ModelCard, TokenizerCard
from layerline.models.decoder_rules import ENDS, OF_TOKEN_INPUTS
from layerline.models.held import WeightForm
from layerline.models.known_families import family_of_config
from layerline.models.spec import ModelSpec
from layerline.models.storage import stored_bytes
from layerline.models.tensor_rules import TensorRule, side_lengths
from layerline.models.tensor_table import RowRange, StoredTensor, TensorEntry

TOKENIZER = TokenizerCard(json="{}", add_bos=False, bos_id=None, eos_ids=(), chat_template=None)
PLAIN = WeightForm(dtype="float32", weights="float32", kernels=False)


@functools.cache
def model_card(spec: ModelSpec, *, name: str = "m", digest: str = "digest", storage: str = "BF16") -> ModelCard:
    """A card whose matrices are stored in `storage`, vectors in BF16, each by itself."""
    ends = (_entry(spec, rule, 0, storage) for rule in ENDS if rule.name != "output" or not spec.tied_output)
    inputs = (_entry(spec, rule, 0, storage) for rule in OF_TOKEN_INPUTS if spec.token_input)
    layers = (
        _entry(spec, rule, layer, storage)
        for layer in range(spec.layers)
        for rule in family_of_config(spec.family).layer_tensors(spec.layer(layer))
    )
    tensors = (*ends, *inputs, *layers)
    return ModelCard(
        name=name,
        digest=digest,
        container="safetensors",
        size_bytes=sum(entry.nbytes for entry in tensors),
        spec=spec,
        tensors=tensors,
        tokenizer=TOKENIZER,
    )


def _entry(spec: ModelSpec, rule: TensorRule, layer: int, matrices: str) -> TensorEntry:
    lengths = side_lengths(spec, spec.layer(layer))
    shape = tuple(lengths[side] for side in rule.sides)
    storage = matrices if len(shape) == 2 else "BF16"
    stored = StoredTensor(
        name=rule.safetensors.name.format(n=layer),
        file="model.safetensors",
        storage=storage,
        shape=shape,
        offset=0,
        nbytes=stored_bytes(storage, shape),
    )
    return TensorEntry(name=rule.name.format(n=layer), shape=shape, ranges=(RowRange.whole(stored),))
