"""Which nodes there are: found by mDNS or named by hand, asked what they are, and remembered.

What is known is one immutable value, a `Cluster` (`cluster.py`); `apply(cluster, event)` makes the next one of it. A
`Search` (`search.py`) decides, from a cluster and the time, whom to ask and whom to wait for, and `members.py` says
who can be used and why the others cannot. All three are pure. The I/O is thin: a `Browser` listens to mDNS, an enquiry
asks one node on all its addresses, and the `Finder` feeds what they hear into the cluster and does what a search says.

Whether a node lives is never concluded from mDNS: it lives while it answers, and while a hold on it stands.
"""
