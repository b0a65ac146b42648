"""Coverage-guided fuzzers for everything that reads a hostile byte; `python -m fuzz --help` says how to run them.

The corpora of the tests are their seeds, and the judge of the tests judges here too (tests/support/policy).
"""
