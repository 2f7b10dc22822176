"""Which nodes there are, which of them can be used, and why the others cannot. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coordinator.discovery.cluster import Answered, Cluster, Known
from layerline.addresses import MAX_ADDRESSES
from layerline.facts import ModelListing, NodeFacts
from layerline.peer import Peer
from layerline.reports import NodeReport
from layerline.version import WIRE_VERSION

MAX_SILENT_TOLD = 32  # more than that are somebody's flood of adverts


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One node that was found. `unusable` says why it cannot be used, and is empty if it can.

    `addresses` are all of its control port: first where it answers, last where nobody did.
    """

    name: str
    address: str  # where it answers, empty if it does not
    facts: NodeFacts | None
    unusable: str = ""
    addresses: tuple[str, ...] = ()

    @property
    def peer(self) -> Peer:
        """Its control port; of a member that answers."""
        return Peer(name=self.name, addresses=self.addresses[:MAX_ADDRESSES])

    @property
    def models(self) -> tuple[ModelListing, ...]:
        """The models that can be used from it, now or once it has measured its devices."""
        if self.facts is None or (self.unusable and self.facts.state != "starting"):
            return ()
        return self.facts.models

    @property
    def report(self) -> NodeReport:
        """What users are told of it."""
        return NodeReport(name=self.name, address=self.address, unusable=self.unusable, facts=self.facts)


def members(cluster: Cluster, *, since_s: float, instance: str, wire_version: int = WIRE_VERSION) -> tuple[Member, ...]:
    """Every node of which something was heard since that moment, or that was asked and did not answer, by name.

    Leads to the same node are one member. `instance` is that of the coordinator that asks: what it holds it can use.
    """
    answers = [(known, answer) for known in cluster.known.values() if (answer := known.answered_since(since_s))]
    ids = {answer.facts.node_id for _, answer in answers}
    silent = [
        _silent_member(known, wire_version)
        for known in cluster.known.values()
        if not known.answered_since(since_s) and not _is_of(known, ids)
    ]
    by_id: dict[str, list[tuple[Known, Answered]]] = defaultdict(list)
    for known, answer in answers:
        by_id[answer.facts.node_id].append((known, answer))
    found = [member for same_id in by_id.values() for member in _of_one_id(same_id, instance, wire_version)]
    return tuple(sorted([*found, *_told(silent)], key=lambda member: (member.name, member.address)))


def unusable_notes(found: Iterable[Member]) -> tuple[str, ...]:
    """A sentence for each member that cannot be used."""
    return tuple(f"{member.name} cannot be used: {member.unusable}." for member in found if member.unusable)


def _of_one_id(answers: Sequence[tuple[Known, Answered]], instance: str, wire_version: int) -> list[Member]:
    """One member for each daemon that has the id; it should be one."""
    daemons: dict[frozenset[str], tuple[Known, Answered]] = {}
    for known, answer in answers:
        daemons.setdefault(frozenset(answer.facts.addresses), (known, answer))
    if len(daemons) == 1:
        return [
            _member(known, answer, _why_unusable(answer.facts, instance, wire_version))
            for known, answer in daemons.values()
        ]
    places = " and ".join(f"{answer.facts.name} at {answer.address}" for _, answer in daemons.values())
    why = f"the node id {answers[0][1].facts.node_id} is claimed by {places}; stop all but one of them"
    return [_member(known, answer, why) for known, answer in daemons.values()]


def _why_unusable(facts: NodeFacts, instance: str, wire_version: int) -> str:
    holder = facts.held_by
    if facts.wire_version != wire_version:
        return _other_version(facts.wire_version, wire_version)
    if facts.state == "draining":
        return "it is shutting down"
    if facts.state == "starting":
        return "it is starting and still measures its devices; try again in a few seconds"
    if holder is not None and holder.instance != instance:
        return f"it is held by the coordinator {holder.coordinator} at {holder.address}"
    return ""


def _member(known: Known, answer: Answered, unusable: str) -> Member:
    failed = [address for address, _ in answer.failures]
    addresses = dict.fromkeys([*known.addresses, *answer.facts.addresses])
    return Member(
        name=answer.facts.name,
        address=answer.address,
        facts=answer.facts,
        unusable=unusable,
        addresses=tuple(sorted(addresses, key=failed.__contains__)),
    )


def _silent_member(known: Known, wire_version: int) -> Member:
    advert = known.lead.advert
    tried = ", ".join(f"{address} ({failure})" for address, failure in known.failures or ())
    why = f"it does not answer on {tried}" if tried else "it has not answered yet"
    if advert is not None and advert.wire_version != wire_version:
        why = f"{_other_version(advert.wire_version, wire_version)}; {why}"
    name = known.answer.facts.name if known.answer else known.lead.label
    return Member(name=name, address="", facts=None, unusable=why)


def _told(silent: Sequence[Member]) -> Iterable[Member]:
    """The silent ones, as far as anybody can read so many."""
    if len(silent) <= MAX_SILENT_TOLD:
        return silent
    others = f"{len(silent) - MAX_SILENT_TOLD} others"
    why = "they are advertised and do not answer"
    return [*silent[:MAX_SILENT_TOLD], Member(name=others, address="", facts=None, unusable=why)]


def _other_version(theirs: int, ours: int) -> str:
    return (
        f"it speaks wire version {theirs} and this coordinator speaks {ours};"
        " install the same version of layerline on both"
    )


def _is_of(known: Known, ids: set[str]) -> bool:
    """Whether a silent advert is of a node that answered elsewhere: it was named by hand, too, or was restarted."""
    return known.lead.advert is not None and known.lead.advert.node_id in ids
