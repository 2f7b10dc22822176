"""What a step asks of a stage and what it gets, whatever computes it: torch or the kernels. Needs no torch.

admission       whether a frame is one that this stage can compute
computation     the seam beneath `Stage`: what computes its layers
sampler         a token, drawn from logits; sampled_token says whose it is
token_scores    known tokens, scored by logits; span_scores says whose they are
"""
