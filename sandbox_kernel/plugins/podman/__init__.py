"""Podman, with or without root: Docker's client, and libpod's own API for what Docker's cannot say.

- `plugin`: What this plugin adds: the engine `podman`.
- `discovery`: Where Podman listens.
- `create_body`: A sandbox's protections in libpod's words; pure.
- `inspection`: Whether a container is what was asked for, in libpod's words; pure.
- `engine`: The engine and its containers, as far as they differ from Docker's.
"""
