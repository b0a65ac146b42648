"""Attacks on a sandbox from inside it, as a program that any image with Python can run.

The tests of attacks and the plugin `verify` both use them, and neither needs the other.

- `attack_program`: The attacks' sources for the sandbox, their table for the host, and what they say.
- `differences`: Where gVisor ends an attack otherwise, and why that is no way out.
- `canaries`: What lies ready on the host, and whether the sandbox came there.
"""
