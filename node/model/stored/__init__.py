"""Quantised numbers as model files store them, row by row, on whatever device torch computes on.

forms            where in a block the parts of its numbers lie, for every form: a table
floats           the dtypes of plain numbers
numbers          from stored rows to numbers, in plain operations that every device has
grouped_numbers  the same of rows with scales of groups of columns
products         whether a device has kernels for it
block_kernels    these by Triton, for GPUs
block_numbers    the part that they share: numbers of blocks in registers
"""
