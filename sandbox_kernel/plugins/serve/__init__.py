"""Sandboxes over the wires that other people's clients speak already: one process, one port, one file of tokens.

Imports nothing, so that it costs nothing: the web server is an extra, and what needs it is imported when the command
runs.

- `plugin`: What this plugin adds: the command `serve`, and its codes.
- `codes`: What the server refuses, of its clients and at its start.
- `token_file`: Names and tokens of those who may use the server.
- `signed_tokens`: Tokens that LibreChat signs for its users.
- `address_token`: A token in an address, for clients that send no header.
- `metrics`: Figures for the operator and for each tenant.
- `dashboard`: A page to look at: who has which sandboxes, since when, what they use, and what was refused.
- `crowd`: A bound on what clients may begin, with a part for each that no other client can take.
- `tenants`: Who uses the server, and the sandboxes of each.
- `lease_files`: What outlives the server of the sandboxes that do.
- `turns`: How long the turns of each tenant are, in the event loop that serves all.
- `requests`: What a request must be before it is looked at: whose, how large, of which form.
- `bodies`: What requests carry, as types.
- `replicas`: Several servers, each of which has sandboxes of its own.
- `guard`: Whose a request is, how many there are, and what refuses it: before every route of every wire.
- `streams`: Answers that are sent piece by piece.
- `home`: Where cells and commands of clients begin.
- `e2b`, `jupyter`, `librechat`, `open_terminal`: The wires, a folder each.
- `domain`: A domain of the operator, below which clients find sandboxes by names.
- `certificates`: Certificates for a domain of this machine.
- `mcp_wire`: MCP with its connections, for the tenants of this server and with their sandboxes.
- `forms`: Forms of several parts: files that come, and fields beside them.
- `web_server`: A web server that others reach: checks of requests, clocks of connections.
- `web_sockets`: A WebSocket of that server, and its end.
- `place`: Where the server listens, and under which names.
- `openapi`: What the server speaks, as a page that is made from its routes.
- `application`: All wires behind the checks that they share.
- `dashboard_command`: `sandbox-kernel dashboard`: the page, about an engine or a broker.
- `command`: `sandbox-kernel serve`: its options, start and end.
"""
