"""What this node has loaded, and which models it could load.

The `keeper` has the stages in memory, each `kept` with its workers. A stage is **loaded** on a coordinator's command,
if its model is the one planned (`model_library`) and it fits its devices beside the others (`memory`). It is
**placed** in a plan of a higher epoch than any before. It is **in use** until it is unloaded or the hold ends, and
**idle** from then on: kept for a while, so that the next coordinator with the same plan adopts it, and ended before
that if a new stage needs its memory, the longest idle first. A lost worker ends its own stage, and the holder is told
which and why.

The `model_library` lists the models folder, and has a child process hash a model once
(`layerline.models.indexer`), when somebody first asks for its card.
"""
