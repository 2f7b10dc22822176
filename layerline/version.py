"""The two versions: of the package, and of what it says on the wire.

`WIRE_VERSION` grows whenever an older peer could misread a newer one. Peers of unlike wire versions refuse
each other at the first message, with both numbers named.
"""

__version__ = "0.1.0"
WIRE_VERSION = 1
