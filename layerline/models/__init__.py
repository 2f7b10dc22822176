"""Model files to a model card: all that is known of a model without its weights, and the reading of those.

The way of a model
------------------
`folder` lists a models folder and `names` says which listed name a REF means. `headers` reads what a GGUF file
(`gguf_file`) or a folder of safetensors (`safetensors_file`) says of itself; the family (`families`, one file each)
makes a `spec` of its config, layer by layer, and `layout` says where each tensor lies. The tokenizer of either
container becomes one JSON. `index` hashes the tensors, which makes the `card`; `card_cache` keeps it. Nodes and
coordinators have that done in a bounded child process (`indexer`, `index_child`), as the files may be anybody's.

From a card everything else follows: `sizes` is what a stage takes, `model_parts` what each rank has of it, and `read`
gives the rows of a tensor, checked as they pass. Nothing here knows torch.
"""
