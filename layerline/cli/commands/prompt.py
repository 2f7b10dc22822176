"""The surface of `layerline prompt`."""

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

HELP = """Answer TEXT, or what standard input has if TEXT is -.

Uses a running coordinator if one is found that has this model, or none, loaded; otherwise it coordinates the nodes
itself for the time of the command. Which node holds which layers, loading and speed are shown on standard error;
standard output has the answer alone. Nodes keep the model for their --keep-alive, so the next prompt starts at once."""

EPILOG = """
Examples:
  layerline prompt "Why is the sky blue?" --model Qwen2.5-7B-Instruct.gguf
  git diff | layerline prompt - --model qwen.gguf --system "Write a commit message."
  layerline prompt "Once upon a time" --model m.gguf --raw --max-tokens 64 --temperature 0.8 --seed 7 --json
  layerline prompt "Name three cities." --model m.gguf --json-schema cities.json --logprobs 3
  layerline prompt "Hello" --model m.gguf --node 192.168.1.5:7355 --layers desktop=0-17,laptop=18-29
"""


def _run(text: str, model: str, **given: Any) -> None:
    from layerline.cli.prompt import Prompt, run_prompt  # noqa: PLC0415 - help must not load the client

    prompt = Prompt(
        text=text,
        system=given["system"],
        raw=given["raw"],
        json=given["json"],
        options=generate_options_of(given),
    )
    run_prompt(prompt, finding_of(given), plan_request_of(model, given))


prompt = Command(
    "prompt",
    callback=_run,
    help=HELP,
    epilog=EPILOG,
    params=[
        click.Argument(["text"]),
        model_option(),
        *sampling_options(),
        click.Option(["--system"], metavar="S", help="Instructions that come before the prompt."),
        click.Option(["--raw"], is_flag=True, help="Continue TEXT as it is, without the model's chat template."),
        click.Option(
            ["--json"],
            is_flag=True,
            help="Print one object: text, thinking, token_ids, finish_reason, usage, timings, plan, seed and, with "
            "--logprobs, log_probabilities.",
        ),
        *placement_options(),
        *finding_options(),
    ],
)
