"""Sandboxes for hosts that speak the Model Context Protocol.

Imports nothing, so that it costs nothing: the package `mcp` and its web server are an extra, and what needs them is
imported when the command runs.

- `plugin`: What this plugin adds: the command `mcp`, and its codes.
- `codes`: What the server refuses, of its clients and at its start.
- `output_store`: Outputs that are too large for an answer, and the addresses of resources.
- `contents`: From an execution to text, images and links for a model.
- `clients`: Clients, the sessions of each, and their ends.
- `descriptions`: What a model is told before it calls anything.
- `tools`: What the tools take, do and give back.
- `service`: Tools and resources for whoever is connected, without a transport.
- `connections`: Connections: a clock for whatever each waits for, and room for those that ask something.
- `http`: Tokens, the gate before them, the names of this server, clients that leave, and the address to listen on.
- `command`: `sandbox-kernel mcp`: its options, start and end.
"""
