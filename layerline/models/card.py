"""The model card: all that is known about a model without its weights, in one container-independent value.

A node makes it from a GGUF file or a safetensors folder when it indexes the model, and hands it to whoever
asks. Planning, tokenising and loading work from the card; no one parses the files twice.

Tensors have canonical names:

    embedding, output, final_norm,
    layers.N.{q, k, v, attention_output, gate, up, down}, each perhaps with a bias beside it, called q_bias and so on
    layers.N.{attention_norm, attention_after_norm, ffn_norm, ffn_after_norm, q_norm, k_norm}
    layers.N.{sinks, output_scale, output_gate, output_gate_bias}
    token_table, token_projection, token_norm, layers.N.{token_gate, token_output, token_after_norm}
    layers.N.{z, b, a, q_conv, k_conv, v_conv, decay, step_bias, gate_norm}, of a delta net, beside q, k and v
    layers.N.{z, x, b, c, dt, x_conv, b_conv, c_conv, decay, skip, step_bias, gate_norm}, of Mamba 2, the convolution's
        perhaps each with a bias
    layers.N.{router, router_bias, choice_bias, shared_logit, expert_scales}
    layers.N.{router_norm, experts_norm, experts_after_norm, shared_after_norm}
    layers.N.experts.E.{gate, up, down}, layers.N.shared.{gate, up, down}, each perhaps with a bias
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import msgpack

from layerline.checks import require, require_name, require_one_of
from layerline.models.spec import ModelSpec
from layerline.models.tensor_table import MOST_BYTES, RowRange, StoredTensor, TensorEntry, stored_tensors
from layerline.plain import noun_of

CARD_VERSION = 11
MAX_CARD_BYTES = 256 << 20
MAX_CARD_PARTS = 1 << 22  # of lists and tables; one with 40,000 matrices of experts has a third of them
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
        require_name(self.digest, "digest")
        require(0 <= self.size_bytes < MOST_BYTES, "size_bytes is out of range")
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
            parts = _Parts()
            fields = msgpack.unpackb(data, list_hook=parts.counted, object_hook=parts.counted)
            require(isinstance(fields, dict), "it is not a table")
            require(fields.pop("card_version", None) == CARD_VERSION, "model card of another version")
            packed = noun_of(_PackedCard, fields)
            kept = {field.name: getattr(packed, field.name) for field in dataclasses.fields(cls)}
            return cls(**{**kept, "tensors": _entries(packed)})
        except (TypeError, ValueError, RecursionError, msgpack.UnpackException) as error:
            raise ValueError(f"not a model card: {error}") from error


class _Parts:
    """Counts what is in the lists and tables of a card, so that a small card cannot become a large one in memory."""

    def __init__(self) -> None:
        self._count = 0

    def counted(self, part: Any) -> Any:
        """`part`, a list or table that has been read; ValueError if there is too much in all of them."""
        self._count += 1 + len(part)
        require(self._count <= MAX_CARD_PARTS, "it has too many parts")
        return part


@dataclass(frozen=True, kw_only=True, slots=True)
class _PackedEntry:
    """A tensor of the model; of each of its ranges the number of the stored tensor, then what a `RowRange` has."""

    name: str
    shape: tuple[int, ...]
    rope_pairs: int
    added: float
    minus_exponential: bool
    ranges: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _PackedCard:
    """A card as it travels: each stored tensor is said once."""

    name: str
    digest: str
    container: str
    size_bytes: int
    spec: ModelSpec
    stored: tuple[StoredTensor, ...]
    tensors: tuple[_PackedEntry, ...]
    tokenizer: TokenizerCard
    notes: tuple[str, ...]


def _table_fields(entries: tuple[TensorEntry, ...]) -> dict[str, Any]:
    """The stored tensors, and the entries, in which each is a number."""
    stored = stored_tensors(entries)
    numbers = {tensor: number for number, tensor in enumerate(stored)}
    tensors = [
        {
            "name": entry.name,
            "shape": entry.shape,
            "rope_pairs": entry.rope_pairs,
            "added": entry.added,
            "minus_exponential": entry.minus_exponential,
            "ranges": [
                [numbers[part.tensor], part.first_row, part.rows, part.group, part.step] for part in entry.ranges
            ],
        }
        for entry in entries
    ]
    return {"stored": [dataclasses.asdict(tensor) for tensor in stored], "tensors": tensors}


def _entries(packed: _PackedCard) -> tuple[TensorEntry, ...]:
    return tuple(
        TensorEntry(
            name=entry.name,
            shape=entry.shape,
            rope_pairs=entry.rope_pairs,
            added=entry.added,
            minus_exponential=entry.minus_exponential,
            ranges=tuple(_range(packed.stored, part) for part in entry.ranges),
        )
        for entry in packed.tensors
    )


def _range(stored: tuple[StoredTensor, ...], part: tuple[int, ...]) -> RowRange:
    require(len(part) == 5 and 0 <= part[0] < len(stored), "a range of rows is of no stored tensor")
    number, first_row, rows, group, step = part
    return RowRange(tensor=stored[number], first_row=first_row, rows=rows, group=group, step=step)
