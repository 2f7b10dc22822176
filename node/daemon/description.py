"""What this node says of itself, put together at each question from those who know."""

from __future__ import annotations

import asyncio

from layerline.facts import NodeFacts
from layerline.hosting.ports import Listening
from layerline.mdns import MAX_TXT_BYTES, Advert
from layerline.version import WIRE_VERSION, __version__
from node.daemon.devices.readings import device_summary
from node.daemon.devices.watch import DeviceWatch
from node.daemon.hold.admission import HoldAdmission
from node.daemon.identity import Identity
from node.daemon.stages.keeper import StageKeeper
from node.daemon.stages.model_library import ModelLibrary


class Description:
    """The node's facts and advert."""

    def __init__(
        self,
        identity: Identity,
        listening: Listening,
        devices: DeviceWatch,
        library: ModelLibrary,
        keeper: StageKeeper,
        admission: HoldAdmission,
    ) -> None:
        self._identity = identity
        self._listening = listening
        self._devices = devices
        self._library = library
        self._keeper = keeper
        self._admission = admission

    async def facts(self) -> NodeFacts:
        """The answer to `Describe`."""
        models = await asyncio.to_thread(self._library.listings)
        return NodeFacts(
            node_id=self._identity.node_id,
            name=self._identity.name,
            version=__version__,
            wire_version=WIRE_VERSION,
            state=self._state(),
            addresses=self._listening.addresses(),
            devices=self._devices.facts(self._keeper.own_bytes),
            models=models,
            loaded=self._keeper.loaded,
            held_by=self._admission.holder,
            last_epoch=self._keeper.last_epoch,
            models_folder=str(self._library.folder),
            all_reduce_us=self._devices.all_reduce_us,
        )

    def advert(self, addresses: tuple[str, ...]) -> Advert:
        """What mDNS tells of this node at these addresses."""
        summary = device_summary(self._devices.facts(self._keeper.own_bytes))
        return Advert(
            node_id=self._identity.node_id,
            name=self._identity.name,
            version=__version__,
            wire_version=WIRE_VERSION,
            devices=summary.encode()[:MAX_TXT_BYTES].decode(errors="ignore"),
            addresses=addresses,
        )

    def _state(self) -> str:
        if self._admission.draining:
            return "draining"
        return "ready" if self._devices.measured else "starting"
