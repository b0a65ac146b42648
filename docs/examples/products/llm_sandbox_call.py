"""Runs what stands on stdin by llm-sandbox in Docker: `python llm_sandbox_call.py IMAGE`. The image has Python."""

import sys

from llm_sandbox import SandboxSession

with SandboxSession(lang="python", image=sys.argv[1], skip_environment_setup=True, execution_timeout=10) as session:
    result = session.run(sys.stdin.read())
print(result.stdout, result.stderr)
sys.exit(result.exit_code)
