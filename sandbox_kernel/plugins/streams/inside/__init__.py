"""What process 1 has where somebody serves connections. Shipped as source, as a part of `container`.

- `stream_relay`: The agent where cells may open connections: a listener and a relay in its loop.
"""
