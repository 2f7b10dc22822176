"""Finds the model that a REF means, on this machine and on the nodes, and makes sure that all mean the same one.

A REF is a path on this machine, or the name of a model in the nodes' models folders. Either way a node takes
part only with files of its own, and those must be the same to the last bit.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs

from coordinator.concurrency import all_of
from coordinator.discovery.members import Member
from coordinator.temporary_folder import temporary_folder
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
from layerline.facts import ModelListing, NodeFacts
from layerline.models.card import ModelCard
from layerline.models.card_cache import CardCache
from layerline.models.folder import is_model
from layerline.models.indexer import card_at, index_apart
from layerline.models.mismatch import describe_mismatch
from layerline.models.names import composed, listed_name, name_as_listed, path_here
from layerline.models.other_models import refuse_other_folder
from layerline.peer import Peer

OnProgress = Callable[[str, int, int], None]
OpenModel = Callable[[Peer, str, Callable[[int, int], None]], Awaitable[ModelCard]]  # `NodeClient.open_model`


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundModel:
    """A model's card, the nodes that have its files, and sentences on how these were read and on each node without."""

    card: ModelCard
    nodes: tuple[NodeFacts, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Meaning:
    """What a REF means: the `name` by which `members` list it, and this machine's own card if it is a path here."""

    name: str
    members: tuple[Member, ...]
    path: str = ""
    own: ModelCard | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """That it was taken as a path, if it was."""
        return (f"{self.path} was taken as a path; nodes have it as {self.name}.",) if self.path else ()


async def find_model(
    reference: str,
    members: Sequence[Member],
    open_model: OpenModel,
    on_progress: OnProgress,
    *,
    needed: Collection[str] = (),
) -> FoundModel:
    """The model that `reference` means, on those of the usable `members` that have it, each asked by `open_model`.

    A node that answers nonsense, comes no further or is lost meanwhile is left out, with the reason in the notes; if it
    is among the `needed`, by its name or id, its error is raised.
    `on_progress(node, done_bytes, total_bytes)` while files that were never seen are indexed; the node is "" for
    this machine. Raises ModelNotFoundError, ModelMismatchError, and what a node says of its files.
    """
    meaning = await _meaning(reference, members, on_progress)
    name = meaning.name
    answers = await all_of(_card(member, name, open_model, on_progress) for member in meaning.members)
    asked = list(zip(meaning.members, answers, strict=True))
    cards = [(member, card) for member, card in asked if isinstance(card, ModelCard)]
    failed = {member.name: error for member, error in asked if not isinstance(error, ModelCard)}
    for member, error in asked:
        if isinstance(error, LayerlineError) and (not cards or is_one_of(member, needed)):
            raise error
    (first, card), own = cards[0], meaning.own
    for member, other in cards:
        _require_same(own or card, "this machine" if own else f"node {first.name}", other, member.name)
    without = [member for member in members if all(member is not other for other in meaning.members)]
    notes = (
        *meaning.notes,
        *card.notes,
        *(f"Node {member.name} is left out: it has no model {name} in its models folder." for member in without),
        *(f"Node {node} is left out: {error.message}" for node, error in failed.items()),
    )
    nodes = tuple(member.facts for member, _ in cards if member.facts)
    return FoundModel(card=replace(card, name=name), nodes=nodes, notes=notes)


async def is_of_digest(reference: str, members: Sequence[Member], open_model: OpenModel, digest: str) -> bool:
    """Whether the model that `reference` means has weights of that digest.

    Files that were never indexed are, if a model of that digest is as large as they are. Raises as `find_model` does.
    """
    listings = list(_listings(members))
    name = listed_name(reference, {listing.name for listing in listings})
    asked = [listing for listing in listings if listing.name == name]
    if any(listing.digest not in ("", digest) for listing in asked):
        return False
    sizes = {listing.size_bytes for listing in listings if listing.digest == digest}
    if any(listing.size_bytes not in sizes for listing in asked):
        return False
    if asked and all(listing.digest for listing in asked):
        return True
    found = await find_model(reference, members, open_model, lambda _node, _done, _total: None)
    return found.card.digest == digest


def is_one_of(member: Member, names: Collection[str]) -> bool:
    """Whether `member` is meant by one of `names`, which are names or ids of nodes."""
    return member.name in names or (member.facts is not None and member.facts.node_id in names)


async def _meaning(reference: str, members: Sequence[Member], on_progress: OnProgress) -> _Meaning:
    """Listed names first; then a path of this machine, by what it ends in or by the weights that are there."""
    listed = sorted({model.name for member in members if member.facts for model in member.facts.models})
    path = await asyncio.to_thread(_model_here, reference)
    name = name_as_listed(reference, listed)
    if name is not None:
        return _Meaning(name=name, members=_having(members, name))
    name = await asyncio.to_thread(listed_name, reference, listed)
    if path is None:
        if name is None:
            await asyncio.to_thread(_refuse_other_folder, reference)
            raise _not_found(reference, members, is_path=False)
        return _Meaning(name=name, members=_having(members, name))
    own = await _own_card(Path(path), composed(Path(path).name), on_progress)
    name = name or next((model.name for model in _listings(members) if model.digest == own.digest), None)
    if name is None:
        raise _not_found(path, members, is_path=True)
    return _Meaning(name=name, members=_having(members, name), path=path, own=own)


def _model_here(reference: str) -> str | None:
    """Where on this machine `reference` is a model; a link there may have lost the suffix of what it leads to."""
    path = path_here(reference)
    return path if path and (is_model(Path(path)) or is_model(Path(path).resolve())) else None


def _refuse_other_folder(reference: str) -> None:
    """ModelUnsupportedError if `reference` is a folder of this machine with something that is no model."""
    if path := path_here(reference):
        refuse_other_folder(Path(path))


def _listings(members: Sequence[Member]) -> Iterator[ModelListing]:
    for member in members:
        yield from member.facts.models if member.facts else ()


def _having(members: Sequence[Member], name: str) -> tuple[Member, ...]:
    return tuple(member for member in members if any(model.name == name for model in _listings([member])))


async def _own_card(path: Path, name: str, on_progress: OnProgress) -> ModelCard:
    """The card of the model at `path`, made by a child, as its files may be anybody's; made once."""
    folder = platformdirs.user_cache_path("layerline") / "cards"
    kept = await asyncio.to_thread(CardCache(folder).card_cached, path)
    if kept is not None:
        return replace(kept, name=name)
    with temporary_folder() as work:
        card_path = work / "card"
        await index_apart(path, name, folder, card_path, lambda done, total: on_progress("", done, total))
        return await asyncio.to_thread(card_at, card_path, name)


async def _card(
    member: Member, listed: str, open_model: OpenModel, on_progress: OnProgress
) -> ModelCard | LayerlineError:
    """The member's card, or what it failed with that is its own matter; what it says of the files is raised."""
    try:
        return await open_model(member.peer, listed, lambda done, total: on_progress(member.name, done, total))
    except (NodeError, WireError, DeadlineError, InternalError, OverloadedError) as error:
        return error


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
