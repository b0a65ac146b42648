"""Coverage-guided fuzzers for everything that reads a hostile byte; `python -m fuzz --help` says how to run them."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
if str(TESTS) not in sys.path:
    sys.path.append(str(TESTS))  # their corpora are the seeds, and their judge judges here too
