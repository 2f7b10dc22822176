"""The kernels: a small C++ library that multiplies weights as they are stored, and the way to it from Python.

    src           the library: what is written once for all instruction sets, and one file for each of them
    structures    what Python and the library hand each other
    library       finds the library, and says what it has for this processor
    engine        calls it

It is optional: it is built when layerline is installed where there is a compiler. Needs numpy, not torch.
"""
