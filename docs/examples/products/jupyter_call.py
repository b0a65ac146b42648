"""Runs what stands on stdin in a kernel of this environment: `python jupyter_call.py KERNEL`."""

import sys

from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name=sys.argv[1])
try:
    reply = client.execute_interactive(sys.stdin.read(), timeout=120)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
sys.exit(reply["content"]["status"] != "ok")
