"""Attention over pages: the one seam between the decoder and where keys and values lie.

`backend.py` says what a backend is. A stage has one `PagedAttention`, which owns the pools of its layers. Once a step
it makes a `StepAttention` of the spans; what a backend works out of them (slots, pieces, block tables) nobody else
sees. Every layer then hands its queries, keys and values to `StepAttention.attend`, which keeps the keys and values
and gives what the queries read.

The backend here works on any device, by passes over runs of neighbouring slots:

    run_attention   the backend: keeps, reads, merges
    pieces          spans and pages → slots, and which rows see which of them, once a step
    passes          one softmax attention over a run, by torch's flash kernel or in plain operations
    merging         several passes of one row → one, by their log-sum-exp
    pools           the memory, in any form: floating point, int8
    row_pages       one row of each sequence: its pages, as a kernel reads them
    row_choice      whether the device has such a kernel
    row_kernel      the kernel, by Triton
"""
