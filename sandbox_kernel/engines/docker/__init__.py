"""Docker, and whatever speaks its API.

- `arguments`: A sandbox's protections in Docker's words; pure, with snapshot tests.
- `ahead`: What a start asks of the engine, and asking it before there is an event loop.
- `discovery`: Where an engine listens.
- `errors`: What an engine refuses, and how it fails, as errors of ours.
- `why`: Why a start failed, where the engine's answer does not say it.
- `documents`: An engine's documents as values of ours.
- `witness`: What an engine says of a container, compared with what it was asked for.
- `http`: The little HTTP that the engine's API needs, on asyncio.
- `api`: The calls of the Engine API that the engine and its containers share.
- `container`: One running container: its pipe, and why it ended.
- `engine`: The Docker engine: start, adopt, list, reap.
"""
