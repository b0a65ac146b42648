"""macOS, as far as a Linux machine can show it: what Python lacks there, no /proc and no /sys, and the real engine.

- `machine`: A mount namespace of its own, in which every interpreter is one of macOS.
- `hook`: What each of these interpreters runs first.
"""
