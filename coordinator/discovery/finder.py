"""Finds the nodes: feeds what mDNS and the nodes say into what is known of the cluster, and asks as searches say.

The one place of discovery that waits. What is known stays from one search to the next.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence

from coordinator.discovery.browser import Lookout
from coordinator.discovery.cluster import (
    Answered,
    Asked,
    Cluster,
    Event,
    GivenUp,
    Gone,
    Lead,
    Outcome,
    Seen,
    Told,
    apply,
)
from coordinator.discovery.enquiry import Describe, ask
from coordinator.discovery.members import Member, members
from coordinator.discovery.search import LONGEST_S, PATIENCE_S, STARTING_S, Search
from layerline.addresses import split_address
from layerline.errors import NoNodesError, UsageError
from layerline.mdns import Advert

HOW_TO_START = (
    "Start a node with `layerline node` on each machine. Where multicast is blocked (a firewall on UDP port 5353,"
    " guest Wi-Fi, VPN, another subnet), name the nodes with --node HOST:PORT."
)

Enough = Callable[[Sequence[Member]], bool]
OnStarting = Callable[[Sequence[str]], None]


class Finder:
    """Searches with one lookout, and the addresses given by hand; `instance` is this coordinator's own."""

    def __init__(self, lookout: Lookout, by_hand: Sequence[str], describe: Describe, *, instance: str) -> None:
        self._lookout = lookout
        self._by_hand = tuple(Lead.by_hand(address) for address in checked_addresses(by_hand))
        self._describe = describe
        self._instance = instance
        self._cluster = Cluster()
        self._adverts: dict[str, Advert] = {}
        self._changed = asyncio.Event()
        for lead in self._by_hand:
            self._note(Seen(lead=lead))

    async def members(
        self,
        *,
        deadline_s: float = LONGEST_S,
        wait_for_starting: bool = True,
        enough: Enough = lambda _: False,
        on_starting: OnStarting = lambda _: None,
    ) -> tuple[Member, ...]:
        """Every node there is now, usable or not, each asked anew.

        Nodes that are known are asked at once, where they answered before. It takes until all have answered and no new
        one has appeared for a while, but no longer than `deadline_s`; or only until the nodes that answered are
        `enough`. With `wait_for_starting` nodes that still measure their devices are waited for, longer if need be;
        `on_starting` hears their names at once, and again if those change.
        """
        clock = asyncio.get_running_loop().time
        search = Search(began_s=clock(), deadline_s=deadline_s, starting_s=STARTING_S if wait_for_starting else 0.0)
        asking: dict[asyncio.Task[Outcome], str] = {}
        told_starting: tuple[str, ...] = ()
        judged: tuple[Answered, ...] = ()  # the answers that `enough` has judged
        try:
            while True:
                changed, seen = self._changed, self._lookout.changed
                self._take_adverts()
                now_s = clock()
                due = search.to_ask(self._cluster, now_s)
                self._note(*(Asked(key=known.lead.key, at_s=now_s) for known in due))
                for known in due:
                    lead_patience_s = search.lead_patience_s(self._cluster, known)
                    question = ask(known, self._describe, PATIENCE_S, lead_patience_s=lead_patience_s)
                    asking[asyncio.create_task(question)] = known.lead.key
                wait_s = self._wait_s(search, now_s)
                before, judged = judged, search.answers(self._cluster)
                if wait_s == 0 or (judged != before and enough(self._members(search))):
                    return self._members(search)
                if told_starting != (starting := search.starting(self._cluster)):
                    told_starting = starting
                    on_starting(starting)
                await _first_of(changed, seen, asking, wait_s)
                done = _done(asking)
                self._note(*(Told(key=asking.pop(task), outcome=task.result(), at_s=clock()) for task in done))
        finally:
            self._note(*(GivenUp(key=key) for key in asking.values()))
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    @property
    def searched(self) -> tuple[str, ...]:
        """The interfaces and addresses that are searched, for people."""
        return (*self._lookout.searched, *(lead.label for lead in self._by_hand))

    def nothing_found(self, members: Sequence[Member]) -> NoNodesError:
        """The refusal to go on when none of `members` can be used: what was looked for, where, with what result."""
        sentences = [self._summary(members), *self._where(), *self._what_was_junk()]
        return NoNodesError(" ".join(sentences), remedy=HOW_TO_START)

    def _members(self, search: Search) -> tuple[Member, ...]:
        return members(self._cluster, since_s=search.began_s, instance=self._instance)

    def _note(self, *events: Event) -> None:
        """These happened."""
        if events:
            self._cluster = apply(self._cluster, *events)
            event, self._changed = self._changed, asyncio.Event()
            event.set()

    def _take_adverts(self) -> None:
        """Notes what changed among the adverts."""
        before, now = self._adverts, dict(self._lookout.adverts)
        if before != now:
            came = [advert for key, advert in now.items() if before.get(key) != advert]
            gone = [Gone(key=key) for key in before if key not in now]
            self._note(*gone, *(Seen(lead=Lead.of_advert(advert)) for advert in came))
            self._adverts = now

    def _wait_s(self, search: Search, now_s: float) -> float:
        lookout = self._lookout
        opened_s, newest_s = self._since(lookout.opened_s), self._since(lookout.newest_s)
        return search.wait_s(self._cluster, now_s, opened_s=opened_s, newest_s=newest_s)

    def _since(self, moment_s: float) -> float:
        """`moment_s`, or long ago where no advert will ever come, so that none is waited for."""
        return -math.inf if self._lookout.failure else moment_s

    def _summary(self, members: Sequence[Member]) -> str:
        if not members:
            return "No node was found."
        reasons = "; ".join(f"{member.name}: {member.unusable}" for member in members)
        return f"No node can be used. {reasons}."

    def _where(self) -> list[str]:
        if self._lookout.failure:
            return [f"mDNS is not in use here: {self._lookout.failure}."]
        interfaces = ", ".join(self._lookout.searched) or "no interface, as none is up"
        return [f"Nodes were looked for by mDNS on {interfaces}."]

    def _what_was_junk(self) -> list[str]:
        count, reasons = self._lookout.junk
        if not count:
            return []
        records = "1 mDNS record was" if count == 1 else f"{count} mDNS records were"
        return [f"{records} passed over as junk, the last: {'; '.join(reasons)}."]


def checked_addresses(by_hand: Sequence[str]) -> tuple[str, ...]:
    """The addresses given with `--node`, each once; UsageError says what is wrong with one."""
    for address in by_hand:
        try:
            split_address(address)
        except ValueError as error:
            raise UsageError(f"--node: {error}.", remedy="Write it as in --node 192.168.1.20:7070.") from None
    return tuple(dict.fromkeys(by_hand))


def _done(asking: Iterable[asyncio.Task[Outcome]]) -> list[asyncio.Task[Outcome]]:
    return [task for task in asking if task.done()]


async def _first_of(
    changed: asyncio.Event, seen: asyncio.Event, asking: Iterable[asyncio.Task[Outcome]], wait_s: float
) -> None:
    """Waits until what is known changes, adverts change, a lead was asked, or `wait_s` are over."""
    changes = [asyncio.create_task(changed.wait()), asyncio.create_task(seen.wait())]
    try:
        await asyncio.wait([*changes, *asking], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for change in changes:
            change.cancel()
        await asyncio.gather(*changes, return_exceptions=True)
