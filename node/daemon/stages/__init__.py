"""What this node has loaded, and which models it could load.

The `keeper` has the stages in memory and their workers. A stage is **loaded** on a coordinator's command, if its model
is the one planned (`model_library`) and it fits its devices (`memory`). It is **placed** in a plan of a higher epoch
than any before. When nobody holds the node it is **kept** for a while: the next coordinator with the same plan adopts
it, else it is ended. A lost worker ends its stage, and the holder is told why.

The `model_library` lists the models folder, and has a child process (`index_child`) hash a model once, when somebody
first asks for its card.
"""
