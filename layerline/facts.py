"""What a node says about itself: devices, models in its folder, what it has loaded and who holds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from layerline.addresses import MAX_ADDRESSES, split_address
from layerline.checks import require, require_name, require_one_of, require_text
from layerline.plan import StageSpec
from layerline.sharing import MAX_DEVICES

NODE_STATES = ("starting", "ready", "draining")
DEVICE_KINDS = ("cpu", "cuda", "mps")
ALL_REDUCE_BYTES = 8192  # what an all-reduce is timed with: one row of 4,096 numbers in bfloat16
MAX_ALL_REDUCE_US = 1e9
MAX_MODELS = 4_096
MAX_STAGES = 64
MAX_THREADS = 1 << 16
MOST_BYTES = 1 << 56  # far over any machine's memory or disk, and a number that every wire and float can have


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceFacts:
    """One accelerator, or a CPU with a number of threads. Speeds are 0 until measured.

    `measured_while_busy`: other programs ran meanwhile, so they may be too low; they are measured again.
    """

    device: str
    kind: str
    name: str
    threads: int = 0
    total_bytes: int
    free_bytes: int
    budget_bytes: int  # what models may take here; what this node's loaded stage takes counts as free
    matrix_flops_per_s: float = 0.0
    memory_bytes_per_s: float = 0.0
    measured_while_busy: bool = False
    kernels: str = ""  # what multiplies weights as stored: an instruction set of our kernels, or triton; or nothing

    def __post_init__(self) -> None:
        require_name(self.device, "device")
        require_one_of(self.kind, DEVICE_KINDS, "device kind")
        require_text(self.name, "device name")
        require_text(self.kernels, "kernels")
        require(0 <= self.threads <= MAX_THREADS, f"a device has over {MAX_THREADS} threads")
        sizes = (self.total_bytes, self.free_bytes, self.budget_bytes)
        require(all(0 <= size < MOST_BYTES for size in sizes), "a device's memory is no sensible number")
        speeds = (self.matrix_flops_per_s, self.memory_bytes_per_s)
        require(all(speed == 0.0 or 1.0 <= speed < 1e18 for speed in speeds), "a measured speed is no sensible number")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelListing:
    """A model in a node's models folder; `digest` is empty until its files have been indexed."""

    name: str
    digest: str = ""
    size_bytes: int

    def __post_init__(self) -> None:
        require_name(self.name, "model name")
        require_text(self.digest, "digest of a model")
        require(0 <= self.size_bytes < MOST_BYTES, "a model's size is no sensible number")


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """The coordinator that a node obeys: its own name for itself, and its address.

    One that `takes_requests` takes them at `address`; of another it is what the connection shows. `instance` is that of
    its hello, by which a coordinator knows its own holds whatever others are called.
    """

    coordinator: str
    address: str
    instance: str
    takes_requests: bool = False

    def __post_init__(self) -> None:
        require_name(self.coordinator, "name of a coordinator")
        require_text(self.address, "address of a coordinator")
        if self.takes_requests:
            split_address(self.address)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedStage:
    """A stage that a node has in memory."""

    spec: StageSpec
    weights_bytes: int
    kv_bytes: int

    def __post_init__(self) -> None:
        sizes = (self.weights_bytes, self.kv_bytes)
        require(all(0 <= size < MOST_BYTES for size in sizes), "a loaded stage's memory is no sensible number")


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """The answer to `Describe`.

    `all_reduce_us` is the time of one all-reduce of ALL_REDUCE_BYTES between all its devices of one kind; 0 until
    measured, and where there is only one device.
    """

    node_id: str
    name: str
    version: str
    wire_version: int
    state: str
    addresses: tuple[str, ...] = ()
    devices: tuple[DeviceFacts, ...] = ()
    models: tuple[ModelListing, ...] = ()
    loaded: tuple[LoadedStage, ...] = ()
    held_by: Holder | None = None
    last_epoch: int = 0
    models_folder: str = field(default="")
    all_reduce_us: float = 0.0

    def __post_init__(self) -> None:
        require_name(self.node_id, "node id")
        require_name(self.name, "node name")
        require_one_of(self.state, NODE_STATES, "node state")
        require_text(self.version, "version")
        require_text(self.models_folder, "models folder")
        require(len(self.addresses) <= MAX_ADDRESSES, f"more than {MAX_ADDRESSES} addresses")
        for address in self.addresses:
            split_address(address)
        require(len(self.models) <= MAX_MODELS, f"more than {MAX_MODELS} models")
        require(len(self.loaded) <= MAX_STAGES, f"more than {MAX_STAGES} loaded stages")
        names = [device.device for device in self.devices]
        require(len(set(names)) == len(names), "a device is named twice")
        require(len(names) <= MAX_DEVICES, f"more than {MAX_DEVICES} devices")
        require(0.0 <= self.all_reduce_us <= MAX_ALL_REDUCE_US, "a measured time is not a sensible number")

    def model(self, name: str) -> ModelListing | None:
        """The listing of the model called `name`, if this node has it."""
        return next((listing for listing in self.models if listing.name == name), None)
