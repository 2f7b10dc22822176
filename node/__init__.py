"""A machine's part of layerline: the daemon that offers its devices, and the workers that compute on them.

`daemon` decides nothing about models and never imports torch; `worker` is what it starts, one process a device. A
worker computes a `stage`, with the decoder of `model` and, where a stage has several devices, what `ranks` do together.
Daemon and worker speak over a `pipe`.
"""
