"""The `layerline` command: words to nouns, nouns to calls of the SDK, results to text.

`main` is the entry point and `command` what all commands have in common; the commands themselves are in `commands`, one
file each, and load nothing before they run. A command reads its `options`, opens a `session` (a coordinator that was
named, one that was found, or one of its own) and runs: `prompt`, `chat`, or `overview` for nodes, plan and stats. What
it shows is made in `render` and written by `output`. A failure is one sentence (`failures`) and an exit code
(`exit_codes`).
"""
