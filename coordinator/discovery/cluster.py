"""What is known of the nodes, as one immutable value, and what each event makes of it.

Kept from one search to the next, so that nodes which answered before are asked at once, where they answered, whatever
mDNS says or does not say meanwhile. Knows no sockets and no clock: events carry the time at which they happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from layerline.facts import NodeFacts
from layerline.mdns import Advert

Failures = tuple[tuple[str, str], ...]  # address, and what came of asking there


@dataclass(frozen=True, kw_only=True, slots=True)
class Lead:
    """Somewhere that a node may be: what its advert says, or an address given by hand. `key` is one for each place."""

    key: str
    label: str  # what people know it by
    addresses: tuple[str, ...]
    advert: Advert | None = None

    @classmethod
    def of_advert(cls, advert: Advert) -> Lead:
        """The lead that an advert gives; a later advert of the same node takes its place."""
        return cls(key=advert.service_name, label=advert.name, addresses=advert.addresses, advert=advert)

    @classmethod
    def by_hand(cls, address: str) -> Lead:
        """The lead that `--node` gives."""
        return cls(key=address, label=address, addresses=(address,))


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A node answered on `address`; what came of those that were tried before."""

    address: str
    facts: NodeFacts
    failures: Failures = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Unanswered:
    """No node answered."""

    failures: Failures


Outcome = Answered | Unanswered


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known of one lead. Times are of the clock of the events; None is never."""

    lead: Lead
    seen: bool = True  # it is advertised, or was given by hand
    asking: bool = False
    asked_s: float | None = None  # when it was last asked
    given_up: bool = False  # nobody waited for what came of that
    answer: Answered | None = None  # the last one
    heard_s: float | None = None  # when that came
    failures: Failures | None = None  # of the last asking, if nobody answered

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where to ask: first where it answered, and last where nobody did."""
        answered = [self.answer.address] if self.answer else []
        tried = self.failures or (self.answer.failures if self.answer else ())
        failed = {address for address, _ in tried}
        return tuple(dict.fromkeys([*answered, *sorted(self.lead.addresses, key=failed.__contains__)]))

    def answered_since(self, moment_s: float) -> Answered | None:
        """Its answer, if that came at `moment_s` or later."""
        return self.answer if self.heard_s is not None and self.heard_s >= moment_s else None

    def asked_since(self, moment_s: float) -> bool:
        """Whether it was asked at `moment_s` or later, and that was not given up."""
        return self.asked_s is not None and self.asked_s >= moment_s and not self.given_up


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A lead came, or changed."""

    lead: Lead


@dataclass(frozen=True, kw_only=True, slots=True)
class Gone:
    """The lead of that key is no longer advertised."""

    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A lead is being asked."""

    key: str
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What came of asking a lead."""

    key: str
    outcome: Outcome
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenUp:
    """Nobody waits for the answer of a lead any more."""

    key: str


Event = Seen | Gone | Asked | Told | GivenUp


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """What is known, by the leads' keys, in the order in which they came."""

    known: Mapping[str, Known] = field(default_factory=lambda: MappingProxyType({}))


def apply(cluster: Cluster, *events: Event) -> Cluster:
    """What is known once `events` have happened, in order. What is told of a lead that was forgotten is passed over."""
    known = dict(cluster.known)
    for event in events:
        key = event.lead.key if isinstance(event, Seen) else event.key
        after = _after(known.get(key), event)
        if after is None:
            known.pop(key, None)
        else:
            known[key] = after
    return Cluster(known=MappingProxyType(known))


def _after(known: Known | None, event: Event) -> Known | None:
    """What is known of a lead after an event, None if nothing is worth knowing."""
    if isinstance(event, Seen):
        return _seen(known, event.lead)
    if known is None:
        return None
    match event:
        case Gone():
            return replace(known, seen=False) if known.answer and known.failures is None else None
        case Asked():
            return replace(known, asking=True, asked_s=event.at_s, given_up=False)
        case Told():
            return _told(known, event)
        case GivenUp():
            return replace(known, asking=False, given_up=True)


def _told(known: Known, event: Told) -> Known | None:
    outcome = event.outcome
    if isinstance(outcome, Answered):
        return replace(known, asking=False, answer=outcome, heard_s=event.at_s, failures=None)
    # A goodbye does not unmake a node that answers, nor does one answer missed; both together do.
    return replace(known, asking=False, failures=outcome.failures) if known.seen else None


def _seen(known: Known | None, lead: Lead) -> Known:
    if known is None:
        return Known(lead=lead)
    if known.lead.addresses != lead.addresses:  # it has moved: whatever was asked was asked elsewhere
        return replace(known, lead=lead, seen=True, asked_s=None, failures=None)
    return replace(known, lead=lead, seen=True)
