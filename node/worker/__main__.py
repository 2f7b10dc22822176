"""`python -m node.worker`."""

from node.worker.program import main

main()
