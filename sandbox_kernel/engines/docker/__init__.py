"""Docker, and whatever speaks its API.

- `ahead`: What a start asks of the engine, and asking it before there is an event loop.
- `http`: The little HTTP that the engine's API needs, on asyncio.
- `container`: One running container: its pipe, and why it ended.
- `engine`: The Docker engine: start, adopt, list, reap.
"""
