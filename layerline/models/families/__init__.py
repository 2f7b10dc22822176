"""The model families that layerline knows, as data: one small file each."""
