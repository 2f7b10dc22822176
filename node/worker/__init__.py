"""One rank of a stage, started by the daemon as `python -m node.worker`: reads frames, computes, writes frames."""
