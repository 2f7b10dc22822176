"""Decides everything: which nodes take part, who holds which layers, which rows are computed next, when an answer ends.

A request comes in through `service` and becomes token ids in `answers`, by `text`. The `engine` hands it to
`scheduling`, which is pure, and drives the steps that come out over the `ring` of a `pipeline`. What a pipeline is made
of comes from `discovery` (which nodes there are), `catalogue` (the model's card, the same on all of them) and
`planning` (who holds what), and stands as long as the holds on the nodes do (`node_hold`). `stats` is what is told
of the work. `program` is the command's own process, `embedded` the same for the time of one command.

Touches no tensor, and never imports `node`.
"""
