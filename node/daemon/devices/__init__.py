"""What this machine computes on: devices, the memory that models may take there, and how fast they are.

`system` reads the machine as far as control groups (`cgroups`, `cores`) leave it to this process, `readings` makes facts of what was read, and `watch` keeps both with what was measured.

Measuring is done once, in a child process (`speeds` and `speed_child`; `all_reduce` between several), and kept on disk
under a key of all that it holds for (`measurements`). Daemons of one machine measure in turn.
"""
