"""Loading a stage: by the kernels where the plan has them compute, else by torch.

What computes is imported only when it is needed: torch alone takes two seconds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from layerline.errors import ModelMismatchError, PlanInvalidError
from layerline.models.card import ModelCard
from layerline.plan import StageSpec
from node.kernels.structures import TILE
from node.ranks.group import Alone, RankGroup
from node.slices.stage_part import StagePart
from node.slices.tensor_source import Progress
from node.stage import Stage
from node.step.computation import Computation


def load_stage(
    card: ModelCard,
    path: Path,
    spec: StageSpec,
    progress: Progress,
    group: RankGroup = Alone(),  # noqa: B008  # it has no state
    threads: int = 1,
) -> Stage:
    """The stage of `spec`, ready to compute: all of its layers, or what this rank of `group` has of them.

    Raises PlanInvalidError for a spec that no stage can be, StageFailedError for a device or kernels that are not
    there, ModelMismatchError and ModelCorruptError for files that are not what `spec` or `card` say, and RuntimeError
    or MemoryError if the device is full.
    """
    assert group.count == len(spec.devices), "a rank for each device"
    _check_spec(card, spec)
    if spec.long_context:
        card = replace(card, spec=card.spec.lengthened())
    own = StagePart.of(card, path, spec, group.rank)
    return Stage(card, spec, _computation(own, progress, group, threads))


def _computation(own: StagePart, progress: Progress, group: RankGroup, threads: int) -> Computation:
    if own.spec.precision:
        from node.native.computation import load_computation as load_native  # noqa: PLC0415

        return load_native(own, progress, group, threads)
    from node.model.torch_computation import load_computation as load_torch  # noqa: PLC0415

    if not own.spec.expert_device:
        return load_torch(own, progress, group, threads)
    from node.experts_beside import CpuBeside  # noqa: PLC0415

    beside = CpuBeside(max(1, threads // group.count), is_exact=own.spec.dtype == "float32")
    return load_torch(own, progress, group, threads, beside)


def _check_spec(card: ModelCard, spec: StageSpec) -> None:
    if spec.digest != card.digest:
        message = f"Model {card.name} has digest {card.digest}, but the plan is for {spec.digest}."
        raise ModelMismatchError(message, remedy="Copy the same model files to every node.")
    if spec.last_layer >= card.spec.layers:
        message = f"Layer {spec.last_layer} of {card.name} was asked for, which has {card.spec.layers} layers."
        raise PlanInvalidError(message, remedy="Plan again.")
    if spec.precision and (spec.page_tokens % TILE or not all(device.startswith("cpu") for device in spec.devices)):
        message = f"Kernels compute on CPUs, with pages of a multiple of {TILE} tokens."
        raise PlanInvalidError(message, remedy="Plan again.")
