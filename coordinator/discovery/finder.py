"""Finds the nodes: follows the leads of the browser and those given by hand until the search is settled.

The one place of discovery that waits. What the answers mean is the business of `membership`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from coordinator.discovery.asking import Describe, ask
from coordinator.discovery.browser import Lookout
from coordinator.discovery.membership import Lead, Member, Membership, Outcome
from layerline.addresses import split_address
from layerline.errors import NoNodesError, UsageError

HOW_TO_START = (
    "Start a node with `layerline node` on each machine. Where multicast is blocked (a firewall on UDP port 5353,"
    " guest Wi-Fi, VPN, another subnet), name the nodes with --node HOST:PORT."
)


class Finder:
    """Searches with one lookout, and the addresses given by hand; `coordinator` is this coordinator's own name."""

    def __init__(self, lookout: Lookout, by_hand: Sequence[str], describe: Describe, *, coordinator: str) -> None:
        self._lookout = lookout
        self._by_hand = tuple(Lead.by_hand(address) for address in checked_addresses(by_hand))
        self._describe = describe
        self._coordinator = coordinator

    async def members(self, *, wait_for_starting: bool = True) -> tuple[Member, ...]:
        """Every node there is now, usable or not, each asked anew."""
        clock = asyncio.get_running_loop().time
        membership = Membership(coordinator=self._coordinator, began_s=clock(), wait_for_starting=wait_for_starting)
        asking: dict[asyncio.Task[Outcome], Lead] = {}
        try:
            while True:
                changed, now_s = self._lookout.changed, clock()
                for lead in membership.to_ask(self._leads(), now_s):
                    asking[asyncio.create_task(ask(lead, self._describe))] = lead
                wait_s = membership.wait_s(
                    now_s, opened_s=self._since(self._lookout.opened_s), newest_s=self._since(self._lookout.newest_s)
                )
                if wait_s == 0:
                    return membership.members()
                await _first_of(changed, asking, wait_s)
                for task in [task for task in asking if task.done()]:
                    membership.note(asking.pop(task), task.result())
        finally:
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

    def _leads(self) -> tuple[Lead, ...]:
        return (*self._by_hand, *(Lead.of_advert(advert) for advert in self._lookout.adverts))

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


async def _first_of(changed: asyncio.Event, asking: dict[asyncio.Task[Outcome], Lead], wait_s: float) -> None:
    """Waits until adverts change, a lead was asked, or `wait_s` are over."""
    change = asyncio.create_task(changed.wait())
    try:
        await asyncio.wait([change, *asking], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        change.cancel()
        await asyncio.gather(change, return_exceptions=True)
