"""What a request is answered with: pieces of text, scores of a text, vectors.

`prompt` makes of a request what the engine takes, with the `answer_constraint` that its answer is held to. `answers`
has the pieces that its tokens become, by an `answer_writer` for each, and what is told of the prompt, by `likelihoods`.
`reading` has texts read that nothing is drawn after, for `scoring` and `embedding`. Knows texts and tokens; pages and
steps are the engine's matter.
"""
