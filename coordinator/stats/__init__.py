"""Measures how the work goes and what holds it up, for `layerline stats` and the metrics.

The engine tells the `recorder` of every step that leaves and comes back and of every event of a request. The times of
a step are added to the `tally` of its second; the `window` keeps the tallies of the last minute apart and adds older
ones up. The `request_log` has one entry for each request; `route` says which nodes have the stages. From all this
`report` makes the nouns of `layerline.stats_report`, `diagnosis` the sentences, and `exposition` the text for
Prometheus, made of the lines of `metric`, which the `endpoint` serves. A `distribution` has durations and their
percentiles.

All modules but the endpoint are pure, and a clock gives them the time. Their cost for a step does not grow with the
number of steps before it.

What is measured where
----------------------
A stage reports with each step how long it computed, how long it had waited for the frame since it was done with the one
before, and how long it had been sending that one's output. The coordinator knows when a step left and came back. No
clocks of two machines are compared. From when the pipeline was empty until the next step left, stages wait for
requests, not for each other; steps keep their order, so each stage reports this time with that step, and it is
subtracted there.

The time of a step consists of the stages' computing, of waits for its turn, and of its ways over the links. A step that
found every stage waiting has waited for no turn, so what is beside its computing belongs to the links. The waits of
senders tell to which link, as far as they go; the rest is divided equally, because without comparing clocks nobody can
know better. If every step met a queue, the least such rest of all is taken, which is more than the links have.
"""
