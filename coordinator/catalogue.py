"""Finds the model that a REF means, on this machine and on the nodes, and makes sure that all mean the same one.

A REF is a path on this machine, or the name of a model in the nodes' models folders. Either way a node takes
part only with files of its own, and those must be the same to the last bit.
"""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from coordinator.concurrency import all_of
from coordinator.discovery.members import Member
from coordinator.node_client import open_model
from layerline.errors import (
    DeadlineError,
    InternalError,
    LayerlineError,
    ModelMismatchError,
    ModelNotFoundError,
    NodeError,
    OverloadedError,
    WireError,
)
from layerline.facts import NodeFacts
from layerline.models.card import ModelCard
from layerline.models.card_cache import CardCache
from layerline.models.mismatch import describe_mismatch

GGUF_SUFFIX = ".gguf"
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundModel:
    """A model's card, the nodes that have its files, and sentences on how these were read and on each node without."""

    card: ModelCard
    nodes: tuple[NodeFacts, ...]
    notes: tuple[str, ...]


async def find_model(reference: str, members: Sequence[Member], on_progress: OnProgress) -> FoundModel:
    """The model that `reference` means, on those of the usable `members` that have it.

    A node that answers nonsense, comes no further or is lost meanwhile is left out, with the reason in the notes.
    `on_progress(node, done_bytes, total_bytes)` while files that were never seen are indexed; the node is "" for
    this machine. Raises ModelNotFoundError, ModelMismatchError, and what a node says of its files.
    """
    path = Path(reference)
    is_path = await asyncio.to_thread(os.path.exists, path)  # unlike Path's own, never raises
    name = path.name if is_path else reference
    having = [(member, listed) for member in members if (listed := _listed_name(member, name)) is not None]
    if not having:
        raise _not_found(name, members, is_path=is_path)
    own = await _own_card(path, name, on_progress) if is_path else None
    answers = await all_of(_card(member, listed, on_progress) for member, listed in having)
    cards = [(member, card) for (member, _), card in zip(having, answers, strict=True) if isinstance(card, ModelCard)]
    failed = {
        member.name: error
        for (member, _), error in zip(having, answers, strict=True)
        if not isinstance(error, ModelCard)
    }
    if not cards:
        raise next(iter(failed.values()))
    reference_card, reference_owner = (own, "this machine") if own else (cards[0][1], f"node {cards[0][0].name}")
    for member, card in cards:
        _require_same(reference_card, reference_owner, card, member.name)
    without = [member for member in members if all(member is not other for other, _ in having)]
    notes = (
        *cards[0][1].notes,
        *(f"Node {member.name} is left out: it has no model {name} in its models folder." for member in without),
        *(f"Node {node} is left out: {error.message}" for node, error in failed.items()),
    )
    nodes = tuple(member.facts for member, _ in cards if member.facts)
    return FoundModel(card=cards[0][1], nodes=nodes, notes=notes)


async def _own_card(path: Path, name: str, on_progress: OnProgress) -> ModelCard:
    cache = CardCache(platformdirs.user_cache_path("layerline") / "cards")
    loop = asyncio.get_running_loop()

    def progressed(done_bytes: int, total_bytes: int) -> None:  # called from the threads that hash
        loop.call_soon_threadsafe(on_progress, "", done_bytes, total_bytes)

    return await asyncio.to_thread(cache.card, path, name, progressed)


async def _card(member: Member, listed: str, on_progress: OnProgress) -> ModelCard | LayerlineError:
    """The member's card, or what it failed with that is its own matter; what it says of the files is raised."""
    try:
        return await open_model(
            member.address, member.name, listed, lambda done, total: on_progress(member.name, done, total)
        )
    except (NodeError, WireError, DeadlineError, InternalError, OverloadedError) as error:
        return error


def _listed_name(member: Member, name: str) -> str | None:
    """What the member calls the model; a GGUF file's name may be given without its suffix."""
    listed = [model.name for model in member.facts.models] if member.facts else []
    return next((known for known in (name, name + GGUF_SUFFIX) if known in listed), None)


def _require_same(card: ModelCard, owner: str, other: ModelCard, node: str) -> None:
    if card.digest == other.digest:
        return
    raise ModelMismatchError(
        f"{owner} and node {node} have unlike files of model {other.name} "
        f"(digests {card.digest[:12]} and {other.digest[:12]}): {describe_mismatch(card, other)}.",
        node=node,
        remedy="Copy the same file to both.",
    )


def _not_found(name: str, members: Sequence[Member], *, is_path: bool) -> ModelNotFoundError:
    names = sorted({model.name for member in members if member.facts for model in member.facts.models})
    folders = ", ".join(f"{member.name}: {member.facts.models_folder}" for member in members if member.facts)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names[:8]
    known = f" They have {', '.join(close)}." if close else " Their models folders are empty."
    message = f"No node has model {name} in its models folder ({folders}).{known}"
    remedy = "Copy the file to the models folder of every node, or start nodes with --models."
    if not is_path:
        remedy += " A REF is a name in those folders or a path on this machine; no such path exists here."
    return ModelNotFoundError(message, remedy=remedy)
