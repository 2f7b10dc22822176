"""Keeps the load of the ranks of a stage even while the experts that rows choose change.

`ledger` knows, for one stage, how many rows chose each expert, and where experts are: it counts, and says which layer
is worth a move. `placement_search` decides, purely, where the experts of a layer should be. `balancer` is the thin
part: it hears the counts on the holds and has nodes move experts, one layer at a time.
"""
