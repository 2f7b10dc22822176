"""The surface of `layerline perplexity`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from layerline.cli.command import Command
from layerline.cli.options import finding_of, finding_options, placement_options, plan_request_of
from layerline.plan import MAX_CONTEXT_TOKENS
from layerline.scoring import WINDOW_TOKENS

HELP = """Measure how well the model REF foretells a text: its perplexity, lower for the better.

The text is tokenised once, with a BOS where the tokenizer adds one, and cut into windows of 512 tokens that do not
overlap. Each token is given those before it in its window; the first of each window has none and is not counted, as in
the documentation of transformers with a stride as long as the window. The perplexity is exp of the mean of -log p over
the tokens that are counted, and is comparable between runs with the same text, tokenizer and windows. The coordinator
and the nodes are found as for `layerline prompt`."""

EPILOG = """
Examples:
  layerline perplexity Qwen2.5-7B-Instruct.gguf --text wiki.test.raw
  layerline perplexity qwen.gguf --text notes.txt --context 2048 --json
  layerline perplexity qwen.gguf --text notes.txt --kv-dtype int8 --layers desktop=0-17,laptop=18-27
"""


def _run(ref: str, text: Path, json: bool, **given: Any) -> None:
    from layerline.cli.perplexity import run_perplexity  # noqa: PLC0415 - help must not load the client

    run_perplexity(text, finding_of(given), plan_request_of(ref, given), as_json=json)


_CONTEXT = click.Option(
    ["--context", "context_tokens"],
    type=click.IntRange(2, MAX_CONTEXT_TOKENS),
    metavar="TOKENS",
    help=f"Tokens of a window; the model is loaded with a context for as many. [default: {WINDOW_TOKENS}, and a chosen "
    "context]",
)

perplexity = Command(
    "perplexity",
    callback=_run,
    help=HELP,
    epilog=EPILOG,
    params=[
        click.Argument(["ref"]),
        click.Option(
            ["--text"],
            required=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="The text, in UTF-8, of at most 4 MiB.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            help="Print one object: perplexity, standard_error, tokens, text_tokens, window_tokens, seconds, plan.",
        ),
        *(_CONTEXT if option.name == _CONTEXT.name else option for option in placement_options()),
        *finding_options(),
    ],
)
