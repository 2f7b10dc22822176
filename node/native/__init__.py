"""A stage computed by the kernels, on a CPU: weights as they are stored, everything else in float32. Needs no torch.

matrices     matrices and vectors, from slices of stored tensors to panels
kv_pages     the memory of keys and values, and the tiles of a step's spans
program      what is done for a step, as operations that the kernels run one after the other
operations   the operations, and the buffers of rows that they work on
attention    the weights of plain attention, and its operations; `latent` and `recurrent` have what is in its place
weights      loading: which slices each matrix consists of
computation  the whole: frames in, rows and logits out
"""
