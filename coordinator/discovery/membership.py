"""Which nodes there are, which of them can be used, and why the others cannot.

Pure: it is told of leads (adverts and addresses given by hand) and of the answers to asking them, with the time.
It decides whom to ask, when the search has taken long enough, and who is a member. Liveness is answering, nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from layerline.facts import NodeFacts
from layerline.mdns import Advert
from layerline.reports import NodeReport
from layerline.version import WIRE_VERSION

# Nodes are complete once none new has appeared for so long: one that has just said its name says it again only after
# a second. Commands look for a coordinator for 1.5 s anyway.
QUIET_S = 1.3
NONE_FOUND_S = 3.0
LONGEST_S = 10.0  # of one search, whatever is still awaited
ASK_AGAIN_S = 0.5
MAX_ASKED_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Lead:
    """Somewhere that a node may be: what its advert says, or an address given by hand."""

    label: str  # what people know it by
    addresses: tuple[str, ...]
    advert: Advert | None = None

    @classmethod
    def of_advert(cls, advert: Advert) -> Lead:
        """The lead that an advert gives."""
        return cls(label=advert.name, addresses=advert.addresses, advert=advert)

    @classmethod
    def by_hand(cls, address: str) -> Lead:
        """The lead that `--node` gives."""
        return cls(label=address, addresses=(address,))


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A node answered on `address`."""

    address: str
    facts: NodeFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Unanswered:
    """No node answered: what came of each address that was tried."""

    failures: tuple[tuple[str, str], ...]


Outcome = Answered | Unanswered


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One node that was found. `unusable` says why it cannot be used, and is empty if it can."""

    name: str
    address: str  # where it answers, empty if it does not
    facts: NodeFacts | None
    unusable: str = ""

    @property
    def report(self) -> NodeReport:
        """What users are told of it."""
        return NodeReport(name=self.name, address=self.address, unusable=self.unusable, facts=self.facts)


class Membership:
    """One search, begun at `began_s`, by the coordinator of that name.

    With `wait_for_starting`, nodes that still measure their devices are asked again until they are ready.
    """

    def __init__(
        self, *, coordinator: str, began_s: float, wait_for_starting: bool = True, wire_version: int = WIRE_VERSION
    ) -> None:
        self._coordinator = coordinator
        self._began_s = began_s
        self._wait_for_starting = wait_for_starting
        self._wire_version = wire_version
        self._outcomes: dict[Lead, Outcome | None] = {}
        self._asked_s: dict[Lead, float] = {}
        self._asking: set[Lead] = set()

    def to_ask(self, leads: Sequence[Lead], now_s: float) -> tuple[Lead, ...]:
        """The leads to ask now, new ones and nodes that are starting; they count as asked. Leads may vanish."""
        for lead in [lead for lead in self._outcomes if lead not in leads and not self._has_answered(lead)]:
            del self._outcomes[lead]
            self._asking.discard(lead)
        due = [lead for lead in dict.fromkeys(leads) if self._is_due(lead, now_s)]
        asked = due[: MAX_ASKED_AT_ONCE - len(self._asking)]
        for lead in asked:
            self._outcomes.setdefault(lead, None)
            self._asked_s[lead] = now_s
        self._asking.update(asked)
        return tuple(asked)

    def note(self, lead: Lead, outcome: Outcome) -> None:
        """What came of asking `lead`. A node that answered once is not forgotten for one answer missed."""
        if lead in self._outcomes and not (self._has_answered(lead) and isinstance(outcome, Unanswered)):
            self._outcomes[lead] = outcome
        self._asking.discard(lead)

    def wait_s(self, now_s: float, *, opened_s: float, newest_s: float) -> float:
        """Seconds until the search has taken long enough, if nothing more happens; 0 if it has.

        `opened_s` is when leads began to come in and `newest_s` when the last new one did.
        """
        longest_s = max(0.0, self._began_s + LONGEST_S - now_s)
        if self._asking:
            return longest_s
        if not any(isinstance(outcome, Answered) for outcome in self._outcomes.values()):
            return min(longest_s, max(0.0, opened_s + NONE_FOUND_S - now_s))
        quiet_s = max(0.0, newest_s + QUIET_S - now_s)
        if self._wait_for_starting and any(_is_starting(outcome) for outcome in self._outcomes.values()):
            quiet_s = ASK_AGAIN_S
        return min(longest_s, quiet_s)

    def members(self) -> tuple[Member, ...]:
        """Every node found, by name. Leads to the same node are one member."""
        answered = [outcome for outcome in self._outcomes.values() if isinstance(outcome, Answered)]
        silent = [
            _silent_member(lead, outcome, self._wire_version)
            for lead, outcome in self._outcomes.items()
            if not isinstance(outcome, Answered) and not _is_known(lead, answered)
        ]
        by_id: dict[str, list[Answered]] = defaultdict(list)
        for outcome in answered:
            by_id[outcome.facts.node_id].append(outcome)
        found = [member for same_id in by_id.values() for member in self._members_of_id(same_id)]
        return tuple(sorted([*found, *silent], key=lambda member: (member.name, member.address)))

    def _members_of_id(self, answered: Sequence[Answered]) -> list[Member]:
        """One member for each daemon that has the id; it should be one."""
        daemons: dict[frozenset[str], Answered] = {}
        for each in answered:
            daemons.setdefault(frozenset(each.facts.addresses), each)
        if len(daemons) == 1:
            return [_member(each, self._why_unusable(each.facts)) for each in daemons.values()]
        places = " and ".join(f"{each.facts.name} at {each.address}" for each in daemons.values())
        why = f"the node id {answered[0].facts.node_id} is claimed by {places}; stop all but one of them"
        return [_member(each, why) for each in daemons.values()]

    def _why_unusable(self, facts: NodeFacts) -> str:
        holder = facts.held_by
        if facts.wire_version != self._wire_version:
            return _other_version(facts.wire_version, self._wire_version)
        if facts.state == "draining":
            return "it is shutting down"
        if facts.state == "starting":
            return "it is starting and still measures its devices; try again in a few seconds"
        if holder is not None and holder.coordinator != self._coordinator:
            return f"it is held by the coordinator {holder.coordinator} at {holder.address}"
        return ""

    def _has_answered(self, lead: Lead) -> bool:
        return isinstance(self._outcomes.get(lead), Answered)

    def _is_due(self, lead: Lead, now_s: float) -> bool:
        if lead in self._asking:
            return False
        outcome = self._outcomes.get(lead)
        if outcome is None:
            return True
        overdue = now_s >= self._asked_s[lead] + ASK_AGAIN_S
        return self._wait_for_starting and _is_starting(outcome) and overdue


def unusable_notes(members: Iterable[Member]) -> tuple[str, ...]:
    """A sentence for each member that cannot be used."""
    return tuple(f"{member.name} cannot be used: {member.unusable}." for member in members if member.unusable)


def _member(answered: Answered, unusable: str) -> Member:
    return Member(name=answered.facts.name, address=answered.address, facts=answered.facts, unusable=unusable)


def _silent_member(lead: Lead, outcome: Outcome | None, wire_version: int) -> Member:
    failures = outcome.failures if isinstance(outcome, Unanswered) else ()
    tried = ", ".join(f"{address} ({failure})" for address, failure in failures)
    why = f"it does not answer on {tried}" if tried else "it has not answered yet"
    if lead.advert is not None and lead.advert.wire_version != wire_version:
        why = f"{_other_version(lead.advert.wire_version, wire_version)}; {why}"
    return Member(name=lead.label, address="", facts=None, unusable=why)


def _other_version(theirs: int, ours: int) -> str:
    return (
        f"it speaks wire version {theirs} and this coordinator speaks {ours};"
        " install the same version of layerline on both"
    )


def _is_starting(outcome: Outcome | None) -> bool:
    return isinstance(outcome, Answered) and outcome.facts.state == "starting"


def _is_known(lead: Lead, answered: Sequence[Answered]) -> bool:
    """Whether a silent advert is of a node that answered elsewhere: it has moved, or was restarted."""
    return lead.advert is not None and any(each.facts.node_id == lead.advert.node_id for each in answered)
