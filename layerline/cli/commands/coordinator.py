"""The surface of `layerline coordinator`."""

from __future__ import annotations

from typing import Any

import click

from layerline.cli.command import Command
from layerline.cli.http_options import chat_template_of, http_options, http_settings_of
from layerline.cli.options import (
    model_option,
    node_finding_options,
    placement_options,
    plan_request_of,
)

DEFAULT_PORT = 7354

HELP = """Keep a model loaded on the nodes, and serve it to programs and to the other commands, until told to end.

It advertises itself by mDNS, so that `layerline prompt`, `chat`, `nodes`, `plan` and `stats` and the Python client
find it without an address. A node obeys one coordinator at a time. Ctrl-C or SIGTERM ends it; the nodes keep the
model for their --keep-alive.

Programs that know OpenAI's API, or Anthropic's, ask it at http://127.0.0.1:7380 (--http): that address with /v1 is
the base URL that they want."""

EPILOG = """
Examples:
  layerline coordinator --model Qwen2.5-7B-Instruct.gguf
  layerline coordinator --model qwen.gguf --host 192.168.1.5 --port 7000 --no-mdns --node 192.168.1.6:7355
"""


def _run(model: str, name: str | None, host: str, port: int, **given: Any) -> None:
    from coordinator.program import run_coordinator  # noqa: PLC0415 - help must not load it
    from coordinator.settings import CoordinatorSettings  # noqa: PLC0415

    settings = CoordinatorSettings(
        nodes=given["nodes"],
        mdns=given["mdns"],
        http=http_settings_of(given),
        drain_s=given["drain"],
        chat_template=chat_template_of(given["chat_template"]),
        **({} if name is None else {"name": name}),
    )
    click.get_current_context().exit(run_coordinator(settings, plan_request_of(model, given), host, port))


coordinator = Command(
    "coordinator",
    daemon=True,
    callback=_run,
    help=HELP,
    epilog=EPILOG,
    params=[
        model_option(),
        click.Option(["--name"], metavar="NAME", help="What others call it. [default: from the host's name]"),
        click.Option(
            ["--host"], default="", metavar="HOST", help="The one address to listen on. [default: every interface]"
        ),
        click.Option(
            ["--port"],
            type=click.IntRange(0, 65535),
            default=DEFAULT_PORT,
            show_default=True,
            metavar="PORT",
            help="The TCP port to listen on; 0 for any that is free.",
        ),
        *http_options(),
        *placement_options(),
        *node_finding_options(),
    ],
)
