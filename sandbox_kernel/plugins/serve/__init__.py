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
- `tenants`: Who uses the server, and the sandboxes of each.
- `lease_files`: What outlives the server of the sandboxes that do.
- `turns`: How long the turns of each tenant are, in the event loop that serves all.
- `requests`: What a request must be before it is looked at: whose, how large, of which form.
- `replicas`: Several servers, each of which has sandboxes of its own.
- `guard`: Whose a request is, how many there are, and what refuses it: before every route of every wire.
- `e2b`: E2B's wire, and how it finds the sandbox that a request is for.
- `e2b_control`: E2B's wire outside of a sandbox: made, found, listed, paused, ended.
- `e2b_snapshots`: E2B's wire outside of a sandbox: sandboxes that are written down, and copies of them.
- `streams`: Answers that are sent piece by piece.
- `e2b_home`: Where cells and commands of E2B's clients begin.
- `e2b_cells`: E2B's wire in a sandbox: cells, whose output is streamed, and contexts.
- `e2b_metadata`: What E2B's clients note of files that they send.
- `e2b_files`: E2B's wire in a sandbox: files that come and go.
- `e2b_rpc`: The protocol of calls that are no paths of their own.
- `e2b_folders`: E2B's wire in a sandbox: folders and their entries.
- `e2b_processes`: E2B's wire in a sandbox: commands and shells.
- `domain`: A domain of the operator, below which clients find sandboxes by names.
- `certificates`: Certificates for a domain of this machine.
- `mcp_wire`: MCP, for the tenants of this server and with their sandboxes.
- `forms`: Forms of several parts: files that come, and fields beside them.
- `librechat`: LibreChat's wire: its code interpreter.
- `librechat_cells`: Code in a sandbox, the files that it is given, and those that it makes.
- `librechat_files`: Files that are kept between requests.
- `librechat_programs`: Programs that call the tools of LibreChat's agent.
- `jupyter`: Jupyter's wire: its routes.
- `jupyter_rest`: Jupyter's wire: kernels and kernelspecs.
- `jupyter_channels`: Jupyter's wire: one WebSocket.
- `jupyter_messages`: The forms that Jupyter's messages have on a WebSocket.
- `jupyter_pieces`: Messages for clients that close their connection over a large one.
- `jupyter_front`: A sandbox as a kernel with many clients.
- `jupyter_history`: The cells that ran in a sandbox, as a notebook.
- `open_terminal`: Open Terminal's wire, which Open WebUI speaks.
- `open_terminal_user`: Whose sandbox a request is for, and where a path leads.
- `open_terminal_files`: Files of a user's sandbox.
- `open_terminal_commands`: Commands that run beside each other.
- `open_terminal_sockets`: Shells with a terminal, each for one WebSocket.
- `open_terminal_notebooks`: Notebooks, whose cells run one by one.
- `open_terminal_page`: The page from which Open WebUI makes the tools of its models.
- `place`: Where the server listens.
- `openapi`: What the server speaks, as a page that is made from its routes.
- `application`: All wires behind the checks that they share.
- `dashboard_command`: `sandbox-kernel dashboard`: the page, about an engine or a broker.
- `command`: `sandbox-kernel serve`: its options, start and end.
"""
