"""Runs what stands on stdin by kern-sandbox: `python kern_sandbox_call.py IMAGE`. kern has that image."""

import sys

from kern_sandbox import run_code

result = run_code(sys.stdin.read(), image=sys.argv[1], timeout_s=10)
print(result.stdout, result.stderr, result.fault or "")
sys.exit(1 if result.fault else result.exit_code)
