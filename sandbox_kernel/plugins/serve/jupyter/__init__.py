"""Jupyter's wire: a sandbox as a kernel of a Jupyter Server's, over REST and WebSockets.

- `wire`: Its routes.
- `rest`: Kernels and kernelspecs.
- `channels`: One WebSocket.
- `messages`: The forms that Jupyter's messages have on a WebSocket.
- `pieces`: Messages for clients that close their connection over a large one.
- `front`: A sandbox as a kernel with many clients.
- `history`: The cells that ran in a sandbox, as a notebook.
"""
