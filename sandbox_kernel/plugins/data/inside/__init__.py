"""What runs inside a sandbox: shipped as source, and imported by nobody on the host.

- `volume_archive`: A volume as a tar stream, in pieces.
"""
