"""Options that several commands share, and the nouns that they make.

A value that is out of range is refused by click, naming the option; what only the coordinator can judge is
left to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from layerline.addresses import split_address
from layerline.errors import UsageError
from layerline.layers_option import parse_layers
from layerline.plan import DTYPES, KV_DTYPES, MAX_DEVICES, ManualStage, PlanRequest
from layerline.request_options import GenerateOptions

MAX_CONTEXT_TOKENS = 1 << 24
MAX_SEED = (1 << 64) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Where to look for a coordinator and for nodes."""

    coordinator: str | None = None
    nodes: tuple[str, ...] = ()
    mdns: bool = True

    def __post_init__(self) -> None:
        if self.coordinator and self.nodes:
            raise UsageError("--coordinator and --node exclude each other.", remedy="A coordinator has its own nodes.")
        if not (self.coordinator or self.nodes or self.mdns):
            raise UsageError("--no-mdns leaves nothing to look at.", remedy="Name a --node or a --coordinator.")


class _Number(click.FloatRange):
    """A number in a range, which "nan" is not, though it passes every comparison."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; refuses what is none."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class AddressType(click.ParamType[str]):
    """HOST:PORT, or unix:PATH where `local` is allowed."""

    name = "HOST:PORT"

    def __init__(self, *, local: bool = False) -> None:
        self._local = local

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The address as it was given, checked."""
        if self._local and str(value).startswith("unix:"):
            return str(value)
        try:
            split_address(str(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        return str(value)


class LayersType(click.ParamType[tuple[ManualStage, ...]]):
    """NODE=FIRST-LAST,…"""

    name = "NODE=A-B,..."

    def convert(self, value: Any, _: click.Parameter | None, __: click.Context | None) -> tuple[ManualStage, ...]:
        """The stages."""
        return value if isinstance(value, tuple) else parse_layers(str(value))


def model_option() -> click.Option:
    """--model."""
    return click.Option(
        ["--model"],
        required=True,
        metavar="REF",
        help="The model: the name of one in the nodes' models folders, or a path on this machine to a GGUF file or "
        "to a folder with config.json, tokenizer.json and safetensors. The nodes need the same files.",
    )


def placement_options() -> list[click.Parameter]:
    """How the model is to be held."""
    return [
        click.Option(
            ["--layers"],
            type=LayersType(),
            default=(),
            help="Place the layers by hand, first and last included, as in a=0-14,b=15-29. [default: planned]",
        ),
        click.Option(
            ["--tensor-parallel"],
            type=click.IntRange(0, MAX_DEVICES),
            default=0,
            metavar="N",
            help="Split every layer of a stage over N devices of its node. [default: 0, chosen for each node]",
        ),
        click.Option(
            ["--dtype"],
            type=click.Choice(DTYPES),
            help="What is computed in, and weights are held in: 2 or 4 bytes each. [default: as it is where the "
            "model is in service, else bfloat16]",
        ),
        click.Option(
            ["--kv-dtype"],
            type=click.Choice(KV_DTYPES),
            help="What keys and values are held in; int8 takes half the memory of bfloat16. [default: as it is where "
            "the model is in service, else as --dtype]",
        ),
        click.Option(
            ["--context", "context_tokens"],
            type=click.IntRange(0, MAX_CONTEXT_TOKENS),
            default=0,
            metavar="TOKENS",
            help="Tokens that prompt and answer may have together; memory is kept for them. [default: 0, chosen]",
        ),
    ]


def finding_options() -> list[click.Parameter]:
    """Where to look."""
    return [coordinator_option("one found by mDNS, else one for this command"), *node_finding_options()]


def coordinator_option(default: str) -> click.Option:
    """--coordinator; `default` says what is used without it."""
    return click.Option(
        ["--coordinator"],
        type=AddressType(local=True),
        metavar="HOST:PORT",
        help=f"Use the coordinator at this address. [default: {default}]",
    )


def node_finding_options() -> list[click.Parameter]:
    """Where to look for nodes."""
    return [
        click.Option(
            ["--node", "nodes"],
            type=AddressType(),
            multiple=True,
            metavar="HOST:PORT",
            help="Ask this node too, for where multicast is blocked; may be repeated.",
        ),
        click.Option(
            ["--no-mdns", "mdns"], flag_value=False, default=True, help="Look for nothing by mDNS; needs addresses."
        ),
    ]


def sampling_options() -> list[click.Parameter]:
    """How the answer is drawn."""
    return [
        click.Option(
            ["--max-tokens"],
            type=click.IntRange(0, MAX_CONTEXT_TOKENS),
            default=0,
            metavar="N",
            help="End the answer after N tokens. [default: 0, as many as the context holds]",
        ),
        click.Option(
            ["--temperature"],
            type=_Number(0, 100),
            default=0.0,
            show_default=True,
            metavar="T",
            help="0 takes the likeliest token each time; 1 draws by the model's probabilities.",
        ),
        click.Option(
            ["--top-p"],
            type=_Number(0, 1, min_open=True),
            default=1.0,
            show_default=True,
            metavar="P",
            help="Draw from the likeliest tokens that have probability P together.",
        ),
        click.Option(
            ["--top-k"],
            type=click.IntRange(0, 1 << 20),
            default=0,
            metavar="K",
            help="Draw from the K likeliest tokens. [default: 0, off]",
        ),
        click.Option(
            ["--min-p"],
            type=_Number(0, 1),
            default=0.0,
            metavar="P",
            help="Drop tokens that have less than P times the likeliest's probability. [default: 0, off]",
        ),
        click.Option(
            ["--repetition-penalty"],
            type=_Number(0.01, 100),
            default=1.0,
            metavar="R",
            help="Divide the scores of tokens that came before by R. [default: 1, off]",
        ),
        click.Option(
            ["--seed"],
            type=click.IntRange(0, MAX_SEED),
            metavar="N",
            help="Draw the same tokens whenever the seed is the same. [default: a new one, which is told]",
        ),
        click.Option(
            ["--stop"],
            multiple=True,
            metavar="S",
            help="End the answer before this text; may be repeated.",
        ),
    ]


def finding_of(given: Mapping[str, Any]) -> Finding:
    """Where to look, out of what was given."""
    return Finding(coordinator=given.get("coordinator"), nodes=given["nodes"], mdns=given["mdns"])


def plan_request_of(model: str, given: Mapping[str, Any]) -> PlanRequest:
    """What to plan, out of what was given."""
    try:
        return PlanRequest(
            model=model,
            dtype=given["dtype"] or "",
            kv_dtype=given["kv_dtype"] or "",
            context_tokens=given["context_tokens"],
            layers=given["layers"],
            tensor_parallel=given["tensor_parallel"],
        )
    except ValueError as error:
        raise UsageError(f"This cannot be a model: {error}.", remedy="Give the name of a file or folder.") from error


def generate_options_of(given: Mapping[str, Any]) -> GenerateOptions:
    """How to draw, out of what was given."""
    return GenerateOptions(
        max_tokens=given["max_tokens"],
        temperature=given["temperature"],
        top_p=given["top_p"],
        top_k=given["top_k"],
        min_p=given["min_p"],
        repetition_penalty=given["repetition_penalty"],
        seed=given["seed"],
        stop=given["stop"],
    )
