"""Blocks of quantised numbers as model files store them, row by row, on whatever device torch computes on.

forms          where in a block the parts of its numbers lie, for every form: a table
numbers        from stored rows to numbers, in plain operations that every device has
products       whether a device has kernels for it
block_kernels  these by Triton, for GPUs
block_numbers  the part that they share: numbers of blocks in registers
"""
