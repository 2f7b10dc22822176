"""The model card: all that is known about a model without its weights, in one container-independent value.

A node makes it from a GGUF file or a safetensors folder when it indexes the model, and hands it to whoever
asks. Planning, tokenising and loading work from the card; no one parses the files twice.

Tensors have canonical names:

    embedding, output, final_norm,
    layers.N.{attention_norm, q, q_bias, k, k_bias, v, v_bias, attention_output, ffn_norm, gate, up, down}
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import msgpack

from layerline.checks import require, require_name, require_one_of
from layerline.models.spec import AttentionSpec, FeedForwardSpec, LayerSpec, ModelSpec, RopeSpec
from layerline.models.tensor_table import RowRange, StoredTensor, TensorEntry, stored_tensors

CARD_VERSION = 3
MAX_CARD_BYTES = 256 << 20
MAX_NOTES, MAX_NOTE_LETTERS = 8, 400


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerCard:
    """The tokenizer in the `tokenizers` library's JSON, and what goes with it."""

    json: str
    add_bos: bool
    bos_id: int | None
    eos_ids: tuple[int, ...]
    chat_template: str | None
    bos_token: str = ""
    eos_token: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCard:
    """A model without its weights. `digest` covers the card and, by the tensors' hashes, every weight."""

    name: str
    digest: str
    container: str
    size_bytes: int
    spec: ModelSpec
    tensors: tuple[TensorEntry, ...]
    tokenizer: TokenizerCard
    notes: tuple[str, ...] = ()  # what a user should know of how the files were read

    def __post_init__(self) -> None:
        require_name(self.name, "model name")
        require_one_of(self.container, ("gguf", "safetensors"), "container")
        sayable = all(note.isprintable() and len(note) <= MAX_NOTE_LETTERS for note in self.notes)
        require(len(self.notes) <= MAX_NOTES and sayable, "notes that cannot be shown")

    def tensor(self, name: str) -> TensorEntry | None:
        """The tensor of that canonical name."""
        return next((entry for entry in self.tensors if entry.name == name), None)

    def to_bytes(self) -> bytes:
        """The card as msgpack."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {"spec": dataclasses.asdict(self.spec), "tokenizer": dataclasses.asdict(self.tokenizer)}
        fields |= _table_fields(fields.pop("tensors"))
        packed: bytes = msgpack.packb({"card_version": CARD_VERSION, **fields})
        return packed

    @classmethod
    def from_bytes(cls, data: bytes) -> ModelCard:
        """The card in `data`; ValueError if it is not one."""
        require(len(data) <= MAX_CARD_BYTES, "model card too large")
        try:
            fields: dict[str, Any] = msgpack.unpackb(data)
            require(fields.pop("card_version") == CARD_VERSION, "model card of another version")
            tensors = _entries(fields.pop("stored"), fields.pop("tensors"))
            tokenizer = fields.pop("tokenizer")
            tokenizer["eos_ids"] = tuple(tokenizer["eos_ids"])
            return cls(
                spec=_spec(fields.pop("spec")),
                tensors=tensors,
                tokenizer=TokenizerCard(**tokenizer),
                notes=tuple(fields.pop("notes")),
                **fields,
            )
        except (KeyError, TypeError, AttributeError, ValueError, msgpack.UnpackException) as error:
            raise ValueError(f"not a model card: {error}") from error


def _spec(spec: dict[str, Any]) -> ModelSpec:
    kinds = tuple(
        LayerSpec(attention=_attention(kind["attention"]), feed_forward=FeedForwardSpec(**kind["feed_forward"]))
        for kind in spec.pop("kinds")
    )
    return ModelSpec(kinds=kinds, layer_kinds=tuple(spec.pop("layer_kinds")), **spec)


def _attention(attention: dict[str, Any]) -> AttentionSpec:
    rope = attention.pop("rope")
    return AttentionSpec(rope=None if rope is None else RopeSpec(**rope), **attention)


def _table_fields(entries: tuple[TensorEntry, ...]) -> dict[str, Any]:
    """The stored tensors, and the entries, in which each is a number."""
    stored = stored_tensors(entries)
    numbers = {tensor: number for number, tensor in enumerate(stored)}
    tensors = [
        {
            "name": entry.name,
            "shape": entry.shape,
            "rope_pairs": entry.rope_pairs,
            "ranges": [[numbers[part.tensor], part.first_row, part.rows] for part in entry.ranges],
        }
        for entry in entries
    ]
    return {"stored": [dataclasses.asdict(tensor) for tensor in stored], "tensors": tensors}


def _entries(stored: list[dict[str, Any]], tensors: list[dict[str, Any]]) -> tuple[TensorEntry, ...]:
    table = dict(enumerate(StoredTensor(**{**tensor, "shape": tuple(tensor["shape"])}) for tensor in stored))
    return tuple(
        TensorEntry(
            name=entry["name"],
            shape=tuple(entry["shape"]),
            rope_pairs=entry["rope_pairs"],
            ranges=tuple(
                RowRange(tensor=table[number], first_row=first_row, rows=rows)
                for number, first_row, rows in entry["ranges"]
            ),
        )
        for entry in tensors
    )
