"""Several kernels in one sandbox, each a context of its caller's: with variables and a language of its own.

They share files, limits and connections. The plugin `shared` has its kernels by the same agents.

- `plugin`: What this plugin adds.
- `codes`: Why a context cannot be had.
- `contexts`: The contexts of one sandbox.
- `nested_agents`: The host's end of further agents in one container, each with a kernel of its own.

Package: `inside` (their agents, in the sandbox).
"""
