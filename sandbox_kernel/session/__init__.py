"""A session: one container and its cells, from the start to the end that each of them has.

- `protocol`: The Jupyter tables: which message may pass on which channel in which direction, and how one is decoded.
- `hints`: What an ordinary exception of a cell has to do with the sandbox, in one line.
- `introduction`: What a kernel says of itself: asked once, before the first cell, and read against a table.
- `agent_words`: What an agent says, as values: each number within its range, each text of bounded length.
- `link`: The host's end of the wire: frames both ways, and questions with answers.
- `ledger`: Which requests are open, which may be sent, and whose outputs may pass.
- `delivery`: What goes to the front ends: the kernel's words as far as they may pass, and the host's own.
- `traffic`: Requests in, outputs out, a clock and a limit on each; a cell always ends here.
- `session`: One container and its cells: start, attestation, deaths and their names, idleness.
"""
