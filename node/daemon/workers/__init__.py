"""The processes that compute a stage, one for each of its devices, as the daemon sees them.

The `group` is the stage's workers as one: loaded, placed and ended together, since none can go on without the others.
Each `process` is told what to do over its pipe (`node.pipe`), watched, and ended; why one was lost is put into words
here, whatever the reason. `commands` matches what a worker answers to what it was told. Whether one is frozen is
judged by its `silence` and its `process_state`. `seats` are what each is started with: its rank, its threads, and
descriptors that reach the others without a name in the system.

Nothing here knows models or coordinators.
"""
