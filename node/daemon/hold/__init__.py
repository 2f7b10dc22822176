"""One coordinator's hold on the node: a stream of commands and events that lasts as long as the coordinator wants.

A coordinator says hello; `admission` refuses it while another holds the node, or makes a `hold` of its stream. The hold
obeys commands one at a time, in order, and answers each by its number; heartbeats go both ways meanwhile, and an unload
cancels what it finds running. Events wait in the `outbox`, which is bounded. Whatever ends the hold (the stream,
silence, a broken rule) cancels what runs, takes the stages' places away and leaves them in memory for the next holder.

Nothing here knows gRPC: a `Wire` reads nouns and writes them.
"""
