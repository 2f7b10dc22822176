"""One search for nodes: whom it asks, for whom it waits and for how long, given what is known of the cluster.

Pure. A search that can be answered from nodes that are known waits for their answers only; one that begins as mDNS
does waits until no new node has appeared for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coordinator.discovery.cluster import Answered, Cluster, Known
from layerline.addresses import split_address

# Nodes are complete once none new has appeared for so long: one that has just said its name says it again only after
# a second.
QUIET_S = 1.3
NONE_FOUND_S = 3.0
SILENT_S = 3.0  # how long addresses that do not answer are waited for, once a node has answered
LONGEST_S = 10.0  # of one search, whatever is still awaited; but for nodes that are starting
STARTING_S = 60.0  # how long a node may measure its devices, while others wait for it
ASK_AGAIN_S = 0.5
MAX_ASKED_AT_ONCE = 400
PATIENCE_S = 2.0  # with one address
# With all addresses of one lead, where there are more leads than can be asked at once: most of them are forged.
CROWD_PATIENCE_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """A search begun at `began_s` that takes at most `deadline_s`, or `starting_s` where a node is starting."""

    began_s: float
    deadline_s: float = LONGEST_S
    starting_s: float = STARTING_S

    def to_ask(self, cluster: Cluster, now_s: float) -> tuple[Known, ...]:
        """Whom to ask now: those not asked yet, known nodes first, and again those that are starting."""
        asking = sum(known.asking for known in cluster.known.values())
        due = [known for known in cluster.known.values() if self._is_due(known, now_s)]
        return tuple(_fairest(due, cluster, MAX_ASKED_AT_ONCE - asking))

    def lead_patience_s(self, cluster: Cluster, known: Known) -> float | None:
        """How long all addresses of `known` together may take; bounded only among very many that never answered."""
        is_crowd = len(cluster.known) > MAX_ASKED_AT_ONCE and known.answer is None
        return CROWD_PATIENCE_S if is_crowd else None

    def answers(self, cluster: Cluster) -> tuple[Answered, ...]:
        """What nodes have answered since it began, whichever search asked them."""
        answers = (known.answered_since(self.began_s) for known in cluster.known.values())
        return tuple(answer for answer in answers if answer)

    def wait_s(self, cluster: Cluster, now_s: float, *, opened_s: float, newest_s: float) -> float:
        """Seconds until the search has taken long enough, if nothing more happens; 0 if it has.

        `opened_s` is when adverts began to come in and `newest_s` when the last new one did.
        """
        until_s = self._until_s(cluster, opened_s, newest_s)
        if self.starting(cluster):
            return max(0.0, min(self.began_s + self.starting_s, now_s + ASK_AGAIN_S) - now_s)
        return max(0.0, min(self.began_s + self.deadline_s, until_s) - now_s)

    def starting(self, cluster: Cluster) -> tuple[str, ...]:
        """The names of the nodes that still measure their devices, if this search waits for them."""
        if self.starting_s <= 0:
            return ()
        return tuple(sorted({name for known in cluster.known.values() for name in self._starting_name(known)}))

    def _until_s(self, cluster: Cluster, opened_s: float, newest_s: float) -> float:
        """When it has taken long enough."""
        awaited = any(self._is_awaited(known) for known in cluster.known.values())
        if not self.answers(cluster):
            return self.began_s + self.deadline_s if awaited else opened_s + NONE_FOUND_S
        quiet_s = newest_s + QUIET_S
        return max(quiet_s, self.began_s + SILENT_S) if awaited else quiet_s

    def _is_awaited(self, known: Known) -> bool:
        if known.answered_since(self.began_s):
            return False
        return known.asking or not known.asked_since(self.began_s)

    def _is_due(self, known: Known, now_s: float) -> bool:
        if known.asking:
            return False
        if not known.asked_since(self.began_s):
            return True
        overdue = known.asked_s is not None and now_s >= known.asked_s + ASK_AGAIN_S
        return overdue and bool(self._starting_name(known))

    def _starting_name(self, known: Known) -> Sequence[str]:
        answer = known.answered_since(self.began_s) if self.starting_s > 0 else None
        return (answer.facts.name,) if answer and answer.facts.state == "starting" else ()


def _fairest(due: Sequence[Known], cluster: Cluster, most: int) -> Iterable[Known]:
    """At most `most` of `due`: nodes that answered before, then such that no host has many before any other has one.

    Anybody may send any number of adverts, but has only so many addresses to answer from.
    """
    if len(due) <= most:
        return due
    asked = Counter(_host(known) for known in cluster.known.values() if known.asked_s is not None and not known.answer)
    turns: list[tuple[bool, int, int]] = []
    for number, known in enumerate(due):
        host = _host(known)
        turns.append((known.answer is None, asked[host], number))
        asked[host] += 1
    return (due[number] for _, _, number in sorted(turns)[: max(0, most)])


def _host(known: Known) -> str:
    return split_address(known.lead.addresses[0])[0]
