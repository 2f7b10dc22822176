"""The commands, their arguments and options, and the exit codes: other people's scripts rely on them."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from layerline.cli.exit_codes import MEANINGS
from layerline.cli.main import program
from layerline.errors import ERRORS

ROOT = Path(__file__).parents[2]
SAMPLING = (
    "--max-tokens --temperature --top-p --top-k --min-p --repetition-penalty --presence-penalty --frequency-penalty"
    " --json-schema --logprobs --no-thinking --seed --stop --system"
)
HTTP = "--http --api-key-file --http-open --http-name --cors --http-cert --http-key --drain --chat-template"
PLACEMENT = "--layers --tensor-parallel --experts --expert-device --dtype --weights --precision --kv-dtype --context"
FINDING = "--coordinator --node --no-mdns"
NODE = "--name --host --port --device --memory --threads --models --no-mdns --keep-alive --config"

SURFACE = {
    "node": NODE,
    "prompt": f"text --model {SAMPLING} --raw --json {PLACEMENT} {FINDING}",
    "chat": f"--model {SAMPLING} {PLACEMENT} {FINDING}",
    "nodes": f"--json {FINDING}",
    "plan": f"ref --json {PLACEMENT} {FINDING}",
    "perplexity": f"ref --text --json {PLACEMENT} {FINDING}",
    "stats": "--json --since-start --coordinator",
    "coordinator": f"--model --name --host --port {HTTP} {PLACEMENT} --node --no-mdns",
}


def command(name: str) -> click.Command:
    found = program.get_command(click.Context(program), name)
    assert found is not None
    return found


def test_the_commands_are_these() -> None:
    assert set(program.list_commands(click.Context(program))) == set(SURFACE)


@pytest.mark.parametrize("name", SURFACE)
def test_a_command_has_these_arguments_and_options(name: str) -> None:
    spelled = {spelling for parameter in command(name).params for spelling in parameter.opts}
    assert spelled == {*SURFACE[name].split(), "-v", "--verbose"}


@pytest.mark.parametrize("name", SURFACE)
def test_every_option_is_explained_and_every_command_has_an_example(name: str) -> None:
    for parameter in command(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.help
            assert parameter.help.endswith((".", "]")), parameter.opts
    assert f"layerline {name}" in (command(name).epilog or "")


@pytest.mark.parametrize("arguments", [[], ["--help"], *([name, "--help"] for name in SURFACE)])
def test_help_is_on_standard_output(arguments: list[str]) -> None:
    result = CliRunner().invoke(program, arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: layerline")


def test_the_version_names_both_versions() -> None:
    result = CliRunner().invoke(program, ["--version"])
    assert re.fullmatch(r"layerline \d+\.\d+\.\d+ \(wire version \d+\)\n", result.stdout)


def test_an_unknown_command_is_told_with_the_nearest() -> None:
    result = CliRunner().invoke(program, ["promt", "Hi"])
    assert result.exit_code == 2
    assert re.match(r"layerline: error: No such command 'promt'\. Did you mean 'prompt'", result.stderr)


def test_every_exit_code_is_documented() -> None:
    documented = (ROOT / "docs" / "exit-codes.md").read_text()
    told = CliRunner().invoke(program, ["--help"]).stdout
    assert {error.exit_code for error in ERRORS.values()} <= set(MEANINGS)
    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |" in documented
        assert re.search(rf"^ +{code}  {re.escape(meaning)}$", told, re.MULTILINE)


def test_every_error_is_in_the_table_of_exit_codes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", (ROOT / "docs" / "exit-codes.md").read_text(), re.MULTILINE)
    assert {name: int(code) for name, code in rows} == {error.__name__: error.exit_code for error in ERRORS.values()}
