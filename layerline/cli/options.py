"""Options that several commands share, and the nouns that they make.

A value that is out of range is refused by click, naming the option; what only the coordinator can judge is
left to it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from layerline.addresses import split_address
from layerline.errors import UsageError
from layerline.layers_option import parse_layers
from layerline.option import OneOf, Option, RealNumber, Takes, Texts, WholeNumber, options_of
from layerline.plan_request import ManualStage, PlanOptions, PlanRequest
from layerline.request_options import plan_request
from layerline.requests import GenerateOptions, GenerateRequest, Structure
from layerline.sampling import SamplingOptions

MAX_SCHEMA_BYTES = 256 << 10
NO_THINKING = '{"enable_thinking": false}'


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

    name = "LAYERS"

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
    return _flags(PlanRequest)


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
    return [*_flags(SamplingOptions), *_flags(GenerateRequest), schema_option(), thinking_option()]


def schema_option() -> click.Option:
    """--json-schema."""
    return click.Option(
        ["--json-schema"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Hold the answer to the JSON schema in FILE.",
    )


def thinking_option() -> click.Option:
    """--no-thinking."""
    return click.Option(
        ["--no-thinking", "thinks"],
        flag_value=False,
        default=True,
        help="Ask the model to answer without thinking first, if its chat template knows how.",
    )


def finding_of(given: Mapping[str, Any]) -> Finding:
    """Where to look, out of what was given."""
    return Finding(coordinator=given.get("coordinator"), nodes=given["nodes"], mdns=given["mdns"])


def plan_request_of(model: str, given: Mapping[str, Any]) -> PlanRequest:
    """What to plan, out of what was given."""
    return plan_request(model, cast("PlanOptions", _said(PlanRequest, given)))


def generate_options_of(given: Mapping[str, Any]) -> GenerateOptions:
    """How to draw, out of what was given."""
    options = {**_said(SamplingOptions, given), **_said(GenerateRequest, given)}
    if given["json_schema"]:
        options["structure"] = Structure(kind="json_schema", text=schema_of(given["json_schema"]))
    if not given["thinks"]:
        options["template_variables"] = NO_THINKING
    return cast("GenerateOptions", options)


def schema_of(path: Path) -> str:
    """The JSON schema in a file, as text; UsageError for a file that has none."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCHEMA_BYTES + 1)
        schema = json.loads(data[:MAX_SCHEMA_BYTES]) if len(data) <= MAX_SCHEMA_BYTES else None
    except OSError as error:
        raise UsageError(f"--json-schema {path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--json-schema {path} is not JSON ({error}).") from None
    if not isinstance(schema, dict):
        raise UsageError(f"--json-schema {path} has no JSON object, or over {MAX_SCHEMA_BYTES >> 10} KiB.")
    return json.dumps(schema)


def _said(noun: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a noun that were said; the noun has the others' defaults."""
    return {name: given[name] for name in options_of(noun) if given.get(name) not in (None, ())}


def _flags(noun: type) -> list[click.Parameter]:
    """The flags that a noun's options are for commands."""
    return [_flag(name, each, each.flag) for name, each in options_of(noun).items() if each.flag is not None]


def _flag(name: str, option: Option, flag: str) -> click.Option:
    return click.Option(
        [flag or "--" + name.replace("_", "-"), name],
        type=_click_type(option.takes),
        multiple=isinstance(option.takes, Texts),
        metavar=option.metavar or None,
        help=option.help,
    )


def _click_type(takes: Takes) -> click.ParamType[Any] | None:
    if isinstance(takes, RealNumber):
        return _Number(takes.least, takes.most, min_open=takes.open)
    if isinstance(takes, WholeNumber):
        return click.IntRange(takes.least, takes.most)
    if isinstance(takes, OneOf):
        return click.Choice(takes.words)
    return None if isinstance(takes, Texts) else LayersType()
