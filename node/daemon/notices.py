"""What a daemon says of itself on its standard error, and how its log is written there: one readable line an event."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from layerline import printable
from layerline.facts import DeviceFacts, ModelListing, NodeFacts
from layerline.units import format_bytes
from node.daemon.devices.readings import Speed

MAX_MODELS_TOLD = 20

log = logging.getLogger(__name__)


def log_to_standard_error() -> None:
    """Sends this program's log there."""
    printable.log_to_standard_error(logging.INFO, "%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
    logging.getLogger("zeroconf").setLevel(logging.ERROR)  # it warns, at length, of interfaces without a network


def greet(facts: NodeFacts, *, mdns: bool) -> None:
    """Says who this node is, where it is met, what it has, and how to prompt it."""
    log.info(
        "Node %s (id %s), layerline %s, wire version %d.", facts.name, facts.node_id, facts.version, facts.wire_version
    )
    log.info("Listening on %s.", ", ".join(facts.addresses))
    for device in facts.devices:
        log.info("%s", _device_line(device))
    log.info("%s", _models_line(facts.models_folder, facts.models))
    model = facts.models[0].name if facts.models else "MODEL"
    node = "" if mdns else f" --node {facts.addresses[0]}"
    log.info('To prompt, from any machine of this network: layerline prompt "Hello" --model %s%s', model, node)


def tell_measured(speeds: Mapping[str, Speed], all_reduce_us: float) -> None:
    """Says what was measured; 0 microseconds were not."""
    for device, speed in speeds.items():
        log.info(
            "Device %s computes %.3g TFLOP/s and reads %.3g GB/s%s.",
            device,
            speed.matrix_flops_per_s / 1e12,
            speed.memory_bytes_per_s / 1e9,
            "; other programs ran meanwhile, so it is measured again later" if speed.busy else "",
        )
    if all_reduce_us:
        log.info("One all-reduce between %s takes %.3g us.", " and ".join(speeds), all_reduce_us)


def _device_line(device: DeviceFacts) -> str:
    threads = f", {device.threads} threads" if device.threads else ""
    budget, total = format_bytes(device.budget_bytes), format_bytes(device.total_bytes)
    return f"Device {device.device} ({device.name}{threads}): models may take {budget} of {total}."


def _models_line(folder: str, models: tuple[ModelListing, ...]) -> str:
    if not models:
        return f"No models in {folder}: put GGUF files there, or name another folder with --models."
    told = [f"{model.name} ({format_bytes(model.size_bytes)})" for model in models[:MAX_MODELS_TOLD]]
    more = f" and {len(models) - MAX_MODELS_TOLD} more" if len(models) > MAX_MODELS_TOLD else ""
    return f"Models in {folder}: {', '.join(told)}{more}."
