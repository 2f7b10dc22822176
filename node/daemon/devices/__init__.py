"""What this machine computes on: devices, the memory that models may take there, and how fast they are.

`system` reads the machine, as far as control groups leave it to this process (`cgroups`, `cores`). `readings` makes
facts of what was read, and `watch` keeps both with what was measured.

Measuring is done once, and again later if other programs ran meanwhile, in a child process (`speeds` and `speed_child`;
`all_reduce` between several). It is kept on disk under a key of all that it holds for (`measurements`). Daemons of one
machine measure in turn.
"""
