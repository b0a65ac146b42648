"""A session: one container and its cells, from the start to the end that each of them has.

- `protocol`: The Jupyter tables: which message may pass on which channel in which direction, and how one is decoded.
- `hints`: What an ordinary exception of a cell has to do with the sandbox, in one line.
- `introduction`: What a kernel says of itself: asked once, before the first cell, and read against a table.
- `agent_words`: What an agent says, as values: each number within its range, each text of bounded length.
- `connection`: One connection of a cell's, as its service sees it.
- `carrier`: The host's end of the streams of one container.
- `link`: The host's end of the wire: frames both ways, and questions with answers.
- `streams`: The seam to what serves the connections that cells open: a stream of bytes, and a service for it.
- `requests`: Which requests are open, which may be sent, and whose outputs may pass.
- `publisher`: What goes to the front ends: the kernel's words as far as they may pass, and the host's own.
- `clock`: How long a request may run, wait for a person, and be half done.
- `meter`: What one cell used of processor and memory, as its sandbox says.
- `recorder`: The one line that the audit keeps of every cell, with what it used.
- `ladder`: The ends of a request from outside: interrupt, then a new kernel, then the end of the sandbox.
- `debugger`: Which cells stand at a breakpoint, so that their clocks stand too.
- `quota`: How much a kernel may send, and what ends that sends more.
- `completion`: The end of a request on the host: a cell always ends here.
- `incoming`: The messages of a kernel on their way in: parsed, judged, the large ones in another thread.
- `outputs`: What a kernel says, each message to the request it belongs to.
- `router`: The way of a request from a front end to the kernel, with all that goes with it.
- `states`: The states of one container, and what may follow what.
- `deaths`: Why a kernel or a sandbox ended, in words.
- `life`: One container from its start to the name of its death.
- `idleness`: When a sandbox that nobody uses has to go.
- `monitor`: What is noticed while code runs, and what comes of it.
- `alerts`: Alerts on their way to the operator.
- `session`: What a front door calls: cells in, messages out, one container after another.
"""
