"""A session: one container and its cells, from the start to the end that each of them has.

The requests of front ends, from their arrival to their reply, are the package `requests`. What a kernel
answers its clients itself is the package `serving`.

- `hints`: The hints of a session, which a plugin says.
- `agent_messages`: What an agent says, as values: each number within its range, each text of bounded length.
- `running_cells`: Which cells run, and the connections of cells where nobody serves them.
- `agent_link`: The host's end of the wire: frames both ways, and questions with answers.
- `plugin_parts`: The plugins' parts of a session.
- `container_states`: The states of one container, and what may follow what.
- `lifecycle`: One container from its start to the name of its death.
- `pauses`: The pauses of a session, and what bounds them.
- `session`: What an entry point calls: cells in, messages out, one container after another, and its idle time.
"""
