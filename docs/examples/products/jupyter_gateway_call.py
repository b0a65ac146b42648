"""Runs what stands on stdin in a kernel of a Jupyter gateway: `python jupyter_gateway_call.py ADDRESS KERNEL`.

Its token is in JUPYTER_TOKEN. It needs websocket-client.
"""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from server_client import Kernel, show  # it lies beside this folder

status = "error"
with Kernel(sys.argv[1], os.environ["JUPYTER_TOKEN"], sys.argv[2]) as kernel:
    for message in kernel.run(sys.stdin.read()):
        show(message)
        status = message["content"].get("status", status)
sys.exit(status != "ok")
