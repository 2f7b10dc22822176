"""The node daemon: offers this machine's devices to coordinators, and has workers compute. Imports no torch.

Life of a daemon
----------------
`daemon` puts the parts together. `settings` come from defaults, a file, the environment and flags, each value parsed
by `options`. `identity` is the lasting id and the highest epoch, in a folder that is held (`held_file`), so that no
second daemon is the same node. Then the daemon listens, says so on standard error (`notices`), measures its devices in
the background and advertises itself (`registration`). `description` answers what the node is and has at this moment.

A coordinator calls `service`, which is thin: models' cards come from `stages.model_library`, the stream of a hold goes
to `hold.admission`.

Packages
--------
`hold`      one coordinator at a time holds the node and commands it
`stages`    what is loaded: which models there are, what fits, who may have it when its holder has left
`workers`   processes that compute a stage, one for each of its devices
`devices`   what the machine has, how much models may take, how fast it is

A hold commands stages, and stages have workers; none knows those before it. What all of them start is a
`layerline.hosting.child`.
"""
