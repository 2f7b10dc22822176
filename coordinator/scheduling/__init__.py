"""Decides which rows go in the next step, and which pages they use. Pure: no I/O and no clock.

The life of a sequence
----------------------
`Scheduler.add` takes a request, or refuses it: too long for the context, too large for the page pool ever, or
one too many in the queue. An accepted sequence is **waiting**, in order of arrival. None overtakes another, except
those that wait for a prefix which another one is computing for them.

When the pages it is to start with can be had it gets them and is **prefilling**. Pages that the tree of prefixes
has for the beginning of its log it shares with their other owners, and its rows start after them. The other known
tokens go out in chunks, in order, each in the next step that has room, without waiting for the one before to come
back. Pages that are full and computed are offered to the tree. Where every layer has a window, pages behind it are
given back on the way. The chunk that ends with the last known token asks
the last stage to draw the next one; with it the sequence is **decoding**. The drawn token comes back through
`complete`, is written to the sequence's log, told to the caller as a `Token`, and is the next row to send. A sequence
thus has many chunks in flight but one decode row.

A text to be **read** is prefilled likewise, all of it anew. No token is drawn: each chunk asks the last stage for the
log-probabilities of the tokens that come after its rows, which are told as `Scored`, or for the sum of its rows, told
as `Summed`, and with the last of them the sequence has ended. What has been told is not asked for again when it is
prefilled once more.

A step mixes decode rows of the sequences that have waited longest and prompt chunks, decode rows first. As many
steps are in flight as the pipeline has stages to keep busy; each takes its share of the decoding sequences, so that
one group is computed by every stage at any time. Prompt rows are as many as the decode rows beside them can
bear, and are shared out so that no prompt waits for ever behind a long one.

A sequence that cannot get a further page makes the youngest one **preempted**: no more steps of it are issued,
and when the last one in flight is back it gives up its pages and is waiting again, at its old place. What it had
generated stays in its log and is prefilled like a prompt, as far as its pages are not cached any more. The oldest
sequence is never preempted, so it ends, and then the next oldest is the oldest: every sequence ends. `lose` sends
all of them back in the same way when a stage that held their pages is gone, and `renew` lets them go on in the next
pipeline, whatever its capacity; one that does not fit there any more has **failed**.

It has **ended** at an end-of-sequence token or a stop string ("stop"), at its most tokens or scores ("length"), or when
the client left ("cancelled"); it has **failed** where a stage says that its rows are not numbers, and what was computed
of it since is kept for nobody. Steps in flight may still write to its pages; they are given back with the last of
those, what has been computed stays cached while there is room, and the scheduler forgets the sequence.

If the model has recurrent layers, a sequence also has a slot that its state is in. Sequences share prefixes only from
checkpoints, which are slots that were left behind at the ends of pages.

Modules: `scheduler` chooses within its `capacity`; `limits` says how long an answer may become. `kv_pages` decides who
gets pages, with the `pool` of `pages`, their `free_runs`, the `prefix_tree` of each `branch`, and the `promises` of
what will be in it. `sequence_slots` decides which `slots` have states, with the `checkpoints` of the tree.
`steps_in_flight` decides how many steps there are, and `row_budget`, with `chunk_cost`, how many rows each has;
`retry_estimate` tells those who find the queue full when to come back. These three learn from results, by `average`.
`row_shares` shares the prompt rows among the prompts. `sequence` is one sequence's log and state, `step` is what goes
out, `events` is what is told, `figures` what can be asked.
"""
