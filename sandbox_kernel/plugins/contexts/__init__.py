"""Several kernels in one sandbox, each a context of its caller's: with variables and a language of its own.

They share files, limits and connections. The nucleus carries their pipes (`session.nested_agents`); here is what a
caller of the SDK has of them.

- `plugin`: What this plugin adds.
- `codes`: Why a context cannot be had.
- `contexts`: The contexts of one sandbox.
"""
