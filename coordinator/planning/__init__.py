"""Who holds which layers, decided from what the nodes offer and how fast they were measured to be.

A pure decision: a `Problem` goes in (a model, a request, nodes with what they offer), a plan comes out, or an error
that says in numbers why there is none. Equal problems have equal plans, whatever the order of the nodes. It knows no
connections and no clock.

`adopt` looks first whether what is loaded makes up a plan. `make_plan` decides, then says. To decide, `candidates`
makes of every node its device groups: what can take a stage, one device or several that split each layer. A
`footprint` says what any range of layers takes of memory, a device group how long a token is in it; both are sums over
layers that may be unlike. If one group holds the whole model the plan is that; else `split` makes offers of the groups
and `partition` searches the fastest split of them, with more KV pages where they cost little (`room`). Layers given by
hand go the same way past the search (`manual`). What comes out is a `Decision` or a `Misfit`, whose every choice
carries its reason.

To say is the business of `words`: why each stage is as it is, which nodes have none and why, what speed to expect.
"""
