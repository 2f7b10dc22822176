"""Which parts of a model's stored tensors a stage consists of, in whatever form they are then held. Needs no torch.

tensor_source     a slice of a stored tensor, and where slices are read from
sides             which rows and columns a rank has
layer_slices      the slices of each matrix and vector of a layer, and of the model's ends
feed_forward_slices  those of a feed-forward, be it dense or of experts
stored_rows       rows in the storage that they are to be held in
eight_bits        forms of few bits in 8, without loss
rope_frequencies  how fast pairs turn, and the order of a head's rows in which pairs are neighbours
"""
