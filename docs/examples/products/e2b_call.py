"""Runs what stands on stdin by E2B's client, in whatever sandbox its variables name. It needs e2b-code-interpreter."""

import sys

from e2b_code_interpreter import Sandbox

with Sandbox.create() as sandbox:
    result = sandbox.run_code(sys.stdin.read(), timeout=10)
print("".join(result.logs.stdout), "".join(result.logs.stderr), result.error or "")
sys.exit(1 if result.error else 0)
