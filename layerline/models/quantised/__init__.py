"""Quantised matrices of safetensors folders, which lie in pieces: codes, their scales, and what else a method needs.

config    what config.json says of them, and which of it is refused
recipe    what a method is: which pieces it has, what they must be, and what they are read as
gptq, awq, compressed, fp8, mxfp4    the methods
transposed  those that are not quantised, but stored with inputs as rows
compose   from the pieces that a folder stores to matrices
biases    those that are stored for no reason
matrix    from the bytes of a matrix's pieces to its rows
"""
