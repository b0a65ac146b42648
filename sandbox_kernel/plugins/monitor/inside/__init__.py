"""What sees in a sandbox what code tries there. Shipped as source, on the standard library alone.

- `call_watch`: Who hears which calls are tried, and answers them: a thread of process 1, where that is wanted.
- `secret_watch`: What code looks for in well-known places; in the kernel, where calls are watched.
"""
