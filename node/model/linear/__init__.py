"""Matrices: how they are loaded, held and multiplied. Nobody else knows in which form one is held.

`load_linear` takes the slices of stored tensors that a matrix consists of, such as the rows of q, k and v that a rank
has, and makes of them the fastest form there is for what they are to be held as:

    forms           the forms of plain numbers, each a `Linear`
    stored          matrices as they are stored, unpacked as they are multiplied
    load            from slices to a form; matrices that are multiplied and looked up as well
"""
