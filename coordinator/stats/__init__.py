"""How the work goes, and what holds it up: what `layerline stats` and the metrics tell.

The engine tells the `recorder` of every step that leaves and comes back and of every event of a request. What a
step took is added to the `tally` of its second; the `window` keeps the tallies of the last minute apart and adds
older ones up. The `request_log` has one entry a request, `route` who the stages are. `reporting` makes the nouns
of `layerline.stats_report` of all this, `diagnosis` the sentences, `exposition` the text for Prometheus, which the
`endpoint` serves.

All of it but the endpoint is pure, with its time given by a clock. What it costs a step does not depend on how much
there was before.

What is measured where
----------------------
A stage reports with each step how long it computed, how long it had waited for the frame since it was done with the one
before, and how long it had been sending that one's product. The coordinator knows when a step left and came back. No
clocks of two machines are compared. From when the pipeline was empty until the next step left, stages wait for
requests, not for each other; steps keep their order, so this is in what each stage reports of that step, and
is taken away from it.

A step's time is what the stages compute on it, what it waits for its turn, and its ways over the links. It has
waited for no turn if it found every stage waiting; of such steps the rest is the links'. Senders' waits tell which
link it was, as far as they go; what is left is shared out equally, as nobody can know better without comparing clocks.
If every step met a queue, the least rest of all is taken, which is more than the links have.
"""
