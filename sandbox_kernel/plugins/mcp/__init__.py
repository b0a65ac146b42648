"""Sandboxes for hosts that speak the Model Context Protocol.

Imports nothing, so that it costs nothing: the package `mcp` is an extra, and what needs it is imported when the command
runs. Over HTTP it is a wire of the plugin `serve`.

- `plugin`: What this plugin adds: the command `mcp`, and its codes.
- `codes`: What the server refuses of its clients.
- `output_store`: Outputs that are too large for an answer, and the addresses of resources.
- `answer_writer`: From an execution to text, images and links for a model.
- `clients`: A client, its sessions, and their ends.
- `tool_descriptions`: What a model is told before it calls anything.
- `schemas`: The schema of a model, said plainly.
- `tool_functions`: What the tools take, do and give back.
- `server`: Tools and resources for whoever is connected, without a transport.
- `server_process`: What commands that serve have in common: signals, a bounded end, what they print.
- `command`: `sandbox-kernel mcp`: its options, start and end.
"""
