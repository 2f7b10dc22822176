"""The surface of `layerline chat`."""

from __future__ import annotations

from typing import Any

import click

from layerline.cli.command import Command
from layerline.cli.options import (
    finding_of,
    finding_options,
    generate_options_of,
    model_option,
    placement_options,
    plan_request_of,
    sampling_options,
)

HELP = """Hold a conversation with a model in the terminal.

Each line is a turn; the model sees the whole conversation. Ctrl-C stops an answer and keeps what came so far. Ctrl-D
or /bye ends the chat, /clear forgets the conversation, /help tells more. Lines may also come through a pipe. The
coordinator and the nodes are found as for `layerline prompt`."""

EPILOG = """
Examples:
  layerline chat --model Qwen2.5-7B-Instruct.gguf
  layerline chat --model qwen.gguf --system "Answer in verse." --temperature 0.8
  printf 'My name is Ada.\\nWhat is my name?\\n' | layerline chat --model qwen.gguf
"""


def _run(model: str, **given: Any) -> None:
    from layerline.cli.chat import run_chat  # noqa: PLC0415 - help must not load the client

    run_chat(given["system"], generate_options_of(given), finding_of(given), plan_request_of(model, given))


chat = Command(
    "chat",
    callback=_run,
    help=HELP,
    epilog=EPILOG,
    params=[
        model_option(),
        *sampling_options(),
        click.Option(["--system"], metavar="S", help="Instructions that come before the conversation."),
        *placement_options(),
        *finding_options(),
    ],
)
