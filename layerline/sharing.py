"""How the devices of a stage share its layers, as data: what planner, daemon and ranks derive all parts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from layerline.checks import require, require_one_of

MAX_DEVICES = 64  # of a stage
MAX_PROPORTION = 1_000_000
MAX_REPEATS = 256
MOST_COMING = 2  # experts of a layer, to a rank in one move, for which it has room beside those it has
MOST_EXPERTS = 1 << 12  # of a layer
SHARING_OF_EXPERTS = ("split", "spread")

SharingOfExperts = Literal["split", "spread"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """So many `devices` share in `proportions` (empty: all the same).

    Each has some heads, some columns of the feed-forward, and part of the vocabulary. Where `experts` are "split" it
    has some columns of every expert. Where they are "spread" it has some experts whole, with room for `repeats` more in
    each layer, and heads are only on the first `attention_devices` (0: on all). If some lie `beside`, on another
    device, `device_experts` of those that each has lie on itself.
    """

    devices: int = 1
    proportions: tuple[int, ...] = ()
    experts: str = "split"
    attention_devices: int = 0
    repeats: int = 0
    beside: bool = False
    device_experts: int = 0

    def __post_init__(self) -> None:
        require(0 < self.devices <= MAX_DEVICES, f"a stage needs 1 to {MAX_DEVICES} devices")
        require(len(self.proportions) in (0, self.devices), "a stage needs a proportion for each device, or none")
        require(
            all(0 < proportion <= MAX_PROPORTION for proportion in self.proportions),
            f"proportions must be 1 to {MAX_PROPORTION}",
        )
        require_one_of(self.experts, SHARING_OF_EXPERTS, "experts")
        require(0 <= self.attention_devices <= self.devices, "attention on more devices than there are")
        require(0 <= self.repeats <= MAX_REPEATS, f"repeats must be 0 to {MAX_REPEATS}")
        require(self.beside or not self.device_experts, "device_experts without an expert_device")
        require(0 <= self.device_experts <= MOST_EXPERTS, "device_experts out of range")
        require(not (self.beside and self.repeats), "experts that lie beside their devices are there once")
        only_split = not (self.repeats or self.beside) and self.attention_devices in (0, self.devices)
        require(
            self.experts == "spread" or only_split,
            "experts that are not spread are on the devices that have attention, once",
        )

    @property
    def spreads(self) -> bool:
        """Whether each device has some experts whole."""
        return self.experts == "spread" and (self.devices > 1 or self.beside)

    @property
    def with_heads(self) -> int:
        """How many of the devices have heads."""
        return self.attention_devices or self.devices

    @property
    def weights(self) -> tuple[int, ...]:
        """The proportions, all of them said."""
        return self.proportions or (1,) * self.devices
