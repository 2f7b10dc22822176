"""What a tensor of a model is: its canonical name, its sides, and where either container has it.

Rules like those of another family are made of its rules here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layerline.models.recurrent import DeltaNetSpec, Mamba2Spec, RecurrentSpec
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec

# Sides of tensors, in the words of `side_lengths`.
VOCABULARY, HIDDEN, FEED_FORWARD = "vocabulary", "hidden", "feed_forward"
QUERIES, KEYS, VALUES, ATTENDED, HEAD = "queries", "keys", "values", "attended", "head"
HEADS = "heads"  # how many read
EXPERTS, SHARED, ONE = "experts", "shared", "one"  # how many there are; the width of the shared expert; a single row
# Of attention with a latent: that of queries, that of keys and values, what all heads make of the latter, what they
# read of latents, and what of a query is not turned.
QUERY_LATENT, LATENT, MADE_FROM_LATENT = "query_latent", "latent", "made_from_latent"
READ_LATENTS, PLAIN = "read_latents", "plain"
TAPS, CONVOLVED = "taps", "convolved"  # of a recurrent layer's convolution, and its channels
KEY_HEADS = "key_heads"  # of a delta net, how many there are
OF_HEADS = frozenset(
    {QUERIES, KEYS, VALUES, ATTENDED, HEAD, HEADS, KEY_HEADS, QUERY_LATENT, LATENT, MADE_FROM_LATENT}
    | {READ_LATENTS, PLAIN, TAPS, CONVOLVED}
)
"""Those that only tensors of what mixes tokens have."""
TOKEN_INPUT, TOKEN_INPUTS = "token_input", "token_inputs"  # what a layer gets of the token by itself; what all get


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a container has a tensor: in the stored one called `name`, below rows of the sides `after`.

    If that is the stack of all experts' matrices, it is in the one of `expert`. With `groups`, a side that has as many,
    the rows of the sides `turns`, its own among them, take turns group by group; `after` are those before it in each.
    """

    name: str
    after: tuple[str, ...] = ()
    rope_pairs: bool = False  # the rows of a head are in GGUF-llama order, pair by pair
    added: float = 0.0  # to each number of a vector, before it is one of the model's
    minus_exponential: bool = False  # -e to the power of each number of a vector is one of the model's
    expert: int | None = None
    recipe: str = ""  # of `layerline.models.quantised`, where that is how rows are made of what is stored
    groups: str = ""
    turns: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorRule:
    """A tensor of the model; in names `{n}` stands for the layer of one that every layer has.

    A container may have it in another place instead, which is one of `otherwise`. Of those of an
    `expert` a row reads what the experts have that it chooses.
    """

    name: str
    sides: tuple[str, ...]
    safetensors: Place
    gguf: Place
    otherwise: tuple[Place, ...] = ()
    expert: int | None = None


def side_lengths(spec: ModelSpec, layer: LayerSpec) -> dict[str, int]:
    """How long each side is in a model of that spec and in one of its layers."""
    experts = layer.feed_forward.experts
    return {
        VOCABULARY: spec.vocabulary,
        HIDDEN: spec.hidden,
        FEED_FORWARD: layer.feed_forward.intermediate,
        EXPERTS: experts.count if experts else 0,
        SHARED: experts.shared_intermediate if experts else 0,
        ONE: 1,
        TOKEN_INPUT: layer.token_input,
        TOKEN_INPUTS: spec.layers * layer.token_input,
        **(_attention_sides(layer.attention) if layer.recurrent is None else _recurrent_sides(layer.recurrent)),
    }


def _attention_sides(attention: AttentionSpec) -> dict[str, int]:
    latent = attention.latent
    return {
        QUERIES: attention.heads * attention.made_query_dim,
        KEYS: attention.key_numbers,
        VALUES: attention.value_numbers,
        ATTENDED: attention.output_numbers,
        HEAD: attention.head_dim,
        HEADS: attention.heads,
        QUERY_LATENT: latent.query_rank if latent else 0,
        LATENT: attention.value_dim,
        MADE_FROM_LATENT: attention.heads * (latent.plain_dim + latent.value_dim) if latent else 0,
        READ_LATENTS: attention.heads * attention.value_dim,
        PLAIN: latent.plain_dim if latent else 0,
    }


def _recurrent_sides(recurrent: RecurrentSpec) -> dict[str, int]:
    """Of queries and keys those of a delta net; of keys what a Mamba's B has, and its C."""
    sides = {
        ATTENDED: recurrent.output_numbers,
        HEADS: recurrent.heads,
        TAPS: recurrent.taps,
        CONVOLVED: recurrent.conv_channels,
    }
    if isinstance(recurrent, DeltaNetSpec):
        keys = recurrent.key_numbers
        own = {VALUES: recurrent.value_numbers, HEAD: recurrent.value_dim, KEY_HEADS: recurrent.key_heads}
        return {**sides, QUERIES: keys, KEYS: keys, **own}
    if isinstance(recurrent, Mamba2Spec):
        return {**sides, KEYS: recurrent.groups * recurrent.state_dim}
    return sides


def is_router(sides: Sequence[str]) -> bool:
    """Whether the tensor of these sides is one of the few that decide on experts: they are held as they are stored."""
    return sides[0] in (EXPERTS, ONE)


def is_of_latents(sides: Sequence[str]) -> bool:
    """Whether the tensor of these sides makes keys or values of latents, by a matrix of each head."""
    return sides[1:] in ((LATENT,), (PLAIN,))


def is_of_state(sides: Sequence[str], layer: LayerSpec) -> bool:
    """Whether the tensor of these sides is one by which rows of a recurrent layer change its state, or norm what they
    read of it: it is held in float32.
    """
    if layer.recurrent is None:
        return False
    vectors = [CONVOLVED, HEADS, HEAD, *([ATTENDED, KEYS] if isinstance(layer.recurrent, Mamba2Spec) else [])]
    return TAPS in sides or (len(sides) == 1 and sides[0] in vectors)


def whole_rule(name: str, safetensors: str, gguf: str, *sides: str) -> TensorRule:
    """A tensor that either container has by itself."""
    return TensorRule(name=name, sides=sides, safetensors=Place(name=safetensors), gguf=Place(name=gguf))


def layer_rule(name: str, safetensors: str, gguf: str, *sides: str) -> TensorRule:
    """The same of a layer, by its names there."""
    return whole_rule(f"layers.{{n}}.{name}", f"model.layers.{{n}}.{safetensors}", f"blk.{{n}}.{gguf}", *sides)


def with_rope_pairs(rules: Sequence[TensorRule], *names: str) -> tuple[TensorRule, ...]:
    """The same rules, the tensors called `names` in a layer having their rows in GGUF-llama order in a GGUF file."""
    marked = {f"layers.{{n}}.{name}" for name in names}

    def in_pairs(rule: TensorRule) -> TensorRule:
        gguf, *others = (dataclasses.replace(place, rope_pairs=True) for place in (rule.gguf, *rule.otherwise))
        return dataclasses.replace(rule, gguf=gguf, otherwise=tuple(others))

    return tuple(in_pairs(rule) if rule.name in marked else rule for rule in rules)


def renamed(rules: Sequence[TensorRule], safetensors: Mapping[str, str]) -> tuple[TensorRule, ...]:
    """The same rules, those of a layer that `safetensors` names having another name in safetensors."""

    def named(rule: TensorRule) -> TensorRule:
        name = safetensors.get(rule.name.rpartition(".")[2])
        return rule if name is None else dataclasses.replace(rule, safetensors=layer_rule("", name, "").safetensors)

    return tuple(named(rule) for rule in rules)


def renamed_in_gguf(rules: Sequence[TensorRule], gguf: Mapping[str, str]) -> tuple[TensorRule, ...]:
    """The same rules, those of a layer that `gguf` names having another name in GGUF."""

    def named(rule: TensorRule) -> TensorRule:
        name = gguf.get(rule.name.rpartition(".")[2])
        return rule if name is None else dataclasses.replace(rule, gguf=layer_rule("", "", name).gguf)

    return tuple(named(rule) for rule in rules)


def end_renamed(rules: Sequence[TensorRule], name: str, safetensors: str, gguf: str) -> tuple[TensorRule, ...]:
    """The same rules of a model's ends, the one called `name` being called so in either container."""
    renamed_rule = {rule.name: whole_rule(name, safetensors, gguf, *rule.sides) for rule in rules if rule.name == name}
    return tuple(renamed_rule.get(rule.name, rule) for rule in rules)


def with_norms_from_zero(rules: Sequence[TensorRule]) -> tuple[TensorRule, ...]:
    """The same rules, the weights of norms being stored one too small in safetensors; llama.cpp's converter adds it."""

    def raised(rule: TensorRule) -> TensorRule:
        return dataclasses.replace(rule, safetensors=dataclasses.replace(rule.safetensors, added=1.0))

    return tuple(raised(rule) if rule.name.endswith("norm") else rule for rule in rules)


def stacked(
    rules: Sequence[TensorRule], safetensors: str, gguf: str, after: Mapping[str, tuple[str, ...]]
) -> tuple[TensorRule, ...]:
    """The same rules, the tensors of a layer that `after` names lying in one, each below rows of these sides."""
    one = layer_rule("", safetensors, gguf)

    def placed(rule: TensorRule) -> TensorRule:
        sides = after.get(rule.name.rpartition(".")[2])
        if sides is None:
            return rule
        safetensors, gguf = (dataclasses.replace(place, after=sides) for place in (one.safetensors, one.gguf))
        return dataclasses.replace(rule, safetensors=safetensors, gguf=gguf)

    return tuple(placed(rule) for rule in rules)
