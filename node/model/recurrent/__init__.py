"""Layers whose state does not grow with the context, in torch."""
