"""The model families that layerline knows: one module each, whose FAMILY is found by its being here."""
