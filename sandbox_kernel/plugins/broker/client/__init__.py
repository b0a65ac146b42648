"""A broker in the place of an engine: it owns one, makes sandboxes for its callers, and hands their pipes over.

- `packets`: What is said between a caller and a broker: one small JSON document a packet, errors as data.
- `listener_trust`: Where a broker listens, and whether whoever listens there may be believed.
- `ahead`: A request before there is an event loop.
- `channel`: A caller's connection to a broker: questions with answers, and what it hears unasked.
- `container`: One sandbox that a broker made: its pipe is this process's, its end is told by the broker.
- `engine`: The broker as an engine: start, adopt, list, reap.
"""
