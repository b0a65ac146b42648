"""Batch runs: one notebook or script through one sandbox, with a report and an exit code that says what happened."""
